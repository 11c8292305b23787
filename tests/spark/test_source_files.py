"""Segment files read beside a broker: ranges, times, limits, transactions, and segments that go away."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.enums import IsolationLevel
from ottla.log.checkpoints import HIGH_WATERMARKS_FILE, LOG_START_OFFSETS_FILE, write_offsets
from ottla.log.files import PosixDisk
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.options import LogConfig
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker
from ottla.spark.decode import decode
from ottla.spark.files import FolderOrigin
from ottla.spark.origin import Bounds, SourceError
from ottla.spark.segments import PartitionFolder
from ottla.spark.wanted import Wanted

START_MS = 1_700_000_000_000
TP = ("t", 0)


class Writer:
    """A log of small segments, as a broker writes it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.disk = PosixDisk(root)
        self.disk.mkdir("")
        config = LogConfig(segment_bytes=20_000, index_interval_bytes=500, **settings)
        self.log: Log = open_log(self.disk, "t", 0, config, ManualClock(START_MS))
        self.sequences: dict[int, int] = {}
        self.chance = random.Random(11)

    def append(self, count: int = 10, size: int = 100, codec: int = 0, producer: int = -1) -> None:
        """Each record a second after the one before it, its number as the key."""
        first = self.log.log_end_offset
        records = [
            Record(i, START_MS + (first + i) * 1000, b"%d" % (first + i), self.chance.randbytes(size))
            for i in range(count)
        ]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        epoch = 0 if producer >= 0 else -1
        made = build_batch(records, 0, codec, producer, epoch, sequence, transactional=producer >= 0)
        self.sequences[producer] = sequence + count
        self.log.append([Batch(made)])

    def end(self, producer: int, commit: bool) -> None:
        marker = end_transaction_marker(commit, 0, producer_id=producer, producer_epoch=0, timestamp_ms=START_MS)
        self.log.append([Batch(marker)])


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "data")
    yield made
    made.log.close()
    made.disk.close()


@pytest.fixture
def filled(writer: Writer) -> Writer:
    for number in range(100):
        writer.append(codec=number % 5)
    assert len(writer.log.segments) > 3
    return writer


def fail(gone: int, there: int) -> None:
    pytest.fail(f"lost {gone} to {there}")


def origin_of(writer: Writer, isolation: int = IsolationLevel.READ_UNCOMMITTED, **more: Any) -> FolderOrigin:
    return FolderOrigin([writer.disk.root], isolation=isolation, **more)


def offsets(origin: FolderOrigin, start: int, end: int, lost: Callable[[int, int], None] = fail) -> list[int]:
    found: list[int] = []
    for batches in origin.read(TP, start, end, lost):
        found += decode(batches, Wanted(start, end)).offsets.tolist()
    return found


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 1), (999, 1000), (333, 777), (5, 5), (20, 30)])
def test_any_range(filled: Writer, start: int, end: int) -> None:
    assert offsets(origin_of(filled), start, end) == list(range(start, end))


