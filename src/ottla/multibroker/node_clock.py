"""The clock of one node: the cluster's time plus the error of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clock import Clock


class NodeClock:
    """The time of day may be wrong on a node. Durations are correct: they are measured with another clock."""

    __slots__ = ("_clock", "monotonic_ms", "skew_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic_ms = clock.monotonic_ms
        self.skew_ms = 0
        """How far it is ahead; negative when it is behind."""

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.skew_ms
