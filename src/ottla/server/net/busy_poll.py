"""Staying with a client that sends its next request as soon as it has its answer.

With one request under way at a time, two processes that sleep and wake each other take longer for that than for the
request itself. So the broker looks for the next request a little longer before it goes to sleep: with the one
connection that is busy, after a row of requests that came quickly, and for about as long as waking up would take.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter_ns

_QUICK_NS = 200_000
_QUICK_REQUESTS = 8
"""That many in a row, each so soon after the last answer, and the next is expected as soon."""

_LOOK_NS = 100_000
_STAY_NS = 500_000
"""Others get their turn twice in a millisecond."""

_ALONE_NS = 5_000_000
"""Nobody else for that long, and nobody is likely to be kept waiting."""


def pace_of_process() -> Pace | None:
    """For a process that does nothing but serve; None where its clients could not run meanwhile."""
    return Pace() if (os.cpu_count() or 1) > 1 else None


class Pace:
    """How quickly the one connection comes back that was served last."""

    __slots__ = ("_answered_ns", "_came_ns", "_last", "_quick")

    def __init__(self) -> None:
        self._last: object = None
        self._answered_ns = 0
        self._came_ns = 0
        self._quick = 0

    @property
    def is_with_one(self) -> bool:
        """Whether the connection that was served last is the only one that has been lately."""
        return perf_counter_ns() - self._came_ns > _ALONE_NS

    def stay(self, connection: object, began_ns: int, serve_next: Callable[[int], bool]) -> None:
        """A request was served, from `began_ns` on. `serve_next` looks for one more until the time it is given."""
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
                    self._quick = 0  # in vain: it takes another row
                    break
                now_ns = perf_counter_ns()
        self._last = connection
        self._answered_ns = now_ns
