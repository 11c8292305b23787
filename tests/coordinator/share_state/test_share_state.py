"""The share coordinator: combining a snapshot with updates, fencing, and restarts."""

import random
from itertools import pairwise
from typing import Any

import pytest

from ottla.clock import ManualClock, Timer
from ottla.coordinator.share_state.coordinator import ShareCoordinator
from ottla.coordinator.share_state.records import decode_record
from ottla.coordinator.share_state.settings import ShareStateSettings
from ottla.coordinator.share_state.shard import ShareStateShard
from ottla.coordinator.share_state.state import NO_COUNT, ShareKey, ShareState, StateBatch, combined
from ottla.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, KafkaError
from ottla.records.batch import Batch, batches
from support.loading import loader_at_once

KEY = ShareKey("g", bytes(range(16)), 3)
AVAILABLE, DONE, GONE = 0, 2, 4


class Log:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.high_watermark = 0

    def append(self, batch: bytearray) -> int:
        offset = self.high_watermark
        Batch(batch).stamp(offset, 0)
        self.batches.append(bytes(batch))
        self.high_watermark = Batch(batch).next_offset
        return offset

    def on_committed(self, offset: int, callback: Any) -> None:
        callback(None)


@pytest.fixture
def log() -> Log:
    return Log()


def lead(log: Log, **settings: Any) -> ShareStateShard:
    clock = ManualClock(1_700_000_000_000)
    coordinator = ShareCoordinator(
        ShareStateSettings(partitions=1, **settings), clock, Timer(clock), loader_at_once(clock)
    )
    coordinator.start()
    shard = coordinator.lead(0, log, map(Batch, list(log.batches)))
    assert coordinator.shard_for(str(KEY)) is shard
    return shard


def code(shard: ShareStateShard, operation: Any) -> int:
    try:
        shard.run(operation())
    except KafkaError as error:
        return error.code
    return 0


@pytest.mark.parametrize(
    ("known", "newer", "start", "expected"),
    [
        ([], [], 5, []),
        ([(0, 9, DONE, 1)], [], 4, [(4, 9, DONE, 1)]),
        ([(10, 14, DONE, 1), (15, 19, AVAILABLE, 2)], [(17, 18, GONE, 2)], 12,
         [(12, 14, DONE, 1), (15, 16, AVAILABLE, 2), (17, 18, GONE, 2), (19, 19, AVAILABLE, 2)]),
        # As in Kafka 4.3.1: the higher delivery count wins, then the later state.
        ([(12, 14, DONE, 1), (15, 16, AVAILABLE, 2), (17, 18, GONE, 2), (19, 19, AVAILABLE, 2), (20, 21, AVAILABLE, 1)],
         [(12, 16, AVAILABLE, 2), (17, 25, AVAILABLE, 2)], 12,
         [(12, 16, AVAILABLE, 2), (17, 18, GONE, 2), (19, 25, AVAILABLE, 2)]),
        ([(0, 1, DONE, 1)], [(4, 5, DONE, 1)], 0, [(0, 1, DONE, 1), (4, 5, DONE, 1)]),
    ],
)  # fmt: skip
def test_overlapping_batches_are_combined(known: Any, newer: Any, start: int, expected: Any) -> None:
    found = combined([StateBatch(*each) for each in known], [StateBatch(*each) for each in newer], start)
    assert list(found) == [StateBatch(*each) for each in expected]


def test_combined_batches_equal_offset_by_offset_updates() -> None:
    chance = random.Random(7)
    for _ in range(300):
        model: dict[int, tuple[int, int]] = {}
        known: tuple[StateBatch, ...] = ()
        start = 0
        for _ in range(4):
            newer = []
            for _ in range(chance.randrange(4)):
                first = chance.randrange(20)
                newer.append(
                    StateBatch(first, first + chance.randrange(5), chance.choice((0, 2, 4)), chance.randrange(1, 4))
                )
            start = max(start, chance.randrange(12))
            known = combined(known, newer, start)
            for batch in newer:
                for offset in range(batch.first, batch.last + 1):
                    model[offset] = max(model.get(offset, (0, -1)), (batch.delivery_count, batch.state))
            found = {
                offset: (batch.delivery_count, batch.state)
                for batch in known
                for offset in range(batch.first, batch.last + 1)
            }
            assert found == {offset: fate for offset, fate in model.items() if offset >= start}
            model = {offset: fate for offset, fate in model.items() if offset >= start}
            for left, right in pairwise(known):
                assert left.last < right.first
                assert left.last + 1 < right.first or left[2:] != right[2:]


