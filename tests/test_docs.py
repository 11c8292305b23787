"""The documentation is correct: code runs or parses, links work, generated pages are up to date, the site builds."""

import ast
import functools
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ottla.cli.main import full_parser
from support.browser import chromium

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [*(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]
WITH_TESTS = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "tutorial.md",
    DOCS / "clients.md",
    *sorted((DOCS / "recipes").glob("*.md")),
    *sorted((DOCS / "how-it-works").glob("*.md")),
]


class Block(NamedTuple):
    page: Path
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}, {self.language}:\n{self.code}"


def blocks(page: Path) -> Iterator[Block]:
    """The code of a page: fenced and indented blocks."""
    text = page.read_text()
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.S | re.M):
        yield Block(page, language, code)
    for code in re.findall(r"(?<=\n\n)((?:    .*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        yield Block(page, "indented", re.sub(r"^    ", "", code, flags=re.M))


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in ALL_BLOCKS if block.language in languages]


def run(*command: Any, **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run scripts/generate: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_the_tests_on_the_pages_pass(tmp_path: Path) -> None:
    """They run like a user's own tests: in files with the code of a page, with the plugin that pytest finds."""
    for page in WITH_TESTS:
        code = "\n\n".join(block.code for block in blocks(page) if block.language == "python")
        if "faststream" in code:  # not installed here
            code = re.sub(r"import asyncio\n\nfrom faststream.*?asyncio.run\(main\(\)\)\n", "", code, flags=re.S)
        if code:
            (tmp_path / f"test_{page.parent.name}_{page.stem}.py".replace("-", "_").lower()).write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path, env=environment)


def test_every_block_has_a_language_that_is_checked() -> None:
    known = {"python", "sh", "yaml", "toml", "properties", "java", "rust", "go", "js", "json", "indented", ""}
    assert [str(block) for block in ALL_BLOCKS if block.language not in known] == []


def test_python_blocks_parse() -> None:
    for block in of("python"):
        compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_data_blocks_parse() -> None:
    for block in of("yaml"):
        assert yaml.safe_load(block.code), str(block)
    for block in of("toml"):
        assert tomllib.loads(block.code), str(block)
    for block in of("json"):
        json.loads(block.code)
    for block in of("properties"):
        assert all("=" in line for line in block.code.splitlines() if line and line[0] != "#"), str(block)


def commands() -> Iterator[tuple[str, str]]:
    """Every `ottla …` in a block of commands or in a sentence. A sentence may leave out the arguments."""
    for block in of("sh", "indented", ""):
        for line in block.code.splitlines():
            for part in re.split(r"; | \|\|? | && ", line):
                found = re.match(r"^(?:\w+=\S+ )?ottla ([a-z].*)$", part.strip())
                if found and not found[1].startswith("pipeline"):
                    yield found[1], f"{block.page.name}: {line}"
    for page in PAGES:
        for command in re.findall(r"`ottla ([a-z-]+ [^`…]+)`", page.read_text()):
            if not command.startswith("pipeline") and not re.search(r"\b[A-Z]+\b", command):
                yield command, f"{page.name}: {command}"


def test_commands_are_what_the_command_line_takes(capsys: pytest.CaptureFixture[str]) -> None:
    parser = full_parser()
    parsed = 0
    for command, where in commands():
        words = shlex.split(re.sub(r" [<>&].*$", "", command), comments=True)
        try:
            _, extra = parser.parse_known_args(words)
        except SystemExit:
            said = capsys.readouterr().err
            assert re.search("are required|needs a value|needs a verb", said), f"{where}\n{said}"
            continue
        assert not [word for word in extra if word.startswith("-")], where
        parsed += 1
    assert parsed > 50


