"""Compaction of one log: reads immutable segments and writes `.cleaned` segments to the same folder.

Nothing here touches the `Log` object. The job holds everything needed, so the work can run in a thread or in another
process. `cleaner` creates jobs and puts the results in place.

    1  read the dirty part and note the newest offset of each key, until the map is full
    2  group all segments up to there, so that small ones are merged
    3  copy each group, without superseded records, into one new segment
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ottla.errors import CorruptMessage
from ottla.lazy_imports import lazy
from ottla.log.cleaning_records import (
    Filtered,
    Keep,
    KeepRecord,
    checked_windows,
    filter_batch,
    filter_legacy,
    keep_all,
    keep_offsets,
)
from ottla.log.cleaning_transactions import CleanedTransactions
from ottla.log.files import Chunk, Disk
from ottla.log.index import MAX_RELATIVE_OFFSET, AbortedTransaction
from ottla.log.options import LogConfig
from ottla.log.segment import LOG_SUFFIX, Segment
from ottla.records.batch import LOG_OVERHEAD, Batch, entry_size
from ottla.records.legacy import LegacyBatch, any_batches
from ottla.records.record import Span, spans
from ottla.records.walk import Keyed, keyed

if TYPE_CHECKING:
    from ottla.log import offset_map
else:
    offset_map = lazy("ottla.log.offset_map")

CLEANED_SUFFIX: Final = ".cleaned"
MIN_BUFFER_BYTES: Final = 64 * 1024

Pace = Callable[[int], object]
"""Called with the bytes just read or written. May sleep, and raises `CleaningAborted` to stop the work."""


class CleaningAborted(Exception):
    """The log was removed or changed during the work, or the broker stops."""


class Source(NamedTuple):
    """A segment to read."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


class LastRecord(NamedTuple):
    """The last write of an active producer: its newest data (-1 if only its marker is known), and its epoch."""

    offset: int
    epoch: int


