"""`ottla serve --daemon`: a broker in the background, and the state files that let `ottla stop` find it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.cli.common import FAILED, OK, USAGE

_LOG_LINES_SHOWN: Final = 5


class Daemon(NamedTuple):
    """A broker in the background, identified by the port of its first listener."""

    port: int
    pid: int
    bootstrap: str
    where: str
    log: str

    @property
    def is_running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # of another user
        return True


def state_folder() -> Path:
    """The folder for state files and logs of brokers in the background."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".local" / "state") / "ottla"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the home folder is not writable, or there is none
        folder = Path(tempfile.gettempdir()) / f"ottla-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def start(arguments: argparse.Namespace) -> int:
    """Run the same `ottla serve` command in the background, and return when it serves clients."""
    if arguments.exit_with_parent or arguments.json:
        print("ottla: --daemon cannot be combined with --exit-with-parent or --json", file=sys.stderr)
        return USAGE
    folder = state_folder()
    log = folder / f"serve-{os.getpid()}.log"
    given = [word for word in arguments.given if word != "--daemon"]
    command = [sys.executable, "-m", "ottla", *given, "--json"]
    with log.open("ab") as lines:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=lines, start_new_session=True
        )
    assert child.stdout is not None
    with child.stdout as output:
        said = output.readline()
    if not said:
        child.wait()
        for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]:
            print(line, file=sys.stderr)
        log.unlink()
        return FAILED
    found: dict[str, Any] = json.loads(said)
    bootstrap: str = found["bootstrap"]
    port = int(bootstrap.split(",")[0].rpartition(":")[2])
    final_log = log.rename(folder / f"{port}.log")
    daemon = Daemon(port, child.pid, bootstrap, found["where"], str(final_log))
    (folder / f"{port}.json").write_text(json.dumps(daemon._asdict()) + "\n")
    print(f"listening on {bootstrap} ({daemon.where}), process {child.pid}, log {final_log}")
    if found.get("console"):
        print(f"console on {found['console']}")
    print(f"stop it with: ottla stop {port}")
    return OK


def known() -> list[Daemon]:
    """Brokers that are still running in the background. The state files of others are removed."""
    found = []
    for note in sorted(state_folder().glob("*.json")):
        try:
            daemon = Daemon(**json.loads(note.read_text()))
        except (ValueError, TypeError):
            continue
        if daemon.is_running:
            found.append(daemon)
        else:
            note.unlink(missing_ok=True)
    return found


def forget(daemon: Daemon) -> None:
    (state_folder() / f"{daemon.port}.json").unlink(missing_ok=True)
