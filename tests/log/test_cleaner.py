"""Compaction of one log: what is removed, what stays, and when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import OutOfOrderSequenceNumber
from ottla.log import checkpoints
from ottla.log.cleaner import CleanerSettings, LogCleaner
from ottla.log.cleaning_choice import look_at
from ottla.log.cleaning_job import Source, grouped
from ottla.log.files import Disk, MemoryDisk
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.offset_map import BYTES_PER_ENTRY, OffsetMap
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker
from ottla.records.legacy import build_message_set

START_MS = 1_700_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


class Bench:
    """A compacted partition with its cleaner, and a clock that stands still."""

    def __init__(self, disk: Disk, **settings: Any) -> None:
        self.disk = disk
        self.clock = ManualClock(START_MS)
        self.settings = CleanerSettings()
        self.config = LogConfig(
            **{"compact": True, "delete": False, "min_cleanable_dirty_ratio": 0.0, "index_interval_bytes": 100}
            | settings
        )
        self.scheduled: list[tuple[int, Callable[[], object]]] = []
        self.sequences: dict[int, int] = {}
        self.open()

    def open(self, clean: bool = True) -> None:
        self.manager = LogManager(
            self.disk,
            lambda topic: self.config,
            self.clock,
            new_token=lambda: "0" * 32,
            schedule=lambda delay_ms, job: self.scheduled.append((delay_ms, job)),
        )
        self.manager.open("cluster", 1, "A" * 22)
        self.manager.load_all()
        self.cleaner = LogCleaner(self.manager, lambda: self.settings)
        self.log: Log = self.manager.get_or_create("t", 0)
        self.log.update_high_watermark(self.log.log_end_offset)

    def reopen(self) -> None:
        self.manager.close()
        self.open()

    def append(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        producer: int = -1,
        transactional: bool = False,
        codec: int = 0,
        append_time_ms: int | None = None,
        epoch: int = 0,
    ) -> int:
        records = [Record(n, self.clock.now_ms() + n, key, value) for n, (key, value) in enumerate(pairs)]
        sequence = -1
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(pairs)
        batch = build_batch(
            records,
            0,
            codec,
            producer,
            epoch if producer >= 0 else -1,
            sequence,
            transactional=transactional,
            append_time_ms=append_time_ms,
        )
        info = self.log.append([Batch(batch)], 3)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def end(self, producer: int, *, commit: bool, epoch: int = 0) -> int:
        marker = end_transaction_marker(
            commit, 0, producer_id=producer, producer_epoch=epoch, timestamp_ms=self.clock.now_ms()
        )
        info = self.log.append([Batch(marker)], 3, Origin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def clean(self) -> int:
        """Close the active segment and compact everything that is dirty."""
        if self.log.active_segment.size:
            self.log.roll()
        return self.cleaner.run_until_clean()

    def batches(self) -> list[Batch]:
        return list(self.log.batches(0))

    def offsets(self) -> list[int]:
        return [record.offset for batch in self.batches() for record in batch.records()]

    def values(self) -> dict[bytes | None, bytes | None]:
        return {r.key: r.value for b in self.batches() if not b.is_control for r in b.records()}


@pytest.fixture
def bench(disk: Disk) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(disk, **settings))
        return made[-1]

    yield make
    for one in made:
        one.manager.close()


def test_the_newest_record_of_each_key_stays(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"), (b"b", b"1"))
    b.append((b"a", b"2"))
    b.append((b"c", b"1"), (b"b", b"2"), (b"c", b"2"))
    assert b.clean() == 1
    assert b.offsets() == [2, 4, 5]
    assert b.values() == {b"a": b"2", b"b": b"2", b"c": b"2"}
    assert [(batch.base_offset, batch.last_offset) for batch in b.batches()] == [(2, 2), (3, 5)]
    assert all(batch.crc_ok() and batch.leader_epoch == 3 for batch in b.batches())
    assert b.log.log_start_offset == 0


def test_a_kept_record_keeps_time_headers_and_codec(bench: Callable[..., Bench]) -> None:
    b = bench()
    for codec in range(5):
        start = b.append((b"x", b"1"), (b"k%d" % codec, b"v" * 300), (b"x", b"2"), codec=codec)
        b.append((b"x", b"3"))
        b.clean()
        batch = next(batch for batch in b.batches() if batch.base_offset == start)
        assert batch.codec == codec
        record = next(batch.records())
        assert (record.key, record.value, record.timestamp) == (b"k%d" % codec, b"v" * 300, START_MS + 1)
        # As in Kafka: the base offset is that of the first kept record, and the last offset does not change.
        assert (batch.base_timestamp, batch.max_timestamp, batch.last_offset_delta) == (START_MS + 1, START_MS + 1, 2)


def test_an_append_time_batch_keeps_its_time(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"), (b"b", b"1"), append_time_ms=START_MS + 77)
    b.append((b"a", b"2"))
    b.clean()
    batch = b.batches()[0]
    assert batch.timestamp_type == 1
    assert [(r.offset, r.timestamp) for r in batch.records()] == [(1, START_MS + 77)]
    assert batch.max_timestamp == START_MS + 77


def test_the_active_segment_is_not_touched(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    assert b.cleaner.run_until_clean() == 0
    b.log.roll()
    b.append((b"a", b"3"))
    assert b.cleaner.run_until_clean() == 1
    # The record in the active segment is newer, but the cleaner does not see it yet.
    assert b.offsets() == [1, 2]


def test_tombstones_are_removed_in_the_second_pass_after_their_time(bench: Callable[..., Bench]) -> None:
    b = bench(delete_retention_ms=1000)
    b.append((b"a", b"1"))
    b.append((b"a", None))
    b.append((b"b", b"1"))
    b.clean()
    assert b.offsets() == [1, 2]
    tombstone = b.batches()[0]
    assert tombstone.delete_horizon_ms == START_MS + 1000
    assert [r.timestamp for r in tombstone.records()] == [START_MS]
    b.clock.advance(999)
    b.append((b"c", b"1"))
    b.clean()
    assert b.offsets() == [1, 2, 3]
    assert b.batches()[0].delete_horizon_ms == START_MS + 1000
    b.clock.advance(1)
    b.append((b"d", b"1"))
    b.clean()
    assert b.offsets() == [2, 3, 4]


def test_aborted_records_are_removed_before_their_marker(bench: Callable[..., Bench]) -> None:
    b = bench(delete_retention_ms=1000)
    b.append((b"a", b"keep"))
    b.append((b"a", b"no"), (b"b", b"no"), producer=7, transactional=True)
    marker = b.end(7, commit=False)
    b.append((b"c", b"1"), producer=7)
    b.append((b"z", b"1"))
    assert b.log.aborted_transactions(0, 100)
    b.clean()
    # An aborted record does not replace an older one.
    assert b.offsets() == [0, marker, 4, 5]
    assert b.values() == {b"a": b"keep", b"c": b"1", b"z": b"1"}
    kept = next(batch for batch in b.batches() if batch.is_control)
    assert kept.delete_horizon_ms is None  # its records were seen in this same pass
    b.clock.advance(1000)
    b.append((b"y", b"1"))
    b.clean()
    kept = next(batch for batch in b.batches() if batch.is_control)
    assert kept.delete_horizon_ms == START_MS + 2000
    assert b.log.aborted_transactions(0, 100) == []
    b.clock.advance(1000)
    b.append((b"x", b"1"))
    b.clean()
    assert b.offsets() == [0, 4, 5, 6, 7]


def test_compaction_removes_a_commit_marker_after_its_records(bench: Callable[..., Bench]) -> None:
    b = bench(delete_retention_ms=1000)
    b.append((b"a", b"1"), producer=7, transactional=True)
    b.end(7, commit=True)
    b.append((b"b", b"1"), producer=7)
    b.append((b"z", b"1"))
    b.clean()
    assert b.offsets() == [0, 1, 2, 3]
    b.append((b"a", b"2"))
    b.clean()
    assert b.offsets() == [1, 2, 3, 4]
    b.append((b"y", b"1"))
    b.clean()
    b.clock.advance(1000)
    b.append((b"x", b"1"))
    b.clean()
    assert b.offsets() == [2, 3, 4, 5, 6]


def test_cleaning_stops_at_an_open_transaction(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    b.log.roll()
    b.append((b"a", b"3"), producer=7, transactional=True)
    b.log.roll()
    b.append((b"a", b"4"))
    b.clean()
    assert b.cleaner.clean_offsets == {("t", 0): 2}
    assert b.offsets() == [1, 2, 3]
    b.end(7, commit=True)
    b.clean()
    assert b.offsets() == [3, 4]


@pytest.mark.parametrize("codec", [0, 1])
def test_the_last_batch_of_a_producer_stays_as_an_empty_one(bench: Callable[..., Bench], codec: int) -> None:
    b = bench()
    b.append((b"a", b"1"), (b"b", b"1"), producer=5, codec=codec)
    b.append((b"a", b"2"), (b"b", b"2"))
    b.append((b"z", b"1"))
    b.clean()
    first = b.batches()[0]
    assert (first.record_count, first.size, first.codec) == (0, 61, 0)
    assert (first.base_offset, first.last_offset, first.base_sequence, first.last_sequence) == (0, 1, 0, 1)
    assert first.crc_ok()
    for clean in (True, False):
        if clean:
            b.reopen()
        else:
            b.log.close_handles()
            for snapshot in [n for n in b.disk.scan("t-0") if n.endswith(".snapshot")]:
                b.disk.remove(f"t-0/{snapshot}")
            checkpoints.take_clean_stop([b.disk])
            b.disk.close()
            b.open()
        assert b.log.producers.producers[5].last_sequence == 1
    with pytest.raises(OutOfOrderSequenceNumber):
        b.log.append([Batch(build_batch([Record(0, START_MS, b"k", b"v")], 0, 0, 5, 0, 9))])
    b.append((b"b", b"3"), producer=5)
    b.append((b"z", b"2"))
    b.clean()
    assert b.offsets() == [2, 5, 6]
    assert b.batches()[0].base_offset == 2


def test_the_last_batch_of_a_round_stays_to_keep_its_offset(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((None, b"keyless"))
    b.clean()
    assert b.offsets() == [0]
    assert [(batch.base_offset, batch.record_count) for batch in b.batches()] == [(0, 1), (1, 0)]


def test_a_log_is_cleaned_above_the_dirty_ratio(bench: Callable[..., Bench]) -> None:
    b = bench(min_cleanable_dirty_ratio=0.5)
    for n in range(10):
        b.append((b"%d" % n, b"v" * 50))
    assert b.clean() == 1  # nothing is clean: the whole log is dirty
    b.append((b"x", b"v" * 50))
    assert b.clean() == 0
    for n in range(10):
        b.append((b"%d" % n, b"w" * 50))
    assert b.clean() == 1
    assert len(b.offsets()) == 11


def test_records_younger_than_min_compaction_lag_stay(bench: Callable[..., Bench]) -> None:
    b = bench(min_compaction_lag_ms=1000)
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    assert b.clean() == 0
    b.clock.advance(999)
    assert b.clean() == 0
    b.clock.advance(1)
    assert b.cleaner.run_until_clean() == 1  # without a new append
    assert b.offsets() == [1]


def test_a_log_is_cleaned_after_max_compaction_lag(bench: Callable[..., Bench]) -> None:
    b = bench(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    assert b.clean() == 0
    b.clock.advance(5000)
    assert b.cleaner.run_until_clean() == 0
    b.clock.advance(1)
    assert b.cleaner.run_until_clean() == 1
    assert b.offsets() == [1]


def test_small_segments_are_merged(bench: Callable[..., Bench]) -> None:
    b = bench(segment_bytes=1000)
    for n in range(60):
        b.append((b"%d" % (n % 10), b"v" * 20))
    before = len(b.log.segments)
    assert before > 4
    b.clean()
    b.append((b"x", b"1"))
    b.clean()
    assert len(b.log.segments) == 2
    assert b.offsets() == [*range(50, 61)]
    # Reads that start in a gap continue at the next existing record.
    assert next(batch.base_offset for batch in b.log.batches(3)) == 50
    assert len(b.log.read(3, 10_000).records) > 0


def test_groups_are_bounded_by_size_indexes_and_offsets() -> None:
    config = LogConfig(segment_bytes=100, segment_index_bytes=50)

    def bases(*sources: Source) -> list[list[int]]:
        return [[s.base_offset for s in group] for group in grouped(sources, config, sources[-1].base_offset + 10)]

    assert bases(Source(0, 50, 0, 0), Source(1, 50, 0, 0), Source(2, 1, 0, 0)) == [[0, 1], [2]]
    assert bases(Source(0, 1, 30, 0), Source(1, 1, 30, 0)) == [[0], [1]]
    assert bases(Source(0, 1, 0, 30), Source(1, 1, 0, 30)) == [[0], [1]]
    assert bases(Source(0, 1, 0, 0), Source(1 << 31, 1, 0, 0)) == [[0], [1 << 31]]
    # An empty segment has no offsets to index.
    assert bases(Source(0, 1, 0, 0), Source(1 << 31, 0, 0, 0)) == [[0, 1 << 31]]
    assert bases(Source(0, 500, 0, 0), Source(1, 1, 0, 0)) == [[0], [1]]


def test_a_full_map_takes_several_rounds(bench: Callable[..., Bench]) -> None:
    b = bench(segment_bytes=2000)
    b.settings.map_bytes = BYTES_PER_ENTRY * 10
    for n in range(80):
        b.append((b"key-%d" % (n % 20), b"%d" % n), (b"once-%d" % n, b""))
    rounds = b.clean()
    assert rounds > 8
    values = b.values()
    assert [values[b"key-%d" % n] for n in range(20)] == [b"%d" % (60 + n) for n in range(20)]
    assert len(b.offsets()) == 100
    assert b.offsets() == sorted(b.offsets())


def test_a_batch_with_more_keys_than_the_map_holds_is_cleaned(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.settings.map_bytes = BYTES_PER_ENTRY * 10
    b.append(*[(b"%d" % n, b"1") for n in range(50)])
    b.append(*[(b"%d" % n, b"2") for n in range(50)])
    b.clean()
    assert b.offsets() == [*range(50, 100)]


def test_the_map_stays_within_its_memory() -> None:
    import tracemalloc

    for key_size in (8, 30, 40):
        memory = 4 << 20
        offsets = OffsetMap(memory, 1.0)
        keys = offsets.capacity
        tracemalloc.start()
        for n in range(keys):
            offsets.put(n.to_bytes(key_size, "big"), (1 << 40) + n)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert offsets.is_full
        assert peak <= memory
        assert offsets.get((keys - 1).to_bytes(key_size, "big")) == (1 << 40) + keys - 1
        assert offsets.get(keys.to_bytes(key_size, "big")) == -1


def test_a_long_key_is_not_taken_for_its_digest() -> None:
    from ottla.log.offset_map import digest

    offsets = OffsetMap(1 << 20)
    offsets.put(b"k" * 40, 1)
    assert offsets.get(digest(b"k" * 40)) == -1


def test_compact_and_delete_compacts_and_expires(bench: Callable[..., Bench]) -> None:
    b = bench(delete=True, retention_ms=10_000, file_delete_delay_ms=5)
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    b.clean()
    b.clock.advance(6000)
    b.append((b"b", b"1"))
    b.clean()
    assert b.offsets() == [1, 2]
    assert b.cleaner.delete_old_segments() == 0
    b.clock.advance(10_001)
    assert b.cleaner.delete_old_segments() >= 1
    assert b.offsets() == []
    assert b.log.log_start_offset == 3
    # The checkpoint is now below the log's start, which is normal.
    b.append((b"a", b"3"))
    b.clean()
    assert b.offsets() == [3]


def test_an_empty_segment_keeps_its_base_offset(bench: Callable[..., Bench]) -> None:
    b = bench(segment_bytes=300)
    for n in range(8):
        b.append((b"a", b"%d" % n * 100))
    b.clean()
    assert b.offsets() == [7]
    b.reopen()
    assert b.offsets() == [7]
    assert b.log.log_start_offset == 0
    assert b.log.read(0, 1000).records


def test_a_restart_continues_at_the_checkpoint(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    b.clean()
    assert b.disk.read_bytes(checkpoints.CLEANER_OFFSETS_FILE) == b"0\n1\nt 0 2\n"
    b.reopen()
    assert b.cleaner.clean_offsets == {("t", 0): 2}
    assert b.clean() == 0
    b.manager.delete("t", 0)
    assert b.disk.read_bytes(checkpoints.CLEANER_OFFSETS_FILE) == b"0\n0\n"


def test_unopened_logs_are_opened_only_if_dirty(bench: Callable[..., Bench]) -> None:
    b = bench()
    for partition in range(1, 5):
        log = b.manager.get_or_create("t", partition)
        for n in range(2):
            log.append([Batch(build_batch([Record(0, START_MS, b"k", b"%d" % n)]))])
        log.update_high_watermark(2)
        if partition < 3:
            log.roll()
    assert b.cleaner.run_until_clean() == 2
    log = b.manager.get_or_create("t", 4)
    log.roll()
    b.manager.close()
    b.manager = LogManager(b.disk, lambda topic: b.config, b.clock, new_token=lambda: "0" * 32)
    b.manager.open("cluster", 1, "A" * 22)
    b.cleaner = LogCleaner(b.manager)
    assert b.cleaner.run_until_clean() == 1
    assert [(log.topic, log.partition) for log in b.manager.logs()] == [("t", 4)]


def test_a_checkpoint_outside_the_log_is_not_trusted(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.log.roll()
    assert look_at(("t", 0), b.log, 99, START_MS).first_dirty_offset == 0
    assert "ends at 1" in caplog.text
    b.log.advance_log_start_offset(1)
    assert look_at(("t", 0), b.log, 0, START_MS).first_dirty_offset == 1
    assert "starts at 1" in caplog.text


def test_damage_makes_a_log_uncleanable_with_one_line(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((b"a", b"2" * 100))
    b.log.roll()
    path = b.log.segments[0].log.path
    data = bytearray(b.disk.read_bytes(path))
    data[-10] ^= 1
    b.log.close_handles()
    b.disk.remove(path)
    b.disk.open(path).append([data])
    b.log.segments[0].log = b.disk.open(path)
    with caplog.at_level(logging.WARNING):
        b.cleaner.run_until_clean()
    assert b.cleaner.uncleanable == {("t", 0)}
    assert [r.getMessage() for r in caplog.records] == [
        "t-0 cannot be compacted and is left alone from now on: CorruptMessage: the batch at offset 1 has a wrong CRC"
    ]
    assert bytes(b.disk.read_bytes(path)) == bytes(data)
    assert not [name for name in b.disk.scan("t-0") if name.endswith(".cleaned")]
    b.append((b"a", b"3"))
    assert b.clean() == 0


def test_a_log_that_changes_during_cleaning_is_left_unchanged(bench: Callable[..., Bench]) -> None:
    b = bench()
    for n in range(4):
        b.append((b"a", b"%d" % n))
        b.log.roll()
    cleaning = b.cleaner.next()
    assert cleaning is not None
    cleaning.step()
    b.log.truncate_to(2)
    b.log.update_high_watermark(2)
    assert not b.cleaner.apply(cleaning)
    assert b.offsets() == [0, 1]
    assert not [name for name in b.disk.scan("t-0") if name.endswith((".cleaned", ".swap"))]
    assert b.cleaner.clean_offsets == {}


def test_a_deleted_log_ends_its_cleaning(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.append((b"a", b"1"))
    b.append((b"a", b"2"))
    b.log.roll()
    cleaning = b.cleaner.next()
    assert cleaning is not None
    assert b.cleaner.is_busy(("t", 0))
    b.manager.delete("t", 0)
    cleaning.step()
    assert not b.cleaner.apply(cleaning)
    assert not b.cleaner.in_progress
    b.log = b.manager.get_or_create("t", 0)
    b.append((b"a", b"1"))
    assert b.clean() == 1


def test_a_reader_of_replaced_segments_finishes(bench: Callable[..., Bench]) -> None:
    b = bench(file_delete_delay_ms=60_000)
    b.append((b"a", b"1"), (b"b", b"1"))
    b.append((b"a", b"2"))
    b.log.roll()
    region = b.log.read(0, 1000).records
    before = bytes(region.read())  # type: ignore[union-attr]
    b.clean()
    assert bytes(region.read()) == before  # type: ignore[union-attr]
    if not isinstance(b.disk, MemoryDisk):  # which its readers keep, not a timer
        assert [name for name in b.disk.scan("t-0") if name.endswith(".deleted")]
        assert {delay_ms for delay_ms, _ in b.scheduled} == {60_000}
    region.pin()  # type: ignore[union-attr]
    for _, job in b.scheduled:
        job()
    assert not [name for name in b.disk.scan("t-0") if name.endswith(".deleted")]
    region.release()  # type: ignore[union-attr]


def test_one_log_at_a_time_unless_there_are_threads(bench: Callable[..., Bench]) -> None:
    b = bench()
    for partition in range(3):
        log = b.manager.get_or_create("t", partition)
        for n in range(2):
            log.append([Batch(build_batch([Record(0, START_MS, b"k", b"%d" % n)]))])
        log.roll()
        log.update_high_watermark(2)
    first = b.cleaner.next()
    assert first is not None
    assert b.cleaner.next() is None
    b.settings.threads = 2
    second = b.cleaner.next()
    assert second is not None
    assert second.target.key != first.target.key
    b.cleaner.finish(first)
    b.cleaner.finish(second)
    b.settings.enabled = False
    assert b.cleaner.next() is None


def test_old_message_formats_are_compacted(bench: Callable[..., Bench]) -> None:
    for magic, codec in ((0, 0), (1, 0), (1, 1)):
        b = bench()
        records = [
            Record(n, START_MS, key, value)
            for n, (key, value) in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None), (b"d", b"1")])
        ]
        data = build_message_set(records, magic, codec)
        b.disk.open(b.log.active_segment.log.path).append([data])
        b.log.active_segment.log = b.disk.open(b.log.active_segment.log.path)
        b.log.log_end_offset = 5
        b.log.update_high_watermark(5)
        b.log.roll()
        b.cleaner.changed(b.log)
        assert b.cleaner.run_until_clean() == 1
        assert not b.cleaner.uncleanable
        from ottla.records.legacy import message_set

        left = message_set(b.disk.read_bytes(b.log.segments[0].log.path))
        found = [r.offset for entry in left for r in entry.records()]
        assert found == [1, 2, 3, 4]
        b.manager.delete("t", 0)
        b.manager.close()
        for name in list(b.disk.scan("")):
            b.disk.remove_tree(name)
            b.disk.remove(name)


@pytest.mark.parametrize("codec", [1, 4], ids=["gzip", "zstd"])
def test_a_batch_that_decompresses_to_much_is_cleaned_in_little_memory(bench: Callable[..., Bench], codec: int) -> None:
    import tracemalloc

    b = bench()
    value = bytes(1 << 20)
    b.append(*[(b"%d" % (n % 20), value) for n in range(40)], codec=codec)
    tracemalloc.start()
    try:
        b.clean()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert b.offsets() == [*range(20, 40)]
    assert peak < 20 << 20, "the batch has 40 MB, of which 20 MB stay"
