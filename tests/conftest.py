"""Options and brokers for every test: `--bootstrap` runs the interop tests on a broker that is already there."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.ports import free_ports

# How long one example takes is the machine's business: under load it may be any time.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

START_TIMEOUT_S = 30
LISTENING = re.compile(r"listening on \[?([^\s\]]+?)\]?:(\d+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bootstrap",
        metavar="HOST:PORT",
        help="run the interop tests on this broker (Apache Kafka, say) instead of an Ottla started for them",
    )
    parser.addoption(
        "--cluster",
        metavar="kafka|DIR",
        help="run the tests that compare clusters on an Apache Kafka of three brokers: one that is started for them, "
        "or the one that scripts/kafka-cluster-start runs in DIR",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    address = config.getoption("--bootstrap")
    return f"bootstrap: {address}" if address else None


@dataclasses.dataclass
class Broker:
    """A broker to test: where it listens, and, for one that a test started, how to stop it."""

    host: str
    port: int
    is_ottla: bool
    data: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None
    log: Path | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Ends the process and gives its exit code; SIGKILL is a crash."""
        assert self.process is not None, "this broker is not ours to stop"
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            pytest.fail(f"the broker did not stop; its log:\n{self.text()}")

    def text(self) -> str:
        return "" if self.log is None else self.log.read_text(errors="replace")


def start_ottla(data: Path, settings: dict[str, object], port: int = 0, workers: int = 1) -> Broker:
    """Starts the broker as a user does, and waits for the line that says where it listens."""
    data.parent.mkdir(parents=True, exist_ok=True)
    log = data.with_name(f"{data.name}-{uuid.uuid4().hex[:6]}.log")
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", str(port), "--workers", str(workers)]
    if "log.dirs" not in settings:  # several folders
        command += ["--data", str(data)]
    # Tests write records with timestamps of years ago; half a minute after the start the broker would drop them.
    for key, value in {"log.initial.task.delay.ms": 86_400_000, **settings}.items():
        command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := LISTENING.search(log.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait(10)
            pytest.fail(
                f"the broker did not start: {' '.join(command)}\n{log.read_text(errors='replace')}", pytrace=False
            )
        time.sleep(0.005)
    host = "127.0.0.1" if found[1] in ("0.0.0.0", "::", "*") else found[1]
    return Broker(host, int(found[2]), is_ottla=True, data=data, process=process, log=log)


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests of this worker share: topics and groups need names of their own."""
    address = request.config.getoption("--bootstrap")
    if address:
        host, _, port = address.rpartition(":")
        yield Broker(host, int(port), is_ottla=False)
        return
    started = start_ottla(tmp_path_factory.mktemp("broker") / "data", {})
    yield started
    if started.process is not None and started.process.poll() is not None:
        pytest.fail(f"the broker ended before the tests did; its log:\n{started.text()[-4000:]}")
    started.stop()


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts an Ottla with settings of its own; with `--bootstrap` such a test is skipped, as it tests Ottla alone."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs a broker of its own, and --bootstrap gives one that is shared")
    started: list[Broker] = []

    def start(data: Path | None = None, port: int | None = None, workers: int = 1, **settings: object) -> Broker:
        if port is None and workers == 1:
            (port,) = free_ports()  # one that no client is given while a broker is killed and started again
        named = {key.replace("_", "."): value for key, value in settings.items()}
        one = start_ottla(data or tmp_path / f"data-{len(started)}", named, port or 0, workers)
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes names that no other test, worker or run uses."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return lambda kind: f"{kind}-{stem}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
