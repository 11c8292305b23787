"""The examples for frameworks run in a separate environment, and the page shows them unchanged."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from support.interop.toolchains import CACHE, ROOT, digest, locked, run

EXAMPLES = ROOT / "examples" / "frameworks"
PAGE = ROOT / "docs" / "frameworks.md"
CLIENTS_PAGE = ROOT / "docs" / "clients.md"


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with the frameworks, which later runs reuse."""
    folder = CACHE / f"frameworks-{digest([EXAMPLES / 'requirements.txt'], sys.version)}"
    interpreter = folder / "bin" / "python"
    with locked("frameworks"):
        if not (folder / ".done").exists():
            run([sys.executable, "-m", "venv", "--clear", folder])
            run([interpreter, "-m", "pip", "install", "-q", "-r", EXAMPLES / "requirements.txt", "-e", ROOT])
            (folder / ".done").touch()
    return interpreter


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["pytest", "-q"], ["behave"], ["robot", "--output", "NONE", "--log", "NONE", "--report", "NONE", "robot"]],
    ids=lambda command: command[0],
)
def test_the_examples_pass(python: Path, command: list[str]) -> None:
    run([python, "-m", *command], cwd=EXAMPLES)


def test_the_page_shows_the_examples() -> None:
    shown = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.S | re.M)
    files = [path.read_text() for path in EXAMPLES.rglob("*.py")]
    without_docstring = {re.sub(r'\A""".*?"""\n\n', "", text, flags=re.S) for text in files}
    assert [code for code in shown if code not in without_docstring] == []
    assert len(shown) == len(files)


@pytest.mark.slow
def test_the_faststream_test_of_the_clients_page_passes(python: Path, tmp_path: Path) -> None:
    """The other tests of that page run with tests/test_docs.py, in an environment without FastStream."""
    blocks = re.findall(r"^```python\n(.*?)^```$", CLIENTS_PAGE.read_text(), flags=re.S | re.M)
    (code,) = (block for block in blocks if "faststream" in block)
    (tmp_path / "test_faststream.py").write_text(code)
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], cwd=tmp_path)
