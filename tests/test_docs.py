"""The documentation is true: code runs or parses, links lead somewhere, pages are fresh, the site builds."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ottla.cli.main import full_parser

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
WITH_TESTS = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "tutorial.md",
    DOCS / "clients.md",
    *sorted((DOCS / "recipes").glob("*.md")),
]


class Block(NamedTuple):
    page: Path
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}, {self.language}:\n{self.code}"


def blocks(page: Path) -> Iterator[Block]:
    """The code of a page: what stands between fences, and what is indented."""
    text = page.read_text()
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.S | re.M):
        yield Block(page, language, code)
    for code in re.findall(r"(?<=\n\n)((?:    .*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        yield Block(page, "indented", re.sub(r"^    ", "", code, flags=re.M))


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in ALL_BLOCKS if block.language in languages]


def run(*command: Any, **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run scripts/generate: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_the_tests_on_the_pages_pass(tmp_path: Path) -> None:
    """They run as a user's own would: in files that hold what a page shows, with the plugin that pytest finds."""
    for page in WITH_TESTS:
        code = "\n\n".join(block.code for block in blocks(page) if block.language == "python")
        if "faststream" in code:  # not installed here
            code = re.sub(r"import asyncio\n\nfrom faststream.*?asyncio.run\(main\(\)\)\n", "", code, flags=re.S)
        if code:
            (tmp_path / f"test_{page.stem.replace('-', '_').lower()}.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path, env=environment)


def test_every_block_has_a_language_that_is_checked() -> None:
    known = {"python", "sh", "yaml", "properties", "java", "go", "js", "json", "indented", ""}
    assert [str(block) for block in ALL_BLOCKS if block.language not in known] == []


def test_python_blocks_parse() -> None:
    for block in of("python"):
        compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_data_blocks_parse() -> None:
    for block in of("yaml"):
        assert yaml.safe_load(block.code), str(block)
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
            assert re.search("are required|expected one argument", said), f"{where}\n{said}"
            continue
        assert not [word for word in extra if word.startswith("-")], where
        parsed += 1
    assert parsed > 50


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
    found = of(language)
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


def test_the_site_builds_without_warnings_or_outside_requests(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    run(sys.executable, "-m", "zensical", "build", "--strict", cwd=tmp_path)
    site = tmp_path / "site"
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?:[^\"' >]+)", text)
        assert loaded == [], f"{page.name} loads {loaded}"
        for target in re.findall(r"<(?:a|img)\b[^>]*?(?:src|href)=\"(?!https?:|#|mailto:)([^\"#]+)", text):
            assert page.name == "404.html" or (page.parent / target).exists(), f"{page.name} links to {target}"
    found = json.loads((site / "search.json").read_text())
    assert any("rebalance" in json.dumps(item).lower() for item in found["items"])


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert sorted(re.findall(r"\(([\w/-]+\.md)\)", (DOCS / "llms.txt").read_text())) == sorted(listed)
