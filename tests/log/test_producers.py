"""Idempotence and transactions, error by error, and the snapshot file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clock import ManualClock
from ottla.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.log.files import Disk
from ottla.log.log import Log
from ottla.log.producers import CorruptSnapshot, Origin, ProducerState, decode_snapshot, encode_snapshot
from ottla.records.batch import MAX_SEQUENCE, Batch

START_MS = 1_700_000_000_000
Make = Callable[..., Batch]
Open = Callable[..., Log]


def test_a_duplicate_of_the_last_five_batches_gets_its_first_offset(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    for n in range(7):
        log.append([make_batch(2, producer=(9, 0, 2 * n), timestamp=START_MS + n)])
    for n in range(2, 7):
        again = log.append([make_batch(2, producer=(9, 0, 2 * n))])
        assert (again.first_offset, again.last_offset, again.duplicate) == (2 * n, 2 * n + 1, True)
        assert again.append_time_ms == START_MS + n + 1
    assert log.log_end_offset == 14
    with pytest.raises(OutOfOrderSequenceNumber):  # the sixth batch from the end is forgotten
        log.append([make_batch(2, producer=(9, 0, 2))])
    assert log.log_end_offset == 14


def test_a_partial_duplicate_is_refused(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(4, producer=(9, 0, 0))])
    for count, sequence in [(2, 0), (2, 2), (4, 2)]:
        with pytest.raises(OutOfOrderSequenceNumber):
            log.append([make_batch(count, producer=(9, 0, sequence))])


def test_a_gap_is_refused(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(2, producer=(9, 0, 0))])
    with pytest.raises(
        OutOfOrderSequenceNumber, match=r"3 \(incoming seq. number\), 1 \(current end sequence number\)"
    ):
        log.append([make_batch(1, producer=(9, 0, 3))])
    assert log.append([make_batch(1, producer=(9, 0, 2))]).first_offset == 2


def test_an_unknown_producer_may_start_anywhere(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    assert log.append([make_batch(1, producer=(9, 3, 500))]).first_offset == 0
    assert log.append([make_batch(1, producer=(9, 3, 501))]).first_offset == 1


def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_0(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(1, producer=(9, 1, 0))])
    with pytest.raises(InvalidProducerEpoch):
        log.append([make_batch(1, producer=(9, 0, 1))])
    with pytest.raises(OutOfOrderSequenceNumber, match="Invalid sequence number for new epoch"):
        log.append([make_batch(1, producer=(9, 2, 1))])
    assert log.append([make_batch(1, producer=(9, 2, 0))]).duplicate is False
    with pytest.raises(InvalidProducerEpoch):
        log.append([make_batch(1, producer=(9, 1, 0))])


def test_sequences_wrap(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(3, producer=(9, 0, MAX_SEQUENCE - 4))])
    log.append([make_batch(4, producer=(9, 0, MAX_SEQUENCE - 1))])  # …, max, 0, 1
    assert log.append([make_batch(4, producer=(9, 0, MAX_SEQUENCE - 1))]).duplicate is True
    assert log.append([make_batch(1, producer=(9, 0, 2))]).duplicate is False
    log.append([make_batch(1, producer=(8, 0, MAX_SEQUENCE))])
    assert log.append([make_batch(1, producer=(8, 0, 0))]).duplicate is False


def test_nothing_changes_when_one_of_several_batches_is_refused(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(1, producer=(9, 0, 0))])
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([make_batch(1, producer=(9, 0, 1)), make_batch(1, producer=(9, 0, 7))])
    assert log.log_end_offset == 1
    log.append([make_batch(1, producer=(9, 0, 1)), make_batch(1, producer=(9, 0, 2))])
    assert log.log_end_offset == 3


def test_appends_of_coordinators_and_replicas_need_no_sequence(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    for _ in range(2):
        log.append([make_batch(1, producer=(9, 0, -1), transactional=True)], origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2
    batch = make_batch(1, producer=(9, 0, 77), transactional=True)
    batch.stamp(5, 0)
    log.append_as_follower([batch])
    assert log.log_end_offset == 6


def test_open_transactions_hold_back_the_stable_offset(open_t: Open, make_batch: Make, make_marker: Make) -> None:
    log = open_t()

    def step(batch: Batch, origin: Origin = Origin.CLIENT) -> tuple[int | None, int]:
        log.append([batch], origin=origin)
        log.update_high_watermark(log.log_end_offset)
        return log.first_unstable_offset, log.last_stable_offset

    assert step(make_batch(2)) == (None, 2)
    assert step(make_batch(2, producer=(1, 0, 0), transactional=True)) == (2, 2)
    assert step(make_batch(2, producer=(2, 0, 0), transactional=True)) == (2, 2)
    assert step(make_batch(2, producer=(1, 0, 2), transactional=True)) == (2, 2)
    assert log.producers.has_ongoing_transaction(1)
    assert not log.producers.has_ongoing_transaction(1, 7)
    assert step(make_marker(1, 0, commit=False), Origin.COORDINATOR) == (4, 4)
    assert not log.producers.has_ongoing_transaction(1)
    assert step(make_marker(2, 0, commit=True), Origin.COORDINATOR) == (None, 10)
    found = log.aborted_transactions(0, 100)
    assert [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in found] == [(1, 2, 8, 4)]
    assert log.aborted_transactions(9, 100) == []
    assert log.aborted_transactions(0, 2) == []


def test_a_transaction_is_unstable_until_its_marker_is_replicated(
    open_t: Open, make_batch: Make, make_marker: Make
) -> None:
    log = open_t()
    log.append([make_batch(2, producer=(1, 0, 0), transactional=True)])
    log.append([make_marker(1, 0, commit=True)], origin=Origin.COORDINATOR)
    log.update_high_watermark(2)
    assert (log.first_unstable_offset, log.last_stable_offset) == (0, 0)
    log.update_high_watermark(3)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 3)


def test_markers_are_fenced(open_t: Open, make_batch: Make, make_marker: Make) -> None:
    log = open_t()
    log.append([make_batch(1, producer=(1, 5, 0), transactional=True)])
    with pytest.raises(InvalidProducerEpoch):
        log.append([make_marker(1, 4, commit=True)], origin=Origin.COORDINATOR)
    log.append([make_marker(1, 5, commit=True, coordinator_epoch=3)], origin=Origin.COORDINATOR)
    with pytest.raises(TransactionCoordinatorFenced):
        log.append([make_marker(1, 5, commit=True, coordinator_epoch=2)], origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2


def test_a_marker_of_transaction_version_2_needs_a_newer_epoch(
    open_t: Open, make_batch: Make, make_marker: Make
) -> None:
    log = open_t()
    log.append([make_batch(1, producer=(1, 5, 0), transactional=True)])
    with pytest.raises(InvalidProducerEpoch):
        log.append([make_marker(1, 5, commit=True)], origin=Origin.COORDINATOR, transaction_version=2)
    for _ in range(2):  # the second is the coordinator's retry
        log.append([make_marker(1, 6, commit=True)], origin=Origin.COORDINATOR, transaction_version=2)
    # the client continues with the bumped epoch from sequence 0
    with pytest.raises(InvalidProducerEpoch):
        log.append([make_batch(1, producer=(1, 5, 1), transactional=True)])
    assert log.append([make_batch(1, producer=(1, 6, 0), transactional=True)]).first_offset == 3


def test_a_plain_batch_within_a_transaction_is_refused(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.append([make_batch(1, producer=(1, 0, 0), transactional=True)])
    with pytest.raises(InvalidTxnState):
        log.append([make_batch(1, producer=(1, 0, 1))])


def test_state_survives_a_clean_stop(open_t: Open, make_batch: Make, make_marker: Make) -> None:
    log = open_t()
    log.append([make_batch(2, producer=(1, 0, 0))])
    log.append([make_batch(2, producer=(1, 0, 2))])
    log.append([make_batch(2, producer=(2, 0, 0), transactional=True)])
    log.append([make_batch(2, producer=(3, 0, 0), transactional=True)])
    log.append([make_marker(3, 0, commit=False, coordinator_epoch=6)], origin=Origin.COORDINATOR)
    log.close()
    log = open_t(clean=True)
    log.update_high_watermark(log.log_end_offset)
    assert (log.first_unstable_offset, log.last_stable_offset) == (4, 4)
    assert log.append([make_batch(2, producer=(1, 0, 2))]).first_offset == 2
    with pytest.raises(OutOfOrderSequenceNumber):  # Kafka's snapshots contain one batch
        log.append([make_batch(2, producer=(1, 0, 0))])
    with pytest.raises(TransactionCoordinatorFenced):
        log.append([make_marker(3, 0, commit=True, coordinator_epoch=5)], origin=Origin.COORDINATOR)
    assert [t.producer_id for t in log.aborted_transactions(0, 100)] == [3]


def test_state_is_replayed_after_an_unclean_stop(open_t: Open, make_batch: Make, make_marker: Make) -> None:
    log = open_t()
    log.append([make_batch(2, producer=(1, 0, 0))])
    log.roll()
    log.append([make_batch(2, producer=(1, 0, 2))])
    log.append([make_batch(2, producer=(2, 0, 0), transactional=True)])
    log.append([make_marker(2, 0, commit=False)], origin=Origin.COORDINATOR)
    log.append([make_batch(2, producer=(2, 0, 2), transactional=True)])
    reopened = open_t(clean=False)
    reopened.update_high_watermark(9)
    assert reopened.log_end_offset == 9
    assert reopened.last_stable_offset == 7
    assert reopened.append([make_batch(2, producer=(1, 0, 2))]).duplicate is True
    assert [(t.first_offset, t.last_offset) for t in reopened.aborted_transactions(0, 100)] == [(4, 6)]


def test_a_broken_snapshot_is_replaced_by_a_replay(
    open_t: Open, make_batch: Make, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_t()
    log.append([make_batch(2, producer=(1, 0, 0))])
    log.roll()
    log.append([make_batch(2, producer=(1, 0, 2))])
    log.close()
    path = f"t-0/{4:020d}.snapshot"
    data = bytearray(disk.read_bytes(path))
    data[20] ^= 1
    disk.write_atomic(path, bytes(data))
    log = open_t(clean=True)
    assert "t-0: producer snapshot at offset 4 is not usable" in caplog.text
    assert log.append([make_batch(2, producer=(1, 0, 2))]).duplicate is True


def test_truncation_restores_the_producer_state(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    for n in range(4):
        log.append([make_batch(2, producer=(1, 0, 2 * n), transactional=True)])
        log.roll()
    log.truncate_to(4)
    assert log.append([make_batch(2, producer=(1, 0, 4), transactional=True)]).duplicate is False
    assert log.first_unstable_offset == 0
    log.truncate_fully_and_start_at(0)
    assert (log.first_unstable_offset, log.producers.producers) == (None, {})


def test_idle_producers_expire(open_t: Open, make_batch: Make, clock: ManualClock) -> None:
    log = open_t(producer_id_expiration_ms=1000)
    log.append([make_batch(1, producer=(1, 0, 0))])
    log.append([make_batch(1, producer=(2, 0, 0), transactional=True)])
    clock.advance(999)
    log.producers.expire(clock.now_ms())
    assert set(log.producers.producers) == {1, 2}
    clock.advance(1)
    log.producers.expire(clock.now_ms())
    assert set(log.producers.producers) == {2}  # its transaction is open
    log.close()
    assert set(open_t(clean=True, producer_id_expiration_ms=1000).producers.producers) == {2}


def test_snapshots_follow_their_segments(open_t: Open, make_batch: Make, disk: Disk) -> None:
    log = open_t()
    for n in range(4):
        log.append([make_batch(2, producer=(1, 0, 2 * n))])
        log.roll()
    assert sorted(log.producers.snapshot_offsets) == [2, 4, 6, 8]
    log.update_high_watermark(8)
    log.advance_log_start_offset(5)
    log.delete_old_segments()
    assert sorted(log.producers.snapshot_offsets) == [4, 6, 8]
    log.append([make_batch(1)])
    log.close()
    disk.write_atomic(f"t-0/{5:020d}.snapshot", encode_snapshot([]))
    log = open_t(clean=True, log_start_offset=5)
    assert sorted(log.producers.snapshot_offsets) == [4, 6, 8, 9]


def test_a_restart_forgets_no_producer_whose_records_were_deleted(open_t: Open, make_batch: Make) -> None:
    for clean in (True, False):
        log = open_t()
        log.truncate_fully_and_start_at(0)
        log.append([make_batch(2, producer=(1, 0, 0))])
        log.append([make_batch(2, producer=(2, 0, 0), transactional=True)])
        log.roll()
        log.update_high_watermark(4)
        log.advance_log_start_offset(4)
        log.delete_old_segments()
        if clean:
            log.close()
        log = open_t(clean=clean, log_start_offset=4)
        assert (log.log_start_offset, log.log_end_offset, log.first_unstable_offset) == (4, 4, 4)
        assert log.append([make_batch(2, producer=(1, 0, 0))]).duplicate is True


def test_snapshots_are_read_back_and_damage_is_noticed() -> None:
    state = ProducerState(77, 3)
    state.coordinator_epoch = 4
    state.last_timestamp = START_MS
    state.txn_first_offset = 10
    assert decode_snapshot(encode_snapshot([])) == []
    (loaded,) = decode_snapshot(encode_snapshot([state]))
    assert (loaded.producer_id, loaded.epoch, loaded.coordinator_epoch, loaded.txn_first_offset) == (77, 3, 4, 10)
    assert not loaded.batches
    data = encode_snapshot([state])
    assert (len(data), data[:2]) == (56, b"\0\1")
    for position in range(2, len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(broken))
    for size in range(len(data)):
        with pytest.raises(KafkaError):
            decode_snapshot(data[:size])


def test_a_batch_that_waits_for_its_transaction_delays_later_batches(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.producers.begins(9, 0, 3, bumps=False, now_ms=START_MS)
    with pytest.raises(OutOfOrderSequenceNumber, match=r"4 \(incoming seq. number\), 3 \(earliest seen sequence\)"):
        log.append([make_batch(1, producer=(9, 0, 4))])
    assert log.append([make_batch(1, producer=(9, 0, 3))]).first_offset == 0
    with pytest.raises(OutOfOrderSequenceNumber):  # a batch outside a transaction frees nothing
        log.append([make_batch(1, producer=(9, 0, 4))])
    # The first of several batches counts. A newer epoch starts again; an older one changes nothing.
    log.producers.begins(9, 1, 2, bumps=False, now_ms=START_MS)
    log.producers.begins(9, 1, 0, bumps=False, now_ms=START_MS)
    log.producers.begins(9, 1, 1, bumps=False, now_ms=START_MS)
    log.producers.begins(9, 0, 0, bumps=False, now_ms=START_MS)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([make_batch(1, producer=(9, 1, 1), transactional=True)])
    log.append([make_batch(1, producer=(9, 1, 0), transactional=True)])
    assert log.append([make_batch(1, producer=(9, 1, 1), transactional=True)]).first_offset == 2


def test_a_batch_that_waits_for_its_transaction_expires(open_t: Open, make_batch: Make) -> None:
    log = open_t()
    log.producers.begins(9, 0, 0, bumps=True, now_ms=START_MS)
    log.producers.expire(START_MS + log.producers.expiration_ms - 1)
    assert log.producers.unverified
    log.producers.expire(START_MS + log.producers.expiration_ms)
    assert not log.producers.unverified
