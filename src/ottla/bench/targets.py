"""The brokers under test: Ottla, Apache Kafka or any command as a child process, or a broker at any address."""

from __future__ import annotations

import copy
import os
import shlex
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
# Both brokers answer the first join immediately; waiting for more members is a setting, not a matter of speed.
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
KAFKA_CONTROLLER_PORT_STEP = 1000  # scripts/kafka-start puts the controller's listener this far above


def free_port(base_port: int, brokers: int = 1) -> int:
    """The first port from `base_port` on that is free, along with the ports of more brokers and Kafka's controllers."""
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
    """A running broker. `state` keeps data that a line prepared for later ones, such as a filled topic."""

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
        """A maker for lines that need their own broker process."""
        if self.maker is None:
            raise NotMeasurable("needs a broker that the benchmark can start")
        return self.maker

    def stop(self) -> None:
        """Does nothing: a broker that the benchmark did not start keeps running."""


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
        """Stop the process, but keep its folder for another one."""
        assert self.pid is not None
        for send in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self.pid, send)
            except ProcessLookupError:
                break
            if self._gone_within(STOP_SECONDS):
                break
        self.child.wait()

    def kill(self) -> None:
        """Kill the process without a shutdown; its folder stays as it is."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        if not self._gone_within(STOP_SECONDS):
            raise TimeoutError(f"{self.name} did not end after SIGKILL")

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
    """Starts brokers of one kind, each in its own folder."""

    def __init__(self, name: str, data: Path, base_port: int) -> None:
        self.name = name
        self.data = data
        self.base_port = base_port
        self.settings = SETTINGS
        self._count = 0

    def with_settings(self, label: str, settings: dict[str, str]) -> Self:
        """A maker of the same brokers with more settings, in separate folders."""
        other = copy.copy(self)
        other.settings = {**self.settings, **settings}
        other.data = self.data / label
        other._count = 0
        return other

    def prepare(self) -> tuple[Path, int]:
        """Run the steps before the start, which are not measured. Returns a formatted folder and a free port."""
        return self.empty()

    def empty(self) -> tuple[Path, int]:
        """An empty folder and a free port."""
        self._count += 1
        folder = self.data / f"{self.name}-{self._count}"
        folder.mkdir(parents=True)
        return folder, free_port(self.base_port)

    @abstractmethod
    def launch(self, folder: Path, port: int) -> Spawned:
        """Start the process and return immediately."""

    def run(self, command: list[str], folder: Path, port: int) -> Spawned:
        with (folder / "server.log").open("wb") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return Spawned(self.name, ("127.0.0.1", port), child.pid, self, folder, child)

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
        self.keeps_files = True

    def with_workers(self, count: int) -> Self:
        """A maker of the same brokers with this many workers."""
        other = self.with_settings(f"workers-{count}", {})
        other.arguments = (*self.arguments, "--workers", str(count))
        return other

    def with_console(self, port: int) -> Self:
        """A maker of the same brokers with a web console."""
        other = self.with_settings("console", {})
        other.arguments = (*self.arguments, "--console", str(port))
        return other

    def in_memory(self) -> Self:
        """A maker of the same brokers without a data folder."""
        other = self.with_settings("memory", {})
        other.keeps_files = False
        return other

    def command(self, folder: Path, port: int) -> list[str]:
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        data = ["--data", str(folder / "logs")] if self.keeps_files else ["--ephemeral"]
        serve = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", str(port), *data]
        return [*serve, "--preset", "kafka", *settings, *self.arguments]

    def launch(self, folder: Path, port: int) -> Spawned:
        return self.run(self.command(folder, port), folder, port)


class CommandMaker(Maker):
    """Any program that serves the protocol on a port. `{port}` and `{folder}` in its command are replaced."""

    def __init__(self, name: str, data: Path, base_port: int, command: str) -> None:
        super().__init__(name, data, base_port)
        self.words = shlex.split(command)
        if not any("{port}" in word for word in self.words):
            raise ValueError(f"the command of {name} does not say {{port}}")

    def with_settings(self, label: str, settings: dict[str, str]) -> Self:
        raise NotMeasurable("needs settings, which only Ottla and Apache Kafka are given")

    def launch(self, folder: Path, port: int) -> Spawned:
        words = [word.replace("{port}", str(port)).replace("{folder}", str(folder)) for word in self.words]
        return self.run(words, folder, port)


class KafkaMaker(Maker):
    def __init__(self, name: str, data: Path, base_port: int, script: Path) -> None:
        super().__init__(name, data, base_port)
        self.script = script

    def prepare(self) -> tuple[Path, int]:
        folder, port = super().prepare()
        # The script first formats an empty folder, which takes two JVM starts. That is not part of a broker's start.
        first = self.launch(folder, port)
        first.kill()
        return folder, port

    def launch(self, folder: Path, port: int) -> Spawned:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        pid_file = folder / "pid"
        pid_file.unlink(missing_ok=True)
        with (folder / "start.log").open("wb") as log:
            command = [str(self.script), str(port), str(folder), *settings]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # The script waits until the broker is ready, but the process id is known as soon as it is launched.
        while not (pid_file.exists() and (text := pid_file.read_text().strip()).isdigit()):
            if child.poll() is not None:
                raise RuntimeError(f"{self.script} did not start a broker; see {folder}/start.log")
            time.sleep(0.002)
        return Spawned(self.name, ("127.0.0.1", port), int(text), self, folder, child)


def parse_bootstrap(text: str) -> Target:
    """Parse NAME=HOST:PORT, or NAME=HOST:PORT@PID to get CPU and memory figures too."""
    name, equals, rest = text.partition("=")
    address, _, pid = rest.partition("@")
    host, colon, port = address.rpartition(":")
    if not (name and equals and colon and port.isdigit() and (not pid or pid.isdigit())):
        raise ValueError(f"{text!r} is not NAME=HOST:PORT or NAME=HOST:PORT@PID")
    return Target(name, (host.strip("[]"), int(port)), int(pid) if pid else None)
