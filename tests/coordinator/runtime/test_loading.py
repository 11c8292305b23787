"""Shards load in slices: the answers during a load, and what may happen before it ends."""

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clock import ManualClock, Timer
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.records import CommittedOffset, OffsetRecord
from ottla.coordinator.runtime.loader import SLICE_MS, SMALL_LOAD, Load, Loader
from ottla.coordinator.share_state.coordinator import ShareCoordinator
from ottla.coordinator.share_state.settings import ShareStateSettings
from ottla.coordinator.share_state.state import ShareKey
from ottla.coordinator.transactions.coordinator import RETRY_MS, TransactionCoordinator, TransactionSettings
from ottla.coordinator.transactions.records import TransactionRecord
from ottla.coordinator.transactions.state import State, Transaction
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from ottla.records.batch import Batch
from ottla.wire.messages import OffsetFetchRequest
from support.loading import loader_at_once, run_turns, slow_log

CLS, NEW, TXG = "cls", "new", "txg"
"""Groups in the partitions 2, 0 and 3 of four."""


def offset_of(group: str) -> Callable[[int], tuple[bytes, bytes | None]]:
    """A committed offset for each of many partitions, so that each record is in the state at the end."""
    return lambda number: OffsetRecord(group, "t", number, CommittedOffset(number, -1, "", 0)).encode()


@pytest.fixture
def world(make_world: Any) -> Any:
    made = make_world(offsets_partitions=4)
    made.topic("t")
    made.writer.committed_offset = made.writer.end_offset = 1_000_000
    return made


def lead_slowly(world: Any, partition: int, group: str, count: int = 300) -> Any:
    return world.coordinator.lead(partition, world.writer, slow_log(world.clock, offset_of(group), count))


def test_only_groups_of_a_loading_partition_are_refused(world: Any) -> None:
    lead_slowly(world, 2, CLS)
    assert world.commit({("t", 0): 5}, group_id=NEW) == {("t", 0): 0}
    with pytest.raises(CoordinatorLoadInProgress):
        world.commit({("t", 0): 5}, group_id=CLS)
    with pytest.raises(NotCoordinator):
        world.commit({("t", 0): 5}, group_id=TXG)
    described = requests.describe_groups(world.coordinator, [CLS, NEW, TXG], 5)
    assert {group.group_id: group.error_code for group in described} == {NEW: 0, CLS: 14, TXG: 16}


def test_a_load_yields_after_every_slice(world: Any) -> None:
    shard = lead_slowly(world, 2, CLS, count=1000)
    assert 9 <= run_turns(world.turns) <= 11
    assert world.coordinator.shard_for(CLS) is shard
    assert len(shard.offsets.groups[CLS]["t"]) == SMALL_LOAD + 1000
    assert world.offset("t", SMALL_LOAD + 999, group_id=CLS).committed_offset == SMALL_LOAD + 999


def test_a_small_log_is_loaded_at_once_however_slow_it_is(world: Any) -> None:
    shard = world.coordinator.lead(2, world.writer, slow_log(world.clock, offset_of(CLS), -100))
    assert not world.turns
    assert world.coordinator.shard_for(CLS) is shard


def test_partitions_that_are_led_together_share_one_slice(world: Any) -> None:
    """A broker with many partitions of a thousand records each must not block for all of them."""
    lead_slowly(world, 2, CLS, count=-100)
    lead_slowly(world, 3, TXG, count=-100)
    assert world.coordinator.shard(2) is not None
    assert world.coordinator.shard(3) is None
    run_turns(world.turns)
    assert world.coordinator.shard(3) is not None


def test_a_partition_that_resigns_while_it_loads_stops_loading(world: Any) -> None:
    lead_slowly(world, 2, CLS)
    world.coordinator.resign(2)
    with pytest.raises(NotCoordinator):
        world.coordinator.shard_for(CLS)
    run_turns(world.turns)
    with pytest.raises(NotCoordinator):
        world.coordinator.shard_for(CLS)


def test_a_second_load_starts_with_an_empty_state(world: Any) -> None:
    lead_slowly(world, 2, CLS)
    world.coordinator.resign(2)
    again = world.coordinator.lead(2, world.writer, slow_log(world.clock, offset_of("other"), 200))
    run_turns(world.turns)
    assert world.coordinator.shard(2) is again
    assert list(again.offsets.groups) == ["other"]


