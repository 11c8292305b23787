"""Which part of a log is dirty, how dirty the log is, and when to check it again."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from ottla.log.checkpoints import TopicPartition
from ottla.log.cleaning_job import Source
from ottla.log.log import Log
from ottla.log.segment import Segment

logger = logging.getLogger(__name__)

NEVER_MS: Final = (1 << 63) - 1


class LogToClean(NamedTuple):
    """The input for compacting a log now."""

    key: TopicPartition
    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    urgent: bool
    """Records have waited longer than `max.compaction.lag.ms`."""
    look_again_ms: int
    """When time alone can change the result. `NEVER_MS` if only appends or new settings can."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.urgent or self.ratio > self.log.config.min_cleanable_dirty_ratio

    def sources(self) -> list[Source]:
        """The segments before the first one that cannot be cleaned."""
        return [source_of(s) for s in self.log.segments if s.base_offset < self.first_uncleanable_offset]


def source_of(segment: Segment) -> Source:
    """The segment as the cleaner's input. The file's size stands for an index that is not loaded."""
    offsets, times = segment.offset_index, segment.time_index
    return Source(
        segment.base_offset,
        segment.size,
        max(offsets.file.size, offsets.count * offsets.ENTRY.size),
        max(times.file.size, times.count * times.ENTRY.size),
    )


def look_at(key: TopicPartition, log: Log, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Determine the dirty part. `checkpoint` is where the last cleaning ended.

    Never cleaned: the active segment, everything from the last stable offset on, and segments with a record younger
    than `min.compaction.lag.ms`.
    """
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    first_dirty = _first_dirty(log, checkpoint)
    config = log.config
    stable = log.last_stable_offset
    bound = min(stable, bases[-1])
    # The cleaner is not notified when an open transaction ends or a lagging replica catches up.
    look_again_ms = now_ms if stable < bases[-1] and first_dirty < bases[-1] else NEVER_MS
    dirty = segments[max(bisect_right(bases, first_dirty) - 1, 0) : -1] if first_dirty <= bases[-1] else []
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                bound = min(bound, segment.base_offset)
                look_again_ms = min(look_again_ms, segment.largest_timestamp + config.min_compaction_lag_ms)
                break
    bound = max(first_dirty, bound)
    # Only whole segments are cleaned: the one that holds the bound is not.
    uncleanable = bases[max(bisect_right(bases, bound) - 1, 0)] if bound <= bases[-1] else bases[-1]
    last = bisect_left(bases, uncleanable)
    first = max(bisect_right(bases, min(first_dirty, uncleanable)) - 1, 0)
    waiting_since = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=NEVER_MS)
    urgent = waiting_since < now_ms - config.max_compaction_lag_ms
    if not urgent and waiting_since < NEVER_MS:
        look_again_ms = min(look_again_ms, waiting_since + config.max_compaction_lag_ms + 1)
    return LogToClean(
        key,
        log,
        first_dirty,
        uncleanable,
        sum(segment.size for segment in segments[: bisect_left(bases, first_dirty)]),
        sum(segment.size for segment in segments[first:last]),
        urgent,
        look_again_ms,
    )


def _first_dirty(log: Log, checkpoint: int | None) -> int:
    start = log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint < start:
        # With `compact,delete`, retention often overtakes the cleaner.
        if not log.config.delete:
            logger.warning(
                "%s: compaction had reached offset %d, the log now starts at %d and is dirty from there on",
                log.name,
                checkpoint,
                start,
            )
        return start
    if checkpoint > log.log_end_offset:
        logger.warning(
            "%s: compaction had reached offset %d but the log ends at %d; all of it is dirty",
            log.name,
            checkpoint,
            log.log_end_offset,
        )
        return start
    return checkpoint
