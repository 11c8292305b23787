"""A partition's log: its segments, its start and end offsets, its producers and its leader epochs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from ottla.answers import Steps, finished
from ottla.clock import Clock
from ottla.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from ottla.log import integrity, retention
from ottla.log import timestamp_lookup as times
from ottla.log.epochs import LeaderEpochs
from ottla.log.files import Disk
from ottla.log.index import AbortedTransaction
from ottla.log.offset_position import TimestampedOffset
from ottla.log.options import LogConfig
from ottla.log.producer_replay import rebuild_producers
from ottla.log.producers import Origin, PreparedAppend, ProducerState, ProducerStateManager, StoredBatch
from ottla.log.removal import Scheduler, SegmentRemoval
from ottla.log.results import AppendInfo, ReadResult
from ottla.log.segment import Segment
from ottla.log.segments import LogSegments
from ottla.records.batch import Batch, pieces

logger = logging.getLogger(__name__)


class Log:
    """The log of one partition. Not thread-safe.

    `loader.open_log` creates one from the disk.
    """

    __slots__ = (
        "_disk",
        "_first_unstable",
        "_last_flush_ms",
        "_segments",
        "clock",
        "config",
        "epochs",
        "folder",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "missing",
        "name",
        "on_config",
        "on_failure",
        "on_flush",
        "on_roll",
        "partition",
        "producers",
        "recovery_point",
        "removal",
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
        missing: Sequence[tuple[int, int]] = (),
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
        self._segments = LogSegments(segments)
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.missing = missing
        """Offsets from .. to (exclusive) of segments whose files are missing; see `integrity`."""
        self.high_watermark = log_start_offset
        """Set by the replication code through `update_high_watermark`."""
        self._first_unstable: int | None = None
        self._update_first_unstable()
        self._last_flush_ms = clock.now_ms()
        self.on_roll: Callable[[Log], object] | None = None
        """Called after a roll: the older segments may be flushed in the background, and compacted."""
        self.on_flush: Callable[[Log], object] | None = None
        """Called in a flush: the metadata that the log depends on must be on the disk, too."""
        self.on_failure: Callable[[Log, KafkaStorageError], object] | None = None
        """Called when a request failed because of the disk."""
        self.on_config: Callable[[Log], object] | None = None
        """Called after the settings changed."""
        self.removal = SegmentRemoval(disk, schedule)
        self.truncations = 0
        """How often the end was truncated: data that was read before may have changed."""

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset}, {len(self._segments)} segments)"

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments.all

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that has not ended below the high watermark."""
        return self._first_unstable

    @property
    def last_stable_offset(self) -> int:
        """Committed reads stop here."""
        unstable = self._first_unstable
        return unstable if unstable is not None and unstable < self.high_watermark else self.high_watermark

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark within the bounds of the log. Returns the new value."""
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
        """Hide everything below `offset` (DeleteRecords, retention). The next sweep deletes the segments."""
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
        """Append as leader: assigns offsets to the validated batches, in place, and writes their bytes.

        `append_time_ms` is only passed through to the result, because validation has already stamped the batches.
        `transaction_version` is that of the coordinator that sent a marker.
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
        """The path of almost all produce requests: one batch."""
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
        """Append batches of several requests as leader with a single write. Returns their first offsets.

        Appends only the leading batches that directly follow each other, and no batch if a segment would have to roll.
        """
        count, state = self.producers.run_of(batches)
        batches = batches[:count]
        segment = self._segments.active
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
                batch.stamp(0, leader_epoch)  # reset, because each batch may be retried alone
            raise
        if state is not None:
            for batch, first_offset in zip(batches, offsets, strict=True):
                state.remember(batch, first_offset)
        return offsets

    def _duplicate(self, stored: StoredBatch) -> AppendInfo:
        return AppendInfo(stored.first_offset, stored.last_offset, stored.timestamp, self.log_start_offset, True)

    def append_as_follower(self, batches: Sequence[Batch]) -> AppendInfo:
        """Append batches from the leader. They keep offsets and epochs. Offsets may have gaps but never go back."""
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
        segment = self._segments.active
        if segment.should_roll(size, max_timestamp, next_offset - 1, self.clock, config):
            segment = self.roll(batches[0].base_offset)
        self._write_to(segment, batches, next_offset)
        if prepared is not None:
            for done, stable_offset in self.producers.commit(prepared):
                if done.aborted:
                    segment.add_aborted(done.producer_id, done.first_offset, done.last_offset, stable_offset)
                    # The entry was written after its marker was flushed. Until the next flush, recovery must rebuild
                    # it.
                    self.recovery_point = min(self.recovery_point, batches[0].base_offset)
            if prepared.started or prepared.completed:
                self._update_first_unstable()

    def _write_to(self, segment: Segment, batches: Sequence[Batch], next_offset: int) -> None:
        """Write batches that have their offsets. Flush if the settings require it."""
        segment.append(pieces(batches), batches)
        if next_offset - self.recovery_point >= self.config.flush_messages:
            # Flush before the records become known: records that cannot be flushed must not be visible, or count as the
            # original of a duplicate. A retry writes the bytes again, because pages that failed to sync may be lost.
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
        active = self._segments.active
        replaces = active.base_offset == base
        if replaces and active.size:
            raise KafkaStorageError(f"{self.name}: a segment with base offset {base} exists and is not empty")
        if not replaces:
            active.become_inactive()
        self.producers.map_end_offset = base
        self.producers.take_snapshot()
        if replaces:
            # Its indexes are full although it is empty, or its settings changed: start again at the same offset.
            active.delete()
        added = self._new_segment(base)
        # The disk operations are done. A roll that fails before this point leaves the log unchanged.
        if not replaces and active.txn_index.on_disk:
            # Written after its marker was flushed, so the background flush must include it.
            self.recovery_point = min(self.recovery_point, active.base_offset)
        self._segments.add(added)
        # A replica may skip offsets at a roll, if the leader compacted them away.
        self.log_end_offset = base
        if self.on_roll is not None:
            self.on_roll(self)
        return added

    def _new_segment(self, base_offset: int) -> Segment:
        jitter = self.config.segment_jitter_ms
        return Segment(
            self._disk,
            self.folder,
            base_offset,
            self.config,
            self.clock.now_ms(),
            # Jitter by name instead of random: partitions roll at different times, but each test run is the same.
            roll_jitter_ms=crc32(f"{self.name}-{base_offset}".encode()) % min(jitter, self.config.segment_ms)
            if jitter
            else 0,
        )

    # --- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to_offset: int | None = None, min_one: bool = True) -> ReadResult:
        """A part of one segment, from the batch with `offset` up to `up_to_offset`.

        The end may be inside a batch. With `min_one` the first batch is returned even if it is larger than `max_bytes`.
        """
        end = self.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise OffsetOutOfRange(
                f"Received request for offset {offset} for partition {self.name}, but we only have log segments "
                f"in the range {self.log_start_offset} to {end}."
            )
        limit = end if up_to_offset is None or up_to_offset > end else up_to_offset
        if offset >= limit or (max_bytes <= 0 and not min_one):
            return ReadResult(b"", self._segments.active.base_offset)
        if self.missing:
            integrity.check_range(self, offset, offset + 1)
        return self._segments.read(offset, max_bytes, limit, end, min_one)

    def batches(self, offset: int, up_to_offset: int | None = None) -> Iterator[Batch]:
        """Batches from `offset` on, with their bytes, for coordinators and tools."""

        def limit() -> int:
            return self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)

        if self.missing:
            integrity.check_range(self, offset, limit())
        return self._segments.batches(offset, limit)

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [fetch_offset, upper_bound)."""
        return self._segments.aborted_transactions(fetch_offset, upper_bound)

    def upper_bound_offset(self, result: ReadResult) -> int:
        """An offset past everything in `result`, up to which aborted transactions are relevant."""
        return self._segments.upper_bound_offset(result, self.log_end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record with this timestamp or a later one, or the meaning of a special timestamp."""
        return finished(self.search_timestamp(timestamp))

    def search_timestamp(self, timestamp: int) -> Steps[TimestampedOffset | None]:
        """Like `offset_for_timestamp`, in steps, because a batch that must be read may be long."""
        return times.find(self, timestamp)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch at or below `epoch`, or (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- retention and truncation ------------------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Drop segments by log start offset and, if the policy includes delete, by size and time. Returns how many."""
        deleted = self._drop_first(retention.below_start_offset(self), retention.START_OFFSET)
        if self.config.delete:
            deleted += self._drop_first(retention.past_size(self), retention.SIZE)
            deleted += self._drop_first(retention.past_time(self), retention.TIME)
        return deleted

    def _drop_first(self, count: int, reason: str) -> int:
        if not count:
            return 0
        if count == len(self._segments):
            self.roll()  # the active segment is never deleted, so there must be another one
        doomed = self.segments[:count]
        for segment in doomed:
            logger.info("%s: deleting segment %s", self.name, retention.explain(self, segment, reason))
        # In this order, a failure of the disk leaves segments below the start offset. The next sweep deletes them.
        self.advance_log_start_offset(self._segments.base_after(count))
        self._remove(doomed)
        self._segments.drop_first(count)
        return count

    def _remove(self, segments: Sequence[Segment], keep_snapshot_at: int = -1) -> None:
        self.removal.remove(segments, self.producers, self.config.file_delete_delay_ms, keep_snapshot_at)

    def replace_segments(self, cleaned: Segment, replaced: Sequence[Segment]) -> None:
        """Replace segments with the compacted segment built from them, whose files end in `.cleaned`.

        Two renames make this crash-safe: a `.swap` without a `.cleaned` is complete, and the loader finishes an
        interrupted swap. So the folder can be flushed later, outside the event loop. Readers can use a replaced segment
        until `file.delete.delay.ms` is over.
        """
        self._segments.replace(replaced, cleaned)
        self._remove(replaced, keep_snapshot_at=cleaned.base_offset)
        cleaned.change_suffix("")

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on. False if there is nothing to drop."""
        if offset >= self.log_end_offset:
            return False
        if self._segments.first_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.truncations += 1
        self._remove(self._segments.drop_after(offset))
        self._segments.active.truncate_to(offset)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.rebuild_producers()
        self.update_high_watermark(min(self.high_watermark, offset))
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Discard the whole log. The next record gets `offset`."""
        self.truncations += 1
        self._remove(self._segments.drop_all())
        self._segments.add(self._new_segment(offset))
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.epochs.clear()
        self.producers.start_at(offset)
        self._update_first_unstable()
        self.update_high_watermark(offset)

    def rebuild_producers(self, *, clean: bool = False) -> None:
        """Load the newest snapshot within the log and replay the batches after it."""
        rebuild_producers(self.producers, self._segments.all, self.log_end_offset, self.clock.now_ms(), clean=clean)
        self._update_first_unstable()

    # --- the disk ----------------------------------------------------------------------------------------------------

    def flush(self, up_to_offset: int | None = None) -> None:
        """Flush everything below `up_to_offset` (by default everything)."""
        end = self.log_end_offset if up_to_offset is None else up_to_offset
        if end > self.recovery_point:
            for segment in self._segments.holding(self.recovery_point):
                if segment.base_offset >= end:
                    break
                segment.flush()
            self._disk.sync_folder(self.folder)
            if self.on_flush is not None:
                self.on_flush(self)
            self.recovery_point = end
        self._last_flush_ms = self.clock.now_ms()

    def failed(self, error: KafkaStorageError) -> None:
        """A request got this error. Report it to the operator."""
        if self.on_failure is not None:
            self.on_failure(self, error)

    def mark_flushed(self) -> None:
        """The whole disk was flushed."""
        self.recovery_point = self.log_end_offset
        self._last_flush_ms = self.clock.now_ms()

    @property
    def unflushed(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._last_flush_ms

    def background_flush(self) -> tuple[list[str], Callable[[], None]] | None:
        """The paths for `Disk.sync_paths` to flush in a thread after a roll, and a callback for afterwards."""
        base = self._segments.active.base_offset
        if base <= self.recovery_point:
            return None
        inactive = self._segments.holding(self.recovery_point)[:-1]
        paths = [path for segment in inactive for path in segment.paths()]
        paths.append(self.producers.snapshot_path(base))

        def done() -> None:
            # After a truncation in between, no segment starts there, and the flush does not count.
            if self._segments.has_base(base) and base > self.recovery_point:
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
        """The folder was renamed (a delete is in progress)."""
        self.folder = folder
        self.producers.moved_to(folder)
        self.epochs.moved_to(folder)
        for segment in self._segments:
            segment.moved_to(folder)

    def close(self) -> None:
        """Leave the files as Kafka's clean stop does: indexes complete, producer state in a snapshot."""
        self.producers.take_snapshot(sync=False)
        for segment in self._segments:
            segment.close()

    def close_handles(self) -> None:
        """Close the handles without writing anything, for example before a delete or after a failure."""
        for segment in self._segments:
            segment.log.close()
            segment.offset_index.file.close()
            segment.time_index.file.close()
