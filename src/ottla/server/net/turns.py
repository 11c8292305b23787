"""How long one connection may keep the loop while others wait: about half a millisecond.

Large frames are received, and files sent, in pieces that take no longer; a series of small requests is interrupted. A
single busy connection gets more at once, because large pieces cost less.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

TURN_NS: Final = 500_000
RECEIVE_BYTES: Final = 384 << 10
"""Received, checked and written in about a turn; holds five batches of 64 KB, which is what a producer has in
flight."""
SEND_BYTES: Final = 4 << 20
"""Sent from a file in about a turn."""
ENCRYPT_BYTES: Final = 512 << 10
"""Encrypted in about a turn."""

_LATELY_NS: Final = 250_000_000
"""For this long after another connection was served, a connection is not the only busy one."""


class Turns:
    """Which connection was served last, and how long no other one has been served."""

    __slots__ = ("_last", "_since_ns")

    def __init__(self) -> None:
        self._last: object = None
        self._since_ns = 0

    def take(self, connection: object) -> None:
        """Note that a connection is being served."""
        if connection is not self._last:
            self._last, self._since_ns = connection, perf_counter_ns()

    @property
    def is_alone(self) -> bool:
        """Whether only the connection that was served last was busy recently."""
        return perf_counter_ns() - self._since_ns > _LATELY_NS
