"""Loads shards in slices, so that the event loop can serve other requests in between (Kafka: CoordinatorLoader).

A load is an iterator of steps. The loader runs the steps of one load after the other until the time slice is over, and
continues in the next turn of the event loop. Small logs are loaded at once, even on a slow machine, so that their
clients never get an error because of loading.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ottla.clock import Clock

logger = logging.getLogger(__name__)

SLICE_MS: Final = 5.0
"""The length of a slice: how long a load may block the event loop."""
SMALL_LOAD: Final = 1000
"""The number of records that the first slice loads even if it takes longer."""


class Load:
    """One log to load: steps that each yield the number of loaded records, and a callback for the end."""

    __slots__ = ("finished", "is_cancelled", "name", "steps")

    def __init__(self, name: str, steps: Iterator[int], finished: Callable[[Exception | None], None]) -> None:
        self.name = name
        self.steps = steps
        self.finished = finished
        """Called after the last step, or with the error of the step that failed; not called after `cancel`."""
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.steps = iter(())  # free the records that were read


class Loader:
    """Runs the loads of all coordinators of a broker, in the order of arrival."""

    __slots__ = (
        "_call_soon",
        "_clock",
        "_idle_since_ms",
        "_is_scheduled",
        "_loads",
        "_owns_process",
        "_small_left",
        "_turn_over_ms",
    )

    def __init__(
        self, clock: Clock, call_soon: Callable[[Callable[[], None]], object], *, owns_process: bool = False
    ) -> None:
        """`owns_process`: the process only serves clients, so a load may switch the garbage collector off."""
        self._owns_process = owns_process
        self._clock = clock
        self._call_soon = call_soon
        self._loads: deque[Load] = deque()
        self._is_scheduled = False
        self._idle_since_ms = clock.monotonic_ms() - SLICE_MS
        self._turn_over_ms = 0.0
        self._small_left = 0

    def start(self, load: Load) -> None:
        """Load as much as fits into this turn of the event loop, and the rest in later turns."""
        self._loads.append(load)
        if not self._is_scheduled:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._idle_since_ms + SLICE_MS:
                # A broker becomes leader of many partitions at once: all loads in this turn share one slice.
                self._turn_over_ms = now_ms + SLICE_MS
                self._small_left = SMALL_LOAD
            self._run_slice()

    def _next_turn(self) -> None:
        self._turn_over_ms = self._clock.monotonic_ms() + SLICE_MS
        self._small_left = 0
        if not self._owns_process:
            self._run_slice()
            return
        # Loaded state is long-lived. Garbage collections that scan it repeatedly while it grows would block the event
        # loop for far longer than a slice.
        gc.disable()
        self._run_slice()
        if not self._is_scheduled:
            gc.freeze()
            gc.enable()

    def _run_slice(self) -> None:
        self._is_scheduled = True  # a load may start another one, which must wait
        try:
            while self._loads:
                load = self._loads.popleft()
                if not self._advance(load):
                    self._loads.appendleft(load)
                    return
        finally:
            self._idle_since_ms = self._clock.monotonic_ms()
            self._is_scheduled = bool(self._loads)
            if self._is_scheduled:
                self._call_soon(self._next_turn)

    def _advance(self, load: Load) -> bool:
        """Run steps until the load or the slice is over; True if the load is complete."""
        outcome: Exception | None = None
        try:
            for count in load.steps:
                self._small_left -= count
                if self._small_left <= 0 and self._clock.monotonic_ms() >= self._turn_over_ms:
                    return False
        except Exception as error:
            logger.exception("%s cannot be loaded", load.name)
            outcome = error
        if not load.is_cancelled:
            load.finished(outcome)
        return True
