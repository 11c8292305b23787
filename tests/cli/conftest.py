"""Commands as users run them: in this process where that is enough, else as a child; and a real Kafka beside Ottla."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.client import Client
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat
from support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "ottla.cli.main"]


@dataclass
class Done:
    """What a command left behind."""

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
    """As `ottla`, on the broker that the tests share: an Ottla, or what --bootstrap names."""
    return lambda *arguments, **options: ottla(*arguments, on=broker, **options)


@pytest.fixture
def child(broker: Any) -> Callable[..., Done]:
    """A command as a process of its own, with a standard input."""

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


def wait_for(check: Callable[[], Any], what: str, timeout_s: float = 20) -> Any:
    """Apache Kafka shows changes a moment after it acknowledged them."""
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)
    return found


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_for


@dataclass
class Kafka:
    """An Apache Kafka of the tests' own."""

    port: int
    folder: Path
    pid: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "logs"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs java and mvn")
        pytest.skip("needs java and mvn")
    folder = tmp_path_factory.mktemp("kafka")
    (port,) = free_ports()
    started = subprocess.run(
        # Tests write records with timestamps of years ago, which are to stay.
        [ROOT / "scripts" / "kafka-start", str(port), folder, "log.cleaner.backoff.ms=200", "log.retention.ms=-1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert started.returncode == 0, started.stdout + started.stderr
    pid = int(started.stdout.split()[-1])
    yield Kafka(port, folder, pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def streams_beat() -> Callable[..., Any]:
    """`streams_beat(broker, "app", "t", 0)`: a heartbeat of the only member of a streams group that reads one topic."""

    def beat(broker: Any, group: str, topic: str, epoch: int) -> Any:
        shape = Beat.Subtopology(
            subtopology_id="0",
            source_topics=[topic],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        joining = {
            "rebalance_timeout_ms": 60_000,
            "topology": Beat.Topology(epoch=0, subtopologies=[shape]),
            "process_id": "p",
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        request = Beat(group_id=group, member_id="m", member_epoch=epoch, **({} if epoch else joining))

        async def main() -> Any:
            async with Client(broker.bootstrap) as client:
                return await client.retrying(lambda: client.ask_coordinator(group, request))

        return asyncio.run(main())

    return beat
