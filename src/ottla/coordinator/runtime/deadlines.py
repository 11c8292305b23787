"""Deadlines that are extended far more often than they are reached."""

from __future__ import annotations

from collections.abc import Callable

from ottla.clock import Clock, Timer, TimerHandle


class Deadline:
    """Calls back when its delay has passed since the last `push`.

    A heartbeat only changes a number. The timer in the timing wheel is not moved: if it fires too early, it waits for
    the remaining time.
    """

    __slots__ = ("_at_ms", "_callback", "_clock", "_handle", "_timer", "_wake_ms")

    def __init__(self, clock: Clock, timer: Timer, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._timer = timer
        self._callback = callback
        self._handle: TimerHandle | None = None
        self._at_ms = 0.0
        self._wake_ms = 0.0

    @property
    def pending(self) -> bool:
        return self._handle is not None

    def push(self, delay_ms: float) -> None:
        """Call back `delay_ms` from now, and not at the earlier deadline."""
        now_ms = self._clock.monotonic_ms()
        self._at_ms = at_ms = now_ms + delay_ms
        if self._handle is not None:
            if at_ms >= self._wake_ms:
                return
            self._handle.cancel()
        self._wait(delay_ms, at_ms)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, delay_ms: float, wake_ms: float) -> None:
        self._wake_ms = wake_ms
        self._handle = self._timer.schedule(delay_ms, self._fire)

    def _fire(self) -> None:
        self._handle = None
        left_ms = self._at_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._wait(left_ms, self._at_ms)
        else:
            self._callback()
