"""The folder of one partition, read-only: a broker may be working in it.

Segments can appear and disappear during a read (retention, compaction), so the folder is listed again for each segment.
Open files stay readable. An index is only used if it matches the log.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import KafkaError
from ottla.log.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from ottla.log.producers import decode_snapshot
from ottla.records.batch import FRONT, HEADER_SIZE, LOG_OVERHEAD, MIN_BATCH_LENGTH, MIN_LENGTH, Batch
from ottla.records.legacy import HEADER_V1, LegacyBatch

CHUNK_BYTES: Final = 4 << 20
"""The bytes to read and decode together: enough to make numpy worthwhile, and small enough for any worker's memory."""
_HEADERS_BYTES: Final = 64 << 10
_LOG_NAME: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})\.snapshot")

AnyBatch = Batch | LegacyBatch


class Located(NamedTuple):
    position: int
    batch: AnyBatch


class GoneSegment(Exception):
    """The segment was removed before it could be opened."""


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise GoneSegment(str(path)) from None
    try:
        yield handle
    finally:
        os.close(handle)


class Segment:
    """A segment by its name. Files are opened when used."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.path = folder / f"{base_offset:020d}.log"

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            raise GoneSegment(str(self.path)) from None

    # --- batches -----------------------------------------------------------------------------------------------------

    def chunks(self, handle: int, position: int) -> Iterator[list[Located]]:
        """Whole batches from a position on, in chunks that share a buffer. Ends at the first incomplete batch."""
        need = CHUNK_BYTES
        while True:
            data = os.pread(handle, need, position)
            found, used, size = self._batches(data, position)
            if found:
                yield found
                position += used
                need = CHUNK_BYTES
            elif size > len(data) >= need and position + size <= os.fstat(handle).st_size:
                need = size  # a batch that is larger than a chunk; a damaged length may claim two gigabytes
            else:
                return

    def _batches(self, data: bytes, at: int) -> tuple[list[Located], int, int]:
        """The complete batches in `data`, the bytes they take, and the size of the incomplete one (0: none)."""
        found: list[Located] = []
        position, stop = 0, len(data)
        unpack = FRONT.unpack_from
        while stop - position >= FRONT.size:
            offset, length, magic = unpack(data, position)
            if not 0 <= magic <= 2 or length < (MIN_BATCH_LENGTH if magic == 2 else MIN_LENGTH):
                return found, position, 0
            if offset < self.base_offset:
                return found, position, 0
            following = position + length + LOG_OVERHEAD
            if following > stop:
                return found, position, following - position
            batch = Batch(data, position) if magic == 2 else LegacyBatch(data, position)
            found.append(Located(at + position, batch))
            position = following
        return found, position, stop - position + HEADER_SIZE if stop > position else 0

    def headers(self, handle: int, position: int, end: int) -> Iterator[Located]:
        """Like `chunks`, with headers only: `batch` has no payload. Skips from header to header in large batches."""
        data, start = b"", position
        while end - position >= HEADER_V1.size:
            inside = position - start
            if inside + HEADER_SIZE > len(data):
                data, start, inside = os.pread(handle, _HEADERS_BYTES, position), position, 0
                if len(data) < FRONT.size:
                    return
                data = data.ljust(HEADER_SIZE, b"\0")
            offset, length, magic = FRONT.unpack_from(data, inside)
            size = length + LOG_OVERHEAD
            if not 0 <= magic <= 2 or length < (MIN_BATCH_LENGTH if magic == 2 else MIN_LENGTH):
                return
            if offset < self.base_offset or position + size > end:
                return
            yield Located(position, Batch(data, inside) if magic == 2 else LegacyBatch(data, inside))
            position += size

    # --- indexes -----------------------------------------------------------------------------------------------------

    def position_before(self, handle: int, offset: int) -> int:
        """The position of a batch at or before the one with `offset`. Uses the index if it matches the log."""
        entry = _entry_before(self.path.with_suffix(".index"), OffsetIndex.ENTRY, offset - self.base_offset)
        if entry is None or entry[1] == 0:
            return 0
        front = os.pread(handle, FRONT.size, entry[1])
        if len(front) < FRONT.size:
            return 0
        found, length, magic = FRONT.unpack(front)
        if not 0 <= magic <= 2 or not self.base_offset <= found <= offset or length < MIN_LENGTH:
            return 0
        if entry[1] + length + LOG_OVERHEAD > os.fstat(handle).st_size:
            return 0
        # If compaction just replaced the segment, the index may be for the other one. A CRC rarely matches by chance.
        data = os.pread(handle, length + LOG_OVERHEAD, entry[1])
        if len(data) < length + LOG_OVERHEAD or (magic == 2 and length < MIN_BATCH_LENGTH):
            return 0
        batch = Batch(data) if magic == 2 else LegacyBatch(data)
        return entry[1] if batch.crc_ok() else 0

    def position_of(self, handle: int, offset: int) -> int:
        """The position of the batch that holds `offset`, or of the next one. The end if there is none."""
        size = self.size()
        for located in self.headers(handle, self.position_before(handle, offset), size):
            if located.batch.last_offset >= offset:
                return located.position
        return size

    def offset_at(self, position: int) -> int:
        """The last offset, by the index, of a batch at or before a position. At least the base offset."""
        entry = _entry_before(self.path.with_suffix(".index"), OffsetIndex.ENTRY, position, column=1)
        return self.base_offset if entry is None else self.base_offset + entry[0]

    def last_time_entry(self) -> tuple[int, int] | None:
        """The largest indexed timestamp, and its relative offset."""
        return _entry_before(self.path.with_suffix(".timeindex"), TimeIndex.ENTRY, 1 << 62)

    def offset_before_time(self, timestamp_ms: int) -> int:
        entry = _entry_before(self.path.with_suffix(".timeindex"), TimeIndex.ENTRY, timestamp_ms)
        return self.base_offset if entry is None else self.base_offset + entry[1]

    def aborted(self) -> list[AbortedTransaction]:
        try:
            data = self.path.with_suffix(".txnindex").read_bytes()
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % TransactionIndex.ENTRY.size
        return [AbortedTransaction(*entry) for entry in TransactionIndex.ENTRY.iter_unpack(data[:whole])]


def _entry_before(path: Path, kind: Struct, key: int, column: int = 0) -> tuple[int, int] | None:
    """The last entry of an index whose key (or value) is at most `key`. Reads a few dozen bytes of a file of any size.

    Kafka preallocates the index of its active segment, so zeros follow the entries.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        count = os.fstat(handle).st_size // kind.size

        def entry(slot: int) -> tuple[int, int]:
            data = os.pread(handle, kind.size, slot * kind.size)
            key, value = kind.unpack(data) if len(data) == kind.size else (0, 0)
            return key, value

        low, high = 0, count
        while low < high:  # count the real entries
            middle = (low + high) >> 1
            if entry(middle) == (0, 0):
                high = middle
            else:
                low = middle + 1
        low, high = 0, low
        while low < high:
            middle = (low + high) >> 1
            if entry(middle)[column] <= key:
                low = middle + 1
            else:
                high = middle
        return entry(low - 1) if low else None
    finally:
        os.close(handle)


