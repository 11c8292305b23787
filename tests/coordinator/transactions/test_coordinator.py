"""The transaction coordinator over a log in memory: its records, its markers, time-outs, and restarts."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.clock import ManualClock, Timer
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.transactions.coordinator import RETRY_MS, TransactionCoordinator, TransactionSettings
from ottla.coordinator.transactions.records import TransactionRecord, decode_record
from ottla.coordinator.transactions.shard import Marker
from ottla.coordinator.transactions.state import Identity, State, Transaction
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from ottla.records.batch import Batch, Record, build_batch
from support.loading import run_turns, slow_log

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
ID = "tx"
P0, P1, P2 = ("t", 0), ("t", 1), ("u", 0)


class Partition:
    """Keeps its batches; `hold` stops its high watermark, `fail_with` its appends."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = self.high_watermark = 0
        self.hold = False
        self.fail_with: KafkaError | None = None
        self.waiting: list[Callable[[KafkaError | None], None]] = []

    def append(self, batch: bytearray) -> int:
        if self.fail_with is not None:
            raise self.fail_with
        offset = self.end_offset
        Batch(batch).stamp(offset, 0)
        self.batches.append(bytes(batch))
        self.end_offset += Batch(batch).record_count
        if not self.hold:
            self.high_watermark = self.end_offset
        return offset

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        self.waiting.append(callback)

    def release(self, error: KafkaError | None = None) -> None:
        self.hold = False
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


class Markers:
    """Records the written markers; `refuse` maps a partition to the error that it returns."""

    def __init__(self) -> None:
        self.written: list[tuple[tuple[str, int], Marker]] = []
        self.refuse: dict[tuple[str, int], KafkaError] = {}

    def write(self, marker: Marker, partition: tuple[str, int], done: Any) -> None:
        error = self.refuse.get(partition)
        if error is None:
            self.written.append((partition, marker))
        done(partition, error)

    def send(self) -> None:
        """Each marker counts as written when it is sent."""


class World:
    """A coordinator with one partition, so every id is in the same shard."""

    def __init__(self, partition: Partition | None = None, **settings: int) -> None:
        self.clock = ManualClock(START_MS)
        self.timer = Timer(self.clock)
        self.partition = partition or Partition()
        self.markers = Markers()
        self.version = 2
        self.next_id = 4000
        self.turns: list[Callable[[], None]] = []
        """What the event loop would call in its next turn."""
        self.coordinator = TransactionCoordinator(
            TransactionSettings(**{"partitions": 1, **settings}),
            self.clock,
            self.timer,
            self.markers,
            self._new_id,
            lambda: self.version,
            Loader(self.clock, self.turns.append),
        )
        self.coordinator.start()

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def lead(self, coordinator_epoch: int = 3) -> "World":
        self.coordinator.lead(0, self.partition, map(Batch, list(self.partition.batches)), coordinator_epoch)
        return self

    def init(self, name: str = ID, timeout_ms: int = 60_000, expected: Identity | None = None) -> Identity:
        made = self.coordinator.init_producer(name, timeout_ms, expected)
        assert isinstance(made, Identity)
        return made

    def add(self, producer: Identity, *partitions: tuple[str, int], name: str = ID) -> None:
        assert self.coordinator.add_partitions(name, producer, partitions, 2) is None

    def end(self, producer: Identity, commit: bool = True, version: int = 2, name: str = ID) -> Identity:
        ended = self.coordinator.end(name, producer, version, commit=commit)
        assert isinstance(ended, Identity)
        return ended

    def state(self, name: str = ID) -> State:
        return self.coordinator.describe(name).state

    def stored(self) -> list[TransactionRecord]:
        found = [
            decode_record(record.key, record.value)
            for data in self.partition.batches
            for record in Batch(data).records()
        ]
        assert None not in found
        return found  # type: ignore[return-value]

    def restarted(self, coordinator_epoch: int = 4) -> "World":
        """A new coordinator, loaded from the log. It must have the state of the old one."""
        other = World(self.partition)
        other.next_id = self.next_id
        other.clock = self.clock
        other.lead(coordinator_epoch)
        return other


