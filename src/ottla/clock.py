"""Time as a parameter: clocks, and a timing wheel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy("asyncio")

__all__ = ["Clock", "ManualClock", "SystemClock", "Timer", "TimerHandle"]

# 64 slots per level: the occupancy of a level then fits one machine word, and 7 levels reach 139 years of milliseconds.
_SLOT_BITS = 6
_SLOT_MASK = (1 << _SLOT_BITS) - 1


class Clock(Protocol):
    """The only access to time for code below the server."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's time."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class ManualClock:
    """A clock that moves only when told to. Moving it fires its timers synchronously, in order."""

    __slots__ = ("_elapsed_ms", "_start_ms", "_timers")

    def __init__(self, start_ms: int = 0) -> None:
        self._start_ms = start_ms
        self._elapsed_ms = 0.0
        self._timers: list[Timer] = []

    def now_ms(self) -> int:
        return self._start_ms + int(self._elapsed_ms)

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def advance(self, ms: float) -> None:
        """Advance by `ms`; a callback sees the time of its own deadline."""
        if ms < 0:
            raise ValueError("a clock cannot go back")
        target_ms = self._elapsed_ms + ms
        while True:
            due = [(at, index) for index, timer in enumerate(self._timers) if (at := timer.next_wake_ms()) is not None]
            if not due or min(due)[0] > target_ms:
                break
            at_ms, index = min(due)
            self._elapsed_ms = max(self._elapsed_ms, at_ms)
            self._timers[index].fire_due()
        self._elapsed_ms = target_ms

    def _attach(self, timer: Timer) -> None:
        self._timers.append(timer)


class TimerHandle:
    """One scheduled callback."""

    __slots__ = ("_bucket", "_callback", "_timer", "_when")

    def __init__(self, timer: Timer, when: int, callback: Callable[[], object]) -> None:
        self._timer = timer
        self._when = when
        self._callback = callback
        self._bucket = -1

    @property
    def pending(self) -> bool:
        """Whether the callback has not run yet."""
        return self._bucket >= 0

    def cancel(self) -> None:
        """Forget the callback; does nothing after it ran."""
        if self._bucket >= 0:
            self._timer._remove(self)


class Timer:
    """Hierarchical timing wheel with ticks of one millisecond.

    A handle sits at the level of the highest 6-bit digit in which its deadline differs from the current tick, so
    every occupied slot of a level is ahead of the wheel's hand. When the hand reaches a slot of a higher level, its
    handles move to lower levels: scheduling, cancelling and expiring cost the same for ten waiters and a million.
    """

    __slots__ = ("_buckets", "_clock", "_count", "_loop", "_now", "_occupied", "_paused", "_wake", "_wake_tick")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._clock = clock
        self._loop = loop
        self._buckets: dict[int, dict[TimerHandle, None]] = {}
        self._occupied: list[int] = []
        self._now = int(clock.monotonic_ms())
        self._count = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_tick = -1
        self._paused = False
        if isinstance(clock, ManualClock):
            clock._attach(self)

    def __len__(self) -> int:
        return self._count

    def schedule(self, delay_ms: float, callback: Callable[[], object]) -> TimerHandle:
        """Call `callback` once `delay_ms` have passed, never sooner and never from within this call."""
        now_ms = self._clock.monotonic_ms()
        if not self._count:
            self._now = int(now_ms)
        when = -int(-(now_ms + delay_ms) // 1)
        # The hand may be behind the clock while something waits; a delay of 0 is still one tick from now.
        handle = TimerHandle(self, max(when, int(now_ms) + 1), callback)
        self._place(handle)
        self._count += 1
        if self._wake_tick < 0 or handle._when < self._wake_tick:
            self._arm()
        return handle

    def next_wake_ms(self) -> int | None:
        """When `fire_due` must be called next, in monotonic milliseconds."""
        if self._paused:
            return None
        for level, occupied in enumerate(self._occupied):
            if occupied:
                slot = (occupied & -occupied).bit_length() - 1
                shift = _SLOT_BITS * level
                return ((self._now >> (shift + _SLOT_BITS)) << (shift + _SLOT_BITS)) | (slot << shift)
        return None

    def fire_due(self) -> None:
        """Run every callback whose deadline has passed, ordered by deadline, then by when it was scheduled."""
        until = int(self._clock.monotonic_ms())
        while (tick := self.next_wake_ms()) is not None and tick <= until:
            self._now = tick
            level = next(index for index, occupied in enumerate(self._occupied) if occupied)
            slot = (tick >> (_SLOT_BITS * level)) & _SLOT_MASK
            bucket = self._buckets[(level << _SLOT_BITS) | slot]
            while bucket:
                handle = next(iter(bucket))
                self._unlink(handle)
                if handle._when > tick:
                    self._place(handle)
                else:
                    self._count -= 1
                    self._run(handle)
        self._now = max(self._now, until) if self._can_skip_to(until) else self._now
        self._wake_tick = -1
        self._arm()

    def pause(self) -> None:
        """Fire nothing until `resume`, as in a stopped process."""
        self._paused = True

    def resume(self) -> None:
        """Fire the callbacks that became due during the pause."""
        self._paused = False
        self._wake_tick = -1
        self._arm()

    def close(self) -> None:
        """Drop all timers."""
        for bucket in self._buckets.values():
            for handle in bucket:
                handle._bucket = -1
        self._buckets.clear()
        self._occupied.clear()
        self._count = 0
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self._wake_tick = -1

    def _can_skip_to(self, tick: int) -> bool:
        # The hand may move only if no occupied slot changes its level: nothing waits, or the digits above the
        # lowest are the same.
        return not self._count or (tick >> _SLOT_BITS) == (self._now >> _SLOT_BITS)

    def _place(self, handle: TimerHandle) -> None:
        when = handle._when
        level = max((when ^ self._now).bit_length() - 1, 0) // _SLOT_BITS
        slot = (when >> (_SLOT_BITS * level)) & _SLOT_MASK
        while level >= len(self._occupied):
            self._occupied.append(0)
        key = (level << _SLOT_BITS) | slot
        handle._bucket = key
        self._occupied[level] |= 1 << slot
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = {handle: None}
        else:
            bucket[handle] = None

    def _unlink(self, handle: TimerHandle) -> None:
        key = handle._bucket
        bucket = self._buckets[key]
        del bucket[handle]
        handle._bucket = -1
        if not bucket:
            self._occupied[key >> _SLOT_BITS] &= ~(1 << (key & _SLOT_MASK))

    def _remove(self, handle: TimerHandle) -> None:
        self._unlink(handle)
        self._count -= 1

    def _run(self, handle: TimerHandle) -> None:
        if self._loop is None:
            handle._callback()
            return
        try:
            handle._callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": "a timer's callback failed", "exception": error})

    def _arm(self) -> None:
        """Keep one timer of the event loop set to the next slot; a ManualClock drives the wheel itself."""
        if isinstance(self._clock, ManualClock):
            return
        tick = self.next_wake_ms()
        if tick is None or tick == self._wake_tick:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._wake is not None:
            self._wake.cancel()
        self._wake_tick = tick
        self._wake = self._loop.call_later(max(tick - self._clock.monotonic_ms(), 0.0) / 1000.0, self.fire_due)