@dataclass(slots=True)
class CleaningJob:
    """One round over one log. Picklable."""

    name: str
    folder: str
    config: LogConfig
    sources: list[Source]
    """Every segment below the first that cannot be cleaned, oldest first."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    aborted: list[AbortedTransaction] = field(default_factory=list)
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    buffer_bytes: int = 256 * 1024


@dataclass(slots=True)
class CleaningStats:
    map_keys: int = 0
    map_capacity: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless_records: int = 0


class CleanedGroup(NamedTuple):
    """A `.cleaned` segment that replaces others."""

    base_offset: int
    replaces: tuple[int, ...]
    files: dict[str, int]
    """Its file names and sizes."""
    end_offset: int
    """The round cleans everything below this offset."""
    stats: CleaningStats


class Compaction:
    """The work of one job; `groups` does it step by step."""

    def __init__(self, job: CleaningJob, disk: Disk, pace: Pace = lambda size: None) -> None:
        self.job = job
        self.stats = CleaningStats()
        self._disk = disk
        self._pace = pace
        self._map = offset_map.OffsetMap(job.map_bytes, job.load_factor)
        self._newest = self._map.newest()

    def groups(self) -> Iterator[CleanedGroup]:
        """Each cleaned segment once it is complete and on the disk. Earlier ones may already be in place by then."""
        job = self.job
        self._build_map()
        self.stats.map_keys, self.stats.map_capacity = len(self._map), self._map.capacity
        self._newest = self._map.newest()
        end_offset = self._map.latest_offset + 1
        sources = [source for source in job.sources if source.base_offset < end_offset]
        if not sources:
            return
        kept: list[AbortedTransaction] = []
        transactions = CleanedTransactions(job.aborted, sources[0].base_offset, kept.append)
        legacy_horizon_ms = self._legacy_horizon_ms()
        for group in grouped(sources, job.config, job.first_uncleanable_offset):
            files = self._clean_group(group, transactions, kept, legacy_horizon_ms)
            replaces = tuple([source.base_offset for source in group])
            yield CleanedGroup(group[0].base_offset, replaces, files, end_offset, self.stats)

    def _legacy_horizon_ms(self) -> int:
        """Formats before v2 have no delete horizon: the age of the last clean segment limits their tombstones."""
        clean = [s for s in self.job.sources if s.base_offset < self.job.first_dirty_offset]
        return self._modified_ms(clean[-1]) - self.job.config.delete_retention_ms if clean else 0

    def _path(self, source: Source) -> str:
        return f"{self.job.folder}/{source.base_offset:020d}{LOG_SUFFIX}"

    def _modified_ms(self, source: Source) -> int:
        return self._disk.modified_ms(self._path(source))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _chunks(self, source: Source) -> Iterator[list[Batch | LegacyBatch]]:
        """The batches of a segment, one buffer at a time."""
        file = self._disk.open(self._path(source), size=source.size)
        size = max(self.job.buffer_bytes, MIN_BUFFER_BYTES)
        position = 0
        try:
            while position < source.size:
                self._pace(0)
                chunk = file.view(position, min(size, source.size - position))
                found = list(any_batches(chunk))
                if not found:
                    wanted = self._size_of(chunk)
                    if position + wanted > source.size or wanted <= len(chunk):
                        raise CorruptMessage(f"{file.path} holds no whole batch at position {position}")
                    chunk = file.view(position, wanted)
                    found = list(any_batches(chunk))
                read = found[-1].end_position
                self._pace(read)
                position += read
                yield found
        finally:
            file.close()

    @staticmethod
    def _size_of(chunk: Chunk) -> int:
        return entry_size(chunk) if len(chunk) >= LOG_OVERHEAD else 0

    def _build_map(self) -> None:
        job, offsets = self.job, self._map
        dirty_from = job.first_dirty_offset
        first = max((n for n, s in enumerate(job.sources) if s.base_offset <= dirty_from), default=0)
        dirty = job.sources[first:]
        transactions = CleanedTransactions(job.aborted, dirty_from, lambda entry: None)
        ends = [source.base_offset for source in dirty[1:]] + [job.first_uncleanable_offset]
        for source, next_base in zip(dirty, ends, strict=True):
            for batches in self._chunks(source):
                for batch in batches:
                    if batch.last_offset < dirty_from:
                        continue
                    if not self._map_batch(batch, transactions):
                        return
                    offsets.latest_offset = batch.last_offset
            # If offsets are missing at the end of a segment, there is nothing to read up to the next one.
            offsets.latest_offset = next_base - 1

    def _map_batch(self, batch: Batch | LegacyBatch, transactions: CleanedTransactions) -> bool:
        """Record the batch's keys. False if the map is full and the batch does not count as read."""
        offsets, dirty_from = self._map, self.job.first_dirty_offset
        if isinstance(batch, LegacyBatch):
            batch.ensure_valid()
            for record in batch.records():
                if record.offset < dirty_from:
                    continue
                if record.key is None:
                    self.stats.keyless_records += 1
                    continue
                if offsets.is_full:
                    return False
                offsets.put(record.key, record.offset)
                offsets.latest_offset = record.offset
            return True
        if transactions.may_discard(batch) or batch.is_control or not batch.record_count:
            return True
        base = batch.base_offset
        # If the batch does not fit, the part that was read counts: even a single batch may have too many keys.
        last = offsets.latest_offset
        for data, count in checked_windows(batch):
            found = keyed(data, count)
            if len(offsets) + count > offsets.capacity or base < dirty_from or found.tombstones or None in found.keys:
                last, complete = self._map_singly(base, found, last)
                if not complete:
                    offsets.latest_offset = last
                    return False
            else:
                offsets.put_all(cast("list[bytes]", found.keys), base, found.offset_deltas)
            self._pace(0)
        return True

    def _map_singly(self, base: int, found: Keyed, last: int) -> tuple[int, bool]:
        """Record keys one by one -> (the offset of the last one, whether all fit)."""
        offsets, dirty_from = self._map, self.job.first_dirty_offset
        tombstones = set(found.tombstones)
        for index, (delta, key) in enumerate(zip(found.offset_deltas, found.keys, strict=True)):
            offset = base + delta
            if offset < dirty_from:
                continue
            if key is None:
                self.stats.keyless_records += 1
                continue
            if offsets.is_full:
                return last, False
            last = offset
            offsets.put(key, offset, index in tombstones)
        return last, True

    # --- writing -----------------------------------------------------------------------------------------------------

    def _clean_group(
        self,
        group: Sequence[Source],
        transactions: CleanedTransactions,
        kept: list[AbortedTransaction],
        legacy_horizon_ms: int,
    ) -> dict[str, int]:
        job, disk = self.job, self._disk
        cleaned = Segment(disk, job.folder, group[0].base_offset, job.config, job.now_ms, suffix=CLEANED_SUFFIX)
        try:
            for file in (cleaned.log, cleaned.offset_index.file, cleaned.time_index.file):
                # Remove the files of an earlier attempt instead of appending to them. Even an empty segment has its
                # files.
                disk.remove(file.path)
                disk.touch(file.path)
            disk.remove(cleaned.txn_index.path)
            cleaned = Segment(disk, job.folder, group[0].base_offset, job.config, job.now_ms, suffix=CLEANED_SUFFIX)
            for source in group:
                self._clean_source(source, cleaned, transactions, self._modified_ms(source) > legacy_horizon_ms)
                for entry in kept:
                    cleaned.add_aborted(
                        entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
                    )
                kept.clear()
            cleaned.become_inactive()
            cleaned.flush()
            modified_ms = self._modified_ms(group[-1])
            paths = cleaned.paths()
            cleaned.close()
            disk.set_modified_ms(cleaned.log.path, modified_ms)
        except BaseException:
            remove_cleaned(disk, job.folder)
            raise
        names = disk.scan(job.folder)
        return {name: names[name] for name in (path.rpartition("/")[2] for path in paths)}

    def _clean_source(
        self, source: Source, cleaned: Segment, transactions: CleanedTransactions, keep_legacy_deletes: bool
    ) -> None:
        stats = self.stats
        for batches in self._chunks(source):
            contents: list[Chunk] = []
            written: list[Batch] = []
            for batch in batches:
                if isinstance(batch, LegacyBatch):
                    content, count = self._filter_legacy(batch, keep_legacy_deletes)
                    if content is not None:
                        contents.append(content)
                        written.extend(_entries_of(content))
                else:
                    stats.records_read += batch.record_count
                    content, count = self._filter(batch, transactions)
                    if content is not None:
                        contents.append(content)
                        written.append(Batch(content))
                stats.records_written += count
            stats.bytes_read += batches[-1].end_position
            if written:
                cleaned.append(contents, written)
                size = sum(map(len, contents))
                stats.bytes_written += size
                self._pace(size)

    def _filter(self, batch: Batch, transactions: CleanedTransactions) -> Filtered:
        job = self.job
        horizon_ms = batch.delete_horizon_ms
        horizon_passed = horizon_ms is not None and horizon_ms <= job.now_ms
        useless = transactions.may_discard(batch)
        discard = useless and (not batch.is_control or horizon_passed)
        retain_empty = self._must_stay(batch)
        keep: Keep | None = None
        if not discard:
            if batch.is_control:
                keep = keep_all
            elif batch.base_offset < job.first_dirty_offset or batch.last_offset > self._map.latest_offset:
                keep = self._keep_by_key(batch.base_offset, not horizon_passed)
            else:
                # All keys of this batch are in the map, so its offsets there decide.
                marks = self._newest.between(batch.base_offset, batch.next_offset)
                if len(marks) == batch.record_count and not self._newest.has_tombstone(marks):
                    return Filtered(batch.view(), batch.record_count)
                if marks:
                    keep = keep_offsets(batch.base_offset, [mark >> 1 for mark in marks], not horizon_passed)
        return filter_batch(
            batch,
            keep,
            retain_empty=retain_empty,
            new_horizon_ms=job.now_ms + job.config.delete_retention_ms,
            horizon_for_marker=useless and batch.is_control,
        )

    def _must_stay(self, batch: Batch) -> bool:
        """Whether the batch stays even if it has no records.

        The last batch of an active producer holds its sequence, and its marker holds its epoch. The last batch of the
        round holds the end of the log.
        """
        if batch.next_offset == self.job.first_uncleanable_offset:
            return True
        last = self.job.last_records.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return batch.last_offset == last.offset
        return batch.is_control and batch.producer_epoch == last.epoch

    def _filter_legacy(self, batch: LegacyBatch, keep_deletes: bool) -> tuple[Chunk | None, int]:
        at_end = batch.next_offset == self.job.first_uncleanable_offset
        content, count = filter_legacy(batch, self._keep(keep_deletes), retain_empty=at_end)
        self.stats.records_read += max(count, 1)
        return content, count

    def _keep(self, keep_deletes: bool) -> KeepRecord:
        latest_offset, newest = self._map.latest_offset, self._map.get

        def keep(offset: int, key: bytes | None, has_value: bool) -> bool:
            if offset > latest_offset:
                return True
            return key is not None and (has_value or keep_deletes) and offset >= newest(key)

        return keep

    def _keep_by_key(self, base_offset: int, keep_deletes: bool) -> Keep:
        stays = self._keep(keep_deletes)

        def keep(data: bytes, count: int) -> list[Span]:
            return [span for span in spans(data, count) if stays(base_offset + span[5], span[6], not data[span[2]] & 1)]

        return keep


