"""A broker in a child process: its own Python, its own memory, and a real kill."""

from __future__ import annotations

import json
import subprocess
import sys
from os import fspath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from ottla.embedded.login import Login
from ottla.embedded.stopped import BrokerStopped
from ottla.testing.over_http import RemoteBroker

if TYPE_CHECKING:
    from ottla.embedded.options import PlainOptions

_END_S = 10.0


class SpawnedBroker(RemoteBroker):
    """`with ottla.spawn(data=…) as broker: …`. It ends with this process, even if this process is killed."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__("", "http://127.0.0.1:0")
        for name in ("config", "disk", "chance", "apis"):
            if options.get(name) is not None:
                raise ValueError(f"{name}= cannot be passed to another process; use settings=, data= or serve()")
        if options.get("data") is not None:
            options["data"] = fspath(options["data"])
        try:
            json.dumps(options)
        except TypeError as error:
            raise ValueError(f"spawn accepts plain values only: {error}") from None
        self._options = {"control": 0, **options}
        self._child: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._child is not None and self._child.poll() is None

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers` setting."""
        self._running()
        return self._bootstrap

    def start(self) -> None:
        """Start the process, or another one on the same port and data."""
        if self.is_running:
            raise RuntimeError("the broker is running already: stop() it first, or use restart()")
        command = [sys.executable, "-m", "ottla.testing.child"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdin is not None
        # Settings may contain passwords, and every user of the machine can read a command line.
        child.stdin.write(json.dumps(self._options) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        self._child = child
        if not line:
            self._close()
            raise RuntimeError(f"the broker's process ended with code {child.returncode}; its stderr says why")
        ready = json.loads(line)
        if "error" in ready:
            self._close()
            kinds: dict[str, type[Exception]] = {"type": TypeError, "value": ValueError}
            raise kinds.get(ready["kind"], RuntimeError)(ready["error"])
        self.login = Login(ready["protocol"], ready["ca_file"], self._options.get("users") or {})
        self._bootstrap, self.control.url = ready["bootstrap"], ready["control"]
        self._options["port"] = int(self._bootstrap.rpartition(":")[2])
        self._options["control"] = int(self.control.url.rpartition(":")[2])
        if ready["registry"] is not None:
            self._registry_url = ready["registry"]
            self._options["registry"] = int(ready["registry"].rpartition(":")[2])

    def stop(self) -> None:
        """End the process cleanly. Safe to call twice."""
        if self._child is not None:
            assert self._child.stdin is not None
            self._child.stdin.close()
            self._close()

    def restart(self) -> None:
        """Start another process on the same port; data that was only in memory is lost."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, and clients get no answer. start() recovers what is on the disk."""
        self._running().kill()
        self._close()

    def _close(self) -> None:
        assert self._child is not None
        child, self._child = self._child, None
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(_END_S)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            raise BrokerStopped("the broker's process is not running: start() it first")
        return self._child

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def spawn(**options: Unpack[PlainOptions]) -> SpawnedBroker:
    """A broker in a child process. Accepts the options of `Broker` that are plain values."""
    return SpawnedBroker({**options})
