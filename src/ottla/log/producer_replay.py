"""Rebuilds producer state from the disk: the newest snapshot, then the batches after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ottla.log.producers import ProducerStateManager
from ottla.log.segment import Segment


def rebuild_producers(
    producers: ProducerStateManager,
    segments: Sequence[Segment],
    last_offset: int,
    now_ms: int,
    *,
    clean: bool,
) -> None:
    """Advance the producer state to `last_offset`: newest snapshot, then the batches after it.

    A cleanly closed log without any snapshot predates producer state, so it is not read. Its next start finds the
    snapshots written here.
    """
    bases = [segment.base_offset for segment in segments]
    to_snapshot = set(bases[-2:])
    if clean and producers.latest_snapshot_offset is None:
        for offset in (*sorted(to_snapshot), last_offset):
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    empty_before = producers.is_empty and producers.map_end_offset >= last_offset
    producers.load(bases[0] if bases else last_offset, last_offset, now_ms)
    if last_offset <= producers.map_end_offset or empty_before:
        producers.map_end_offset = last_offset
        return
    for segment in segments[max(bisect_right(bases, producers.map_end_offset) - 1, 0) :]:
        if segment.base_offset >= last_offset:
            break
        start = max(segment.base_offset, producers.map_end_offset)
        producers.map_end_offset = start
        if segment.base_offset in to_snapshot:
            producers.take_snapshot()
        for batch in segment.batches(segment.position_of(start)):
            if batch.base_offset < last_offset:
                producers.replay(batch)
    producers.map_end_offset = last_offset
    producers.take_snapshot()
