"""Commands as users run them: in this process if that is enough, otherwise as a child process; also on a real Kafka."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from support.kafka import Kafka
from support.streams import beat
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "ottla.cli.main"]


@dataclass
class Done:
    """The result of a command."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw.splitlines()]


Cli = Callable[..., Done]


@pytest.fixture
def ottla(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`ottla("topics", "list", code=0)` in this process; a broker comes with `on`."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*arguments: object, code: int | None = 0, on: Any = None) -> Done:
        if on is not None:
            monkeypatch.setenv("OTTLA_BOOTSTRAP", on.bootstrap)
        capfdbinary.readouterr()
        try:
            exit_code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            exit_code = int(ended.code or 0)
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        done = Done(exit_code, captured.out, captured.err.decode())
        if code is not None:
            assert done.code == code, f"{arguments}: exit code {done.code}\n{done.out}{done.err}"
        return done

    return run


@pytest.fixture
def cli(ottla: Cli, broker: Any) -> Cli:
    """Like `ottla`, on the broker that the tests share: an Ottla, or the broker of --bootstrap."""
    return lambda *arguments, **options: ottla(*arguments, on=broker, **options)


@pytest.fixture
def child(broker: Any) -> Callable[..., Done]:
    """A command in a separate process, with a standard input."""

    def run(*arguments: object, stdin: bytes = b"", on: Any = None, code: int | None = 0) -> Done:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env={**os.environ, "OTTLA_BOOTSTRAP": (on or broker).bootstrap},
            timeout=60,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        return Done(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture
def topic(cli: Cli, unique: Callable[[str], str]) -> str:
    name = unique("t")
    cli("topics", "create", name, "-p", 3)
    return name


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Waits: Apache Kafka shows changes a moment after it has acknowledged them."""
    return wait_for


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """An Apache Kafka for the tests. It keeps records with timestamps of years ago."""
    started = Kafka(tmp_path_factory.mktemp("kafka"), "log.cleaner.backoff.ms=200", "log.retention.ms=-1")
    yield started
    started.kill()


@pytest.fixture
def streams_beat() -> Callable[..., Any]:
    """`streams_beat(broker, "app", "t", 0)`: a heartbeat of the only member of a streams group that reads one topic."""
    return lambda broker, group, topic, epoch: beat(broker.bootstrap, group, topic, epoch)
