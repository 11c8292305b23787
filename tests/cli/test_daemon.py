"""`ottla serve --daemon` and `ottla stop`."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import COMMAND
from ottla.cli import daemon


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for each in daemon.known():
        os.kill(each.pid, signal.SIGKILL)


def serve(*options: object) -> subprocess.CompletedProcess[str]:
    """In a separate process, so that the test does not wait for the broker."""
    command = [*COMMAND, "serve", "--daemon", "--port", "0", "--no-console", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_broker_in_the_background_is_stopped_by_its_port(ottla: Any, tmp_path: Path) -> None:
    said = serve("--data", tmp_path / "data").stdout
    (running,) = daemon.known()
    assert f"stop it with: ottla stop {running.port}" in said
    ottla("topics", "create", "t", "-b", running.bootstrap)
    assert str(running.port) in ottla("stop", "--list").out
    assert f"stopped the broker on port {running.port}" in ottla("stop", running.port).out
    assert daemon.known() == []
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "no broker runs in the background" in ottla("stop", code=1).err


def test_several_brokers_are_told_apart(ottla: Any) -> None:
    assert serve("--ephemeral").returncode == serve("--ephemeral").returncode == 0
    assert "several brokers run" in ottla("stop", code=1).err
    assert len(ottla("stop", "--all", "--json").json) == 2


def test_a_broker_that_cannot_start_says_why(ottla: Any) -> None:
    failed = serve("--ephemeral", "--set", "num.partitions=x")
    assert failed.returncode == 1
    assert "num.partitions" in failed.stderr
    assert daemon.known() == []


def test_memory_and_a_folder_exclude_each_other(ottla: Any) -> None:
    assert "remove --data" in ottla("serve", "--ephemeral", "--data", "x", code=1).err
