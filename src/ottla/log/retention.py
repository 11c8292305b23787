"""Which segments are past keeping. Each rule counts them from the oldest on and stops at the first it must keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment import Segment


def past_time(log: Log) -> int:
    """Segments whose largest timestamp is older than `retention.ms`."""
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    now_ms = log.clock.now_ms()
    return _count(log, lambda segment, _: now_ms - segment.largest_timestamp > retention_ms)


def past_size(log: Log) -> int:
    """Segments without which the log still has `retention.bytes`."""
    excess = log.size_bytes - log.config.retention_bytes
    if log.config.retention_bytes < 0 or excess < 0:
        return 0

    def too_much(segment: Segment, _next_base: int | None) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return _count(log, too_much)


def below_start_offset(log: Log) -> int:
    """Segments whose records are all below the log start offset."""
    return _count(log, lambda _, next_base: next_base is not None and next_base <= log.log_start_offset)


def _count(log: Log, condition: Callable[[Segment, int | None], bool]) -> int:
    """Never what is not replicated yet, and not an active segment that is empty."""
    segments = log.segments
    for slot, segment in enumerate(segments):
        next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
        upper = log.log_end_offset if next_base is None else next_base
        if (next_base is None and not segment.size) or upper > log.high_watermark:
            return slot
        if not condition(segment, next_base):
            return slot
    return len(segments)
