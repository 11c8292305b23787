"""Help, completion and versions: generated from the commands themselves."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.completion import SHELLS, Level, walk
from ottla.cli.main import full_parser

LEVELS = list(walk(full_parser()))
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: " ".join(level.path) or "ottla")
def test_every_command_has_help(level: Level, ottla: Any) -> None:
    text = ottla(*level.path, "--help").out
    assert text.startswith("usage: ottla")
    for word, summary in level.words.items():
        assert summary, f"{word} has no help"


@pytest.mark.parametrize("words", [(), ("topics",), ("topics", "create")])
def test_help_is_also_a_command(words: tuple[str, ...], ottla: Any) -> None:
    assert ottla("help", *words).out == ottla(*words, "--help").out


@pytest.mark.parametrize("words", [["serve", "--help"], ["versions", "--help"]])
def test_help_prints_on_an_ascii_terminal(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *words],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()


def test_commands_that_print_results_know_json() -> None:
    # `faults` and `cluster` control test brokers; only a list and a status are results. `context` keeps settings.
    silent = {"completion", "context", "faults", "cluster"}
    without = [
        level.path
        for level in LEVELS
        if level.path and level.path[0] not in silent and not level.words and "--json" not in level.options
    ]
    assert without == []


def test_commands_show_examples(ottla: Any) -> None:
    # `faults` and `bench` show theirs in the documentation and one level above.
    lacking = [
        " ".join(level.path)
        for level in LEVELS
        if level.path
        and level.path[0] not in ("faults", "cluster", "bench")
        and "examples:" not in ottla(*level.path, "-h").out
    ]
    assert lacking == []


def test_every_command_is_documented() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    missing = [" ".join(level.path) for level in LEVELS if level.path and f"ottla {' '.join(level.path)}" not in pages]
    assert missing == []


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_made_for_every_shell(shell: str, ottla: Any) -> None:
    text = ottla("completion", shell).out
    for word in ("topics", "reset-offsets", "--to-earliest", "read_committed"):
        assert word.removeprefix("--") in text
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def complete(script: str, *words: str) -> list[str]:
    """The completions of bash for the last word."""
    code = f"{script}\nCOMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _ottla; "
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(ottla: Any) -> None:
    script = ottla("completion", "bash").out
    assert complete(script, "ottla", "to") == ["topics"]
    assert complete(script, "ottla", "topics", "de") == ["describe", "delete"]
    assert complete(script, "ottla", "groups", "reset-offsets", "--to-e") == ["--to-earliest"]
    assert complete(script, "ottla", "groups", "-b", "x", "reset-offsets", "g", "--sh") == ["--shift-by"]
    assert complete(script, "ottla", "consume", "t", "--isolation", "read_c") == ["read_committed"]
    assert complete(script, "ottla", "completion", "") == [*SHELLS, "-h", "--help"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_names_of_the_cluster(ottla: Any, broker: Any, topic: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    script = ottla("completion", "bash").out
    assert complete(script, "ottla", "consume", topic[:-2]) == [topic]
    assert complete(script, "ottla", "topics", "describe", topic[:-2]) == [topic]
    assert complete(script, "ottla", "topics", "create", topic[:-2]) == []


def test_versions(cli: Any, broker: Any) -> None:
    found = cli("versions", "--json").json
    apis = {api["name"]: api for api in found["apis"]}
    assert apis["Fetch"]["broker"][1] >= 12
    assert found["broker"] == broker.bootstrap
    assert any(feature["name"] == "metadata.version" for feature in found["features"])
    if broker.is_ottla:
        # Telemetry is served only where a receiver is configured.
        different = {api["name"] for api in cli("versions", "--differences", "--json").json["apis"]}
        assert different <= {"GetTelemetrySubscriptions", "PushTelemetry"}
    assert "Produce" in cli("versions").out


def test_versions_of_this_build_need_no_broker(ottla: Any) -> None:
    text = ottla("versions", "--local").out
    assert "ApiVersions" in text
    assert "metadata.version" in text


def test_metrics_have_a_usual_port() -> None:
    assert full_parser().parse_args(["serve", "--metrics"]).metrics == ("127.0.0.1", 9094)
    assert full_parser().parse_args(["serve", "--metrics", "9100", "x.properties"]).metrics == ("127.0.0.1", 9100)


def test_help_wraps_sentences_and_keeps_examples(ottla: Any) -> None:
    lines = ottla("migrate", "--help").out.splitlines()
    assert max(map(len, lines)) <= 110
    assert "  ottla migrate --to kafka:9092 --dry-run" in lines


def test_wrong_words_are_usage_errors(ottla: Any) -> None:
    assert re.search(r"serve +run a broker", ottla(code=2).err), "the error lists the commands"
    for words, message in (
        (("topics", "list", "--xyzzy"), "ottla topics list: error: unknown option --xyzzy"),
        (("topics", "create", "t", "--configs=a"), "unknown option --configs=a; did you mean --config?"),
        (("serve", "--prot", "1"), "ottla serve: error: unknown option --prot; did you mean --port?"),
    ):
        done = ottla(*words, code=2)
        sentence, hint = done.err.splitlines()
        assert sentence.endswith(message)
        assert re.fullmatch(r"Try `ottla \w+( \w+)? --help`\.", hint)
    assert "unknown command 'srve'; did you mean serve?" in ottla("srve", code=2).err
    for words, message in (
        (("serve", "--port", "abc"), "abc is not a port (0 to 65535)"),
        (("serve", "--metrics", "localhost:x"), "x is not a port (0 to 65535)"),
        (("serve", "--workers", "0"), "0 is not a number of workers (1 to 32)"),
        (("topics",), "needs a verb: create, list, describe, alter or delete"),
        (("topics", "lst"), "unknown verb 'lst'; did you mean list?"),
        (("topics", "move"), "unknown verb 'move'; choose create, list, describe, alter or delete"),
        (("topics", "create", "t", "-p", "x"), "argument -p/--partitions: 'x' is not a whole number"),
        (("topics", "create", "t", "-p"), "argument -p/--partitions: needs a value"),
    ):
        assert message in ottla(*words, code=2).err
    assert "'extra' is unexpected here" in ottla("completion", "bash", "extra", code=2).err


def test_the_server_does_not_import_other_commands() -> None:
    code = (
        "import sys; sys.argv = ['ottla', 'serve', '--help']\nfrom ottla.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.startswith(('ottla.client', 'ottla.cli.'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [
        "ottla.cli.main",
        "ottla.cli.parsers",
        "ottla.cli.printable",
        "ottla.cli.serve",
        "ottla.cli.serve_console",
        "ottla.cli.serve_registry",
        "ottla.cli.serve_setup",
    ]
    assert done.stdout.splitlines()[-1] == repr(modules)
