"""Modules that are imported while a broker serves, and the file handle that is kept for them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from threading import Lock

_lock = Lock()
"""Brokers may run in several threads of a process."""
_running = 0
_spare: int | None = None


def started() -> None:
    """A broker runs in this process: its clients and logs may take every file handle but one."""
    global _running
    with _lock:
        _running += 1
    _keep_spare()


def stopped() -> None:
    """As often as `started`."""
    global _running
    with _lock:
        _running -= 1
        is_last = _running == 0
    if is_last:
        _use_spare()


def import_late(name: str) -> None:
    """Import a module; where there is no file handle left to read it with, by means of the one that was kept."""
    if name in sys.modules:
        return
    _use_spare()
    try:
        import_module(name)
    finally:
        _keep_spare()


def _keep_spare() -> None:
    global _spare
    with _lock, suppress(OSError):  # there may be none to keep: then next time, perhaps
        if _spare is None and _running:
            _spare = os.open(os.devnull, os.O_RDONLY)


def _use_spare() -> None:
    global _spare
    with _lock:
        spare, _spare = _spare, None
    if spare is not None:
        os.close(spare)
