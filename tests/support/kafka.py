"""A single Apache Kafka broker in its own process. It needs Java and Maven."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from support.interop import toolchains
from support.paths import SCRIPTS
from support.ports import free_ports
from support.processes import is_alive
from support.waiting import wait_for

START_TIMEOUT_S = 300


class Kafka:
    """Started on an empty folder, or on the data folder of an earlier Kafka or Ottla; `settings` are KEY=VALUE."""

    def __init__(self, folder: Path, *settings: str, port: int | None = None, controller: int | None = None) -> None:
        toolchains.need("java", "mvn")
        self.folder = folder
        self.port = port or free_ports()[0]
        environment = {"KAFKA_CONTROLLER_PORT": str(controller)} if controller else {}
        done = subprocess.run(
            [str(SCRIPTS / "kafka-start"), str(self.port), str(folder), *settings],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"Apache Kafka did not start: {done.stdout}{done.stderr}"
        self.pid = int(done.stdout.split()[-1])

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "logs"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stops it as an operator does, and returns when it has ended. It is not a child of this process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        # Its files do not show it: Kafka removes its .lock after it writes the marker of a clean stop.
        wait_for(lambda: not is_alive(self.pid), "Apache Kafka to stop", pause_s=0.1)
