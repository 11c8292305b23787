"""Appends, reads, rolls, lookups by offset and by time, retention and truncation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clock import ManualClock, Timer
from ottla.enums import OffsetTimestamp
from ottla.errors import KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from ottla.log.files import Disk, MemoryDisk
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.options import LogConfig
from ottla.log.segment import TimestampedOffset
from ottla.records.batch import Batch, Record, batches
from ottla.records.legacy import build_message_set

START_MS = 1_700_000_000_000
Make = Callable[..., Batch]
Open = Callable[..., Log]


def fill(log: Log, make_batch: Make, count: int, **arguments: int) -> None:
    for n in range(count):
        log.append([make_batch(2, timestamp=START_MS + 10 * n, **arguments)])
    log.update_high_watermark(log.log_end_offset)


def test_an_append_sets_offsets_and_reports_them(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    first = log.append([make_batch(3)], leader_epoch=4)
    assert (first.first_offset, first.last_offset, first.duplicate) == (0, 2, False)
    second = log.append([make_batch(1), make_batch(2)], leader_epoch=4, append_time_ms=77)
    assert (second.first_offset, second.last_offset, second.append_time_ms) == (3, 5, 77)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    stored = list(log.batches(0))
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in stored] == [(0, 2, 4), (3, 3, 4), (4, 5, 4)]
    assert all(batch.crc_ok() for batch in stored)
    assert log.epochs.entries == [(4, 0)]


def test_batches_of_one_buffer_are_written_unchanged(open_t: Open, make_batch: Make) -> None:
    pieces = [bytes(make_batch(n).view()) for n in (1, 2, 3)]
    frame = bytearray(b"header" + b"".join(pieces) + b"footer")
    log = open_t()
    log.append(list(batches(frame, 6, len(frame) - 6)))
    assert [b.base_offset for b in log.batches(0)] == [0, 1, 3]
    assert log.size_bytes == len(frame) - 12


def test_an_empty_partition_costs_no_files(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t()
    log.close()
    if not isinstance(disk, MemoryDisk):  # the memory disk lists a file once it was opened
        assert disk.scan("t-0") == {}
    log = open_t(clean=True)
    assert log.log_end_offset == 0
    log.append([make_batch(1)])
    kinds = {name.partition(".")[2] for name in disk.scan("t-0")}
    assert {"log", "index", "timeindex"} <= kinds
    log.truncate_fully_and_start_at(50)
    log.close_handles()
    assert open_t(clean=False).log_end_offset == 50


def test_read_starts_at_the_batch_that_holds_the_offset(open_t: Open, make_batch: Make) -> None:
    log = open_t(index_interval_bytes=200)
    for _ in range(200):
        log.append([make_batch(3)])
    size = make_batch(3).size
    for offset in range(600):
        region = log.read(offset, 10 * size).records
        assert region.position == offset // 3 * size
        assert len(region) == min(10 * size, 200 * size - region.position)


def test_reads_keep_their_limits(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    for _ in range(5):
        log.append([make_batch(2)])
    size = make_batch(2).size
    assert len(log.read(0, size + 7).records) == size + 7  # not cut at a batch, as in Kafka
    assert len(log.read(0, 1).records) == size
    assert len(log.read(0, 1, min_one=False).records) == 1
    assert len(log.read(0, 0, min_one=False).records) == 0
    assert len(log.read(0, 1 << 20, up_to_offset=4).records) == 2 * size
    assert len(log.read(3, 1 << 20, up_to_offset=4).records) == size
    assert len(log.read(4, 1 << 20, up_to_offset=4).records) == 0
    assert len(log.read(10, 1 << 20).records) == 0
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)


def test_a_read_stays_in_one_segment(open_t: Open, make_batch: Make) -> None:
    size = make_batch(2).size
    log = open_t(segment_bytes=3 * size)
    fill(log, make_batch, 8)
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12]
    first = log.read(0, 1 << 20)
    assert (len(first.records), first.segment_base_offset) == (3 * size, 0)
    middle = log.read(9, 1 << 20, up_to_offset=13)
    assert (len(middle.records), middle.segment_base_offset) == (2 * size, 6)
    # 13 is in the middle of a batch that is not completely readable
    assert len(log.read(12, 1 << 20, up_to_offset=13).records) == 0


def test_roll_by_time_of_the_records(open_t: Open, make_batch: Make, clock: ManualClock) -> None:
    log = open_t(segment_ms=1000)
    log.append([make_batch(1, timestamp=START_MS)])
    clock.advance(100_000)
    log.append([make_batch(1, timestamp=START_MS + 1000)])
    assert len(log.segments) == 1
    log.append([make_batch(1, timestamp=START_MS + 1001)])
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_roll_by_the_clock_without_timestamps(open_t: Open, make_batch: Make, clock: ManualClock) -> None:
    log = open_t(segment_ms=1000)
    log.append([make_batch(1, timestamp=-1)])
    clock.advance(1001)
    log.append([make_batch(1, timestamp=-1)])
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_jitter_makes_a_segment_roll_earlier(open_t: Open, make_batch: Make) -> None:
    log = open_t(segment_ms=10_000, segment_jitter_ms=9_000)
    log.append([make_batch(1)])
    log.roll()
    jitter = log.active_segment.roll_jitter_ms
    assert 0 < jitter < 9_000
    log.append([make_batch(1, timestamp=START_MS)])
    log.append([make_batch(1, timestamp=START_MS + 10_000 - jitter)])
    assert len(log.segments) == 2
    log.append([make_batch(1, timestamp=START_MS + 10_000 - jitter + 1)])
    assert len(log.segments) == 3


def test_roll_when_an_index_is_full(open_t: Open, make_batch: Make) -> None:
    log = open_t(index_interval_bytes=1, segment_index_bytes=5 * 12)
    fill(log, make_batch, 20)
    assert len(log.segments) > 3
    assert all(segment.offset_index.count <= 7 and segment.time_index.count <= 5 for segment in log.segments)


def test_roll_when_an_offset_would_overflow(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(1)])
    far = make_batch(1)
    far.stamp(0x7FFFFFFF, 0)
    log.append_as_follower([far])
    assert len(log.segments) == 1
    farther = make_batch(1)
    farther.stamp(0x80000000, 0)
    log.append_as_follower([farther])
    assert [segment.base_offset for segment in log.segments] == [0, 0x80000000]
    assert [b.base_offset for b in log.batches(0)] == [0, 0x7FFFFFFF, 0x80000000]


def test_rolling_an_empty_segment_replaces_it(open_t: Open) -> None:
    log = open_t()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0]


def test_an_append_larger_than_a_segment_is_refused(open_t: Open, make_batch: Make) -> None:
    log = open_t(segment_bytes=200)
    with pytest.raises(RecordListTooLarge, match="exceeds the maximum configured segment size of 200"):
        log.append([make_batch(1, size=300)])
    assert log.log_end_offset == 0


def test_the_first_offset_of_a_timestamp_is_found(open_t: Open, make_batch: Make) -> None:
    log = open_t(segment_bytes=2000, index_interval_bytes=100)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_timestamp(OffsetTimestamp.MAX_TIMESTAMP) is None
    fill(log, make_batch, 100)  # offsets 2n and 2n+1 have timestamps 10n and 10n+1
    assert len(log.segments) > 5
    for n in range(100):
        assert log.offset_for_timestamp(START_MS + 10 * n) == TimestampedOffset(START_MS + 10 * n, 2 * n, 0)
        assert log.offset_for_timestamp(START_MS + 10 * n + 1) == TimestampedOffset(START_MS + 10 * n + 1, 2 * n + 1, 0)
        following = log.offset_for_timestamp(START_MS + 10 * n + 2)
        assert following == (TimestampedOffset(START_MS + 10 * n + 10, 2 * n + 2, 0) if n < 99 else None)
    assert log.offset_for_timestamp(0) == TimestampedOffset(START_MS, 0, 0)
    assert log.offset_for_timestamp(OffsetTimestamp.EARLIEST) == TimestampedOffset(-1, 0, 0)
    assert log.offset_for_timestamp(OffsetTimestamp.LATEST) == TimestampedOffset(-1, 200, 0)
    assert log.offset_for_timestamp(OffsetTimestamp.MAX_TIMESTAMP) == TimestampedOffset(START_MS + 991, 199, 0)
    log.advance_log_start_offset(51)
    assert log.offset_for_timestamp(START_MS) == TimestampedOffset(START_MS + 251, 51, 0)


def test_max_timestamp_is_the_record_not_the_batch(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(5, timestamp=START_MS + 500)])
    log.append([make_batch(5, timestamp=START_MS)])
    assert log.offset_for_timestamp(OffsetTimestamp.MAX_TIMESTAMP) == TimestampedOffset(START_MS + 504, 4, 0)


@pytest.mark.parametrize("codec", [0, 1])
def test_offset_for_timestamp_in_an_old_format(disk: Disk, open_t: Open, make_batch: Make, codec: int) -> None:
    """The folder of a broker older than 0.11, which continues in the current format."""
    records = [Record(n, START_MS + 10 * n, b"k", b"v") for n in range(5)]
    disk.mkdir("t-0")
    disk.open(f"t-0/{0:020d}.log").append([build_message_set(records, 1, codec)])
    log = open_t()
    log.append([make_batch(1, timestamp=START_MS + 100)])
    for record in records:
        found = TimestampedOffset(record.timestamp, record.offset, -1)
        assert log.offset_for_timestamp(record.timestamp) == log.offset_for_timestamp(record.timestamp - 1) == found
    assert log.offset_for_timestamp(START_MS + 41) == TimestampedOffset(START_MS + 100, 5, 0)
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(2)
    assert log.offset_for_timestamp(START_MS) == TimestampedOffset(START_MS + 20, 2, -1)


def test_records_out_of_time_order_are_found_by_timestamp(open_t: Open, make_batch: Make) -> None:
    log = open_t(index_interval_bytes=1)
    for timestamp in (50, 10, 30, 70, 20):
        log.append([make_batch(1, timestamp=START_MS + timestamp)])
    for target, offset in [(0, 0), (50, 0), (51, 3), (70, 3)]:
        found = log.offset_for_timestamp(START_MS + target)
        assert found is not None
        assert found.offset == offset
    assert log.offset_for_timestamp(START_MS + 71) is None


def test_retention_by_time(open_t: Open, make_batch: Make, clock: ManualClock) -> None:
    log = open_t(segment_bytes=200, retention_ms=1000)
    fill(log, make_batch, 10)  # one batch fits
    assert len(log.segments) == 10
    clock.advance(1000 + 45)
    assert log.delete_old_segments() == 5
    assert log.log_start_offset == 10
    clock.advance(10_000)
    assert log.delete_old_segments() == 5
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (20, 20, 0)
    assert log.delete_old_segments() == 0


def test_retention_keeps_records_above_the_high_watermark(open_t: Open, make_batch: Make, clock: ManualClock) -> None:
    log = open_t(segment_bytes=200, retention_ms=1000)
    fill(log, make_batch, 10)
    log.update_high_watermark(7)
    clock.advance(100_000)
    assert log.delete_old_segments() == 3
    assert log.log_start_offset == 6


def test_retention_by_size(open_t: Open, make_batch: Make) -> None:
    size = make_batch(2).size
    log = open_t(segment_bytes=size, retention_bytes=3 * size, retention_ms=-1)
    fill(log, make_batch, 10)
    assert log.delete_old_segments() == 7
    assert (log.size_bytes, log.log_start_offset) == (3 * size, 14)


def test_retention_by_start_offset_also_in_compacted_topics(open_t: Open, make_batch: Make) -> None:
    log = open_t(segment_bytes=200, retention_ms=0, retention_bytes=0, delete=False, compact=True)
    fill(log, make_batch, 10)
    assert log.delete_old_segments() == 0
    log.advance_log_start_offset(7)
    assert log.delete_old_segments() == 3
    assert (log.segments[0].base_offset, log.log_start_offset) == (6, 7)
    with pytest.raises(OffsetOutOfRange):
        log.read(6, 100)
    with pytest.raises(OffsetOutOfRange, match="larger than the high watermark"):
        log.advance_log_start_offset(21)


def test_deleted_files_are_renamed_first(disk: Disk, make_batch: Make, clock: ManualClock) -> None:
    timer = Timer(clock)
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=60_000, retention_ms=-1)
    log = open_log(disk, "t", 0, config, clock, schedule=timer.schedule)
    for n in range(3):
        log.append([make_batch(2, producer=(1, 0, 2 * n))])
    log.update_high_watermark(6)
    reading = log.read(2, 1000).records
    log.advance_log_start_offset(4)
    assert log.delete_old_segments() == 2
    gone = [name for name in disk.scan("t-0") if name.endswith(".deleted")]
    stems = ["00000000000000000000", "00000000000000000002"]
    expected = [stem + kind for stem in stems for kind in (".index", ".log", ".timeindex")]
    assert sorted(gone) == sorted([f"{name}.deleted" for name in expected] + [f"{stems[1]}.snapshot.deleted"])
    assert bytes(reading.read())[16] == 2  # a reader can continue
    clock.advance(60_000)
    assert not [name for name in disk.scan("t-0") if name.endswith(".deleted")]


def test_truncate_to(open_t: Open, make_batch: Make, contents: Callable[[Log], list[tuple[int, int]]]) -> None:
    log = open_t(segment_bytes=500, index_interval_bytes=100)
    fill(log, make_batch, 20)
    assert log.truncate_to(40) is False
    assert log.truncate_to(25) is True  # in the middle of the batch 24..25, which is removed as a whole
    assert (log.log_end_offset, log.high_watermark) == (25, 25)
    assert contents(log)[-1][0] == 23
    log.append([make_batch(2)])
    assert contents(log)[-1][0] == 26
    assert len(log.read(24, 1000).records) == make_batch(2).size
    assert log.truncate_to(0) is True
    assert (log.log_end_offset, log.size_bytes, len(log.segments)) == (0, 0, 1)


def test_truncate_fully_and_start_at(open_t: Open, make_batch: Make) -> None:
    log = open_t(segment_bytes=500)
    fill(log, make_batch, 20)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert log.append([make_batch(2)]).first_offset == 1000
    assert log.epochs.entries == [(0, 1000)]


def test_leader_epochs(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    for epoch, count in [(0, 5), (2, 3), (5, 4)]:
        log.append([make_batch(count)], leader_epoch=epoch)
    assert log.epochs.entries == [(0, 0), (2, 5), (5, 8)]
    answers = {-1: (-1, -1), 0: (0, 5), 1: (0, 5), 2: (2, 8), 4: (2, 8), 5: (5, 12), 6: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in answers} == answers
    assert [log.epochs.epoch_for_offset(o) for o in (0, 4, 5, 7, 8, 99)] == [0, 0, 2, 2, 5, 5]
    log.update_high_watermark(12)
    log.advance_log_start_offset(6)
    assert log.epochs.entries == [(2, 6), (5, 8)]
    assert log.end_offset_for_epoch(0) == (0, 6)
    log.truncate_to(8)
    assert log.epochs.entries == [(2, 6)]
    log.close()
    assert open_t(clean=True, log_start_offset=6).epochs.entries == [(2, 6)]


def test_followers_keep_offsets_and_epochs(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    batch = make_batch(3)
    batch.stamp(10, 3)
    info = log.append_as_follower([batch])
    assert (info.first_offset, info.last_offset) == (10, 12)
    assert (log.log_end_offset, log.epochs.entries) == (13, [(3, 10)])
    again = make_batch(1)
    again.stamp(12, 3)
    with pytest.raises(Exception, match="Out of order offsets"):
        log.append_as_follower([again])
    # an offset in the gap before the first batch reads the batch
    assert len(log.read(4, 1000).records) == batch.size


def test_flush_moves_the_recovery_point(open_t: Open, make_batch: Make) -> None:
    log = open_t(flush_messages=5)
    log.append([make_batch(4)])
    assert (log.recovery_point, log.unflushed) == (0, 4)
    log.append([make_batch(1)])
    assert (log.recovery_point, log.unflushed) == (5, 0)
    log.append([make_batch(1)])
    log.flush()
    assert log.recovery_point == 6


def test_background_flush_after_a_roll(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t()
    log.append([make_batch(4)])
    assert log.background_flush() is None
    log.roll()
    job = log.background_flush()
    assert job is not None
    paths, done = job
    disk.sync_paths(paths)
    assert log.recovery_point == 0
    done()
    assert log.recovery_point == 4
    log.append([make_batch(4)])
    log.roll()
    job = log.background_flush()
    assert job is not None
    log.truncate_to(2)
    job[1]()
    assert log.recovery_point == 2


def test_tail_reads_do_not_touch_the_disk(open_t: Open, make_batch: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_t()
    fill(log, make_batch, 300)
    for name in ("pread", "view"):
        monkeypatch.setattr(type(log.active_segment.log), name, None)
    assert len(log.read(log.log_end_offset - 2, 1 << 20).records) == make_batch(2).size


def test_a_lookup_reads_the_same_in_a_small_and_a_large_log(
    open_t: Open, make_batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a read in the middle is measured in bytes read: an index page and a part of the log."""
    log = open_t(index_interval_bytes=64)
    kind = type(log.active_segment.log)
    read = [0]

    def count(name: str) -> None:
        plain = getattr(kind, name)

        def counting(self, a, b):  # type: ignore[no-untyped-def]
            result = plain(self, a, b)
            read[0] += len(result)
            return result

        monkeypatch.setattr(kind, name, counting)

    costs = []
    for _ in range(3):
        fill(log, make_batch, 1500)
        with monkeypatch.context():
            count("view")
            read[0] = 0
            log.read(log.log_end_offset // 2, 100)
            costs.append(read[0])
        monkeypatch.undo()
    assert max(costs) <= 16384


def test_a_wrong_index_is_rebuilt(open_t: Open, make_batch: Make) -> None:
    log = open_t(index_interval_bytes=100)
    fill(log, make_batch, 50)
    index = log.active_segment.offset_index
    count = index.count
    index.reset()
    for n in range(count):
        index.append(2 * n + 1, 13 * n + 5)
    log.active_segment._hints.clear()
    size = make_batch(2).size
    for offset in range(100):
        assert log.read(offset, 10).records.position == offset // 2 * size


def test_a_repeated_lookup_needs_no_disk(open_t: Open, make_batch: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_t(index_interval_bytes=100)
    fill(log, make_batch, 400)
    size = make_batch(2).size
    asked = range(3, 203, 2)
    before = [log.read(offset, 10).records.position for offset in asked]
    assert before == [offset // 2 * size for offset in asked]
    with monkeypatch.context() as patch:
        patch.setattr(type(log.active_segment.log), "view", lambda *_: 1 // 0)
        assert [log.read(offset, 10).records.position for offset in asked] == before
    log.truncate_to(100)
    log.append([make_batch(5)])
    assert [log.read(offset, 10).records.position for offset in (100, 103, 104)] == [50 * size] * 3


def test_segments_with_the_same_base_are_not_mixed_up(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(1)])
    log.active_segment.base_offset = log.log_end_offset
    with pytest.raises(KafkaStorageError, match="exists and is not empty"):
        log.roll()
