"""Offsets by time: the first record with a timestamp or a later one, and the offsets that have a number below 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.enums import OffsetTimestamp
from ottla.log.offset_position import TimestampedOffset

if TYPE_CHECKING:
    from ottla.log.log import Log


def find(log: Log, timestamp: int) -> TimestampedOffset | None:
    """The first record with this timestamp or a later one, or what a special timestamp stands for."""
    if timestamp in (OffsetTimestamp.EARLIEST, OffsetTimestamp.EARLIEST_LOCAL):
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return TimestampedOffset(-1, log.log_start_offset, epoch)
    if timestamp == OffsetTimestamp.LATEST:
        return TimestampedOffset(-1, log.log_end_offset, log.epochs.latest)
    if timestamp == OffsetTimestamp.MAX_TIMESTAMP:
        newest = max(log.segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        # The start offset does not count, as with Kafka: what is deleted is found until its segment goes.
        return newest.find_timestamp(newest.max_timestamp, newest.base_offset)
    if timestamp < 0:
        return TimestampedOffset(-1, -1, -1)
    for segment in log.segments:
        if segment.largest_timestamp >= timestamp:
            found = segment.find_timestamp(timestamp, log.log_start_offset)
            if found is not None:  # None: the segment lies below the start offset and waits for its deletion
                return found
    return None
