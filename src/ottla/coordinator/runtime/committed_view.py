"""The state below the high watermark, for reads while writes wait for followers.

A shard replays its records when it appends them, so that the next operation sees them. Before it replays uncommitted
records, it keeps the values that they will change; reads get those until the high watermark has passed the records.
With one replica, everything is committed at once, and nothing is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.coordinator.runtime.interfaces import PartitionWriter

K = TypeVar("K")
V = TypeVar("V")


class CommittedView(Generic[K, V]):
    """The values before uncommitted writes, by key."""

    __slots__ = ("_order", "_values", "_writer")

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer
        self._values: dict[K, deque[tuple[int, V]]] = {}
        self._order: deque[tuple[int, K]] = deque()

    def keep(self, offset: int, key: K, value: V) -> None:
        """Keep the value from before the record at `offset`, which is appended but not replayed yet."""
        self._forget_committed()
        self._values.setdefault(key, deque()).append((offset, value))
        self._order.append((offset, key))

    def get(self, key: K, live: V) -> V:
        """The value at the high watermark; `live` is the newest."""
        if not self._values:
            return live
        self._forget_committed()
        kept = self._values.get(key)
        return live if kept is None else kept[0][1]

    def keys(self) -> Iterable[K]:
        """The keys whose committed value may differ from the newest."""
        self._forget_committed()
        return self._values.keys()

    def _forget_committed(self) -> None:
        committed = self._writer.high_watermark
        while self._order and self._order[0][0] < committed:
            _, key = self._order.popleft()
            values = self._values[key]
            values.popleft()
            if not values:
                del self._values[key]