def test_every_start_of_a_partition_with_kafkas_preallocated_index(filled: Writer) -> None:
    """Kafka's active index is 10 MB, with zeros after its entries."""
    filled.log.flush()
    for path in Path(filled.disk.root, "t-0").glob("*.*index"):
        with path.open("ab") as file:
            file.write(bytes((100_000 // 12) * 12 if path.suffix == ".timeindex" else 80_000))
    folder = PartitionFolder(Path(filled.disk.root, "t-0"))
    for start in range(0, 1000, 7):
        batches = next(folder.read(start, 1000, fail))
        assert batches[0].base_offset <= start <= batches[0].last_offset
    assert folder.end_offset() == 1000
    assert folder.offset_at_time(START_MS + 500_000, 0, 1000) == 500


def test_the_cost_does_not_grow_with_what_lies_before(filled: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.log.flush()
    read = 0
    real = os.pread

    def counting(handle: int, length: int, position: int) -> bytes:
        nonlocal read
        data = real(handle, length, position)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.setattr("ottla.spark.segments.CHUNK_BYTES", 2_000)
    last = filled.log.segments[-2]
    assert offsets(origin_of(filled), last.base_offset + 80, last.base_offset + 81) == [last.base_offset + 80]
    assert read < 9_000  # a few index entries and batches, in a log of 100 kB and a segment of 20


def test_an_index_that_does_not_fit_is_not_believed(filled: Writer) -> None:
    filled.log.flush()
    for path in Path(filled.disk.root, "t-0").glob("*.index"):
        data = bytearray(path.read_bytes())
        for at in range(4, len(data), 8):
            data[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") + 3).to_bytes(4, "big")
        path.write_bytes(data)
    assert offsets(origin_of(filled), 250, 300) == list(range(250, 300))
    for path in Path(filled.disk.root, "t-0").glob("*index"):
        path.unlink()
    assert offsets(origin_of(filled), 250, 300) == list(range(250, 300))
    assert origin_of(filled).offsets_at({TP: START_MS + 250_000}) == {TP: 250}


def test_times(filled: Writer) -> None:
    origin = origin_of(filled)
    for second in (0, 1, 499, 500, 998, 999):
        assert origin.offsets_at({TP: START_MS + second * 1000}) == {TP: second}
        assert origin.offsets_at({TP: START_MS + second * 1000 - 999}) == {TP: second}
    assert origin.offsets_at({TP: 0}) == {TP: 0}
    assert origin.offsets_at({TP: START_MS + 1_000_000}) == {TP: None}


def test_the_high_watermark_and_the_log_start_bound_what_is_read(filled: Writer) -> None:
    assert origin_of(filled).bounds([TP]) == {TP: Bounds(0, 1000)}  # nobody noted one: a copy of the folder
    write_offsets(filled.disk, HIGH_WATERMARKS_FILE, {TP: 640})
    write_offsets(filled.disk, LOG_START_OFFSETS_FILE, {TP: 17})
    assert origin_of(filled).bounds([TP]) == {TP: Bounds(17, 640)}
    assert origin_of(filled, to_log_end=True).bounds([TP]) == {TP: Bounds(17, 1000)}
    assert origin_of(filled).offsets_at({TP: START_MS + 700_000}) == {TP: None}
    write_offsets(filled.disk, HIGH_WATERMARKS_FILE, {("other", 3): 5})
    assert origin_of(filled).bounds([TP]) == {TP: Bounds(17, 17)}  # made after the last checkpoint: nothing is safe


def test_a_torn_tail_is_not_read(filled: Writer) -> None:
    segment = filled.log.segments[-1]
    path = Path(filled.disk.root, segment.log.path)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert origin_of(filled).bounds([TP]) == {TP: Bounds(0, 990)}
    assert offsets(origin_of(filled), 980, 990) == list(range(980, 990))
    lost: list[tuple[int, int]] = []
    assert offsets(origin_of(filled), 980, 1000, lambda *span: lost.append(span)) == list(range(980, 990))
    assert lost == [(990, 1000)]  # planned but missing: never skipped silently


def test_a_damaged_batch_is_an_error(filled: Writer) -> None:
    path = Path(filled.disk.root, filled.log.segments[0].log.path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="the batch at offset 0 is damaged"):
        offsets(origin_of(filled), 0, 10)


def test_transactions(writer: Writer) -> None:
    """Aborted records and markers are not seen by a reader of committed ones, open transactions bound it."""
    writer.append()  # 0-9
    writer.append(producer=1)  # 10-19
    writer.append(producer=2)  # 20-29
    writer.end(1, commit=False)  # 30
    writer.append(producer=1)  # 31-40
    writer.end(2, commit=True)  # 41
    writer.end(1, commit=True)  # 42
    writer.append(producer=2)  # 43-52: open
    writer.append()  # 53-62
    committed, all_of_it = origin_of(writer, IsolationLevel.READ_COMMITTED), origin_of(writer)
    assert committed.bounds([TP]) == {TP: Bounds(0, 43)}
    assert all_of_it.bounds([TP]) == {TP: Bounds(0, 63)}
    expected = [*range(10), *range(20, 30), *range(31, 41)]
    assert offsets(committed, 0, 43) == expected
    assert offsets(committed, 15, 25) == [*range(20, 25)]
    assert offsets(all_of_it, 0, 63) == [n for n in range(63) if n not in (30, 41, 42)]
    writer.log.roll()
    writer.append()  # 63-72, and a snapshot of producers stands at 63
    assert origin_of(writer, IsolationLevel.READ_COMMITTED).bounds([TP]) == {TP: Bounds(0, 43)}
    writer.end(2, commit=False)
    assert origin_of(writer, IsolationLevel.READ_COMMITTED).bounds([TP]) == {TP: Bounds(0, 74)}
    assert offsets(committed, 40, 74) == [40, *range(53, 73)]


def test_segments_that_go_away_while_they_are_read(filled: Writer) -> None:
    lost: list[tuple[int, int]] = []
    bases = [segment.base_offset for segment in filled.log.segments]
    reading = origin_of(filled).read(TP, 0, 1000, lambda *span: lost.append(span))
    first = decode(next(reading), Wanted()).offsets.tolist()
    for segment in filled.log.segments[:3]:
        Path(filled.disk.root, segment.log.path).unlink()
    rest = [offset for batches in reading for offset in decode(batches, Wanted()).offsets.tolist()]
    assert first[0] == 0 and rest[-1] == 999
    assert lost == [(bases[1], bases[3])]  # what was open is read to its end, and the rest that is gone is reported
    assert rest[-(1000 - bases[3]) :] == list(range(bases[3], 1000))


def test_a_folder_that_is_emptied(filled: Writer) -> None:
    for path in Path(filled.disk.root, "t-0").glob("*.log"):
        path.unlink()
    lost: list[tuple[int, int]] = []
    assert offsets(origin_of(filled), 5, 9, lambda *span: lost.append(span)) == []
    assert lost == [(5, 9)]
    folder = Path(filled.disk.root, "t-0")
    aside = folder.rename(folder.with_name("t-0.deleted"))
    assert offsets(origin_of(filled), 7, 9, lambda *span: lost.append(span)) == []
    assert lost[1:] == [(7, 9)]
    aside.rename(folder)  # the log is closed into it


def test_sizes(filled: Writer) -> None:
    origin = origin_of(filled)
    whole = origin.byte_size(TP, 0, 1000)
    assert whole == filled.log.size_bytes
    assert abs(origin.byte_size(TP, 200, 800) - whole * 0.6) < 6_000
    assert origin.offset_within(TP, 0, 1000, 1 << 40) == 1000
    half = origin.offset_within(TP, 0, 1000, whole // 2)
    assert 400 < half < 600
    assert 100 < origin.offset_within(TP, 100, 1000, 1) <= 120  # a batch at least, else nothing would ever be read
    steps, at = 0, 0
    while at < 1000:
        at = origin.offset_within(TP, at, 1000, 5_000)
        steps += 1
    assert 10 < steps < 60


def test_bad_folders(tmp_path: Path, filled: Writer) -> None:
    with pytest.raises(SourceError, match=r"there is no data folder .*nowhere"):
        FolderOrigin([str(tmp_path / "nowhere")], isolation=0)
    with pytest.raises(SourceError, match="partition 7 of topic 't' has no folder"):
        origin_of(filled).bounds([("t", 7)])
    assert origin_of(filled).topics(None) == {"t": [0]}
    assert origin_of(filled).topics(["t", "u"]) == {"t": [0]}


def test_nothing_is_written(filled: Writer) -> None:
    filled.log.flush()
    folder = Path(filled.disk.root, "t-0")
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}
    origin = origin_of(filled, IsolationLevel.READ_COMMITTED)
    origin.bounds([TP])
    origin.offsets_at({TP: START_MS + 5})
    offsets(origin, 0, 1000)
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()} == before
