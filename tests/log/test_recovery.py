"""The log opens after an unclean stop, a torn write, and with a lost or damaged file."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from ottla.clock import ManualClock
from ottla.enums import OffsetTimestamp
from ottla.log.files import Disk
from ottla.log.index import OffsetIndex
from ottla.log.log import Log
from ottla.log.producers import Origin
from ottla.records.batch import Batch
from ottla.records.checksum import crc32c

START_MS = 1_700_000_000_000
Make = Callable[..., Batch]
Open = Callable[..., Log]
Contents = Callable[[Log], list[tuple[int, int]]]


def fill(log: Log, make_batch: Make, count: int) -> None:
    for n in range(count):
        log.append([make_batch(2, timestamp=START_MS + 10 * n, producer=(5, 0, 2 * n))])


def name(offset: int, kind: str) -> str:
    return f"t-0/{offset:020d}.{kind}"


def test_a_last_batch_cut_at_any_byte_is_removed(
    open_t: Open, make_batch: Make, disk: Disk, contents: Contents, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_t()
    fill(log, make_batch, 4)
    whole = disk.read_bytes(name(0, "log"))
    size = len(whole) // 4
    for cut in range(3 * size, 4 * size):
        disk.write_atomic(name(0, "log"), whole[:cut])
        caplog.clear()
        again = open_t(clean=False)
        assert [offset for offset, _ in contents(again)] == list(range(6))
        assert (again.log_end_offset, again.size_bytes) == (6, 3 * size)
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        if cut > 3 * size:
            assert lines == [
                f"t-0: the log was not closed cleanly; cut {cut - 3 * size} bytes of segment 0, "
                "the log now ends at offset 6"
            ]
        else:
            assert lines == []
        # and it continues
        assert again.append([make_batch(2, producer=(5, 0, 6))]).first_offset == 6
        again.close_handles()
        disk.remove(name(6, "snapshot"))


@pytest.mark.parametrize("position", [0, 8, 16, 17, 30, 60, 70])
def test_a_last_batch_with_a_flipped_bit_is_cut(
    open_t: Open, make_batch: Make, disk: Disk, contents: Contents, position: int
) -> None:
    log = open_t()
    fill(log, make_batch, 4)
    whole = bytearray(disk.read_bytes(name(0, "log")))
    size = len(whole) // 4
    whole[3 * size + position] ^= 0x80
    disk.write_atomic(name(0, "log"), bytes(whole))
    again = open_t(clean=False)
    assert [offset for offset, _ in contents(again)] == list(range(6))


def test_corruption_in_the_middle_cuts_everything_after(
    open_t: Open, make_batch: Make, disk: Disk, contents: Contents, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_t(segment_bytes=500)
    fill(log, make_batch, 20)
    bases = [segment.base_offset for segment in log.segments]
    victim = bases[2]
    data = bytearray(disk.read_bytes(name(victim, "log")))
    data[len(data) // 2 + 30] ^= 1
    disk.write_atomic(name(victim, "log"), bytes(data))
    again = open_t(clean=False, segment_bytes=500)
    assert [segment.base_offset for segment in again.segments] == bases[:3]
    assert victim < again.log_end_offset < bases[3]
    assert f"and {len(bases) - 3} later segments" in caplog.text
    assert max(again.producers.snapshot_offsets) <= again.log_end_offset
    assert again.producers.producers[5].last_sequence == again.log_end_offset - 1


def move(disk: Disk, segment: int, position: int, offset: int) -> None:
    """Change the offset of the batch at a position; no checksum covers it."""
    data = bytearray(disk.read_bytes(name(segment, "log")))
    data[position : position + 8] = offset.to_bytes(8, "big", signed=True)
    disk.write_atomic(name(segment, "log"), bytes(data))


@pytest.mark.parametrize("segment", [0, 8])
@pytest.mark.parametrize("shift", [-2, -1, 1, 2, 64, 1 << 40, -(1 << 62)])
def test_a_damaged_offset_loses_no_other_batch(
    open_t: Open, make_batch: Make, disk: Disk, segment: int, shift: int
) -> None:
    """As in Kafka, everything is kept, because the batches after it are valid."""
    log = open_t(segment_bytes=500, index_interval_bytes=100)
    fill(log, make_batch, 7)
    size = log.segments[0].size // 4
    assert [each.base_offset for each in log.segments] == [0, 8]
    move(disk, segment, size, segment + 2 + shift)
    again = open_t(clean=False, segment_bytes=500, index_interval_bytes=100)
    assert [each.size for each in again.segments] == [4 * size, 3 * size]
    assert again.log_end_offset == 14
    assert again.append([make_batch(2, producer=(5, 0, 14))]).first_offset == 14
    for offset in (4, 7, 12, 13):
        region = again.read(offset, 1).records
        assert Batch(bytes(region.read())).base_offset in (offset - offset % 2, segment + 2 + shift)
    again.close()
    assert open_t(clean=True, segment_bytes=500, index_interval_bytes=100).log_end_offset == 16


def test_duplicate_batches_at_the_end_are_cut(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t(segment_bytes=500)
    fill(log, make_batch, 7)
    size = log.segments[0].size // 4
    for segment in (0, 8):
        data = disk.read_bytes(name(segment, "log"))
        disk.write_atomic(name(segment, "log"), data + data[:size])
    again = open_t(clean=False, segment_bytes=500)
    assert [each.size for each in again.segments] == [5 * size, 3 * size]
    assert again.log_end_offset == 14
    assert again.append([make_batch(2, producer=(5, 0, 14))]).first_offset == 14


@pytest.mark.parametrize(("magic", "is_kept"), [(0, False), (1, False), (3, True), (66, True), (130, False)])
def test_a_damaged_magic_byte_is_handled_as_in_kafka(
    open_t: Open, make_batch: Make, disk: Disk, magic: int, is_kept: bool
) -> None:
    """As in Kafka, which reads all values from 2 on as the current format. Its checksum does not cover the magic."""
    log = open_t()
    fill(log, make_batch, 4)
    data = bytearray(disk.read_bytes(name(0, "log")))
    data[len(data) // 4 + 16] = magic
    disk.write_atomic(name(0, "log"), bytes(data))
    again = open_t(clean=False)
    assert again.log_end_offset == (8 if is_kept else 2)


def test_recovery_starts_at_the_recovery_point(open_t: Open, make_batch: Make, disk: Disk) -> None:
    """Segments below it are not read: a flipped bit there stays, as in Kafka."""
    log = open_t(segment_bytes=500)
    fill(log, make_batch, 20)
    bases = [segment.base_offset for segment in log.segments]
    data = bytearray(disk.read_bytes(name(0, "log")))
    data[70] ^= 1
    disk.write_atomic(name(0, "log"), bytes(data))
    again = open_t(clean=False, segment_bytes=500, recovery_point=bases[1])
    assert (again.log_end_offset, again.recovery_point) == (40, bases[1])
    assert not next(again.batches(0)).crc_ok()
    assert open_t(clean=False, segment_bytes=500, recovery_point=bases[1] - 1).log_end_offset < bases[1]


def test_zeros_after_the_last_batch_are_cut(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t()
    fill(log, make_batch, 3)
    disk.open(name(0, "log")).append([bytes(5000)])
    assert open_t(clean=False).log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kinds", [["index"], ["timeindex"], ["index", "timeindex"]])
def test_missing_indexes_are_rebuilt(open_t: Open, make_batch: Make, disk: Disk, kinds: list[str], clean: bool) -> None:
    arguments = {"segment_bytes": 2000, "index_interval_bytes": 150}
    log = open_t(**arguments)
    fill(log, make_batch, 50)
    log.close()
    before = {n: disk.read_bytes(f"t-0/{n}") for n in disk.scan("t-0") if n.endswith("index")}
    for base in [segment.base_offset for segment in log.segments]:
        for kind in kinds:
            disk.remove(name(base, kind))
    again = open_t(clean=clean, recovery_point=100, **arguments)
    again.close()
    assert {n: disk.read_bytes(f"t-0/{n}") for n in disk.scan("t-0") if n.endswith("index")} == before
    assert again.log_end_offset == 100


@pytest.mark.parametrize(
    "broken",
    [b"\xff" * 40, b"\1" * 7, OffsetIndex.ENTRY.pack(50, 3) * 2, bytes(80), OffsetIndex.ENTRY.pack(3, 999_999)],
)
def test_corrupt_indexes_do_not_mislead(
    open_t: Open, make_batch: Make, disk: Disk, contents: Contents, broken: bytes
) -> None:
    arguments = {"segment_bytes": 2000, "index_interval_bytes": 150}
    log = open_t(**arguments)
    fill(log, make_batch, 50)
    log.close()
    for base in [segment.base_offset for segment in log.segments]:
        disk.write_atomic(name(base, "index"), broken)
    again = open_t(clean=True, **arguments)
    assert [offset for offset, _ in contents(again)] == list(range(100))
    for offset in range(100):
        region = again.read(offset, 100).records
        assert Batch(region.read()).base_offset == offset // 2 * 2
    for n in range(50):
        found = again.offset_for_timestamp(START_MS + 10 * n)
        assert found is not None
        assert found.offset == 2 * n


@pytest.mark.parametrize("broken", [b"\xff" * 36, b"\1" * 7, bytes(120)])
def test_corrupt_time_indexes_do_not_mislead(open_t: Open, make_batch: Make, disk: Disk, broken: bytes) -> None:
    log = open_t(index_interval_bytes=150)
    fill(log, make_batch, 50)
    log.close()
    disk.write_atomic(name(0, "timeindex"), broken)
    again = open_t(clean=True, index_interval_bytes=150)
    found = again.offset_for_timestamp(START_MS + 250)
    if broken == bytes(120):  # indistinguishable from a segment without timestamps
        again.active_segment.rebuild_indexes()
        found = again.offset_for_timestamp(START_MS + 250)
    assert found is not None
    assert found.offset == 50


def test_indexes_that_kafka_preallocated_are_read(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t(index_interval_bytes=150)
    fill(log, make_batch, 50)
    log.close()
    plain = disk.read_bytes(name(0, "index"))
    disk.open(name(0, "index")).append([bytes(80_000)])
    disk.open(name(0, "timeindex")).append([bytes(120_000)])
    again = open_t(clean=False, index_interval_bytes=150)
    assert again.offset_for_timestamp(OffsetTimestamp.MAX_TIMESTAMP) == (START_MS + 491, 99, 0)
    again.close()
    assert disk.read_bytes(name(0, "index")) == plain


def test_an_orphaned_index_is_removed(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t()
    fill(log, make_batch, 1)
    log.close()
    disk.write_atomic(name(77, "index"), b"")
    disk.write_atomic(name(77, "txnindex"), b"")
    again = open_t(clean=True)
    assert len(again.segments) == 1
    assert not disk.exists(name(77, "index"))


def test_leftovers_of_deletion_and_cleaning_are_removed(
    open_t: Open, make_batch: Make, disk: Disk, contents: Contents
) -> None:
    log = open_t()
    fill(log, make_batch, 3)
    log.close()
    for leftover in (name(0, "log.deleted"), name(0, "log.cleaned"), name(0, "index.swap"), "t-0/x.tmp"):
        disk.write_atomic(leftover, b"rubbish")
    again = open_t(clean=True)
    assert len(contents(again)) == 6
    assert not [n for n in disk.scan("t-0") if n.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]


def test_an_interrupted_swap_is_finished(open_t: Open, make_batch: Make, disk: Disk, contents: Contents) -> None:
    log = open_t(segment_bytes=200)
    fill(log, make_batch, 4)
    log.close()
    # the compaction of the first three segments kept only the batch at offset 4
    for kind in ("log", "index", "timeindex"):
        disk.write_atomic(name(0, kind + ".swap"), disk.read_bytes(name(4, kind)) if kind == "log" else b"")
    again = open_t(clean=True, segment_bytes=200)
    assert [segment.base_offset for segment in again.segments] == [0, 6]
    assert [offset for offset, _ in contents(again)] == [4, 5, 6, 7]


def test_a_log_that_ends_before_its_start_restarts(
    open_t: Open, make_batch: Make, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_t()
    fill(log, make_batch, 3)
    log.close()
    again = open_t(clean=True, log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset) == (100, 100)
    assert "it restarts there" in caplog.text
    assert again.append([make_batch(1)]).first_offset == 100


def test_epochs_are_read_from_the_batches_if_their_file_is_lost(
    open_t: Open, make_batch: Make, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_t()
    log.append([make_batch(2)], leader_epoch=1)
    log.append([make_batch(2)], leader_epoch=4)
    disk.remove("t-0/leader-epoch-checkpoint")
    assert open_t(clean=False).epochs.entries == [(1, 0), (4, 2)]
    disk.write_atomic("t-0/leader-epoch-checkpoint", b"0\n7\nrubbish\n")
    assert open_t(clean=False).epochs.entries == [(1, 0), (4, 2)]
    assert "leader-epoch-checkpoint is malformed" in caplog.text


def test_messages_of_old_formats_are_recovered_too(open_t: Open, disk: Disk, clock: ManualClock) -> None:
    from zlib import crc32

    def message(offset: int, magic: int) -> bytes:
        body = bytes([magic, 0]) + ((START_MS + offset).to_bytes(8, "big") if magic else b"")
        body += (1).to_bytes(4, "big") + b"k" + (2).to_bytes(4, "big") + b"vv"
        entry = crc32(body).to_bytes(4, "big") + body
        return offset.to_bytes(8, "big", signed=True) + len(entry).to_bytes(4, "big") + entry

    disk.mkdir("t-0")
    whole = b"".join(message(offset, offset % 2) for offset in range(10))
    disk.write_atomic(name(0, "log"), whole + message(10, 1)[:-1])
    log = open_t(clean=False)
    assert log.log_end_offset == 10
    assert log.size_bytes == len(whole)
    assert log.active_segment.max_timestamp == START_MS + 9
    assert log.read(3, 10).records.position == len(message(0, 0)) * 2 + len(message(1, 1))


def test_a_folder_with_only_an_empty_log_opens(open_t: Open, disk: Disk) -> None:
    disk.mkdir("t-0")
    disk.touch(name(42, "log"))
    log = open_t(clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (42, 42)


def test_crc_helper_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_an_aborted_transaction_survives_a_power_loss(
    open_t: Open, make_batch: Make, make_marker: Make, disk: Disk
) -> None:
    """The marker is flushed before its entry in the transaction index is written. A recovery writes the entry again."""
    log = open_t(flush_messages=1)
    log.append([make_batch(1, producer=(5, 0, 0), transactional=True)])
    log.append([make_marker(5, 0, commit=False)], origin=Origin.COORDINATOR)
    noted = log.recovery_point
    log.roll()
    disk.write_atomic(name(0, "txnindex"), b"")  # the part that is on the disk
    again = open_t(clean=False, recovery_point=noted)
    assert [(a.producer_id, a.first_offset) for a in again.aborted_transactions(0, 2)] == [(5, 0)]
    log.append([make_batch(1)])
    assert log.recovery_point == 3
