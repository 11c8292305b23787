"""`ottla context`: names for clusters."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from ottla.cli import daemon


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_CONTEXT", raising=False)
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)


def test_commands_use_the_saved_cluster(ottla: Any, broker: Any) -> None:
    ottla("context", "save", "here", "-b", broker.bootstrap)
    ottla("context", "save", "elsewhere", "-b", "127.0.0.1:1")
    assert "cannot connect to 127.0.0.1:1" in ottla("topics", "list", "--timeout", 0.2, code=1).err
    ottla("context", "use", "here")
    ottla("topics", "list")
    (elsewhere, here) = ottla("context", "list", "--json").json
    assert (elsewhere["current"], here["current"], here["bootstrap"]) == (False, True, broker.bootstrap)
    assert [line.split()[0] for line in ottla("context", "list").out.splitlines()[1:]] == ["elsewhere", "*"]
    ottla("context", "delete", "here")
    assert "cannot connect to 127.0.0.1:9092" in ottla("topics", "list", "--timeout", 0.2, code=1).err


def test_options_and_the_environment_come_before_the_context(
    ottla: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla("context", "save", "elsewhere", "-b", "127.0.0.1:1")
    ottla("topics", "list", "-b", broker.bootstrap)
    ottla("context", "save", "here", "-b", broker.bootstrap)
    monkeypatch.setenv("OTTLA_CONTEXT", "elsewhere")
    assert "127.0.0.1:1" in ottla("topics", "list", "--timeout", 0.2, code=1).err
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    ottla("topics", "list")


def test_a_context_keeps_the_login(ottla: Any, broker: Any, tmp_path: Path) -> None:
    login = tmp_path / "client.properties"
    login.write_text("security.protocol=PLAINTEXT\n")
    ottla("context", "save", "here", "-b", broker.bootstrap, "--client-config", login)
    ottla("topics", "list")
    login.write_text("security.protocol=NONSENSE\n")
    assert str(login) in ottla("topics", "list", "--timeout", 0.2, code=1).err


def test_mistakes_are_named(ottla: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no context 'no'" in ottla("context", "use", "no", code=1).err
    assert "--bootstrap" in ottla("context", "save", "x", "-b", "a/b", code=2).err
    assert "name a context, or give --none" in ottla("context", "use", code=2).err
    monkeypatch.setenv("OTTLA_CONTEXT", "no")
    assert "there is no context 'no'" in ottla("topics", "list", "--timeout", 0.2, code=1).err
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla" / "contexts.json").write_text("{")
    assert "is damaged" in ottla("topics", "list", "--timeout", 0.2, code=1).err
    assert "is damaged" in ottla("context", "list", code=1).err


def test_a_folder_that_cannot_be_written_is_named(ottla: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    refused = ottla("context", "save", "x", "-b", "a:1", code=1).err
    assert "contexts.json cannot be written" in refused and "set XDG_CONFIG_HOME" in refused


def test_commands_work_without_a_home_folder(ottla: Any, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, a user may be only a number: then no home folder is known."""
    _remove_home(monkeypatch)
    assert "cannot connect to 127.0.0.1:9092" in ottla("topics", "list", "--timeout", 0.2, code=1).err
    ottla("topics", "list", "-b", broker.bootstrap)
    assert "no contexts" in ottla("context", "list").err
    assert "you have no home folder: set XDG_CONFIG_HOME" in ottla("context", "save", "x", "-b", "a:1", code=1).err


def test_the_state_of_daemons_needs_no_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _remove_home(monkeypatch)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert daemon.state_folder().parent == tmp_path


def _remove_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