def test_leading_again_without_a_resignation_begins_a_new_load(world: Any) -> None:
    lead_slowly(world, 2, CLS)
    again = lead_slowly(world, 2, "other")
    run_turns(world.turns)
    assert list(again.offsets.groups) == ["other"]


def test_a_stop_ends_the_load_of_a_partition(world: Any) -> None:
    lead_slowly(world, 2, CLS)
    world.coordinator.stop()
    with pytest.raises(CoordinatorNotAvailable):
        world.coordinator.shard_for(CLS)
    run_turns(world.turns)
    assert not world.coordinator.shards()
    assert len(world.timer) == 0


def test_a_topic_that_is_deleted_while_a_partition_loads_loses_its_offsets(world: Any) -> None:
    shard = lead_slowly(world, 2, CLS)
    world.delete_topic("t")
    run_turns(world.turns)
    assert shard.offsets.groups.get(CLS, {}) == {}


def test_sessions_begin_when_the_load_is_over(world: Any) -> None:
    """Members have their full session time from then on, no matter how long the load took."""
    one = make_stable_group(world)
    world.turns.clear()

    def log() -> Iterator[Batch]:
        yield from map(Batch, list(world.writer.batches))
        yield from slow_log(world.clock, offset_of(NEW), 2000)

    shard = world.coordinator.lead(0, world.writer, log())
    world.clock.advance(20_000)
    run_turns(world.turns)
    assert list(shard.groups[NEW].members) == [one]
    world.clock.advance(9_999)
    assert list(shard.groups[NEW].members) == [one]
    world.clock.advance(2)
    assert not shard.groups[NEW].members


def make_stable_group(world: Any) -> str:
    (member,) = world.stable(1, NEW)
    return str(member)


def test_an_unreadable_log_does_not_stop_other_loads(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[Batch]:
        yield from slow_log(world.clock, offset_of(CLS), 300)
        raise KafkaStorageError

    world.coordinator.lead(2, world.writer, broken())
    lead_slowly(world, 3, TXG)
    with caplog.at_level(logging.ERROR):
        run_turns(world.turns)
    assert "partition 2 of the offsets log cannot be loaded" in caplog.text
    with pytest.raises(NotCoordinator):
        world.coordinator.shard_for(CLS)
    assert world.coordinator.shard_for(TXG).partition == 3


def test_lists_are_refused_and_heartbeats_answered_while_a_partition_loads(world: Any) -> None:
    """As in Kafka: lists would be incomplete, so they are refused. A heartbeat succeeds, so that the member does not
    rejoin."""
    lead_slowly(world, 2, CLS)
    with pytest.raises(CoordinatorLoadInProgress):
        requests.list_groups(world.coordinator)
    assert world.heartbeat("m", 1, group_id=CLS) == 0
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=CLS, topics=[])
    with pytest.raises(CoordinatorLoadInProgress):
        requests.fetch_offsets(world.coordinator, asked, by_id=False, require_stable=False)
    assert world.join(CLS).error_code == CoordinatorLoadInProgress.code
    results = requests.delete_groups(world.coordinator, [CLS, NEW])
    assert [result.error_code for result in results] == [14, 69]  # type: ignore[union-attr]


# -- transactions and share state are loaded in the same way


class Markers:
    def __init__(self) -> None:
        self.written: list[tuple[str, int]] = []

    def write(self, marker: Any, partition: tuple[str, int], done: Any) -> None:
        self.written.append(partition)
        done(partition, None)

    def send(self) -> None: ...


def test_transactions_load_in_slices(world: Any) -> None:
    clock, turns, markers = ManualClock(), [], Markers()
    coordinator = TransactionCoordinator(
        TransactionSettings(partitions=1),
        clock,
        Timer(clock),
        markers,
        lambda: 1,
        lambda: 2,
        Loader(clock, turns.append),
    )
    coordinator.start()
    prepared = Transaction(5, 0, 60_000, State.PREPARE_COMMIT, frozenset({("t", 0)}))

    def record(number: int) -> tuple[bytes, bytes | None]:
        return TransactionRecord(f"id-{number}", prepared, 1).encode()

    coordinator.lead(0, world.writer, slow_log(clock, record, 300), 3)
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.describe("id-1")
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.list()
    assert not markers.written
    assert coordinator.leads(0, 3)
    assert not coordinator.leads(0, 4)
    run_turns(turns)
    assert len(markers.written) == SMALL_LOAD + 300
    assert coordinator.describe("id-1299").state is State.COMPLETE_COMMIT


