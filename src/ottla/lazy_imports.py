"""Modules that are imported when they are first used, and a file handle that is reserved for them.

Brokers and commands start with few modules. A module that is not needed in every run is declared once, at the top of
the file that uses it:

    if TYPE_CHECKING:
        from ottla.log import recovery_scan
    else:
        recovery_scan = lazy("ottla.log.recovery_scan")

The first use of `recovery_scan.valid_entries` imports it. Type checkers and editors read the first half, and
`tests/test_architecture.py` checks that both halves name the same module. The same works for heavy third-party modules,
for modules that are not always installed, and for modules that import each other.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any

_lock = Lock()
"""Brokers may run in several threads of a process."""
_running = 0
_spare: int | None = None


def started() -> None:
    """A broker runs in this process: its clients and logs may use every file handle except one."""
    global _running
    with _lock:
        _running += 1
    _keep_spare()


def stopped() -> None:
    """A broker has stopped. Call it once for each call of `started`."""
    global _running
    with _lock:
        _running -= 1
        is_last = _running == 0
    if is_last:
        _use_spare()


class LazyModule:
    """A placeholder for a module; it imports the module when an attribute is first used."""

    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = import_late(self._name)
        return getattr(self._module, attribute)

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"


def lazy(name: str) -> Any:
    """The module of this name, to be imported when it is first used; see above."""
    return LazyModule(name)


def import_late(name: str) -> ModuleType:
    """Import a module. If no file handle is left, use the reserved one."""
    if name in sys.modules:
        return import_module(name)  # waits for a thread that is importing it
    _use_spare()
    try:
        return import_module(name)
    finally:
        _keep_spare()


def _keep_spare() -> None:
    global _spare
    with _lock, suppress(OSError):  # no handle is free now; try again next time
        if _spare is None and _running:
            _spare = os.open(os.devnull, os.O_RDONLY)


def _use_spare() -> None:
    global _spare
    with _lock:
        spare, _spare = _spare, None
    if spare is not None:
        os.close(spare)
