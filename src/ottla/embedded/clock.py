"""A clock that follows real time and can be moved forward on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.clock import SystemClock, Timer

OnLoop: TypeAlias = Callable[[Callable[[], None]], None]

HOPS_MAX: Final = 256
"""The maximum number of steps of one advance: a check that runs every second need not run 600,000 times for a week."""


def duration_ms(*, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0) -> float:
    """A duration given in days, hours and so on, in milliseconds."""
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + ms


class VirtualClock:
    """The system clock plus the time by which it was advanced.

    It follows real time, so clients work as usual: their long polls end, and their sessions last. `advance` moves only
    the broker into the future.
    """

    __slots__ = ("_ahead_ms", "_on_loop", "_real", "_timers")

    def __init__(self, ahead_ms: float = 0.0) -> None:
        self._real = SystemClock()
        self._ahead_ms = ahead_ms
        self._timers: list[Timer] = []
        self._on_loop: OnLoop | None = None

    def now_ms(self) -> int:
        return self._real.now_ms() + int(self._ahead_ms)

    def monotonic_ms(self) -> float:
        return self._real.monotonic_ms() + self._ahead_ms

    @property
    def ahead_ms(self) -> float:
        """How far this clock is ahead of the real one."""
        return self._ahead_ms

    def __repr__(self) -> str:
        return f"<clock, {self._ahead_ms / 1000:g} s ahead>"

    def drive(self, timer: Timer, on_loop: OnLoop) -> None:
        """Let `advance` fire this timer; `on_loop` runs a function on the loop of its callbacks."""
        self._timers.append(timer)
        self._on_loop = on_loop

    def let_go(self, timer: Timer) -> None:
        if timer in self._timers:
            self._timers.remove(timer)
        if not self._timers:
            self._on_loop = None

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Advance the clock. Everything that falls due happens before this returns, in the order of the deadlines."""
        if min(days, hours, minutes, seconds, ms) < 0:
            raise ValueError("a clock cannot go back: pass positive durations, or use a fresh broker")
        left_ms = duration_ms(days=days, hours=hours, minutes=minutes, seconds=seconds, ms=ms)
        if self._on_loop is None:
            self._ahead_ms += left_ms
        else:
            self._on_loop(lambda: self._go(left_ms))

    def _go(self, left_ms: float) -> None:
        shortest_hop_ms = left_ms / HOPS_MAX
        while left_ms > 0:
            due = [at for timer in self._timers if (at := timer.next_wake_ms()) is not None]
            hop_ms = min(due) - self.monotonic_ms() if due else left_ms
            hop_ms = min(max(hop_ms, shortest_hop_ms, 1.0), left_ms)
            self._ahead_ms += hop_ms
            left_ms -= hop_ms
            for timer in tuple(self._timers):
                timer.fire_due()
