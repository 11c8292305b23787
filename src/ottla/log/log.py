"""A partition's log: segments in a row, the offsets that bound it, its producers and its leader epochs."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias
from zlib import crc32

from ottla.clock import Clock
from ottla.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from ottla.log import retention
from ottla.log import timestamp_lookup as times
from ottla.log.epochs import LeaderEpochs
from ottla.log.files import Disk, FileRegion
from ottla.log.index import AbortedTransaction
from ottla.log.offset_position import TimestampedOffset
from ottla.log.options import LogConfig
from ottla.log.producer_replay import rebuild_producers
from ottla.log.producers import Origin, PreparedAppend, ProducerState, ProducerStateManager, StoredBatch
from ottla.log.results import AppendInfo, ReadResult
from ottla.log.segment import Segment
from ottla.records.batch import Batch, pieces

logger = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
SWAP_SUFFIX: Final = ".swap"
_PIECE_BYTES: Final = 1 << 20

Scheduler: TypeAlias = Callable[[int, Callable[[], object]], object]
"""`schedule(delay_ms, callback)`, such as `Timer.schedule`."""


class Log:
    """The log of one partition. Not for use from several threads at a time.

    `loader.open_log` makes one from what is on the disk.
    """

    __slots__ = (
        "_active",
        "_bases",
        "_disk",
        "_first_unstable",
        "_last_flush_ms",
        "_schedule",
        "_segments",
        "clock",
        "config",
        "epochs",
        "folder",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "name",
        "on_config",
        "on_failure",
        "on_flush",
        "on_roll",
        "partition",
        "producers",
        "recovery_point",
        "remove_files",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(
        self,
        disk: Disk,
        topic: str,
        partition: int,
        config: LogConfig,
        clock: Clock,
        *,
        folder: str,
        segments: list[Segment],
        producers: ProducerStateManager,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        schedule: Scheduler | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        self._disk = disk
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.folder = folder
        self.config = config
        self.clock = clock
        self.topic_id = topic_id
        self._schedule = schedule
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1]
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        """Moved by the code that knows the replicas, through `update_high_watermark`."""
        self._first_unstable: int | None = None
        self._update_first_unstable()
        self._last_flush_ms = clock.now_ms()
        self.on_roll: Callable[[Log], object] | None = None
        """Called after a roll: what lies below the new segment may be flushed in the background, and compacted."""
        self.on_flush: Callable[[Log], object] | None = None
        """Called in a flush: what the log's place in the cluster depends on has to be on the disk, too."""
        self.on_failure: Callable[[Log, KafkaStorageError], object] | None = None
        """Called when the disk failed a request."""
        self.on_config: Callable[[Log], object] | None = None
        """Called after the settings changed."""
        self.remove_files: Callable[[Sequence[str]], object] = self._remove_here
        """Unlinking a gigabyte takes a while; set this to do it in a thread."""
        self.truncations = 0
        """How often the end was cut off: what was read before may not be what is there now."""

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset}, {len(self._segments)} segments)"

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction starts that is not over below the high watermark."""
        return self._first_unstable

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records stop here."""
        unstable = self._first_unstable
        return unstable if unstable is not None and unstable < self.high_watermark else self.high_watermark

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, kept within the log; returns where it is."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.has_transactions or self._first_unstable is not None:
            self.producers.high_watermark_moved(offset)
            self._update_first_unstable()
        return offset

    def _update_first_unstable(self) -> None:
        first = self.producers.first_unstable_offset
        self._first_unstable = None if first is None else max(first, self.log_start_offset)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide everything below `offset` (DeleteRecords, retention); segments go at the next sweep."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset to {offset} of partition {self.name} since it is larger "
                f"than the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.producers.log_start_moved(offset)
        self._update_first_unstable()
        self.epochs.truncate_from_start(offset)
        return True

    # --- append ------------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[Batch],
        leader_epoch: int = 0,
        origin: Origin = Origin.CLIENT,
        append_time_ms: int = -1,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append as leader: gives the validated batches their offsets, in place, and writes their bytes.

        `append_time_ms` is only reported back; the validation has stamped the batches. `transaction_version`
        is that of the coordinator that sent a marker.
        """
        if len(batches) == 1:
            return self._append_one(batches[0], leader_epoch, origin, append_time_ms, transaction_version)
        first_offset = offset = self.log_end_offset
        size = 0
        max_timestamp = -1
        producing = False
        for batch in batches:
            size += batch.size
            if batch.max_timestamp > max_timestamp:
                max_timestamp = batch.max_timestamp
            if batch.producer_id >= 0:
                producing = True
            offset += batch.last_offset_delta + 1
        prepared: PreparedAppend | None = None
        if producing:
            checked = self.producers.prepare(batches, first_offset, origin, transaction_version)
            if isinstance(checked, StoredBatch):
                return self._duplicate(checked)
            prepared = checked
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        base = first_offset
        for batch in batches:
            batch.stamp(base, leader_epoch)
            base += batch.last_offset_delta + 1
        self._write(batches, size, max_timestamp, offset, prepared)
        return AppendInfo(first_offset, offset - 1, append_time_ms, self.log_start_offset)

    def _append_one(
        self, batch: Batch, leader_epoch: int, origin: Origin, append_time_ms: int, transaction_version: int
    ) -> AppendInfo:
        """The way of nearly every produce request: one batch."""
        first_offset = self.log_end_offset
        next_offset = first_offset + batch.last_offset_delta + 1
        prepared: PreparedAppend | None = None
        state: ProducerState | None = None
        if batch.producer_id >= 0:
            state = self.producers.continues(batch)
            if state is None:
                checked = self.producers.prepare((batch,), first_offset, origin, transaction_version)
                if isinstance(checked, StoredBatch):
                    return self._duplicate(checked)
                prepared = checked
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        batch.stamp(first_offset, leader_epoch)
        self._write((batch,), batch.size, batch.max_timestamp, next_offset, prepared)
        if state is not None:
            state.remember(batch, first_offset)
        return AppendInfo(first_offset, next_offset - 1, append_time_ms, self.log_start_offset)

    def append_run(self, batches: Sequence[Batch], leader_epoch: int) -> Sequence[int]:
        """Append as leader what came in several requests as if one by one, but with one write; their first offsets.

        Only of batches that simply follow each other, as far as they do: none, where a segment would have to roll.
        """
        count, state = self.producers.run_of(batches)
        batches = batches[:count]
        segment = self._active
        if count < 2 or not segment.size:
            return ()
        offset = self.log_end_offset
        offsets: list[int] = []
        size = 0
        for batch in batches:
            offsets.append(offset)
            offset += batch.last_offset_delta + 1
            size += batch.size
        max_timestamp = max([batch.max_timestamp for batch in batches])
        if segment.should_roll(size, max_timestamp, offset - 1, self.clock, self.config, count):
            return ()
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, offsets[0])
        for batch, first_offset in zip(batches, offsets, strict=True):
            batch.stamp(first_offset, leader_epoch)
        try:
            self._write_to(segment, batches, offset)
        except KafkaStorageError:
            for batch in batches:
                batch.stamp(0, leader_epoch)  # as it came: each may be tried by itself
            raise
        if state is not None:
            for batch, first_offset in zip(batches, offsets, strict=True):
                state.remember(batch, first_offset)
        return offsets

    def _duplicate(self, stored: StoredBatch) -> AppendInfo:
        return AppendInfo(stored.first_offset, stored.last_offset, stored.timestamp, self.log_start_offset, True)

    def append_as_follower(self, batches: Sequence[Batch]) -> AppendInfo:
        """Append what a leader sent: offsets and epochs are in the batches and may have gaps, never steps back."""
        if not batches:
            return AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, self.log_start_offset)
        expected = self.log_end_offset
        size = 0
        max_timestamp = -1
        producing = False
        for batch in batches:
            if batch.base_offset < expected:
                raise CorruptMessage(
                    f"Out of order offsets found in append to {self.name}: {batch.base_offset} after {expected - 1}"
                )
            expected = batch.next_offset
            size += batch.size
            max_timestamp = max(max_timestamp, batch.max_timestamp)
            producing = producing or batch.producer_id >= 0
        prepared = self.producers.prepare(batches, self.log_end_offset, Origin.REPLICATION) if producing else None
        assert not isinstance(prepared, StoredBatch)
        for batch in batches:
            if batch.leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self._write(batches, size, max_timestamp, expected, prepared)
        return AppendInfo(batches[0].base_offset, expected - 1, -1, self.log_start_offset)

    def _write(
        self,
        batches: Sequence[Batch],
        size: int,
        max_timestamp: int,
        next_offset: int,
        prepared: PreparedAppend | None,
    ) -> None:
        config = self.config
        if size > config.segment_bytes:
            raise RecordListTooLarge(
                f"Message batch size is {size} bytes in append to partition {self.name}, which exceeds the maximum "
                f"configured segment size of {config.segment_bytes}."
            )
        segment = self._active
        if segment.should_roll(size, max_timestamp, next_offset - 1, self.clock, config):
            segment = self.roll(batches[0].base_offset)
        self._write_to(segment, batches, next_offset)
        if prepared is not None:
            for done, stable_offset in self.producers.commit(prepared):
                if done.aborted:
                    segment.add_aborted(done.producer_id, done.first_offset, done.last_offset, stable_offset)
                    # The entry came after the flush of its marker: until the next one a recovery has to make it again.
                    self.recovery_point = min(self.recovery_point, batches[0].base_offset)
            if prepared.started or prepared.completed:
                self._update_first_unstable()

    def _write_to(self, segment: Segment, batches: Sequence[Batch], next_offset: int) -> None:
        """Batches that have their offsets and their place; flushed, if the settings say so."""
        segment.append(pieces(batches), batches)
        if next_offset - self.recovery_point >= self.config.flush_messages:
            # Before anything else knows of the records: what cannot be flushed must not be seen, nor be taken for
            # the original of a duplicate. A retry writes the bytes again, as pages that failed to sync may be lost.
            try:
                self.flush(next_offset)
            except KafkaStorageError:
                segment.take_back(self.log_end_offset)
                raise
        self.log_end_offset = next_offset
        self.producers.map_end_offset = next_offset

    def roll(self, expected_offset: int = 0) -> Segment:
        """Start a new active segment at the log's end."""
        base = max(expected_offset, self.log_end_offset)
        active = self._active
        replaces = active.base_offset == base
        if replaces and active.size:
            raise KafkaStorageError(f"{self.name}: a segment with base offset {base} exists and is not empty")
        if not replaces:
            active.become_inactive()
        self.producers.map_end_offset = base
        self.producers.take_snapshot()
        if replaces:
            # Its indexes are full of nothing, or its settings changed: start again at the same offset.
            active.delete()
        added = self._new_segment(base)
        # The disk has done its part: a roll that fails before this leaves the log as it was.
        if replaces:
            self._segments.pop()
            self._bases.pop()
        elif active.txn_index.on_disk:
            # Written after its marker was flushed; the background flush shall see to it.
            self.recovery_point = min(self.recovery_point, active.base_offset)
        self._add_segment(added)
        # A replica may skip offsets at a roll (compacted away at the leader).
        self.log_end_offset = base
        if self.on_roll is not None:
            self.on_roll(self)
        return self._active

    def _new_segment(self, base_offset: int) -> Segment:
        jitter = self.config.segment_jitter_ms
        return Segment(
            self._disk,
            self.folder,
            base_offset,
            self.config,
            self.clock.now_ms(),
            # Spread by name, not by chance: partitions roll at different times, and a test sees the same each run.
            roll_jitter_ms=crc32(f"{self.name}-{base_offset}".encode()) % min(jitter, self.config.segment_ms)
            if jitter
            else 0,
        )

    def _add_segment(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment

    # --- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to_offset: int | None = None, min_one: bool = True) -> ReadResult:
        """A part of one segment from the batch that holds `offset` on, none of it at or above `up_to_offset`.

        The end need not be a batch's end. `min_one` lets the first batch through even if it is larger than allowed.
        """
        end = self.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.name}, but we only have log segments "
                f"in the range {self.log_start_offset} to {end}."
            )
        limit = end if up_to_offset is None or up_to_offset > end else up_to_offset
        if offset >= limit or (max_bytes <= 0 and not min_one):
            return ReadResult(b"", self._active.base_offset)
        if offset >= self._active.base_offset:
            slot = len(self._bases) - 1
        else:
            slot = max(bisect_right(self._bases, offset) - 1, 0)
        while slot < len(self._segments):
            segment = self._segments[slot]
            if segment.base_offset >= limit:
                break
            if limit == end or (slot + 1 < len(self._bases) and self._bases[slot + 1] <= limit):
                max_position = segment.log.size
            else:
                max_position = segment.position_of(limit)
            region = segment.read(offset, max_bytes, max_position, min_one)
            if region is not None:
                return ReadResult(region, segment.base_offset)
            slot += 1  # compaction left a gap up to the next segment
        return ReadResult(b"", self._active.base_offset)

    def batches(self, offset: int, up_to_offset: int | None = None) -> Iterator[Batch]:
        """Batches that hold `offset` and later ones, with their bytes: for coordinators and tools.

        It reads in pieces and looks up where each begins: between two of them the log may roll, or be cleaned.
        """
        while True:
            limit = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
            slot = max(bisect_right(self._bases, offset) - 1, 0)
            segment = self._segments[slot]
            if segment.base_offset >= limit:
                return
            next_offset = offset
            if (found := segment.find(offset)) is not None:
                position, size = found
                for batch in segment.batches(position, position + max(_PIECE_BYTES, size)):
                    if batch.base_offset >= limit:
                        return
                    yield batch
                    next_offset = max(next_offset, batch.next_offset)
                if next_offset == offset:  # batches of older formats are left out: there may be newer behind them
                    newer = next(segment.batches(position), None)
                    next_offset = offset if newer is None else newer.base_offset
            if next_offset <= offset:
                if slot + 1 >= len(self._bases):
                    return
                next_offset = self._bases[slot + 1]
            offset = next_offset

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Aborted transactions that touch records in [fetch_offset, upper_bound)."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(bisect_right(self._bases, fetch_offset) - 1, 0) :]:
            if segment.aborted(fetch_offset, upper_bound, found):
                break
        return found

    def upper_bound_offset(self, result: ReadResult) -> int:
        """An offset past everything in `result`: where looking for aborted transactions may stop."""
        slot = bisect_right(self._bases, result.segment_base_offset) - 1
        end = self._bases[slot + 1] if slot + 1 < len(self._bases) else self.log_end_offset
        region = result.records
        if not isinstance(region, FileRegion):
            return end
        return self._segments[slot].offset_after_position(region.position + len(region), end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record with this timestamp or a later one, or what a special timestamp stands for."""
        return times.find(self, timestamp)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch at or below; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- retention and truncation ------------------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Drop segments by log start offset and, where the policy says so, by size and time; returns how many."""
        deleted = self._drop_first(retention.below_start_offset(self), retention.START_OFFSET)
        if self.config.delete:
            deleted += self._drop_first(retention.past_size(self), retention.SIZE)
            deleted += self._drop_first(retention.past_time(self), retention.TIME)
        return deleted

    def _drop_first(self, count: int, reason: str) -> int:
        if not count:
            return 0
        if count == len(self._segments):
            self.roll()  # the active segment is never deleted, so there has to be another
        doomed = self._segments[:count]
        for segment in doomed:
            logger.info("%s: deleting segment %s", self.name, retention.explain(self, segment, reason))
        # In this order a disk that fails half-way leaves segments below the start offset: the next sweep takes them.
        self.advance_log_start_offset(self._bases[count])
        self._remove(doomed)
        del self._segments[:count], self._bases[:count]
        return count

    def _remove(self, segments: Sequence[Segment], keep_snapshot_at: int = -1) -> None:
        """Rename at once, remove after `file.delete.delay.ms`: who is reading a file may finish."""
        leftovers: list[str] = []
        for segment in segments:
            segment.change_suffix(DELETED_SUFFIX)
            if segment.base_offset == keep_snapshot_at:
                continue
            snapshot = self.producers.forget_snapshot(segment.base_offset)
            if snapshot is not None:
                self._disk.rename(snapshot, snapshot + DELETED_SUFFIX)
                leftovers.append(snapshot + DELETED_SUFFIX)

        def remove() -> None:
            paths = leftovers
            for segment in segments:
                paths += segment.release()
            self.remove_files(paths)

        if self._schedule is None:
            remove()
        else:
            self._schedule(self.config.file_delete_delay_ms, remove)

    def _remove_here(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.remove(path)

    def replace_segments(self, cleaned: Segment, replaced: Sequence[Segment]) -> None:
        """Put a compacted segment, whose files end in `.cleaned`, in the place of those that it was made from.

        Two renames make this safe at any moment: a `.swap` without a `.cleaned` beside it is whole, and the loader
        finishes what a crash interrupts; so the folder may be flushed later, off the loop. A reader of a replaced
        segment goes on until `file.delete.delay.ms` is over.
        """
        slot = self._segments.index(replaced[0])
        count = len(replaced)
        if self._segments[slot : slot + count] != list(replaced) or self._active in replaced:
            raise AssertionError(f"{self.name}: segments changed while they were compacted")
        cleaned.change_suffix(SWAP_SUFFIX)
        self._segments[slot : slot + count] = [cleaned]
        self._bases[slot : slot + count] = [cleaned.base_offset]
        self._remove(replaced, keep_snapshot_at=cleaned.base_offset)
        cleaned.change_suffix("")

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; False when there is nothing."""
        if offset >= self.log_end_offset:
            return False
        if self._bases[0] > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.truncations += 1
        keep = bisect_right(self._bases, offset)
        doomed = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self._active = self._segments[-1]
        self._remove(doomed)
        self._active.truncate_to(offset)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.rebuild_producers()
        self.update_high_watermark(min(self.high_watermark, offset))
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Throw the whole log away; the next record gets `offset`."""
        self.truncations += 1
        doomed = self._segments[:]
        self._segments.clear()
        self._bases.clear()
        self._remove(doomed)
        self._add_segment(self._new_segment(offset))
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.epochs.clear()
        self.producers.start_at(offset)
        self._update_first_unstable()
        self.update_high_watermark(offset)

    def rebuild_producers(self, *, clean: bool = False) -> None:
        """Load the newest snapshot within the log and replay what came after it."""
        rebuild_producers(self.producers, self._segments, self.log_end_offset, self.clock.now_ms(), clean=clean)
        self._update_first_unstable()

    # --- the disk ----------------------------------------------------------------------------------------------------

    def flush(self, up_to_offset: int | None = None) -> None:
        """Have the disk keep everything below `up_to_offset` (all by default)."""
        end = self.log_end_offset if up_to_offset is None else up_to_offset
        if end > self.recovery_point:
            slot = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
            for segment in self._segments[slot:]:
                if segment.base_offset >= end:
                    break
                segment.flush()
            self._disk.sync_folder(self.folder)
            if self.on_flush is not None:
                self.on_flush(self)
            self.recovery_point = end
        self._last_flush_ms = self.clock.now_ms()

    def failed(self, error: KafkaStorageError) -> None:
        """A request got this error: log it for the operator."""
        if self.on_failure is not None:
            self.on_failure(self, error)

    def mark_flushed(self) -> None:
        """The disk as a whole was flushed."""
        self.recovery_point = self.log_end_offset
        self._last_flush_ms = self.clock.now_ms()

    @property
    def unflushed(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._last_flush_ms

    def background_flush(self) -> tuple[list[str], Callable[[], None]] | None:
        """What `Disk.sync_paths` should flush in a thread after a roll, and what to call here once it has."""
        base = self._active.base_offset
        if base <= self.recovery_point:
            return None
        slot = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        paths = [path for segment in self._segments[slot:-1] for path in segment.paths()]
        paths.append(self.producers.snapshot_path(base))

        def done() -> None:
            # A truncation in between takes the promise back: then no segment starts there any more.
            if base in self._bases and base > self.recovery_point:
                self.recovery_point = base

        return paths, done

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.producers.expiration_ms = config.producer_id_expiration_ms
        for segment in self._segments:
            segment.limit_indexes(config.segment_index_bytes)
        if self.on_config is not None:
            self.on_config(self)

    def moved_to(self, folder: str) -> None:
        """The folder was renamed (a delete is under way)."""
        self.folder = folder
        self.producers.moved_to(folder)
        self.epochs.moved_to(folder)
        for segment in self._segments:
            segment.moved_to(folder)

    def close(self) -> None:
        """Leave the files as a clean stop of Kafka does: indexes complete, producer state in a snapshot."""
        self.producers.take_snapshot(sync=False)
        for segment in self._segments:
            segment.close()

    def close_handles(self) -> None:
        """Give up the handles without writing anything, as before a delete or after a failure."""
        for segment in self._segments:
            segment.log.close()
            segment.offset_index.file.close()
            segment.time_index.file.close()
