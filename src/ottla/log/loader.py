"""Opens a partition folder: finishes interrupted operations, recovers unflushed data, loads the state.

leftovers   .deleted and .cleaned are removed; .swap replaces its sources, unless a .cleaned shows it is incomplete
segments    indexes without a log are removed; a log without its index is read again
recovery    after an unclean stop, from the recovery point on: every batch is checked, and the log is cut at the
            first bad byte
state       leader epochs are cut to the log; producers come from the newest snapshot and a replay of later batches
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import Final

from ottla.clock import Clock
from ottla.errors import KafkaStorageError
from ottla.log import integrity
from ottla.log.checkpoints import RESTORE_HINT
from ottla.log.epochs import EPOCHS_FILE, LeaderEpochs
from ottla.log.files import Disk
from ottla.log.index import CorruptIndex
from ottla.log.integrity import segment_offset as _offset
from ottla.log.log import Log
from ottla.log.options import LogConfig
from ottla.log.producer_replay import rebuild_producers
from ottla.log.producers import SNAPSHOT_SUFFIX, ProducerStateManager
from ottla.log.removal import DELETED_SUFFIX, Scheduler
from ottla.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, Segment
from ottla.log.segments import SWAP_SUFFIX

logger = logging.getLogger(__name__)

CLEANED_SUFFIX: Final = ".cleaned"
TEMPORARY_SUFFIX: Final = ".tmp"


def open_log(
    disk: Disk,
    topic: str,
    partition: int,
    config: LogConfig,
    clock: Clock,
    *,
    folder: str | None = None,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    clean: bool = False,
    schedule: Scheduler | None = None,
    topic_id: bytes | None = None,
) -> Log:
    """The log in `folder`, which is created if missing. `clean`: whether the last stop was clean; see `checkpoints`."""
    folder = f"{topic}-{partition}" if folder is None else folder
    disk.mkdir(folder)
    loader = _Loader(disk, f"{topic}-{partition}", folder, config, clock, log_start_offset, recovery_point, clean)
    loader.load()
    return Log(
        disk,
        topic,
        partition,
        config,
        clock,
        folder=folder,
        segments=loader.segments,
        producers=loader.producers,
        epochs=loader.epochs,
        log_start_offset=loader.log_start_offset,
        log_end_offset=loader.log_end_offset,
        recovery_point=loader.recovery_point,
        missing=loader.missing,
        schedule=schedule,
        topic_id=topic_id,
    )


class _Loader:
    def __init__(
        self,
        disk: Disk,
        name: str,
        folder: str,
        config: LogConfig,
        clock: Clock,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
    ) -> None:
        self.disk = disk
        self.name = name
        self.folder = folder
        self.config = config
        self.clock = clock
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.clean = clean
        self.log_end_offset = 0
        self.segments: list[Segment] = []
        sizes = disk.scan(folder)
        integrity.check_files(folder, sizes)
        self.sizes = self._finish_interrupted(sizes)
        self.missing: list[tuple[int, int]] = []
        self._orphans: set[int] = set()
        snapshots = [_offset(name) for name in self.sizes if name.endswith(SNAPSHOT_SUFFIX)]
        self.epochs = LeaderEpochs(disk, folder, exists=EPOCHS_FILE in self.sizes)
        self.producers = self._producer_manager(snapshots)

    def _producer_manager(self, snapshots: list[int]) -> ProducerStateManager:
        return ProducerStateManager(self.disk, self.folder, self.name, self.config.producer_id_expiration_ms, snapshots)

    def load(self) -> None:
        self._load_segments()
        if not self.clean:
            self._recover()
        end = self._end_or_restart()
        self._report_missing(end)
        self.missing = integrity.missing_ranges(self.segments, self._orphans, compacted=self.config.compact)
        integrity.report(self.name, self.missing)
        if not self.segments:
            self.segments.append(self._segment(self.log_start_offset, None))
            end = self.log_start_offset
        self.log_end_offset = end
        self.recovery_point = end if self.clean else min(self.recovery_point, end)
        self.epochs.truncate_from_end(end)
        checkpointed = self.log_start_offset
        self.log_start_offset = max(checkpointed, self.segments[0].base_offset)
        self.epochs.truncate_from_start(checkpointed)
        self.producers.remove_stray_snapshots({segment.base_offset for segment in self.segments})
        rebuild_producers(self.producers, self.segments, end, self.clock.now_ms(), clean=self.clean)

    # --- leftovers ---------------------------------------------------------------------------------------------------

    def _finish_interrupted(self, sizes: dict[str, int]) -> dict[str, int]:
        leftovers = {n for n in sizes if n.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX))}
        if not leftovers:
            return sizes
        first_cleaned = min((_offset(n) for n in leftovers if n.endswith(CLEANED_SUFFIX)), default=1 << 63)
        swaps = []
        for name in leftovers:
            # A .cleaned next to a .swap: the swap did not have all its files yet, and the originals are complete.
            if name.endswith(SWAP_SUFFIX) and _offset(name) < first_cleaned:
                swaps.append(name)
            else:
                self._remove(name)
        self._remove_replaced(swaps, sizes)
        for name in swaps:
            self.disk.rename(f"{self.folder}/{name}", f"{self.folder}/{name.removesuffix(SWAP_SUFFIX)}")
        return self.disk.scan(self.folder)

    def _remove_replaced(self, swaps: list[str], sizes: dict[str, int]) -> None:
        """Delete the source segments of a complete swap."""
        ranges = []
        for name in swaps:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                segment = Segment(
                    self.disk, self.folder, _offset(name), self.config, 0, sizes=sizes, suffix=SWAP_SUFFIX
                )
                ranges.append((segment.base_offset, segment.next_offset()))
        if not ranges:
            return
        start, end = min(r[0] for r in ranges), max(r[1] for r in ranges)
        for name in sizes:
            if name.endswith(integrity.SEGMENT_SUFFIXES) and start <= _offset(name) < end:
                self._remove(name)

    def _remove(self, name: str) -> None:
        self.disk.remove(f"{self.folder}/{name}")

    # --- segments ----------------------------------------------------------------------------------------------------

    def _segment(self, base_offset: int, sizes: dict[str, int] | None) -> Segment:
        return Segment(self.disk, self.folder, base_offset, self.config, self.clock.now_ms(), sizes=sizes)

    def _load_segments(self) -> None:
        last_base = max((_offset(name) for name in self.sizes if name.endswith(LOG_SUFFIX)), default=-1)
        for name in sorted(self.sizes):
            if name.endswith(integrity.SEGMENT_SUFFIXES) and _offset(name) < 0:
                logger.warning("%s: %s is not a segment file; it is left alone", self.name, name)
            elif name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                if f"{_offset(name):020d}{LOG_SUFFIX}" in self.sizes:
                    continue
                if self.clean and _offset(name) < last_base:
                    self._orphans.add(_offset(name))  # kept as evidence of the missing segment
                else:
                    logger.warning("%s: index file %s has no log file and is removed", self.name, name)
                    self._remove(name)
            elif name.endswith(LOG_SUFFIX):
                self._load_segment(_offset(name))

    def _load_segment(self, base_offset: int) -> None:
        segment = self._segment(base_offset, self.sizes)
        stem = f"{base_offset:020d}"
        if not segment.size or (not self.clean and base_offset >= self.recovery_point):
            pass  # nothing to index, or `_recover` rebuilds all indexes
        elif stem + INDEX_SUFFIX not in self.sizes:
            logger.warning("%s: segment %d has no offset index; reading it again", self.name, base_offset)
            self._recover_segment(segment)
        elif stem + TIME_INDEX_SUFFIX not in self.sizes:
            segment.rebuild_indexes()
        elif (txn_index_size := self.sizes.get(stem + TXN_INDEX_SUFFIX)) is not None:
            try:
                integrity.check_txn_index(segment, txn_index_size, compacted=self.config.compact)
            except CorruptIndex as error:
                logger.warning("%s: %s; reading the segment again", self.name, error)
                self._recover_segment(segment)
        self.segments.append(segment)

    def _recover_segment(self, segment: Segment) -> int:
        producers = self._producer_manager(list(self.producers.snapshot_offsets))
        rebuild_producers(producers, self.segments, segment.base_offset, self.clock.now_ms(), clean=False)

        def before_cut(position: int) -> None:
            _check_torn(segment, position)

        is_last = not any(n.endswith(LOG_SUFFIX) and _offset(n) > segment.base_offset for n in self.sizes)
        refuses = self.config.refuse_damage
        truncated = segment.recover(producers, self.epochs, before_cut if refuses else None, is_last=is_last)
        producers.take_snapshot()
        self.producers = self._producer_manager(list(producers.snapshot_offsets))
        return truncated

    def _recover(self) -> None:
        bases = [segment.base_offset for segment in self.segments]
        slot = max(bisect_right(bases, self.recovery_point) - 1, 0)
        everything = self.segments
        self.segments = everything[:slot]
        for number, segment in enumerate(everything[slot:], slot):
            truncated = self._recover_segment(segment)
            self.segments.append(segment)
            if truncated:
                later = everything[number + 1 :]
                logger.warning(
                    "%s: the log was not closed cleanly; cut %d bytes of segment %d%s, the log now ends at offset %d",
                    self.name,
                    truncated,
                    segment.base_offset,
                    f" and {len(later)} later segments" if later else "",
                    segment.next_offset(),
                )
                for doomed in later:
                    doomed.delete()
                    self.producers.remove_snapshot(doomed.base_offset)
                return

    def _report_missing(self, end: int) -> None:
        """Recovery reports what it cuts. Earlier losses are only visible after a clean stop, from its recovery
        point."""
        if end < self.recovery_point and self.clean:
            logger.error(
                "%s: the log ends at offset %d, but went up to %d when it was closed; whatever removed the rest, "
                "stop the broker and restore the folder from a backup if it is needed",
                self.name,
                end,
                self.recovery_point,
            )

    def _end_or_restart(self) -> int:
        """The log's end. A log that ends before its start offset is discarded."""
        if not self.segments:
            return 0
        end, excess = self.segments[-1].find_end()
        if excess:
            # Only after a clean stop: appends would follow bytes that no reader can get past.
            logger.warning(
                "%s: %d bytes after the last batch of segment %d are not a batch; reading the segment again",
                self.name,
                excess,
                self.segments[-1].base_offset,
            )
            self.clean = False
            self.recovery_point = min(self.recovery_point, self.segments[-1].base_offset)
            self._recover()
            end = self.segments[-1].next_offset()
        if end >= self.log_start_offset:
            return end
        logger.warning(
            "%s: the log ends at %d, before its start offset %d; it restarts there",
            self.name,
            end,
            self.log_start_offset,
        )
        for segment in self.segments:
            segment.delete()
        self.segments.clear()
        self.epochs.clear()
        self.producers.start_at(self.log_start_offset)
        return 0


def _check_torn(segment: Segment, position: int) -> None:
    """An interrupted write has no valid batch after it. Anything else is damage."""
    for batch in segment.batches(position):
        if batch.crc_ok():
            raise KafkaStorageError(
                f"{segment.log.path} is damaged at position {position}, before offset {batch.base_offset}: "
                f"cutting it there would lose what follows. `ottla verify` shows more; {RESTORE_HINT}"
            )
