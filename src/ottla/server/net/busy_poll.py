"""Busy polling for a client that sends its next request as soon as it gets its answer.

With one request in flight at a time, putting two processes to sleep and waking them up takes longer than the request
itself. So the broker polls for the next request for a moment before it sleeps: only if one connection is busy, after
several quick requests, and for about as long as waking up would take.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter_ns

_QUICK_NS = 200_000
_QUICK_REQUESTS = 8
"""After this many requests in a row, each this soon after the previous answer, the next one is expected just as
soon."""

_LOOK_NS = 100_000
_STAY_NS = 500_000
"""Other connections get their turn twice per millisecond."""

_ALONE_NS = 5_000_000
"""If no other connection was active for this long, probably none has to wait."""


def pace_of_process() -> Pace | None:
    """The pace of a process that only serves clients. None on a single CPU, where clients cannot run while it polls."""
    return Pace() if (os.cpu_count() or 1) > 1 else None


class Pace:
    """How quickly the last served connection sends its next request."""

    __slots__ = ("_answered_ns", "_came_ns", "_last", "_quick")

    def __init__(self) -> None:
        self._last: object = None
        self._answered_ns = 0
        self._came_ns = 0
        self._quick = 0

    @property
    def is_with_one(self) -> bool:
        """Whether the last served connection is the only recently active one."""
        return perf_counter_ns() - self._came_ns > _ALONE_NS

    def stay(self, connection: object, began_ns: int, serve_next: Callable[[int], bool]) -> None:
        """A request was served, starting at `began_ns`. `serve_next` polls for one more until the given time."""
        now_ns = perf_counter_ns()
        if self._last is not connection:
            self._came_ns, self._quick = began_ns, 0
        elif began_ns - self._answered_ns > _QUICK_NS:
            self._quick = 0
        elif self._quick < _QUICK_REQUESTS:
            self._quick += 1
        else:
            leave_ns = now_ns + _STAY_NS
            while now_ns < leave_ns:
                if not serve_next(now_ns + _LOOK_NS):
                    self._quick = 0  # nothing came: wait for another series of quick requests
                    break
                now_ns = perf_counter_ns()
        self._last = connection
        self._answered_ns = now_ns
