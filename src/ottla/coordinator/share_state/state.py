"""The state of a share partition: its start offset, and the delivery states of the records after it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.wire.primitives import uuid_to_base64

NO_OFFSET: Final = -1
NO_COUNT: Final = -1


class ShareKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """The key for FindCoordinator."""
        return f"{self.group_id}:{uuid_to_base64(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Consecutive records in the same delivery state."""

    first: int
    last: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    done_count: int = NO_COUNT
    """The number of finished records from the start offset on."""
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0
    updates: int = 0
    """The number of update records since the snapshot."""
    snapshot_offset: int = 0


def combined(known: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Merge both, from the start offset on. The higher delivery count wins, then the later state."""
    every = [*known, *newer]
    edges = sorted({edge for batch in every for edge in (batch.first, batch.last + 1)} | {start_offset})
    best: list[StateBatch | None] = [None] * len(edges)
    for batch in every:
        for position in range(bisect_left(edges, batch.first), bisect_left(edges, batch.last + 1)):
            there = best[position]
            if there is None or (batch.delivery_count, batch.state) > (there.delivery_count, there.state):
                best[position] = batch
    result: list[StateBatch] = []
    for position, chosen in enumerate(best):
        if chosen is None or edges[position] < start_offset:
            continue
        first, last = edges[position], edges[position + 1] - 1
        if result and result[-1].last + 1 == first and result[-1][2:] == chosen[2:]:
            result[-1] = result[-1]._replace(last=last)
        else:
            result.append(StateBatch(first, last, chosen.state, chosen.delivery_count))
    return tuple(result)
