"""Offsets by time: the first record with a timestamp or a later one, and the special timestamps below 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.enums import OffsetTimestamp
from ottla.errors import KafkaStorageError
from ottla.log.offset_position import TimestampedOffset

if TYPE_CHECKING:
    from ottla.answers import Steps
    from ottla.log.log import Log


def find(log: Log, timestamp: int) -> Steps[TimestampedOffset | None]:
    """The first record with this timestamp or a later one, or the meaning of a special timestamp."""
    while True:
        segments = list(log.segments)
        try:
            return (yield from _find(log, timestamp))
        except KafkaStorageError:
            if segments == list(log.segments):
                raise
            # A segment was removed or compacted between two steps: search the current ones.


def _find(log: Log, timestamp: int) -> Steps[TimestampedOffset | None]:
    if timestamp in (OffsetTimestamp.EARLIEST, OffsetTimestamp.EARLIEST_LOCAL):
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return TimestampedOffset(-1, log.log_start_offset, epoch)
    if timestamp == OffsetTimestamp.LATEST:
        return TimestampedOffset(-1, log.log_end_offset, log.epochs.latest)
    if timestamp == OffsetTimestamp.MAX_TIMESTAMP:
        newest = max(log.segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        # As in Kafka, the start offset is ignored: deleted records are found until their segment is removed.
        return (yield from newest.find_timestamp(newest.max_timestamp, newest.base_offset))
    if timestamp < 0:
        return TimestampedOffset(-1, -1, -1)
    for segment in list(log.segments):
        if segment.largest_timestamp >= timestamp:
            found = yield from segment.find_timestamp(timestamp, log.log_start_offset)
            if found is not None:  # None: the segment is below the start offset and waits for its deletion
                return found
    return None
