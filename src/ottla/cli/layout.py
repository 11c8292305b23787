"""How wide help may be, found out without `shutil`: every start of a broker would wait for its archive formats."""

from __future__ import annotations

import os
import sys
from argparse import HelpFormatter
from functools import partial
from typing import Any

_COLUMNS = 80
"""Where there is no terminal."""


def laid_out(kind: type[HelpFormatter]) -> Any:
    """A formatter of this kind for a parser; argparse itself measures the terminal anew for every option."""
    return partial(kind, width=_columns() - 2)


def _columns() -> int:
    """As `shutil.get_terminal_size` has it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return _COLUMNS
