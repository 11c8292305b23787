"""A lazy module is imported on first use, even if every other file handle is in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.lazy_imports import lazy


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"lazily_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_the_first_use_imports_it(module: str) -> None:
    answers = lazy(module)
    assert module not in sys.modules
    assert answers.ANSWER == 42
    assert module in sys.modules
    assert repr(answers) == f"<lazy module {module!r}>"


def test_it_follows_changes_of_the_module(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = lazy(module)
    assert answers.ANSWER == 42
    monkeypatch.setattr(sys.modules[module], "ANSWER", 43)
    assert answers.ANSWER == 43


def test_a_missing_name_or_module_fails_at_its_first_use(module: str) -> None:
    with pytest.raises(AttributeError, match="QUESTION"):
        _ = lazy(module).QUESTION
    nowhere = lazy("ottla.no_such_module")
    with pytest.raises(ImportError, match="no_such_module"):
        _ = nowhere.anything


WITHOUT_HANDLES = """
import os, resource, sys
from ottla import lazy_imports
answers = lazy_imports.lazy(sys.argv[2])
sys.path.insert(0, sys.argv[1])
if sys.argv[3] == "broker":
    lazy_imports.started()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
try:
    print(answers.ANSWER)
except (ImportError, OSError) as error:
    print("refused")
"""


@pytest.mark.parametrize(("running", "said"), [("broker", "42"), ("nothing", "refused")])
def test_a_running_broker_keeps_a_file_handle_for_it(module: str, tmp_path: Path, running: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HANDLES, str(tmp_path), module, running],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [said]