def test_written_state_is_read_back(log: Log) -> None:
    shard = lead(log)
    assert code(shard, lambda: shard.read(KEY, 0)) == InvalidRequest.code
    assert code(shard, lambda: shard.write(KEY, 0, 0, 3, 0, [])) == InvalidRequest.code
    shard.run(shard.initialize(KEY, 3, 10))
    state: ShareState = shard.run(shard.read(KEY, 2))
    assert (state.state_epoch, state.start_offset, state.done_count, state.batches) == (3, 10, 0, ())
    shard.run(shard.write(KEY, 3, 2, 10, 5, [StateBatch(10, 14, DONE, 1), StateBatch(15, 19, AVAILABLE, 2)]))
    shard.run(shard.write(KEY, 3, 2, -1, 5, [StateBatch(20, 20, AVAILABLE, 1)]))
    state = shard.run(shard.read(KEY, 2))
    assert (state.start_offset, state.done_count, state.leader_epoch) == (10, 5, 2)
    assert [tuple(each) for each in state.batches] == [
        (10, 14, DONE, 1),
        (15, 19, AVAILABLE, 2),
        (20, 20, AVAILABLE, 1),
    ]
    assert lead(log).states == shard.states


def test_old_epochs_are_fenced(log: Log) -> None:
    shard = lead(log)
    shard.run(shard.initialize(KEY, 3, -1))
    assert shard.states[KEY].done_count == NO_COUNT
    shard.run(shard.read(KEY, 5))
    assert code(shard, lambda: shard.read(KEY, 4)) == FencedLeaderEpoch.code
    assert code(shard, lambda: shard.write(KEY, 3, 4, 0, 0, [])) == FencedLeaderEpoch.code
    assert code(shard, lambda: shard.write(KEY, 2, 5, 0, 0, [])) == FencedStateEpoch.code
    assert code(shard, lambda: shard.initialize(KEY, 2, 0)) == FencedStateEpoch.code
    assert code(shard, lambda: shard.initialize(KEY, 3, 0)) == 0
    assert code(shard, lambda: shard.write(KEY, 9, 5, 0, 0, [])) == 0
    assert shard.states[KEY].state_epoch == 3


def test_a_snapshot_follows_the_configured_number_of_updates(log: Log) -> None:
    shard = lead(log, updates_per_snapshot=3)
    shard.run(shard.initialize(KEY, 1, 0))
    for offset in range(4):
        shard.run(shard.write(KEY, 1, 0, 0, offset, [StateBatch(offset, offset, DONE, 1)]))
    kinds = []
    for data in log.batches:
        for batch in batches(data):
            for record in batch.records():
                decoded = decode_record(record.key, record.value)
                assert decoded is not None and decoded.key == KEY
                kinds.append(type(decoded.value).__name__)
    assert kinds == ["ShareSnapshotValue", *["ShareUpdateValue"] * 3, "ShareSnapshotValue"]
    state = shard.states[KEY]
    assert (state.snapshot_epoch, state.batches, state.snapshot_offset) == (1, (StateBatch(0, 3, DONE, 1),), 4)
    assert shard.first_needed_offset() == 4
    assert lead(log, updates_per_snapshot=3).states == shard.states
    # The log before the snapshot can be deleted.
    log.batches = log.batches[4:]
    assert lead(log).states == shard.states


def test_deleted_state_is_gone_after_a_restart(log: Log) -> None:
    shard = lead(log)
    other = KEY._replace(topic_id=bytes(16))
    for key in (KEY, other):
        shard.run(shard.initialize(key, 1, 0))
    shard.run(shard.delete(KEY))
    before = len(log.batches)
    shard.run(shard.delete(KEY))
    assert len(log.batches) == before, "a state that does not exist needs no tombstone"
    assert set(shard.states) == {other} == set(lead(log).states)
    shard.run(shard.topic_tombstones(other.topic_id))
    assert not shard.states and not lead(log).states
    assert shard.run(shard.summary(KEY)) == ShareState()


def test_old_snapshots_are_rewritten(log: Log) -> None:
    shard = lead(log)
    shard.run(shard.initialize(KEY, 1, 5))
    shard.run(shard.write(KEY, 1, 0, 6, 0, []))
    shard.run(shard.snapshot_older_than(2))
    assert shard.first_needed_offset() == 2
    assert shard.states[KEY].start_offset == 6
