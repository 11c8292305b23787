"""Removal of segments: renamed immediately, unlinked after `file.delete.delay.ms`, so that readers can finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ottla.log.files import Disk
from ottla.log.producers import ProducerStateManager
from ottla.log.segment import Segment

DELETED_SUFFIX: Final = ".deleted"

Scheduler: TypeAlias = Callable[[int, Callable[[], object]], object]
"""`schedule(delay_ms, callback)`, such as `Timer.schedule`."""


class SegmentRemoval:
    """Removes the segments of one log, with their producer snapshots."""

    __slots__ = ("_disk", "_schedule", "unlink")

    def __init__(self, disk: Disk, schedule: Scheduler | None) -> None:
        """Without `schedule`, files are unlinked immediately."""
        self._disk = disk
        self._schedule = schedule
        self.unlink: Callable[[Sequence[str]], object] = self._unlink
        """Unlinking a gigabyte takes a while. Set this to do it in a thread."""

    def remove(
        self, segments: Sequence[Segment], producers: ProducerStateManager, delay_ms: int, keep_snapshot_at: int = -1
    ) -> None:
        leftovers: list[str] = []
        for segment in segments:
            segment.change_suffix(DELETED_SUFFIX)
            if segment.base_offset == keep_snapshot_at:
                continue
            snapshot = producers.forget_snapshot(segment.base_offset)
            if snapshot is not None:
                self._disk.rename(snapshot, snapshot + DELETED_SUFFIX)
                leftovers.append(snapshot + DELETED_SUFFIX)

        def unlink() -> None:
            paths = leftovers
            for segment in segments:
                paths += segment.release()
            self.unlink(paths)

        if self._schedule is None:
            unlink()
        else:
            self._schedule(delay_ms, unlink)

    def _unlink(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.remove(path)
