"""Transaction ends that are answered while another process writes the markers: the producer's next requests wait for
them."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.clock import ManualClock, Timer
from ottla.coordinator.transactions.coordinator import RETRY_MS, TransactionCoordinator, TransactionSettings
from ottla.coordinator.transactions.shard import Marker
from ottla.coordinator.transactions.state import Identity, State
from ottla.errors import ConcurrentTransactions, InvalidProducerEpoch, KafkaError, NotLeaderOrFollower
from ottla.records.batch import Batch
from support.loading import loader_at_once

HERE, THERE = ("here", 0), ("there", 0)
ID = "tx"


class Partition:
    def __init__(self) -> None:
        self.high_watermark = 0

    def append(self, batch: bytearray) -> int:
        offset = self.high_watermark
        self.high_watermark += Batch(batch).record_count
        return offset

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        raise AssertionError("everything is committed at once")


class Markers:
    """Markers for `here` are written immediately, those for `there` when a test says so."""

    def __init__(self) -> None:
        self.on_their_way: list[Callable[[KafkaError | None], None]] = []

    def write(self, marker: Marker, partition: tuple[str, int], done: Any) -> None:
        if partition == HERE:
            done(partition, None)
        else:
            self.on_their_way.append(lambda error: done(partition, error))

    def send(self) -> None:
        """The test decides when they arrive."""

    def arrive(self, error: KafkaError | None = None) -> None:
        arrived, self.on_their_way = self.on_their_way, []
        for each in arrived:
            each(error)


class World:
    def __init__(self) -> None:
        clock = self.clock = ManualClock(1_700_000_000_000)
        self.markers = Markers()
        self.coordinator = TransactionCoordinator(
            TransactionSettings(partitions=1),
            clock,
            Timer(clock),
            self.markers,
            lambda: 4000,
            lambda: 2,
            loader_at_once(clock),
            answers_before_markers=True,
        )
        self.coordinator.start()
        self.coordinator.lead(0, Partition(), [], 3)
        made = self.coordinator.init_producer(ID, 60_000, None)
        assert isinstance(made, Identity)
        self.producer = made

    def add(self, *partitions: tuple[str, int]) -> Any:
        return self.coordinator.add_partitions(ID, self.producer, partitions, 2)

    def commit(self) -> None:
        ended = self.coordinator.end(ID, self.producer, 2, commit=True)
        assert isinstance(ended, Identity), "the end waits for the markers"
        self.producer = ended

    @property
    def state(self) -> State:
        return self.coordinator.describe(ID).state


@pytest.fixture
def ended() -> World:
    """Ends a transaction that wrote here and there."""
    world = World()
    assert world.add(HERE, THERE) is None
    world.commit()
    assert world.state is State.PREPARE_COMMIT
    return world


def test_markers_of_local_partitions_are_written_before_the_answer() -> None:
    world = World()
    world.add(HERE)
    world.commit()
    assert world.state is State.COMPLETE_COMMIT


def test_the_next_transaction_waits_for_the_last_markers(ended: World) -> None:
    added = ended.add(THERE)
    assert isinstance(added, Reply) and not added.done
    ended.markers.arrive()
    assert added.done and added.value is None
    assert ended.state is State.ONGOING
    assert ended.coordinator.describe(ID).partitions == {THERE}


def test_a_new_producer_also_waits_for_the_last_markers(ended: World) -> None:
    made = ended.coordinator.init_producer(ID, 60_000, None)
    assert isinstance(made, Reply) and not made.done
    ended.markers.arrive()
    assert isinstance(made.value, Identity) and ended.state is State.EMPTY


def test_a_waiting_request_gets_its_own_error(ended: World) -> None:
    ended.producer = ended.producer._replace(producer_epoch=ended.producer.producer_epoch - 1)
    added = ended.add(THERE)
    ended.markers.arrive()
    with pytest.raises(KafkaError):
        _ = added.value


@pytest.mark.parametrize("error", [NotLeaderOrFollower(), InvalidProducerEpoch()])
def test_markers_that_fail_for_now_make_requests_retry(ended: World, error: KafkaError) -> None:
    added = ended.add(THERE)
    ended.markers.arrive(error)
    with pytest.raises(ConcurrentTransactions):
        _ = added.value


def test_a_resigning_coordinator_answers_waiting_requests(ended: World) -> None:
    added = ended.add(THERE)
    ended.coordinator.resign(0)
    with pytest.raises(ConcurrentTransactions):
        _ = added.value


def test_a_marker_in_flight_is_not_sent_again_when_another_one_fails(ended: World) -> None:
    """A second marker could arrive in the middle of the producer's next transaction."""
    other = ended.coordinator.init_producer("other", 60_000, None)
    assert isinstance(other, Identity)
    ended.coordinator.add_partitions("other", other, [THERE], 2)
    ended.coordinator.end("other", other, 2, commit=True)
    first, second = ended.markers.on_their_way
    ended.markers.on_their_way = [first]
    second(NotLeaderOrFollower())
    ended.clock.advance(RETRY_MS + 1)
    assert len(ended.markers.on_their_way) == 2, "only the failed one, and none for the other transaction"
    ended.markers.arrive()
    assert ended.state is State.COMPLETE_COMMIT
    assert ended.coordinator.describe("other").state is State.COMPLETE_COMMIT


def test_a_late_refusal_of_an_old_marker_does_not_affect_the_next_end(ended: World) -> None:
    """After a time-out the broker writes the marker, and the producer continues with the next epoch."""
    (late,) = ended.markers.on_their_way
    ended.markers.arrive()
    ended.add(THERE)
    ended.commit()
    late(InvalidProducerEpoch())
    added = ended.add(THERE)
    assert isinstance(added, Reply) and not added.done
    ended.markers.arrive()
    assert added.done and added.value is None, "the request that waits for the second end is answered"
    assert ended.state is State.ONGOING
