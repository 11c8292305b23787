"""Positions in a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Located(NamedTuple):
    """A batch in the file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


def in_order(entries: Iterable[tuple[Located, T]], low: int, high: int) -> Iterator[tuple[Located, T, bool]]:
    """Each batch, and whether its offsets follow those of earlier batches and are between `low` and `high`.

    The offset of a batch has no checksum. A batch whose offset goes back, or leaves a gap into which the next batch
    falls, is damaged. The batches around it are valid, and Kafka keeps all of them.
    """

    def follows(batch: Located, next_offset: int) -> bool:
        if not low <= batch.base_offset <= batch.last_offset <= high:
            return False
        return batch.base_offset == low or not low <= next_offset <= batch.last_offset

    waiting: tuple[Located, T] | None = None
    for entry in entries:
        if waiting is not None:
            is_next = follows(waiting[0], entry[0].base_offset)
            yield *waiting, is_next
            if is_next:
                low = waiting[0].last_offset + 1
        waiting = entry
    if waiting is not None:
        yield *waiting, follows(waiting[0], -1)


class TimestampedOffset(NamedTuple):
    """A record found by time. The epoch is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int = -1