@pytest.fixture
def world() -> World:
    return World().lead()


def test_a_transaction_begins_and_commits(world: World) -> None:
    producer = world.init()
    assert producer == (4001, 0)
    world.add(producer, P0, P2)
    world.add(producer, P1)
    assert world.state() is State.ONGOING
    assert world.end(producer) == (4001, 1)
    assert world.state() is State.COMPLETE_COMMIT
    marker = Marker(4001, 1, 3, True, 2)
    assert world.markers.written == [(P0, marker), (P1, marker), (P2, marker)]
    assert [record.transaction.state.value for record in world.stored() if record.transaction] == [
        "Empty",
        "Ongoing",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]


def test_transactions_before_version_2_keep_the_epoch(world: World) -> None:
    producer = world.init()
    world.coordinator.add_partitions(ID, producer, [P0], 0)
    world.end(producer, commit=False, version=0)
    assert world.markers.written == [(P0, Marker(4001, 0, 3, False, 0))]
    assert world.coordinator.describe(ID).producer_epoch == 0


def test_adding_known_partitions_writes_nothing(world: World) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    before = len(world.partition.batches)
    world.add(producer, P1)
    world.add(producer, P0, P1)
    assert len(world.partition.batches) == before


def test_a_refused_request_writes_nothing(world: World) -> None:
    producer = world.init()
    before = list(world.partition.batches)
    refusals: list[tuple[type[KafkaError], Callable[[], object]]] = [
        (InvalidRequest, lambda: world.init("")),
        (InvalidTransactionTimeout, lambda: world.init(timeout_ms=0)),
        (InvalidTransactionTimeout, lambda: world.init(timeout_ms=900_001)),
        (ProducerFenced, lambda: world.init(expected=Identity(1, 0))),
        (InvalidRequest, lambda: world.add(producer, P0, name="")),
        (InvalidProducerIdMapping, lambda: world.add(producer, P0, name="other")),
        (ProducerFenced, lambda: world.add(Identity(4001, 9), P0)),
        (InvalidRequest, lambda: world.end(producer, name="")),
        (InvalidProducerIdMapping, lambda: world.end(producer, name="other")),
        (InvalidProducerIdMapping, lambda: world.coordinator.missing_partitions("other", producer, [P0])),
        (TransactionalIdNotFound, lambda: world.coordinator.describe("other")),
        (InvalidRequest, lambda: world.coordinator.describe("")),
    ]
    for error, act in refusals:
        with pytest.raises(error):
            act()
    assert world.partition.batches == before


def test_a_new_producer_aborts_what_the_old_one_left_open(world: World) -> None:
    old = world.init()
    world.add(old, P0)
    with pytest.raises(ConcurrentTransactions):
        world.init()
    assert world.state() is State.COMPLETE_ABORT
    assert world.markers.written == [(P0, Marker(4001, 1, 3, False, 2))]
    assert world.init() == (4001, 2)
    with pytest.raises(ProducerFenced):
        world.add(old, P0)
    with pytest.raises(ProducerFenced):
        world.end(old)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    world = World(abort_interval_ms=1000).lead()
    producer = world.init(timeout_ms=2500)
    other = world.init("idle", timeout_ms=1)
    world.add(producer, P0)
    world.clock.advance(2000)
    assert world.state() is State.ONGOING
    world.clock.advance(1000)
    assert world.state() is State.COMPLETE_ABORT
    assert [marker.commit for _, marker in world.markers.written] == [False]
    assert world.coordinator.describe("idle").producer_epoch == other.producer_epoch
    with pytest.raises(ProducerFenced):
        world.add(producer, P1)


