"""Checks a data folder that no broker uses: every file is checked and compared with the others. Nothing is changed.

batches   lengths, CRCs, offsets and leader epochs grow, segments do not overlap; records too, when asked
indexes   entries grow and lead to batches; times are the largest so far
producers snapshots hold what the batches before them say; every aborted transaction is in its index
epochs    the checkpoint gives each batch the epoch that it carries
leftovers of compactions and deletions that were interrupted
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ottla.cli.dumping import index_entries, mapped
from ottla.errors import KafkaError
from ottla.log.checkpoints import CLEAN_STOP_FILE, CLEANER_OFFSETS_FILE
from ottla.log.files import MemoryDisk
from ottla.log.index import OffsetIndex, TimeIndex, TransactionIndex
from ottla.log.producers import CorruptSnapshot, ProducerStateManager, decode_snapshot
from ottla.records.batch import Batch
from ottla.records.legacy import LegacyBatch, any_batches

ERROR: Final = "error"
"""Data is damaged, or a broker would serve wrong data."""
WARNING: Final = "warning"
"""The next start of a broker repairs it."""
NOTE: Final = "note"
"""Not a problem: explains files that look unusual."""
WAITING: Final = ".deleted"
LEFTOVERS: Final = {
    WAITING: "waits to be deleted; the next start removes it",
    ".cleaned": "a compaction was interrupted; the next start removes it and the originals stay",
    ".swap": "a compaction was interrupted; the next start replaces the originals with it",
    ".tmp": "a write was interrupted; the next start removes it",
}
MAX_FINDINGS_A_FILE: Final = 20
"""One damaged file can fail in a million places; the first few are enough."""
_NEVER_MS: Final = 1 << 62
_BY_OFFSET: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_NAMED: Final = re.compile(r"\d{20}\.")


@dataclass(slots=True)
class Finding:
    severity: str
    path: str
    problem: str


@dataclass(slots=True)
class SegmentReport:
    """The findings in a segment; `bad` contains the byte ranges that cannot be trusted."""

    base_offset: int
    size: int
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    first_timestamp: int = -1
    max_timestamp: int = -1
    index_entries: int = 0
    time_entries: int = 0
    aborted: int = 0
    bad: list[tuple[int, int]] = field(default_factory=list)
    torn_bytes: int = 0


@dataclass(slots=True)
class PartitionReport:
    name: str
    segments: list[SegmentReport] = field(default_factory=list)
    producers: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def start_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


class _Batches:
    """The positions of a segment's batches, in columns: a segment can hold millions."""

    __slots__ = ("bases", "lasts", "positions", "timestamps")

    def __init__(self) -> None:
        self.positions = array("q")
        self.bases = array("q")
        self.lasts = array("q")
        self.timestamps = array("q")


