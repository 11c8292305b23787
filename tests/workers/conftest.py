"""Brokers of several worker processes, started as users start them."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.messages import MetadataRequest
from support.processes import is_alive
from support.wire import Wire

DEADLINE_SECONDS = 60.0


class Serving:
    """`ottla serve --workers N` on a folder."""

    def __init__(self, data: Path, workers: int, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--workers", str(workers)]
        if not any(argument.startswith("log.dirs=") for argument in arguments):
            command += ["--data", str(data)]
        if "--port" not in arguments:
            command += ["--port", "0"]
        self.workers = workers
        self.child = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.said = ""
        """The line that reports that it is ready."""
        self.host, self.port = "127.0.0.1", 0
        self._wires: list[Wire] = []

    def await_ready(self) -> Serving:
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], DEADLINE_SECONDS)
        line = self.child.stdout.readline() if ready else ""
        match = re.search(r"(?:listening on |\"bootstrap\": \")127\.0\.0\.1:(\d+)", line)
        assert match, f"{line!r} {self.finish()}"
        self.port = int(match[1])
        self.said = line
        return self

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def pids(self) -> list[int]:
        """The process ids of the workers, in the order of their ids."""
        return sorted(map(int, Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()))

    def wire(self, port: int | None = None) -> Wire:
        wire = Wire((self.host, self.port if port is None else port), "test", DEADLINE_SECONDS)
        self._wires.append(wire)
        return wire

    def metadata(self, *topics: str, wire: Wire | None = None) -> Any:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics] if topics else None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return (wire or self.wire()).call(request, 12)

    def ports(self) -> dict[int, int]:
        return {node.node_id: node.port for node in self.metadata().brokers}

    def leaders(self, topic: str) -> dict[int, int]:
        (found,) = self.metadata(topic).topics
        return {partition.partition_index: partition.leader_id for partition in found.partitions}

    def finish(self) -> tuple[int, str]:
        """Wait for the end. Returns the exit code and the output on stderr."""
        for wire in self._wires:
            wire.close()
        self._wires.clear()
        _, errors = self.child.communicate(timeout=DEADLINE_SECONDS)
        return self.child.returncode, errors

    def stop(self) -> tuple[int, str]:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.finish()

    def kill_all(self) -> None:
        if self.child.poll() is None:
            for pid in [*self.pids(), self.child.pid]:
                with_pid(pid, signal.SIGKILL)
        self.finish()


def with_pid(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture
def gone() -> Callable[[list[int]], bool]:
    """Waits a little, and returns whether the processes have ended."""

    def wait(pids: list[int]) -> bool:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            select.select([], [], [], 0.01)
        return not any(map(is_alive, pids))

    return wait


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Start brokers on one folder. Those that are still running are killed at the end."""
    started: list[Serving] = []

    def start(workers: int, *arguments: str, ready: bool = True) -> Serving:
        serving = Serving(tmp_path / "data", workers, *arguments)
        started.append(serving)
        return serving.await_ready() if ready else serving

    yield start
    for serving in started:
        serving.kill_all()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One broker of three workers for the tests of a file."""
    started = Serving(tmp_path_factory.mktemp("workers") / "data", 3)
    try:
        yield started.await_ready()
    finally:
        code, errors = started.stop()
        assert (code, errors) == (0, ""), "the stop was not clean"