def test_idle_ids_are_forgotten_and_open_ones_kept() -> None:
    world = World(expiration_ms=2 * HOUR_MS, expiration_interval_ms=HOUR_MS, abort_interval_ms=100 * HOUR_MS).lead()
    world.init("idle")
    opened = world.init("open")
    world.add(opened, P0, name="open")
    ended = world.init("ended")
    world.add(ended, P0, name="ended")
    world.clock.advance(HOUR_MS)
    world.end(ended, name="ended")
    world.clock.advance(HOUR_MS)
    known = {name for name, _ in world.coordinator.list()[0]}
    assert known == {"open", "ended"}
    assert world.stored()[-1] == TransactionRecord("idle", None)
    world.clock.advance(HOUR_MS)
    assert {name for name, _ in world.coordinator.list()[0]} == {"open"}
    assert {name for name, _ in world.restarted().coordinator.list()[0]} == {"open"}


def test_many_expired_ids_are_removed_in_several_batches() -> None:
    world = World(expiration_ms=1, expiration_interval_ms=10).lead()
    for number in range(1500):
        world.init(f"id-{number}")
    before = len(world.partition.batches)
    world.clock.advance(10)
    assert world.coordinator.list() == ([], [])
    assert [Batch(data).record_count for data in world.partition.batches[before:]] == [1000, 500]


# -- completion


def test_a_marker_that_cannot_be_written_is_tried_again(world: World) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    world.markers.refuse[P1] = NotLeaderOrFollower()
    world.end(producer)
    assert world.state() is State.PREPARE_COMMIT
    for act in (lambda: world.init(), lambda: world.end(producer), lambda: world.add(Identity(4001, 1), P0)):
        with pytest.raises(ConcurrentTransactions):
            act()
    world.clock.advance(RETRY_MS)
    assert world.state() is State.PREPARE_COMMIT
    world.markers.refuse.clear()
    world.clock.advance(RETRY_MS)
    assert world.state() is State.COMPLETE_COMMIT
    assert [partition for partition, _ in world.markers.written] == [P0, P1]


def test_a_deleted_topic_needs_no_marker(world: World) -> None:
    producer = world.init()
    world.add(producer, P0, P2)
    world.markers.refuse[P2] = UnknownTopicOrPartition()
    world.end(producer)
    assert world.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [InvalidProducerEpoch(), TransactionCoordinatorFenced()])
def test_a_newer_marker_leaves_the_end_to_the_next_coordinator(world: World, error: KafkaError) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    world.markers.refuse[P0] = error
    world.end(producer)
    world.clock.advance(10 * RETRY_MS)
    assert world.state() is State.PREPARE_COMMIT
    assert [partition for partition, _ in world.markers.written] == [P1]
    later = world.restarted(coordinator_epoch=8)
    assert later.state() is State.COMPLETE_COMMIT
    assert [marker.coordinator_epoch for _, marker in later.markers.written] == [8, 8]


