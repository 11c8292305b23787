"""Ottla in its own process, started as a user starts it."""

import dataclasses
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

START_TIMEOUT_S = 90
LISTENING = re.compile(r"listening on \[?([^\s\]]+?)\]?:(\d+)")


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
        """Ends the process and returns its exit code; SIGKILL is a crash."""
        assert self.process is not None, "this test did not start this broker, so it cannot stop it"
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
    """Starts the broker as a user does, and waits for the line that shows its address."""
    data.parent.mkdir(parents=True, exist_ok=True)
    log = data.with_name(f"{data.name}-{uuid.uuid4().hex[:6]}.log")
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", str(port), "--workers", str(workers)]
    if "log.dirs" not in settings:  # several folders
        command += ["--data", str(data)]
    # Tests write records with timestamps of years ago; half a minute after the start the broker would drop them.
    for key, value in {"log.initial.task.delay.ms": 86_400_000, **settings}.items():
        command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    process, address = start_and_wait(command, log)
    return Broker(*address, is_ottla=True, data=data, process=process, log=log)


def start_and_wait(
    command: list[str], log: Path, before: Callable[[], None] | None = None
) -> tuple["subprocess.Popen[bytes]", tuple[str, int]]:
    """Starts a broker with its output in a file, and waits until it prints its address.

    `before` is called in the child before the command.
    """
    said = log.stat().st_size if log.exists() else 0  # by an earlier run
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, preexec_fn=before
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := LISTENING.search(log.read_bytes()[said:].decode(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait(10)
            pytest.fail(
                f"the broker did not start: {' '.join(command)}\n{log.read_text(errors='replace')}", pytrace=False
            )
        time.sleep(0.005)
    host = "127.0.0.1" if found[1] in ("0.0.0.0", "::", "*") else found[1]
    return process, (host, int(found[2]))


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