class PartitionCheck:
    """One pass over a partition folder."""

    def __init__(
        self,
        folder: Path,
        *,
        deep: bool = False,
        advance: Callable[[int], None] | None = None,
        snapshots: bool = True,
    ) -> None:
        self.folder = folder
        self.deep = deep
        self.advance = advance or (lambda _: None)
        self.check_snapshots = snapshots
        self.report = PartitionReport(folder.name)
        self._count_by_file: dict[str, int] = {}
        self._next_offset = 0
        self._epoch = -1
        self._epoch_starts: list[tuple[int, int]] = []
        self._producers = ProducerStateManager(MemoryDisk(), folder.name, folder.name, _NEVER_MS)
        self._snapshots: list[int] = []
        self._gaps: list[tuple[int, int]] = []
        """Ranges of offsets without a batch: compaction removed them."""
        self._removed = False
        """Whether records are missing where no file can be missing: then compaction removed them."""
        self._is_read = False
        """Whether the log's end is known; before that, a snapshot may lie in a gap of compaction."""

    def find(self, severity: str, name: str, problem: str) -> None:
        count = self._count_by_file[name] = self._count_by_file.get(name, 0) + 1
        if count > MAX_FINDINGS_A_FILE:
            return
        more = "; more in this file are not listed" if count == MAX_FINDINGS_A_FILE else ""
        self.report.findings.append(Finding(severity, f"{self.folder.name}/{name}", problem + more))

    def run(self) -> PartitionReport:
        names = sorted(path.name for path in self.folder.iterdir() if path.is_file())
        self._check_folders()
        self._check_leftovers(names)
        names = [
            name for name in names if not name.endswith(_BY_OFFSET) or _NAMED.match(name)
        ]  # other files are not checked
        bases = [int(name[:20]) for name in names if name.endswith(".log")]
        self._snapshots = sorted(int(name[:20]) for name in names if name.endswith(".snapshot"))
        self._check_orphans(names, set(bases))
        for number, base in enumerate(bases):
            self._check_segment(base, is_last=number == len(bases) - 1, names=set(names))
        self._is_read = bool(bases)
        self._check_snapshots_up_to(_NEVER_MS)
        self.report.producers = len(self._producers.producers)
        if "leader-epoch-checkpoint" in names:
            self._check_epochs()
        for name in names:
            if name.endswith(".checkpoint"):
                self._check_metadata_snapshot(name)
        return self.report

    def _check_leftovers(self, names: list[str]) -> None:
        for name in names:
            suffix = "." + name.rpartition(".")[2]
            if suffix in LEFTOVERS:
                self.find(NOTE if suffix == WAITING else WARNING, name, LEFTOVERS[suffix])

    def _check_folders(self) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.is_dir() and path.name.endswith(_BY_OFFSET) and _NAMED.match(path.name):
                self.find(
                    ERROR,
                    path.name,
                    "is a folder, and should be a file; the partition stays offline. Move the folder away and restore "
                    "the file from a backup",
                )

    def _check_orphans(self, names: list[str], bases: set[int]) -> None:
        closed_cleanly = (self.folder.parent / CLEAN_STOP_FILE).exists()
        for name in names:
            if name.endswith((".index", ".timeindex", ".txnindex")) and int(name[:20]) not in bases:
                if closed_cleanly:
                    self.find(ERROR, name, f"its log file, {name[:20]}.log, is missing; restore it from a backup")
                else:
                    self.find(WARNING, name, "an index without a log; the next start removes it")

    def _check_gap(self, name: str, base: int) -> None:
        """Check the gap between two segments. Compaction leaves such gaps; if it never ran, a file is missing."""
        if not self.report.segments or self._removed or self._is_compacted():
            return
        self.find(
            ERROR,
            name,
            f"offsets {self._next_offset} to {base - 1} are missing before it: the file of a segment is gone. "
            f"Restore it from a backup, or accept the loss: `ottla topics alter {self.folder.name.rpartition('-')[0]} "
            f"--delete-records-before {self.folder.name.rpartition('-')[2]}:{base}`",
        )

    def _is_compacted(self) -> bool:
        topic, _, index = self.folder.name.rpartition("-")
        checkpoint = self.folder.parent / CLEANER_OFFSETS_FILE
        return checkpoint.exists() and any(
            entry[0] == (topic, int(index)) for entry in read_checkpoint(checkpoint) if not isinstance(entry, str)
        )

    # --- segments ----------------------------------------------------------------------------------------------------

    def _check_segment(self, base: int, *, is_last: bool, names: set[str]) -> None:
        stem = f"{base:020d}"
        path = self.folder / f"{stem}.log"
        data = mapped(path)
        segment = SegmentReport(base, len(data))
        if base > self._next_offset:
            self._check_gap(path.name, base)
        self.report.segments.append(segment)
        if base < self._next_offset:
            self.find(
                ERROR, path.name, f"starts at {base}, but the segment before it goes up to {self._next_offset - 1}"
            )
        elif base > self._next_offset:
            self._gaps.append((self._next_offset, base))
        self._next_offset = max(base, self._next_offset)
        aborted: list[tuple[int, int, int]] = []
        batches = self._walk(data, path.name, segment, aborted, is_last)
        segment.next_offset = self._next_offset
        if len(data) and f"{stem}.index" not in names:
            self.find(WARNING, f"{stem}.index", "is missing; the next start rebuilds it from the log")
        if len(data) and f"{stem}.timeindex" not in names:
            self.find(WARNING, f"{stem}.timeindex", "is missing; the next start rebuilds it from the log")
        if f"{stem}.index" in names:
            self._check_index(f"{stem}.index", segment, batches)
        if f"{stem}.timeindex" in names:
            self._check_time_index(f"{stem}.timeindex", segment, batches)
        self._check_txn_index(f"{stem}.txnindex", segment, aborted, f"{stem}.txnindex" in names)

    def _walk(
        self,
        data: memoryview,
        name: str,
        segment: SegmentReport,
        aborted: list[tuple[int, int, int]],
        is_last: bool,
    ) -> _Batches:
        found = _Batches()
        position = 0
        try:
            for batch in any_batches(data):
                self._check_snapshots_up_to(batch.last_offset)
                self._check_batch(batch, name, segment, aborted)
                found.positions.append(position)
                found.bases.append(batch.base_offset if isinstance(batch, Batch) else batch.last_offset)
                found.lasts.append(batch.last_offset)
                found.timestamps.append(batch.max_timestamp)
                position = batch.position + batch.size
                self.advance(batch.size)
        except KafkaError as error:
            rest = len(data) - position
            self._damaged_end(name, segment, position, rest, f"no batch: {error.message}", data, is_last)
            self.advance(rest)
            return found
        if position < len(data):
            rest = len(data) - position
            self._damaged_end(name, segment, position, rest, "a truncated batch", data, is_last)
            self.advance(rest)
        return found

    def _damaged_end(
        self, name: str, segment: SegmentReport, position: int, rest: int, what: str, data: memoryview, is_last: bool
    ) -> None:
        if not any(data[position : position + 4096]):
            what = "zeros, as after a crash of a broker that preallocates"
        segment.torn_bytes = rest
        after = f"after offset {self._next_offset - 1}" if self._next_offset else "at the start"
        text = f"torn tail: {rest} bytes at position {position}, {after}, are {what}"
        if is_last:
            self.find(WARNING, name, f"{text}; the next start cuts them after an unclean stop")
        else:
            self.find(ERROR, name, f"{text}, in the middle of the log: later segments would be lost with them")
        segment.bad.append((position, rest))

    def _check_batch(
        self, batch: Batch | LegacyBatch, name: str, segment: SegmentReport, aborted: list[tuple[int, int, int]]
    ) -> None:
        at = f"batch at offset {batch.base_offset if isinstance(batch, Batch) else batch.last_offset}"
        whole = batch.crc_ok()
        if not whole:
            self.find(ERROR, name, f"{at}, position {batch.position}: the CRC is wrong")
            segment.bad.append((batch.position, batch.size))
        first = batch.base_offset if isinstance(batch, Batch) else batch.last_offset
        if first > self._next_offset:
            self._gaps.append((self._next_offset, first))
            self._removed = True
        elif isinstance(batch, Batch) and batch.record_count <= batch.last_offset_delta:
            self._removed = True
        elif first < self._next_offset:
            self.find(ERROR, name, f"{at}, position {batch.position}: offsets go back, {self._next_offset} was next")
        if batch.last_offset < first:
            self.find(ERROR, name, f"{at}: it ends before it starts, at {batch.last_offset}")
        self._next_offset = max(self._next_offset, batch.next_offset)
        segment.batches += 1
        if segment.first_timestamp < 0:
            segment.first_timestamp = batch.max_timestamp
        segment.max_timestamp = max(segment.max_timestamp, batch.max_timestamp)
        if isinstance(batch, LegacyBatch):
            segment.records += 1
            return
        segment.records += batch.record_count
        self._check_epoch(batch, name, at)
        if whole:
            if self.deep:
                self._check_records(batch, name, at)
            self._replay(batch, name, at, aborted)

    def _check_epoch(self, batch: Batch, name: str, at: str) -> None:
        epoch = batch.leader_epoch
        if epoch < 0:
            return
        if epoch < self._epoch:
            self.find(ERROR, name, f"{at}: leader epoch {epoch} after {self._epoch}")
        elif epoch > self._epoch:
            self._epoch_starts.append((epoch, batch.base_offset))
            self._epoch = epoch

    def _check_records(self, batch: Batch, name: str, at: str) -> None:
        try:
            last = batch.base_offset - 1
            for record in batch.records():
                if not last < record.offset <= batch.last_offset:
                    self.find(ERROR, name, f"{at}: a record has offset {record.offset} after {last}")
                last = record.offset
        except KafkaError as error:
            self.find(ERROR, name, f"{at}: its records cannot be read: {error.message}")

    def _replay(self, batch: Batch, name: str, at: str, aborted: list[tuple[int, int, int]]) -> None:
        if not batch.has_producer_id:
            return
        try:
            for completed, _ in self._producers.replay(batch):
                if completed.aborted:
                    aborted.append((completed.producer_id, completed.first_offset, completed.last_offset))
        except KafkaError as error:
            self.find(ERROR, name, f"{at}: {error.message}")

    # --- indexes -----------------------------------------------------------------------------------------------------

    def _check_index(self, name: str, segment: SegmentReport, batches: _Batches) -> None:
        entries, ragged = index_entries((self.folder / name).read_bytes(), OffsetIndex.ENTRY.size)
        if ragged:
            self.find(WARNING, name, f"{ragged} extra bytes at its end; the next start rebuilds it")
        before = (-1, -1)
        for relative, position in OffsetIndex.ENTRY.iter_unpack(entries):
            segment.index_entries += 1
            offset = segment.base_offset + relative
            if (relative, position) <= before or position <= before[1]:
                self.find(ERROR, name, f"entry {offset} → {position} does not grow")
            before = (relative, position)
            slot = bisect_left(batches.positions, position)
            if slot >= len(batches.positions) or batches.positions[slot] != position:
                self.find(ERROR, name, f"entry {offset} → {position} leads to no batch")
            elif offset < batches.lasts[slot]:
                # Not always equal: an entry has the last offset of all batches that were appended together.
                self.find(
                    ERROR, name, f"entry {offset} → {position} leads to a batch that ends at {batches.lasts[slot]}"
                )
            elif offset >= segment.next_offset:
                self.find(ERROR, name, f"entry {offset} lies beyond the segment's end, {segment.next_offset}")

    def _check_time_index(self, name: str, segment: SegmentReport, batches: _Batches) -> None:
        entries, ragged = index_entries((self.folder / name).read_bytes(), TimeIndex.ENTRY.size)
        if ragged:
            self.find(WARNING, name, f"{ragged} extra bytes at its end; the next start rebuilds it")
        largest = array("q")
        for timestamp in batches.timestamps:
            largest.append(max(timestamp, largest[-1]) if largest else timestamp)
        before = -1
        for timestamp, relative in TimeIndex.ENTRY.iter_unpack(entries):
            segment.time_entries += 1
            offset = segment.base_offset + relative
            if timestamp <= before:
                self.find(ERROR, name, f"entry {timestamp} → {offset} does not grow")
            before = timestamp
            slot = bisect_right(batches.bases, offset) - 1
            if slot < 0 or offset >= segment.next_offset:
                self.find(ERROR, name, f"entry {timestamp} → {offset} is outside the segment")
                continue
            # Retention, compaction and look-ups rely on this: no record up to the offset may be newer.
            if largest[slot] != timestamp and not (slot and largest[slot - 1] <= timestamp <= largest[slot]):
                self.find(ERROR, name, f"entry {timestamp} → {offset}: the largest time up to there is {largest[slot]}")

    def _check_txn_index(
        self, name: str, segment: SegmentReport, aborted: list[tuple[int, int, int]], exists: bool
    ) -> None:
        data = (self.folder / name).read_bytes() if exists else b""
        size = TransactionIndex.ENTRY.size
        if len(data) % size:
            self.find(WARNING, name, f"{len(data) % size} bytes at its end are not an entry")
        noted: set[tuple[int, int]] = set()
        for version, producer_id, first, last, _ in TransactionIndex.ENTRY.iter_unpack(
            data[: len(data) // size * size]
        ):
            segment.aborted += 1
            noted.add((producer_id, last))
            if version != 0 or first > last or not segment.base_offset <= last < segment.next_offset:
                self.find(ERROR, name, f"impossible entry: producer {producer_id}, offsets {first} to {last}")
        for producer_id, first, last in aborted:
            if (producer_id, last) not in noted:
                self.find(
                    ERROR,
                    name,
                    f"the transaction of producer {producer_id} from {first}, aborted at {last}, is missing",
                )

    # --- producers and epochs ----------------------------------------------------------------------------------------

    def _check_snapshots_up_to(self, last_offset: int) -> None:
        """Check the snapshots up to here: their state must match all batches before them."""
        while self._snapshots and self._snapshots[0] <= last_offset:
            offset = self._snapshots.pop(0)
            if self.check_snapshots:
                self._check_snapshot(offset)

    def _check_snapshot(self, offset: int) -> None:
        name = f"{offset:020d}.snapshot"
        try:
            states = decode_snapshot((self.folder / name).read_bytes())
        except CorruptSnapshot as error:
            self.find(WARNING, name, f"cannot be read ({error.message}); the next start replays the log instead")
            return
        if self._is_read and offset > self._next_offset:
            self.find(WARNING, name, f"is of offset {offset}, beyond the log's end; the next start removes it")
            return
        for state in states:
            last = state.batches[-1].last_offset if state.batches else -1
            if last >= offset:
                self.find(ERROR, name, f"producer {state.producer_id} has offset {last}, which comes later")
                continue
            seen = self._producers.producers.get(state.producer_id)
            if seen is None or seen.epoch != state.epoch or not seen.batches or last < 0 or self._is_in_gap(last):
                continue  # its batches were removed by retention or compaction, or it starts again
            logged = seen.batches[-1]
            if (logged.last_offset, seen.last_sequence) != (last, state.last_sequence):
                self.find(
                    ERROR,
                    name,
                    f"producer {state.producer_id} is at offset {last}, sequence {state.last_sequence}; "
                    f"the log says {logged.last_offset} and {seen.last_sequence}",
                )

    def _is_in_gap(self, offset: int) -> bool:
        if offset >= self._next_offset:
            return True
        place = bisect_right(self._gaps, (offset, _NEVER_MS)) - 1
        return place >= 0 and offset < self._gaps[place][1]

    def _check_epochs(self) -> None:
        name = "leader-epoch-checkpoint"
        entries = read_pairs(self.folder / name)
        if isinstance(entries, str):
            self.find(WARNING, name, f"cannot be read: {entries}")
            return
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            self.find(ERROR, name, "epochs or offsets do not grow")
            return
        for epoch, start in entries:
            if start > self._next_offset:
                self.find(
                    WARNING, name, f"epoch {epoch} starts at {start}, beyond the log's end at {self._next_offset}"
                )
        starts = [start for _, start in entries]
        for epoch, offset in self._epoch_starts:
            slot = bisect_right(starts, offset) - 1
            given = entries[slot][0] if slot >= 0 else None
            if given is None and entries and epoch <= entries[0][0]:
                continue  # the log start has moved, and the checkpoint no longer has earlier entries
            if given != epoch:
                said = "none" if given is None else str(given)
                self.find(ERROR, name, f"offset {offset} was written under epoch {epoch}, the checkpoint says {said}")

    def _check_metadata_snapshot(self, name: str) -> None:
        data = mapped(self.folder / name)
        try:
            end = 0
            for batch in any_batches(data):
                end = batch.position + batch.size
                if not batch.crc_ok():
                    self.find(ERROR, name, f"the batch at position {batch.position} has a wrong CRC")
            if end < len(data):
                self.find(ERROR, name, f"{len(data) - end} bytes at its end are not a batch")
        except KafkaError as error:
            self.find(ERROR, name, error.message)


def read_pairs(path: Path) -> list[tuple[int, int]] | str:
    """Epochs and start offsets, or a description of the problem with the file."""
    try:
        lines = path.read_text("ascii").splitlines()
        if not lines:
            return []
        if lines[0].strip() != "0":
            return f"version {lines[0]!r}"
        pairs = [(int(a), int(b)) for a, b in (line.split() for line in lines[2:] if line.strip())]
        return pairs if len(pairs) == int(lines[1]) else f"{len(pairs)} lines, but the file says {lines[1]}"
    except (ValueError, IndexError, OSError) as error:
        return str(error)


def read_checkpoint(path: Path) -> Iterator[Any]:
    """((topic, partition), offset) of each line, or a string that describes the problem."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        yield str(error)
        return
    if not lines:
        return
    if lines[0].strip() != "0":
        yield f"unknown version {lines[0]!r}"
        return
    count = 0
    for line in lines[2:]:
        cells = line.split()
        if len(cells) != 3 or not cells[1].isdigit() or not cells[2].lstrip("-").isdigit():
            yield f"line {line!r} is not a topic, a partition and an offset"
            continue
        count += 1
        yield (cells[0], int(cells[1])), int(cells[2])
    if len(lines) < 2 or lines[1].strip() != str(count):
        yield f"{count} entries, but the file says {lines[1] if len(lines) > 1 else 'nothing'}"