def test_an_end_that_cannot_be_written_changes_nothing(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.partition.fail_with = KafkaStorageError()
    with pytest.raises(KafkaStorageError):
        world.end(producer)
    assert world.state() is State.ONGOING
    assert world.markers.written == []
    world.partition.fail_with = None
    assert world.end(producer) == (4001, 1)


def test_a_completion_that_cannot_be_written_is_retried(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)

    class FailsOnMarker(Markers):
        def write(self, marker: Marker, partition: tuple[str, int], done: Any) -> None:
            world.partition.fail_with = KafkaStorageError()
            super().write(marker, partition, done)

    world.coordinator.markers = FailsOnMarker()
    assert world.end(producer) == (4001, 1)
    assert world.state() is State.PREPARE_COMMIT
    world.partition.fail_with = None
    world.clock.advance(RETRY_MS)
    assert world.state() is State.COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_completed_after_a_restart(world: World, commit: bool) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    world.markers.refuse = {P0: NotLeaderOrFollower(), P1: NotLeaderOrFollower()}
    world.end(producer, commit=commit)
    world.coordinator.stop()
    later = world.restarted()
    assert later.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert later.markers.written == [(P0, Marker(4001, 1, 4, commit, 2)), (P1, Marker(4001, 1, 4, commit, 2))]
    # The producer asks again, and gets the first answer.
    assert later.end(producer, commit=commit) == (4001, 1)


def test_a_stopped_coordinator_writes_no_more_markers(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.markers.refuse[P0] = NotLeaderOrFollower()
    world.end(producer)
    world.coordinator.stop()
    world.markers.refuse.clear()
    world.clock.advance(HOUR_MS)
    assert world.markers.written == []
    assert len(world.timer) == 0


# -- replication


def test_answers_wait_until_the_record_is_committed(world: World) -> None:
    producer = world.init()
    world.partition.hold = True
    added = world.coordinator.add_partitions(ID, producer, [P0], 2)
    assert isinstance(added, Reply) and not added.done
    world.partition.release()
    assert added.done
    world.partition.high_watermark = len(world.partition.batches)
    world.partition.hold = True
    ended = world.coordinator.end(ID, producer, 2, commit=True)
    assert isinstance(ended, Reply) and not ended.done
    assert world.markers.written == []
    world.partition.release()
    assert ended.value == (4001, 1)
    assert len(world.markers.written) == 1


def test_an_uncommitted_state_is_not_described(world: World) -> None:
    producer = world.init()
    world.partition.hold = True
    world.coordinator.add_partitions(ID, producer, [P0], 2)
    again = world.coordinator.add_partitions(ID, producer, [P0], 2)
    assert isinstance(again, Reply) and not again.done, "it was already added, but is not committed"
    assert world.coordinator.describe(ID).state is State.EMPTY
    assert [known.state for _, known in world.coordinator.list()[0]] == [State.EMPTY]
    assert world.coordinator.list(["Ongoing"])[0] == []
    world.partition.high_watermark = world.partition.end_offset
    world.partition.release()
    assert again.done
    assert world.coordinator.describe(ID).state is State.ONGOING
    world.partition.hold = True
    world.coordinator.init_producer("new", 60_000, None)
    with pytest.raises(TransactionalIdNotFound):
        world.coordinator.describe("new")


def test_a_decision_that_was_not_replicated_is_not_carried_out(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.partition.hold = True
    ended = world.coordinator.end(ID, producer, 2, commit=True)
    assert isinstance(ended, Reply)
    world.partition.release(NotLeaderOrFollower())
    with pytest.raises(NotLeaderOrFollower):
        _ = ended.value
    assert world.markers.written == []


# -- finding, describing, listing


def test_a_transactional_id_maps_to_its_coordinator() -> None:
    world = World()
    with pytest.raises(NotCoordinator):
        world.init()
    known = TransactionRecord(ID, Transaction(1, 0, 60_000))
    world.coordinator.lead(0, world.partition, slow_log(world.clock, lambda number: known.encode(), 100), 3)
    with pytest.raises(CoordinatorLoadInProgress):
        world.init()
    with pytest.raises(CoordinatorLoadInProgress):
        world.coordinator.list()
    world.lead()
    run_turns(world.turns)
    world.init()
    world.coordinator.stop()
    for act in (world.init, world.coordinator.list, lambda: world.coordinator.describe(ID)):
        with pytest.raises(CoordinatorNotAvailable):
            act()


def test_filters(world: World) -> None:
    idle = world.init("orders-1")
    world.clock.advance(500)
    opened = world.init("orders-2")
    world.add(opened, P0, name="orders-2")
    world.clock.advance(1000)

    def names(**filters: Any) -> list[str]:
        return sorted(name for name, _ in world.coordinator.list(**filters)[0])

    assert names() == ["orders-1", "orders-2"]
    assert names(state_names=["Ongoing"]) == ["orders-2"]
    assert names(state_names=["Empty", "Nonsense"]) == ["orders-1"]
    assert world.coordinator.list(state_names=["Empty", "Nonsense"])[1] == ["Nonsense"]
    assert names(state_names=["Nonsense"]) == []
    assert names(producer_ids={idle.producer_id}) == ["orders-1"]
    # Kafka counts from -1, so a transaction that is not open counts as very old.
    assert names(longer_than_ms=999) == ["orders-1", "orders-2"]
    assert names(longer_than_ms=1000) == ["orders-1"]
    assert names(pattern="orders-[2-9]") == ["orders-2"]
    assert names(pattern="orders") == []
    assert names(pattern="") == ["orders-1", "orders-2"]
    with pytest.raises(InvalidRegularExpression):
        world.coordinator.list(pattern="(")


# -- records


FROM_KAFKA = {
    # Records of a log that Apache Kafka 4.3.1 wrote.
    "000000086c31383034333231": (
        "0001000000000000000900000000ea600000000001a1e2ac922affffffffffffffff0100080000000000000009",
        Transaction(9, 0, 60_000, State.EMPTY, frozenset(), -1, 1794804322858, 9),
    ),
    "0000000761383034323537": (
        "0001000000000000000000040000ea600302097074383034323537020000000000000001a1e2aba3b1000001a1e2aba397"
        "020008000000000000000002020002",
        Transaction(
            0,
            4,
            60_000,
            State.PREPARE_ABORT,
            frozenset({("pt804257", 0)}),
            1794804261783,
            1794804261809,
            0,
            client_version=2,
        ),
    ),
    "0000000778383034333231": (
        "0001000000000000000c7fff0000ea600202097074383034333231020000000000000001a1e2ace212000001a1e2ace20f"
        "030008000000000000000c0108000000000000000d02020002",
        Transaction(
            12,
            32767,
            60_000,
            State.PREPARE_COMMIT,
            frozenset({("pt804321", 0)}),
            1794804343311,
            1794804343314,
            12,
            13,
            2,
        ),
    ),
}


@pytest.mark.parametrize("key", FROM_KAFKA)
def test_records_equal_kafkas_bytes(key: str) -> None:
    value, expected = FROM_KAFKA[key]
    record = decode_record(bytes.fromhex(key), bytes.fromhex(value))
    assert record is not None and record.transaction == expected
    assert record.encode() == (bytes.fromhex(key), bytes.fromhex(value))


def test_records_before_transaction_version_1_have_version_0() -> None:
    world = World().lead()
    world.version = 0
    producer = world.init()
    world.coordinator.add_partitions(ID, producer, [P0], 0)
    assert {record.version for record in world.stored()} == {0}
    later = world.restarted()
    assert later.coordinator.describe(ID).partitions == {P0}


def test_a_batch_equals_kafkas(world: World) -> None:
    world.init()
    batch = Batch(world.partition.batches[0])
    assert (batch.base_sequence, batch.producer_id, batch.producer_epoch, batch.is_transactional) == (-1, -1, -1, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", None),
        (b"\0\0\0\x05ab", None),
        (b"\0\0\0\x01a", b"\0"),
        (b"\0\0\0\x01a", b"\0\x09"),
        (b"\0\0\0\x01a", b"\0\x01" + bytes(5)),
        (
            b"\0\0\0\x01a",
            bytes.fromhex("0001000000000000000900000000ea600900000001a1e2ac922affffffffffffffff0100080000000000000009"),
        ),
    ],
)
def test_damaged_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(key, value)


def test_a_damaged_record_is_logged_once_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    world = World().lead()
    world.init()
    bad = [Record(0, START_MS, b"\0\0\0\x05ab", b""), Record(1, START_MS, None, b"")]
    world.partition.batches.insert(0, bytes(build_batch(bad)))
    unknown = [Record(0, START_MS, b"\0\x63rest", b"")]
    world.partition.batches.insert(0, bytes(build_batch(unknown)))
    later = world.restarted()
    assert later.coordinator.describe(ID).producer_id == 4001
    assert len([line for line in caplog.records if line.levelname == "ERROR"]) == 1


def test_an_unreadable_batch_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    world = World().lead()
    world.init()
    torn = bytearray(build_batch([Record(0, START_MS, b"key", b"value")]))
    torn[60] = 9  # it does not contain that many records
    world.partition.batches.insert(0, bytes(torn))
    later = world.restarted()
    assert later.coordinator.describe(ID).producer_id == 4001
    (line,) = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert "transaction log: the batch at offset 0 cannot be read" in line