class _LegacyEntry(NamedTuple):
    """A message of format 0 or 1 as a segment indexes it."""

    base_offset: int
    last_offset_delta: int
    max_timestamp: int
    size: int


def _entries_of(content: Chunk) -> list[Batch]:
    entries = [_LegacyEntry(b.last_offset, 0, b.max_timestamp, b.size) for b in any_batches(content)]
    return cast("list[Batch]", entries)


def grouped(sources: Sequence[Source], config: LogConfig, first_uncleanable_offset: int) -> list[list[Source]]:
    """Adjacent segments that fit into one, by size, by the size of each index, and by the range of offsets."""
    groups: list[list[Source]] = []
    log = index = time_index = 0
    for slot, source in enumerate(sources):
        following = sources[slot + 1].base_offset if slot + 1 < len(sources) else first_uncleanable_offset
        group = groups[-1] if groups else None
        if (
            group is not None
            and log + source.size <= config.segment_bytes
            and index + source.index_bytes <= config.segment_index_bytes
            and time_index + source.time_index_bytes <= config.segment_index_bytes
            and (not source.size or following - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            group.append(source)
            log, index, time_index = log + source.size, index + source.index_bytes, time_index + source.time_index_bytes
        else:
            groups.append([source])
            log, index, time_index = source.size, source.index_bytes, source.time_index_bytes
    return groups


def remove_cleaned(disk: Disk, folder: str) -> None:
    """Remove the files of an interrupted cleaning. A missing folder is fine."""
    with suppress(FileNotFoundError):
        for name in disk.scan(folder):
            if name.endswith(CLEANED_SUFFIX):
                disk.remove(f"{folder}/{name}")