def test_markers_that_failed_during_the_load_are_tried_again(world: Any) -> None:
    """The partition that a marker goes to may be loading as well."""

    class NotYet(Markers):
        refused = 0

        def write(self, marker: Any, partition: tuple[str, int], done: Any) -> None:
            if self.refused < 50:
                self.refused += 1
                done(partition, NotLeaderOrFollower())
            else:
                super().write(marker, partition, done)

    class Ticking(ManualClock):
        """A clock that advances a millisecond on each read, so a slice is a few steps long."""

        def monotonic_ms(self) -> float:
            self.advance(1)
            return super().monotonic_ms()

    clock, turns, markers = ManualClock(), [], NotYet()
    loader = Loader(Ticking(), turns.append)
    coordinator = TransactionCoordinator(
        TransactionSettings(partitions=1), clock, Timer(clock), markers, lambda: 1, lambda: 2, loader
    )
    coordinator.start()
    prepared = Transaction(5, 0, 60_000, State.PREPARE_COMMIT, frozenset({("t", 0)}))

    def record(number: int) -> tuple[bytes, bytes | None]:
        return TransactionRecord(f"id-{number}", prepared, 1).encode()

    coordinator.lead(0, world.writer, slow_log(clock, record, 300), 3)
    while not markers.written:
        turns.pop(0)()
        clock.advance(RETRY_MS)  # the retry happens while others still wait for their first try
    assert coordinator.is_loading
    run_turns(turns)
    clock.advance(RETRY_MS)
    assert {coordinator.describe(f"id-{number}").state for number in range(1300)} == {State.COMPLETE_COMMIT}


def test_share_state_loads_in_slices(world: Any) -> None:
    clock, turns = ManualClock(), []
    coordinator = ShareCoordinator(ShareStateSettings(partitions=1), clock, Timer(clock), Loader(clock, turns.append))
    coordinator.start()
    template = ShareCoordinator(ShareStateSettings(partitions=1), clock, Timer(clock), loader_at_once(clock)).new_shard(
        0, world.writer, 0
    )

    def record(number: int) -> tuple[bytes, bytes | None]:
        (made,) = template.initialize(ShareKey("g", bytes(16), number), 0, number).records
        return made.encode()

    shard = coordinator.lead(0, world.writer, slow_log(clock, record, 300))
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.shard_for("g")
    run_turns(turns)
    assert coordinator.shard_for("g") is shard
    assert shard.states[ShareKey("g", bytes(16), 1299)].start_offset == 1299


# -- the loader itself


def test_a_slice_ends_after_its_time() -> None:
    clock, turns = ManualClock(), []
    loader = Loader(clock, turns.append)
    at_ms: list[float] = []

    def steps() -> Iterator[int]:
        for _ in range(40):
            clock.advance(1)
            at_ms.append(clock.monotonic_ms())
            yield SMALL_LOAD

    done: list[Exception | None] = []
    loader.start(Load("a load", steps(), done.append))
    assert len(at_ms) == SLICE_MS
    turns.pop(0)()
    assert len(at_ms) == 2 * SLICE_MS
    assert not done
    run_turns(turns)
    assert done == [None]


def test_a_broker_process_collects_no_garbage_during_a_load() -> None:
    clock, turns = ManualClock(), []
    loader = Loader(clock, turns.append, owns_process=True)
    was_on: list[bool] = []

    def steps() -> Iterator[int]:
        for _ in range(3):
            clock.advance(SLICE_MS)
            yield SMALL_LOAD
            was_on.append(gc.isenabled())

    loader.start(Load("a load", steps(), lambda error: None))
    assert gc.isenabled()  # nothing to gain from one slice
    run_turns(turns)
    assert was_on == [False, False, False]
    assert gc.isenabled()
