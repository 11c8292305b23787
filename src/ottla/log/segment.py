"""A segment: one `.log` file and its indexes, all named by the first offset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaStorageError
from ottla.lazy_imports import lazy
from ottla.log.files import Chunk, Disk, File, FileRegion
from ottla.log.index import (
    MAX_RELATIVE_OFFSET,
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from ottla.log.offset_position import Located, TimestampedOffset, in_order
from ottla.records.batch import HEADER_SIZE, LOCATOR, LOG_OVERHEAD, MAGIC_OFFSET, MIN_BATCH_LENGTH, MIN_LENGTH, Batch
from ottla.records.streaming import WINDOW_BYTES

if TYPE_CHECKING:
    from ottla.answers import Steps
    from ottla.clock import Clock
    from ottla.log import recovery_scan
    from ottla.log.epochs import LeaderEpochs
    from ottla.log.options import LogConfig
    from ottla.log.producers import ProducerStateManager
    from ottla.records import legacy
else:
    recovery_scan = lazy("ottla.log.recovery_scan")
    legacy = lazy("ottla.records.legacy")

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"

_MIN_ENTRY_SIZE: Final = LOG_OVERHEAD + MIN_LENGTH
_PROBE_BYTES: Final = 4096
_SCAN_BYTES: Final = 1 << 20
_FAR: Final = 1 << 62
_HINTS: Final = 128
"""Positions of the newest batches and of recently read ones. Readers at the tail, and readers that follow others, need
neither a search nor a scan."""


class Segment:
    """Appends go to the file and occasionally to an index. A read is a position and a length."""

    __slots__ = (
        "_before_append",
        "_bytes_since_index",
        "_disk",
        "_first_timestamp",
        "_hints",
        "_interval",
        "_max_offset_entries",
        "_max_time_entries",
        "_max_timestamp",
        "_max_timestamp_offset",
        "base_offset",
        "created_ms",
        "folder",
        "log",
        "offset_index",
        "roll_jitter_ms",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        config: LogConfig,
        created_ms: int,
        *,
        sizes: dict[str, int] | None = None,
        suffix: str = "",
        roll_jitter_ms: int = 0,
    ) -> None:
        """For an existing segment, `sizes` is a scan of its folder. Without it a new segment is created.

        The first append creates its files, because most partitions of a broker may be empty. Only a segment that does
        not start at 0 gets its log file immediately: the file name holds the offset where the log continues.
        """
        self._disk = disk
        self.folder = folder
        self.suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._interval = config.index_interval_bytes
        self.limit_indexes(config.segment_index_bytes)
        stem = f"{base_offset:020d}"
        known = sizes or {}
        self.log: File = self._file(stem + LOG_SUFFIX, known)
        self.offset_index = OffsetIndex(self._file(stem + INDEX_SUFFIX, known), base_offset)
        self.time_index = TimeIndex(self._file(stem + TIME_INDEX_SUFFIX, known), base_offset)
        txn_name = stem + TXN_INDEX_SUFFIX + suffix
        self.txn_index = TransactionIndex(disk, f"{folder}/{txn_name}", txn_name in known)
        if sizes is None and base_offset:
            disk.touch(self.log.path)
        self._bytes_since_index = 0
        self._before_append: tuple[int, int | None, int, int] = (0, -1, base_offset, 0)
        self._hints: dict[int, tuple[int, int]] = {}
        empty = self.log.size == 0
        self._max_timestamp: int | None = -1 if empty else None
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None

    def _file(self, name: str, sizes: dict[str, int]) -> File:
        return self._disk.open(f"{self.folder}/{name}{self.suffix}", size=sizes.get(name + self.suffix, 0))

    def __repr__(self) -> str:
        return f"Segment({self.folder}/{self.base_offset:020d}{self.suffix}, size={self.log.size})"

    # --- writing -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.log.size

    def append(self, views: Sequence[Chunk], batches: Sequence[Batch]) -> None:
        """Write stamped batches with one call and index them. The caller has checked `should_roll`."""
        if not self.log.size:
            for index in (self.offset_index, self.time_index):
                self._disk.touch(index.file.path)
            self._first_timestamp = max([batch.max_timestamp for batch in batches])
        before = self.log.size, self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index
        position = self.log.append(views)
        self._before_append = before
        hints = self._hints
        if len(hints) > _HINTS:
            hints.clear()
        for batch in batches:
            size, base_offset = batch.size, batch.base_offset
            self._index(base_offset + batch.last_offset_delta, batch.max_timestamp, position, size)
            hints[base_offset] = (position, size)
            position += size

    def _index(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        if max_timestamp > self._max_timestamp:  # type: ignore[operator]  # every caller has loaded it
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index > self._interval:
            try:
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)  # type: ignore[arg-type]
            except (KafkaStorageError, CorruptIndex):
                pass  # the bytes are already in the log; the sparse index only lacks an entry
            self._bytes_since_index = size
        else:
            self._bytes_since_index += size

    def take_back(self, next_offset: int) -> None:
        """Undo the last append, whose first record had `next_offset`, because it could not be kept.

        Never fails: if the disk cannot do it now, it is done before the next append.
        """
        size, self._max_timestamp, self._max_timestamp_offset, self._bytes_since_index = self._before_append
        self.log.take_back(size)
        self._hints.clear()
        if not size:
            self._first_timestamp = None
        try:
            self.offset_index.truncate_to(next_offset)
            self.time_index.truncate_to(next_offset)
        except (KafkaStorageError, CorruptIndex):
            self.offset_index.distrust()
            self.time_index.distrust()

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, clock: Clock, config: LogConfig, entries: int = 1
    ) -> bool:
        """Whether batches of `size` bytes, with this many index entries, must go to a new segment."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        current = self.log.size
        if current > config.segment_bytes - size or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if current:
            # How long the segment has been filled, by record timestamps if there are any (KAFKA-3163).
            first = self._first_timestamp
            if first is None:
                first = self.first_timestamp
            waited_ms = max_timestamp - first if first >= 0 else clock.now_ms() - self.created_ms
            if waited_ms > config.segment_ms - self.roll_jitter_ms:
                return True
        full = self.offset_index.count + entries > self._max_offset_entries
        return full or self.time_index.count + entries > self._max_time_entries

    def limit_indexes(self, max_bytes: int) -> None:
        """Set `segment.index.bytes`. The time index keeps one slot for the entry that closes it."""
        self._max_offset_entries = max_bytes // OffsetIndex.ENTRY.size
        self._max_time_entries = max_bytes // TimeIndex.ENTRY.size - 1

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, or -1 if there is none."""
        if self._first_timestamp is None:
            if not self.log.size:
                return -1
            self._first_timestamp = next((b.max_timestamp for b in self.locate_from(0)), -1)
        return self._first_timestamp

    def add_aborted(self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int) -> None:
        self.txn_index.append(producer_id, first_offset, last_offset, last_stable_offset)

    def aborted(self, fetch_offset: int, upper_bound: int, into: list[AbortedTransaction]) -> bool:
        return self.txn_index.collect(fetch_offset, upper_bound, into)

    def become_inactive(self) -> None:
        """Store the segment's largest timestamp in the last time index entry, for retention and restarts."""
        if self.log.size:
            try:
                self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
                self.offset_index.load()
            except CorruptIndex:
                self.rebuild_indexes()
        self.txn_index.write_unwritten()
        self.offset_index.close()
        self.time_index.close()
        self._hints.clear()

    # --- finding -----------------------------------------------------------------------------------------------------

    def locate_from(self, position: int, end: int | None = None) -> Iterator[Located]:
        """Headers of complete batches from a batch's position on. Ends silently at the first incomplete one."""
        stop = self.log.size if end is None else min(end, self.log.size)
        chunk: Chunk = b""
        start = position
        while stop - position >= _MIN_ENTRY_SIZE:
            inside = position - start
            if inside + HEADER_SIZE > len(chunk):
                chunk = self.log.view(position, min(_PROBE_BYTES, stop - position))
                start, inside = position, 0
                if len(chunk) < HEADER_SIZE:  # a short message of format 0 or 1, or a torn tail
                    chunk = bytes(chunk).ljust(HEADER_SIZE, b"\0")
            base_offset, length, magic, delta = LOCATOR.unpack_from(chunk, inside)
            size = length + LOG_OVERHEAD
            if position + size > stop or magic < 0:
                return
            if magic >= 2:  # no checksum covers the magic: as in Kafka, a larger one counts as v2 until its CRC fails
                if length < MIN_BATCH_LENGTH:
                    return
                batch = Batch(chunk, inside)
                yield Located(position, size, base_offset, base_offset + delta, batch.max_timestamp, batch.leader_epoch)
            else:
                if length < MIN_LENGTH:
                    return
                message = legacy.LegacyBatch(chunk, inside)
                yield Located(position, size, base_offset, base_offset, message.max_timestamp, message.leader_epoch)
            position += size

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch whose last offset is at or after `offset`."""
        found = self._hints.get(offset)
        if found is None and (found := self._look_up(offset)) is not None:
            if len(self._hints) > _HINTS:
                self._hints.clear()
            self._hints[offset] = found
        return found

    def _look_up(self, offset: int) -> tuple[int, int] | None:
        try:
            relative, position = self.offset_index.entry_before(offset)
            probe = self.log.view(position, _PROBE_BYTES)
            if not position or self._fits(probe, self.base_offset + relative):
                return self._scan_for(offset, position, probe)
        except CorruptIndex:
            pass
        return self._scan_for(offset, self.start_before(offset))

    def start_before(self, offset: int) -> int:
        """The position, from the index, of a batch at or before the one that holds `offset`.

        If the batch there does not match the entry, the index is rebuilt: a wrong index must not hide records.
        """
        try:
            relative, position = self.offset_index.entry_before(offset)
            if not position or self._fits(self.log.view(position, LOCATOR.size), self.base_offset + relative):
                return position
        except CorruptIndex as error:
            logger.warning("%s", error)
        logger.warning("%s/%020d.index does not fit its log and is rebuilt", self.folder, self.base_offset)
        self.rebuild_indexes()
        return self.offset_index.entry_before(offset)[1]

    def _fits(self, header: Chunk, last_offset: int) -> bool:
        """Whether `header` starts a batch that an entry for `last_offset` may point to."""
        if len(header) < LOCATOR.size:
            return False
        base_offset, length, magic, delta = LOCATOR.unpack_from(header)
        if magic < 0 or length < MIN_LENGTH or base_offset < self.base_offset:
            return False
        # Not equal: Kafka indexes the last offset of all batches that were appended together.
        return bool(base_offset + (delta if magic >= 2 else 0) <= last_offset)

    def _scan_for(self, offset: int, position: int, chunk: Chunk = b"") -> tuple[int, int] | None:
        """Position and size of the batch, searched from a batch's position on. `chunk` was already read there."""
        stop = self.log.size
        unpack = LOCATOR.unpack_from
        start = position
        while stop - position >= _MIN_ENTRY_SIZE:
            inside = position - start
            if inside + LOCATOR.size > len(chunk):
                chunk = self.log.view(position, _PROBE_BYTES)
                start, inside = position, 0
                if len(chunk) < LOCATOR.size:
                    return None
            base_offset, length, magic, delta = unpack(chunk, inside)
            if length < MIN_LENGTH:
                return None
            if (base_offset + delta if magic >= 2 else base_offset) >= offset:
                return position, length + LOG_OVERHEAD
            position += length + LOG_OVERHEAD
        return None

    def read(self, offset: int, max_bytes: int, max_position: int, min_one: bool) -> FileRegion | None:
        """From the batch that holds `offset`, or the next one, up to `max_position`. None beyond the end."""
        if (found := self.find(offset)) is None:
            return None
        position, size = found
        wanted = max(max_bytes, size) if min_one else max_bytes
        return self.log.region(position, max(min(max_position - position, wanted), 0))

    def position_of(self, offset: int) -> int:
        """The position of the batch that holds `offset`, or the end if there is none."""
        return found[0] if (found := self.find(offset)) is not None else self.log.size

    def offset_after_position(self, position: int, default: int) -> int:
        """The offset of the first index entry at or after a position: a cheap upper bound for everything before it."""
        index = self.offset_index
        index.load()
        low, high = 0, index.count
        while low < high:
            middle = (low + high) >> 1
            if index.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + index.entry(low)[0] if low < index.count else default

    def next_offset(self) -> int:
        """One past the last record, searched from the last index entry on."""
        return self.find_end()[0]

    def find_end(self) -> tuple[int, int]:
        """One past the last record, and the number of bytes after it that form no complete batch."""
        position = self.start_before(_FAR)
        last = self.base_offset - 1
        for batch in self._in_order_from(position):
            last = batch.last_offset
            position = batch.position + batch.size
        return last + 1, self.log.size - position

    def _in_order_from(self, position: int) -> Iterator[Located]:
        """Like `locate_from`, without batches out of order: damage must not affect an index or the log's end."""
        found = ((batch, None) for batch in self.locate_from(position))
        return (batch for batch, _, follows in in_order(found, *self._range) if follows)

    @property
    def _range(self) -> tuple[int, int]:
        """The range of offsets that this segment's index can hold."""
        return self.base_offset, self.base_offset + MAX_RELATIVE_OFFSET

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Complete v2 batches with their bytes, read in large pieces."""
        stop = self.log.size if end is None else min(end, self.log.size)
        chunk: Chunk = b""
        start = position
        while stop - position >= HEADER_SIZE:
            inside = position - start
            if inside + HEADER_SIZE > len(chunk):
                chunk = self.log.view(position, min(_SCAN_BYTES, stop - position))
                start, inside = position, 0
            batch = Batch(chunk, inside)
            if batch.magic >= 2 and batch.batch_length < MIN_BATCH_LENGTH:
                return
            if position + batch.size > stop or batch.batch_length < MIN_LENGTH or batch.magic < 0:
                return
            if inside + batch.size > len(chunk):
                chunk = self.log.view(position, max(min(_SCAN_BYTES, stop - position), batch.size))
                start = position
                batch = Batch(chunk, 0)
            if batch.magic >= 2:
                yield batch
            position += batch.size

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The largest record timestamp, or -1 if unknown."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp  # type: ignore[return-value]

    def _load_max_timestamp(self) -> None:
        try:
            self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry
        except CorruptIndex:
            self.rebuild_indexes()

    @property
    def largest_timestamp(self) -> int:
        """The timestamp for retention: the largest record timestamp, or the file's modification time."""
        timestamp = self.max_timestamp
        if timestamp >= 0:
            return timestamp
        return self._disk.modified_ms(self.log.path) if self.log.size else self.created_ms

    def find_timestamp(self, timestamp: int, start_offset: int) -> Steps[TimestampedOffset | None]:
        """The first record at or after `start_offset` with this timestamp or a later one. Reads one batch."""
        try:
            offset = self.time_index.offset_before(timestamp)
        except CorruptIndex:
            self.rebuild_indexes()
            offset = self.time_index.offset_before(timestamp)
        position = self.start_before(max(offset, start_offset))
        for located in self.locate_from(position):
            if located.max_timestamp < timestamp or located.last_offset < start_offset:
                continue
            data = self.log.view(located.position, located.size)
            batch = Batch(data) if data[MAGIC_OFFSET] >= 2 else legacy.LegacyBatch(data)
            for times in batch.record_times():
                for record_timestamp, offset in times:
                    if record_timestamp >= timestamp and offset >= start_offset:
                        return TimestampedOffset(record_timestamp, offset, batch.leader_epoch)
                yield WINDOW_BYTES
                if self.suffix:
                    raise KafkaStorageError(f"{self.log.path} was removed while it was read")
        return None

    # --- recovery ----------------------------------------------------------------------------------------------------

    def rebuild_indexes(self) -> None:
        """Rebuild the offset and time index from the log's headers."""
        self.offset_index.reset()
        self.time_index.reset()
        self._reset_progress()
        for batch in self._in_order_from(0):
            self._index(batch.last_offset, batch.max_timestamp, batch.position, batch.size)
        self._finish_indexes()

    def _reset_progress(self) -> None:
        self._max_timestamp = -1
        self._max_timestamp_offset = self.base_offset
        self._bytes_since_index = 0
        self._first_timestamp = None
        self._hints.clear()

    def _finish_indexes(self) -> None:
        if self.log.size:
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def recover(
        self,
        producers: ProducerStateManager,
        epochs: LeaderEpochs,
        before_cut: Callable[[int], None] | None = None,
        *,
        is_last: bool = True,
    ) -> int:
        """Check every batch, rebuild all indexes, and cut incomplete or damaged data (`before_cut` may raise instead).
        Returns how many bytes were cut.

        As in Kafka, batches with offsets out of order stay if valid ones follow. At the end of the last segment they
        are cut, so that the log ends after the last valid batch.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self._reset_progress()
        position = 0
        strange: list[tuple[Located, Batch | None]] = []
        for located, batch, follows in in_order(recovery_scan.valid_entries(self), *self._range):
            if not follows:
                if before_cut is not None:
                    break
                strange.append((located, batch))
                continue
            for _, other in strange:
                self._replay(other, producers)
            strange.clear()
            self._index(located.last_offset, located.max_timestamp, located.position, located.size)
            if batch is not None:
                epochs.assign(batch.leader_epoch, batch.base_offset)
                self._replay(batch, producers)
            position = located.position + located.size
        if not is_last:
            for located, other in strange:
                self._replay(other, producers)
                position = located.position + located.size
        truncated = self.log.size - position
        if truncated:
            if before_cut is not None:
                before_cut(position)
            self.log.truncate(position)
        self._finish_indexes()
        return truncated

    def _replay(self, batch: Batch | None, producers: ProducerStateManager) -> None:
        if batch is not None:
            for done, stable_offset in producers.replay(batch):
                if done.aborted:
                    self.add_aborted(done.producer_id, done.first_offset, done.last_offset, stable_offset)

    def truncate_to(self, offset: int) -> int:
        """Drop everything from the batch that holds `offset` on. Returns how many bytes were dropped."""
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        dropped = 0
        if found is not None:
            dropped = self.log.size - found[0]
            self.log.truncate(found[0])
        self._hints.clear()
        self._bytes_since_index = 0
        if not self.log.size:
            self._reset_progress()
            return dropped
        timestamp, at = self.time_index.last_entry
        for batch in self.locate_from(self.start_before(at)):
            if batch.max_timestamp > timestamp:
                timestamp, at = batch.max_timestamp, batch.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, at
        return dropped

    # --- files -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.log.fsync()
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def close(self) -> None:
        if self._max_timestamp is not None:
            self.become_inactive()
        else:
            self.offset_index.close()
            self.time_index.close()
            self.txn_index.write_unwritten()
        self.log.close()

    def paths(self) -> list[str]:
        """The segment's files."""
        files = [self.log.path, self.offset_index.file.path, self.time_index.file.path]
        return [*files, self.txn_index.path] if self.txn_index.on_disk else files

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment. Open handles stay valid."""
        stem = f"{self.folder}/{self.base_offset:020d}"
        for file, kind in (
            (self.log, LOG_SUFFIX),
            (self.offset_index.file, INDEX_SUFFIX),
            (self.time_index.file, TIME_INDEX_SUFFIX),
        ):
            if self._disk.exists(file.path):
                self._disk.rename(file.path, stem + kind + suffix)
            file.path = stem + kind + suffix
        if self.txn_index.on_disk and self._disk.exists(self.txn_index.path):
            self._disk.rename(self.txn_index.path, stem + TXN_INDEX_SUFFIX + suffix)
        self.txn_index.path = stem + TXN_INDEX_SUFFIX + suffix
        self.suffix = suffix

    def moved_to(self, folder: str) -> None:
        """The folder was renamed."""
        self.folder = folder
        for file in (self.log, self.offset_index.file, self.time_index.file):
            file.path = f"{folder}/{file.path.rpartition('/')[2]}"
        self.txn_index.path = f"{folder}/{self.txn_index.path.rpartition('/')[2]}"

    def release(self) -> list[str]:
        """Close the handles of a removed segment. Returns the files that are left to remove."""
        for file in (self.log, self.offset_index.file, self.time_index.file):
            file.close()
        return self.paths()

    def delete(self) -> None:
        for path in self.release():
            self._disk.remove(path)
