"""The brokers under test: Ottla and Apache Kafka as child processes of the benchmark, or any bootstrap address."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from ottla.bench import proc
from ottla.bench.client import Client
from ottla.bench.model import NotMeasurable

START_SECONDS = 120.0
STOP_SECONDS = 30.0
# Both brokers answer the first join at once; the wait for more members is a choice, not speed.
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
KAFKA_CONTROLLER_PORT_STEP = 1000  # scripts/kafka-start puts the controller's listener there


def free_port(base_port: int, brokers: int = 1) -> int:
    """The first port from `base_port` on that is free, as are those of further brokers, and Kafka's controller's."""
    for port in range(base_port, base_port + 100):
        try:
            for each in (*range(port, port + brokers), port + KAFKA_CONTROLLER_PORT_STEP):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port
    raise OSError(f"no free port in {base_port}–{base_port + 99}; choose others with --base-port")


class Target:
    """A broker that is up. `state` keeps what a line prepared for later ones, such as a filled topic."""

    def __init__(self, name: str, address: tuple[str, int], pid: int | None, maker: Maker | None = None) -> None:
        self.name = name
        self.address = address
        self.pid = pid
        self.maker = maker
        self.state: dict[str, Any] = {}

    def client(self) -> Client:
        return Client(self.address)

    def cpu_seconds(self) -> float:
        return proc.cpu_seconds(self.process())

    def resident_mb(self) -> float:
        return proc.resident_mb(self.process())

    def process(self) -> int:
        if self.pid is None or not Path(f"/proc/{self.pid}").exists():
            raise NotMeasurable("needs the broker's process id on this machine")
        return self.pid

    def fresh(self) -> Maker:
        """Where a line gets a broker process of its own from."""
        if self.maker is None:
            raise NotMeasurable("needs a broker that the benchmark can start")
        return self.maker

    def stop(self) -> None:
        """Brokers that were here before stay."""


class Spawned(Target):
    def __init__(
        self, name: str, address: tuple[str, int], pid: int, maker: Maker, folder: Path, child: subprocess.Popen[bytes]
    ) -> None:
        super().__init__(name, address, pid, maker)
        self.folder = folder
        self.child = child

    def await_ready(self, pause_seconds: float = 0.002) -> None:
        """Return as soon as the broker answers ApiVersions."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client().sock.close()
                return
            except OSError as error:
                if self.child.poll() not in (None, 0) or not Path(f"/proc/{self.pid}").exists():
                    raise RuntimeError(f"{self.name} ended while starting; see {self.folder}/*.log") from error
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} did not answer within {START_SECONDS:.0f} s") from error
            time.sleep(pause_seconds)

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Stop the process; its folder stays, for another one."""
        assert self.pid is not None
        for send in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self.pid, send)
            except ProcessLookupError:
                break
            if self._gone_within(STOP_SECONDS):
                break
        self.child.wait()

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.child.pid == self.pid:
                if self.child.poll() is not None:
                    return True
            elif not Path(f"/proc/{self.pid}").exists():
                return True
            time.sleep(0.02)
        return False


class Maker(ABC):
    """Starts brokers of one kind, each on a folder of its own."""

    def __init__(self, name: str, data: Path, base_port: int) -> None:
        self.name = name
        self.data = data
        self.base_port = base_port
        self.settings = SETTINGS
        self._count = 0

    def with_settings(self, label: str, settings: dict[str, str]) -> Self:
        """A maker of the same brokers with more settings, in folders of their own."""
        other = copy.copy(self)
        other.settings = {**self.settings, **settings}
        other.data = self.data / label
        other._count = 0
        return other

    def prepare(self) -> tuple[Path, int]:
        """What comes before the start of the process and is not measured: a folder, formatted, and a free port."""
        self._count += 1
        folder = self.data / f"{self.name}-{self._count}"
        folder.mkdir(parents=True)
        return folder, free_port(self.base_port)

    @abstractmethod
    def launch(self, folder: Path, port: int) -> Spawned:
        """Start the process and return at once."""

    def start(self) -> Spawned:
        target = self.launch(*self.prepare())
        try:
            target.await_ready()
        except BaseException:
            target.stop()
            raise
        return target


class OttlaMaker(Maker):
    def __init__(self, name: str, data: Path, base_port: int, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(name, data, base_port)
        self.arguments = arguments

    def with_workers(self, count: int) -> Self:
        """A maker of the same brokers with so many workers."""
        other = self.with_settings(f"workers-{count}", {})
        other.arguments = (*self.arguments, "--workers", str(count))
        return other

    def command(self, folder: Path, port: int) -> list[str]:
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        serve = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", str(port), "--data", str(folder / "logs")]
        return [*serve, "--preset", "kafka", *settings, *self.arguments]

    def launch(self, folder: Path, port: int) -> Spawned:
        with (folder / "server.log").open("wb") as log:
            child = subprocess.Popen(self.command(folder, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return Spawned(self.name, ("127.0.0.1", port), child.pid, self, folder, child)


class KafkaMaker(Maker):
    def __init__(self, name: str, data: Path, base_port: int, script: Path) -> None:
        super().__init__(name, data, base_port)
        self.script = script

    def prepare(self) -> tuple[Path, int]:
        folder, port = super().prepare()
        # The script formats an empty folder first, which takes two JVM starts; that is not part of a broker's start.
        first = self.launch(folder, port)
        os.kill(first.process(), signal.SIGKILL)
        if not first._gone_within(STOP_SECONDS):
            raise TimeoutError("Apache Kafka did not end after its folder was formatted")
        return folder, port

    def launch(self, folder: Path, port: int) -> Spawned:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        pid_file = folder / "pid"
        pid_file.unlink(missing_ok=True)
        with (folder / "start.log").open("wb") as log:
            command = [str(self.script), str(port), str(folder), *settings]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # The script itself waits for the broker to be ready; its process id is known as soon as it is launched.
        while not (pid_file.exists() and (text := pid_file.read_text().strip()).isdigit()):
            if child.poll() is not None:
                raise RuntimeError(f"{self.script} did not start a broker; see {folder}/start.log")
            time.sleep(0.002)
        return Spawned(self.name, ("127.0.0.1", port), int(text), self, folder, child)


def parse_bootstrap(text: str) -> Target:
    """NAME=HOST:PORT, or NAME=HOST:PORT@PID to have CPU and memory figures too."""
    name, equals, rest = text.partition("=")
    address, _, pid = rest.partition("@")
    host, colon, port = address.rpartition(":")
    if not (name and equals and colon and port.isdigit() and (not pid or pid.isdigit())):
        raise ValueError(f"{text!r} is not NAME=HOST:PORT or NAME=HOST:PORT@PID")
    return Target(name, (host.strip("[]"), int(port)), int(pid) if pid else None)