class PartitionFolder:
    """A folder `topic-partition` with its current segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def segments(self) -> list[Segment]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return [Segment(self.folder, base) for base in sorted(_numbers(names, _LOG_NAME))]

    def segments_from(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and the later ones."""
        found = self.segments()
        bases = [segment.base_offset for segment in found]
        return found[max(bisect_right(bases, offset) - 1, 0) :]

    def end_offset(self) -> int:
        """One past the last record of the last whole batch."""
        for segment in reversed(self.segments()):
            try:
                with _opened(segment.path) as handle:
                    size = segment.size()
                    last = segment.base_offset - 1
                    for located in segment.headers(handle, segment.position_before(handle, 1 << 62), size):
                        last = located.batch.last_offset
                    return last + 1
            except GoneSegment:
                continue
        return 0

    def read(self, start: int, end: int, lost: Callable[[int, int], None]) -> Iterator[Sequence[AnyBatch]]:
        """Batches with offsets of a range, in chunks. Skips missing offsets and reports them to `lost`."""
        position = start
        missed = 0
        while position < end:
            segments = self.segments_from(position)
            if not segments:
                lost(position, end)
                return
            segment = segments[0]
            if segment.base_offset >= end:
                lost(position, end)
                return
            if segment.base_offset > position:
                lost(position, segment.base_offset)
                position = segment.base_offset
            try:
                with _opened(segment.path) as handle:
                    for located in segment.chunks(handle, segment.position_before(handle, position)):
                        batches = [one.batch for one in located if one.batch.last_offset >= position]
                        while batches and _starts_at(batches[-1]) >= end:
                            batches.pop()
                        if batches:
                            yield batches
                            position = batches[-1].next_offset
                        if located[-1].batch.next_offset >= end:
                            return
            except GoneSegment:
                missed += 1
                if missed > 100:
                    raise
                continue
            if len(segments) < 2:
                lost(position, end)  # the log ends before the planned end
                return
            position = max(position, segments[1].base_offset)

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap a range."""
        found: list[AbortedTransaction] = []
        for segment in self.segments_from(start):
            entries = segment.aborted()
            found += [entry for entry in entries if entry.first_offset < end and entry.last_offset >= start]
            if any(entry.last_stable_offset >= end for entry in entries):
                break
        return found

    def last_stable_offset(self, end: int) -> int:
        """The first offset of a transaction that is open at `end`, or `end` if there is none."""
        open_since, position = self._transactions_at_snapshot(end)
        for segment in self.segments_from(position):
            if segment.base_offset >= end:
                break
            try:
                with _opened(segment.path) as handle:
                    for located in segment.headers(
                        handle, segment.position_before(handle, max(position, segment.base_offset)), segment.size()
                    ):
                        batch = located.batch
                        if batch.last_offset < position or not batch.is_transactional:
                            continue
                        if _starts_at(batch) >= end:
                            break
                        if batch.is_control:
                            open_since.pop(batch.producer_id, None)
                        else:
                            open_since.setdefault(batch.producer_id, _starts_at(batch))
            except GoneSegment:
                continue
        return min(open_since.values(), default=end)

    def _transactions_at_snapshot(self, end: int) -> tuple[dict[int, int], int]:
        """The open transactions in the newest usable producer snapshot, and the snapshot's offset."""
        try:
            taken = sorted(_numbers(os.listdir(self.folder), _SNAPSHOT_NAME), reverse=True)
        except FileNotFoundError:
            taken = []
        for offset in taken:
            if offset > end:
                continue
            try:
                states = decode_snapshot((self.folder / f"{offset:020d}.snapshot").read_bytes())
            except (OSError, KafkaError):
                continue
            return {s.producer_id: s.txn_first_offset for s in states if s.txn_first_offset >= 0}, offset
        return {}, 0

    def offset_at_time(self, timestamp_ms: int, start: int, end: int) -> int | None:
        """The first offset of a range with this time or a later one."""
        for segment in self.segments_from(start):
            if segment.base_offset >= end:
                return None
            try:
                found = self._in_segment_at_time(segment, timestamp_ms, start, end)
            except GoneSegment:
                continue
            if found is not None:
                return found
        return None

    def _in_segment_at_time(self, segment: Segment, timestamp_ms: int, start: int, end: int) -> int | None:
        last = segment.last_time_entry()
        is_last = segment.base_offset == self.segments()[-1].base_offset
        if last is not None and last[0] < timestamp_ms and not is_last:
            return None  # the index of a closed segment is complete: its largest time comes last
        with _opened(segment.path) as handle:
            size = segment.size()
            begin = segment.position_before(handle, max(segment.offset_before_time(timestamp_ms), start))
            for located in segment.headers(handle, begin, size):
                batch = located.batch
                if 0 <= batch.max_timestamp < timestamp_ms or batch.last_offset < start or batch.is_control:
                    continue
                data = os.pread(handle, batch.size, located.position)
                for timestamp, offset in _record_times(Batch(data) if isinstance(batch, Batch) else LegacyBatch(data)):
                    if offset >= end:
                        return None
                    if timestamp >= timestamp_ms and offset >= start:
                        return offset
        return None

    def byte_size(self, start: int, end: int) -> int:
        """The size in bytes of the batches of a range."""
        total = 0
        segments = self.segments_from(start)
        bases = [segment.base_offset for segment in segments[1:]]
        for segment, following in zip(segments, [*bases, end + 1], strict=True):
            if segment.base_offset >= end:
                break
            try:
                with _opened(segment.path) as handle:
                    begin = segment.position_of(handle, start) if start > segment.base_offset else 0
                    total += (segment.position_of(handle, end) if end < following else segment.size()) - begin
            except GoneSegment:
                continue
        return total

    def offset_within(self, start: int, end: int, max_bytes: int) -> int:
        """The offset about `max_bytes` after `start`, and at least past the batch at `start`."""
        left = max_bytes
        reached = start
        for segment in self.segments_from(start):
            if segment.base_offset >= end:
                break
            try:
                with _opened(segment.path) as handle:
                    begin = segment.position_before(handle, start) if start > segment.base_offset else 0
                    size = segment.size()
                    if size - begin > left:
                        reached = max(reached, segment.offset_at(begin + left) + 1)
                        return min(end, max(reached, self._after_batch_at(start)))
                    left -= size - begin
            except GoneSegment:
                continue
            reached = max(reached, segment.base_offset)
        return end

    def _after_batch_at(self, offset: int) -> int:
        for segment in self.segments_from(offset):
            with _opened(segment.path) as handle:
                for located in segment.headers(handle, segment.position_before(handle, offset), segment.size()):
                    if located.batch.last_offset >= offset:
                        return located.batch.next_offset
        return offset + 1


def _record_times(batch: AnyBatch) -> Iterator[tuple[int, int]]:
    """The timestamp and offset of each record. Streams the records of a compressed batch (current format)."""
    if isinstance(batch, Batch):
        return chain.from_iterable(batch.record_times())
    return ((record.timestamp, record.offset) for record in batch.records())


def _starts_at(batch: AnyBatch) -> int:
    """The base offset. An old wrapper does not store it, so its last offset is used."""
    return batch.base_offset if isinstance(batch, Batch) else batch.last_offset


def _numbers(names: Sequence[str], pattern: re.Pattern[str]) -> list[int]:
    return [int(found[1]) for name in names if (found := pattern.fullmatch(name))]