def test_tables_have_no_blank_lines() -> None:
    """A blank line inside a table ends it: the rows after it would be shown as text."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            assert re.match(r"\|.*\n\|[-:| ]+\|\n", table), f"{page.name}: {table}"


def test_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        for named in re.findall(r"(?:ottla|'\.)\[([a-z,]+)\]", page.read_text()):
            assert set(named.split(",")) <= set(extras), f"{page.name}: [{named}]"


def test_options_of_the_pytest_plugin_exist() -> None:
    known = (ROOT / "src" / "ottla" / "pytest_plugin.py").read_text()
    for page in PAGES:
        for option in re.findall(r"(?<![\w-])--ottla-[a-z-]+", page.read_text()):
            assert f'"{option}"' in known, f"{page.name}: {option}"


def test_scripts_exist() -> None:
    for block in of("sh", "indented"):
        for script in re.findall(r"^(scripts/[\w-]+)", block.code, flags=re.M):
            assert (ROOT / script).exists(), str(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "tool", "name"),
    [
        pytest.param("java", ["javac", "-d", "."], "OttlaBroker.java", marks=pytest.mark.jvm),
        pytest.param("go", ["gofmt", "-e", "-l"], "ottla_test.go", marks=pytest.mark.go),
        pytest.param("js", ["node", "--check"], "ottla.js", marks=pytest.mark.node),
    ],
)
def test_blocks_of_other_languages_compile(language: str, tool: list[str], name: str, tmp_path: Path) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"needs {tool[0]}")
    # tests/helpers compiles those of other-languages.md with the helpers that they use.
    found = [block for block in of(language) if block.page.name != "other-languages.md"]
    assert found
    for block in found:
        (tmp_path / name).write_text(block.code)
        run(*tool, name, cwd=tmp_path)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", linked.read_text(), flags=re.M)
                slugs = [re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings]
                assert anchor in slugs, f"{page.name} links to {target}#{anchor}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(DOCS, folder / "docs")
    run(sys.executable, "-m", "zensical", "build", "--strict", cwd=folder)
    return folder / "site"


def test_the_site_builds_without_warnings_or_outside_requests(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?:[^\"' >]+)", text)
        assert loaded == [], f"{page.name} loads {loaded}"
        for target in re.findall(r"<(?:a|img)\b[^>]*?(?:src|href)=\"(?!https?:|#|mailto:)([^\"#]+)", text):
            assert page.name == "404.html" or (page.parent / target).exists(), f"{page.name} links to {target}"
    assert (site / "llms.txt").exists()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


# The landing page, and the pages with the widest tables and pictures.
WIDE_PAGES = (
    "index",
    "apis",
    "clients",
    "configs",
    "limits",
    "performance",
    "trust",
    "reference/cli",
    "reference/http",
)
OPEN_ATTEMPTS, OPEN_ATTEMPT_MS = 60, 1000


@pytest.mark.slow
@pytest.mark.browser
def test_the_site_can_be_searched_and_fits_a_phone(site: Path) -> None:
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}/"
        phone = browser.new_page(viewport={"width": 400, "height": 800}, java_script_enabled=False)
        too_wide = []
        for name in WIDE_PAGES:
            phone.goto(f"{home}{name}.html")
            if phone.evaluate("document.documentElement.scrollWidth > innerWidth"):
                too_wide.append(name)
        assert too_wide == []

        page = browser.new_page()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{home}index.html")
        field = page.get_by_role("combobox", name="Search")
        for _ in range(OPEN_ATTEMPTS):  # the page listens to its keys some time after it has loaded
            if field.is_visible():
                break
            page.keyboard.press("Control+k")
            page.wait_for_timeout(OPEN_ATTEMPT_MS)
        field.fill("rebalance")
        page.get_by_role("option").filter(has_text="Test a rebalance").first.wait_for()
        assert [url for url in requested if not url.startswith((home, "data:", "blob:"))] == []
        server.shutdown()


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert sorted(re.findall(r"\(([\w/-]+\.md)\)", (DOCS / "llms.txt").read_text())) == sorted(listed)


def test_every_program_of_the_clients_is_tried_and_shown() -> None:
    programs = {path.name for path in (ROOT / "examples" / "clients").iterdir()}
    section = (DOCS / "clients.md").read_text().partition("## Complete programs")[2]
    assert programs == set(re.findall(r"`(\w+\.(?:py|go|mjs|js|java|cpp|c|rs))`", section))
    tried = (ROOT / "scripts" / "compatibility.py").read_text()
    assert [name for name in sorted(programs) if f'"{name}"' not in tried] == []
    results = json.loads((DOCS / "compatibility.json").read_text())
    failed = {
        client: found["versions"] for client, found in results.items() if set(found["versions"].values()) != {"ok"}
    }
    assert failed == {}


def test_every_promise_names_a_test_that_exists() -> None:
    trust = (DOCS / "trust.md").read_text()
    for name in re.findall(r"`(tests/[^`]*)`", trust):
        assert (ROOT / name).exists(), name
    promises = re.findall(r"^- \*\*([^*]+)\*\*", (ROOT / "SECURITY.md").read_text(), flags=re.M)
    assert promises
    for promise in promises:
        assert f"\n| {promise} | `tests/" in trust, promise
