"""Modules that are imported while a broker serves, and the file handle that is kept for them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

_spare: int | None = None


def keep_spare_handle() -> None:
    """For a process that only serves: clients and logs may take every handle but this one."""
    global _spare
    if _spare is None:
        _spare = os.open(os.devnull, os.O_RDONLY)


def import_late(name: str) -> None:
    """Import a module; where there is no file handle left to read it with, by means of the one that was kept."""
    global _spare
    if name in sys.modules:
        return
    if _spare is not None:
        os.close(_spare)
        _spare = None
        try:
            import_module(name)
        finally:
            with suppress(OSError):
                keep_spare_handle()
    else:
        import_module(name)
