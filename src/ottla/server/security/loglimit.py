"""A log that a hostile peer cannot flood: a few lines per second for each key, and a line that counts the rest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clock import Clock

_LINES_PER_WINDOW = 5
_WINDOW_MS = 10_000.0
_KEYS_MAX = 1024
_LINES_OF_ALL = 100
"""A client with many addresses gets no more lines than this in a window."""


class RateLimitedLog:
    """Passes the first lines of a key in each window; the next window begins with the number of lines left out."""

    __slots__ = ("_all", "_clock", "_log", "_windows")

    def __init__(self, log: logging.Logger, clock: Clock | None) -> None:
        self._log = log
        self._clock = clock
        self._windows: dict[str, list[float]] = {}
        self._all = [-_WINDOW_MS, 0.0]

    def info(self, key: str, message: str, *arguments: object) -> None:
        self.log(logging.INFO, key, message, *arguments)

    def warning(self, key: str, message: str, *arguments: object) -> None:
        self.log(logging.WARNING, key, message, *arguments)

    def log(
        self, level: int, key: str, message: str, *arguments: object, exc_info: BaseException | None = None
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        left_out = self._admit(key)
        if left_out is None:
            return
        if left_out:
            message += " (and %d more like it before)"
            arguments = (*arguments, left_out)
        self._log.log(level, message, *arguments, exc_info=exc_info)

    def _admit(self, key: str) -> int | None:
        """None if the limit is reached; otherwise how many lines the last window left out."""
        now_ms = self._clock.monotonic_ms() if self._clock is not None else 0.0
        left_out = self._admit_of_key(key, now_ms)
        if left_out is None:
            return None
        everything = self._all
        if now_ms - everything[0] >= _WINDOW_MS:
            left_out += max(0, int(everything[1]) - _LINES_OF_ALL)
            self._all = everything = [now_ms, 0.0]
        everything[1] += 1
        return left_out if everything[1] <= _LINES_OF_ALL else None

    def _admit_of_key(self, key: str, now_ms: float) -> int | None:
        window = self._windows.get(key)
        if window is None or now_ms - window[0] >= _WINDOW_MS:
            if window is None and len(self._windows) >= _KEYS_MAX:
                self._windows.clear()
            self._windows[key] = [now_ms, 1]
            return max(0, int(window[1]) - _LINES_PER_WINDOW) if window is not None else 0
        window[1] += 1
        return 0 if window[1] <= _LINES_PER_WINDOW else None
