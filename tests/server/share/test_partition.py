"""A share partition: deliveries, acknowledgements and timeouts. The answers match Kafka 4.3.1."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.clock import ManualClock, Timer
from ottla.coordinator.share_state.state import StateBatch, combined
from ottla.enums import AcknowledgeType
from ottla.errors import CoordinatorNotAvailable, InvalidRecordState, InvalidRequest, KafkaError
from ottla.server.share.inflight import ACQUIRED, ARCHIVED, AVAILABLE, DONE, InFlight
from ottla.server.share.partition import AcknowledgementBatch, Limits, SharePartition

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LOCK_MS = 1000


class Storage:
    """Keeps written state; can delay writes or make them fail."""

    def __init__(self) -> None:
        self.start = -1
        self.done_count = 0
        self.batches: tuple[StateBatch, ...] = ()
        self.last: list[StateBatch] = []
        self.error: KafkaError | None = None
        self.hold = False
        self.held: list[Callable[[KafkaError | None], None]] = []

    def write(self, start: int, done_count: int, batches: Sequence[StateBatch], done: Any) -> None:
        if self.error is None:
            self.start, self.done_count, self.last = start, done_count, list(batches)
            self.batches = combined(self.batches, batches, start)
        if self.hold:
            self.held.append(done)
        else:
            done(self.error)

    def release(self, error: KafkaError | None = None) -> None:
        self.hold = False
        held, self.held = self.held, []
        for done in held:
            done(error)


class World:
    """A partition whose log has batches of `size` records."""

    def __init__(self, size: int = 4, count: int = 5, **limits: int) -> None:
        self.clock = ManualClock(0)
        self.timer = Timer(self.clock)
        self.storage = Storage()
        self.limits = Limits(**{"lock_ms": LOCK_MS, **limits})
        self.size = size
        self.end = size * count
        self.woken = 0
        self.open()

    def open(self, start: int = 0) -> None:
        self.partition = SharePartition(
            InFlight(start, self.storage.batches), lambda: self.limits, self.storage, self.timer
        )
        self.partition.on_free = self._wake

    def _wake(self) -> None:
        self.woken += 1

    def read(self, member: str = "m", most: int = 500, batch_size: int = 500, exact: bool = False) -> list[Any]:
        partition = self.partition
        if not partition.can_acquire:
            return []
        offset = partition.in_flight.next_offset()
        if offset >= self.end:
            return []
        first = offset - offset % self.size
        log = [(base, base + self.size - 1) for base in range(first, self.end, self.size)]
        return [tuple(each) for each in partition.acquire(member, offset, log, most, batch_size, exact=exact)]

    def tell(self, member: str, *batches: tuple[int, int, Sequence[int]]) -> int:
        codes: list[int] = []
        wanted = [AcknowledgementBatch(*batch) for batch in batches]
        self.partition.acknowledge(member, wanted, lambda error: codes.append(0 if error is None else error.code))()
        return codes[0] if codes else -1

    @property
    def start(self) -> int:
        return self.partition.in_flight.start

    def states(self) -> dict[int, int]:
        return {offset: run.state for run in self.partition.in_flight.runs for offset in range(run.first, run.last + 1)}


def test_records_are_acquired_once() -> None:
    world = World()
    assert world.read(most=6) == [(0, 7, 1)], "batches are not split"
    assert world.read("other") == [(8, 19, 1)]
    assert world.read() == []
    assert world.tell("m", (0, 7, [ACCEPT])) == 0
    assert (world.start, world.storage.start, world.storage.done_count) == (8, 0, 8)
    assert world.storage.last == [StateBatch(0, 7, 2, 1)]
    assert world.tell("m", (0, 7, [ACCEPT])) == 0, "already acknowledged"
    assert world.tell("m", (8, 9, [ACCEPT])) == InvalidRecordState.code, "acquired by another member"


def test_acquired_batches_have_about_the_wanted_size() -> None:
    assert World().read(batch_size=3) == [(base, base + 3, 1) for base in range(0, 20, 4)]
    assert World().read(batch_size=5) == [(0, 7, 1), (8, 15, 1), (16, 19, 1)]
    assert World().read(most=6, batch_size=3) == [(0, 3, 1), (4, 7, 1)]


def test_record_limit_mode_keeps_the_exact_limit() -> None:
    world = World()
    assert world.read("m", 1, exact=True) == [(0, 0, 1)]
    assert world.read("n", 2, exact=True) == [(1, 2, 1)]
    assert world.read("n") == [(3, 3, 1), (4, 19, 1)]


def test_records_of_a_batch_are_acknowledged_one_by_one() -> None:
    world = World()
    world.read()
    assert world.tell("m", (0, 3, [ACCEPT, REJECT, RELEASE, GAP])) == 0
    assert world.storage.last == [
        StateBatch(0, 0, 2, 1),
        StateBatch(1, 1, 4, 1),
        StateBatch(2, 2, 0, 1),
        StateBatch(3, 3, 4, 1),
    ]
    assert (world.start, world.woken) == (2, 1)
    assert world.read() == [(2, 2, 2)]
    assert world.tell("m", (2, 2, [ACCEPT])) == 0
    assert world.start == 4


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(100, 101, [ACCEPT])], InvalidRequest.code),
        ([(16, 20, [ACCEPT])], InvalidRequest.code),
        ([(4, 5, [ACCEPT]), (5, 6, [ACCEPT])], InvalidRecordState.code),
        ([(4, 7, [ACCEPT]), (2, 2, [ACCEPT])], InvalidRecordState.code),
    ],
)
def test_an_invalid_acknowledgement_changes_nothing(batches: Any, code: int) -> None:
    world = World()
    world.read()
    world.tell("m", (2, 2, [RELEASE]))
    before = world.states()
    assert world.tell("m", *batches) == code
    assert world.states() == before
    assert world.tell("m", (4, 7, [ACCEPT])) == 0


def test_records_that_were_not_acquired_cannot_be_acknowledged() -> None:
    assert World().tell("m", (0, 1, [ACCEPT])) == InvalidRecordState.code


def test_locks_expire() -> None:
    world = World(deliveries=2)
    assert world.read("m", 4) == [(0, 3, 1)]
    world.clock.advance(LOCK_MS - 1)
    assert world.tell("m", (0, 0, [ACCEPT])) == 0
    world.clock.advance(1)
    assert world.tell("m", (1, 1, [ACCEPT])) == InvalidRecordState.code
    assert world.storage.last == [StateBatch(1, 3, AVAILABLE, 1)]
    assert world.read("n", 3) == [(1, 3, 2)]
    world.clock.advance(LOCK_MS)
    assert world.storage.last == [StateBatch(1, 3, ARCHIVED, 2)], "two deliveries are enough"
    assert world.start == 4


def test_a_renewed_lock_expires_later() -> None:
    world = World()
    world.read("m", 4)
    world.clock.advance(LOCK_MS - 1)
    assert world.tell("m", (1, 2, [RENEW])) == 0
    assert world.storage.start == -1, "nothing to store"
    world.clock.advance(1)
    assert world.states() == {0: AVAILABLE, 1: ACQUIRED, 2: ACQUIRED, 3: AVAILABLE}
    assert world.tell("m", (1, 2, [ACCEPT])) == 0
    world.clock.advance(10 * LOCK_MS)
    assert world.read("n", 2) == [(0, 0, 2), (3, 3, 2)]


def test_a_leaving_member_releases_its_records() -> None:
    world = World()
    world.read("m", 4)
    world.read("n", 4)
    world.partition.release("m", lambda error: None)
    assert world.read("n", 4) == [(0, 3, 2)]


def test_records_that_fail_repeatedly_come_in_small_batches() -> None:
    world = World(8, 2)
    seen = []
    for _ in range(14):
        given = world.read()
        seen.append(given[0])
        assert world.tell("m", *[(first, last, [RELEASE]) for first, last, _ in given]) == 0
    assert seen == [
        *[(0, 15, count) for count in (1, 2, 3)],
        (0, 7, 4),
        *[(offset, offset, 5) for offset in range(8)],
        (8, 15, 4),
        (8, 8, 5),
    ]


def test_parts_of_a_batch_come_back() -> None:
    world = World(8, 2)
    assert world.read() == [(0, 15, 1)]
    world.tell("m", (2, 5, [RELEASE]), (9, 9, [RELEASE]))
    assert world.read() == [(2, 5, 2), (9, 9, 2)]
    world.tell("m", (0, 15, [RELEASE]))
    assert world.read(most=3) == [(0, 1, 2), (2, 5, 3), (6, 8, 2), (9, 9, 3), (10, 15, 2)]
    world.tell("m", (0, 15, [RELEASE]))
    assert world.read(most=3, exact=True) == [(0, 1, 3), (2, 2, 4)]
    assert world.read(most=3, exact=True) == [(3, 5, 4)]


def test_the_number_of_acquired_records_is_limited() -> None:
    world = World(records=6)
    assert world.read("m") == [(0, 7, 1)], "the limit is soft by a batch"
    assert world.read("n") == []
    world.tell("m", (4, 4, [RELEASE]))
    assert world.read("n") == [(4, 4, 2)]
    world.tell("m", (0, 3, [ACCEPT]))
    assert world.read("n") == [(8, 11, 1)]


def test_a_log_whose_start_moved() -> None:
    world = World()
    world.read("m", 8)
    world.tell("m", (6, 6, [ACCEPT]))
    world.partition.log_starts_at(5)
    assert (world.start, world.partition.in_flight.done_count) == (5, 1)
    assert world.tell("m", (0, 5, [ACCEPT])) == 0
    assert world.start == 5, "the member still has what was before it"
    world.clock.advance(LOCK_MS)
    assert world.start == 7
    world.partition.log_starts_at(14)
    assert world.read("m") == [(12, 19, 1)], "the whole batch is delivered"


def test_holes_in_the_log() -> None:
    world = World()
    assert world.partition.acquire("m", 0, [(6, 9)], 500, 500, exact=False) == [(6, 9, 1)]
    assert world.start == 6
    assert world.partition.acquire("m", 10, [(14, 15)], 500, 500, exact=False) == [(14, 15, 1)]
    assert world.states()[10] == ARCHIVED
    assert world.tell("m", (6, 9, [ACCEPT]), (14, 15, [ACCEPT])) == 0
    assert world.start == 16


def test_released_records_may_be_deleted_before_they_are_read_again() -> None:
    world = World()
    assert world.read("m", 8) == [(0, 7, 1)]
    world.tell("m", (1, 2, [RELEASE]))
    assert world.partition.in_flight.next_offset() == 1
    # Compaction removed them meanwhile: the log continues with 4.
    assert world.partition.acquire("m", 1, [(4, 7), (8, 11)], 500, 500, exact=False) == [(8, 11, 1)]
    assert (world.states()[1], world.partition.in_flight.next_offset()) == (ARCHIVED, 12)
    assert world.tell("m", (0, 0, [ACCEPT]), (3, 11, [ACCEPT])) == 0
    assert world.start == 12


def test_aborted_records_are_skipped() -> None:
    world = World()
    given = world.partition.acquire("m", 0, [(0, 3), (4, 7), (8, 11)], 500, 500, exact=False)
    assert world.partition.archive([(4, 7), (9, 9)], given) == [(0, 3, 1), (8, 8, 1), (10, 11, 1)]
    assert world.partition.in_flight.done_count == 5
    assert world.tell("m", (0, 3, [ACCEPT])) == 0
    assert world.start == 8


def test_a_restart_continues_with_the_stored_state() -> None:
    world = World()
    world.read("m", 8)
    world.tell("m", (0, 0, [ACCEPT]), (1, 1, [RELEASE]), (5, 5, [REJECT]))
    world.open(world.storage.start)
    assert world.start == 1
    # 1 was delivered once; 2 to 4 and all from 6 on count as new, because they were never acknowledged.
    assert world.read("n") == [(1, 1, 2), (2, 4, 1), (6, 19, 1)]
    assert world.states()[5] == ARCHIVED


def test_an_acknowledgement_that_cannot_be_stored_is_undone() -> None:
    world = World()
    world.read("m", 4)
    world.storage.error = CoordinatorNotAvailable()
    assert world.tell("m", (0, 1, [ACCEPT])) == CoordinatorNotAvailable.code
    assert set(world.states().values()) == {ACQUIRED}
    assert world.partition.in_flight.done_count == 0
    world.storage.error = None
    assert world.tell("m", (0, 3, [ACCEPT])) == 0


def test_acknowledgements_while_the_state_is_stored() -> None:
    world = World()
    world.read("m", 4)
    world.storage.hold = True
    assert world.tell("m", (0, 1, [RELEASE])) == -1
    assert world.tell("m", (1, 1, [ACCEPT])) == InvalidRecordState.code
    assert world.read("n") == [(4, 19, 1)]
    world.storage.release()
    assert world.read("n") == [(0, 1, 2)]


def test_a_lock_that_expires_while_the_state_is_stored() -> None:
    world = World()
    world.read("m", 4)
    world.storage.hold = True
    assert world.tell("m", (0, 3, [ACCEPT])) == -1
    world.clock.advance(LOCK_MS)
    world.storage.release(CoordinatorNotAvailable())
    assert set(world.states().values()) == {AVAILABLE}
    assert world.read("n", 4) == [(0, 3, 2)]


def test_a_closed_partition_leaves_nothing_behind() -> None:
    world = World()
    world.read("m", 4)
    world.partition.close()
    world.clock.advance(LOCK_MS)
    assert world.storage.start == -1


class Model:
    """The same behavior, one record at a time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.state: dict[int, int] = {}
        self.count: dict[int, int] = {}
        self.owner: dict[int, str] = {}

    def given(self, member: str, first: int, last: int, count: int) -> None:
        for offset in range(first, last + 1):
            assert self.state.get(offset, AVAILABLE) == AVAILABLE, f"{offset} was not free"
            self.state[offset], self.owner[offset] = ACQUIRED, member
            self.count[offset] = self.count.get(offset, 0) + 1
            assert self.count[offset] == count

    def let_go(self, offset: int) -> None:
        self.state[offset] = ARCHIVED if self.count[offset] >= self.limit else AVAILABLE

    def told(self, offset: int, kind: int) -> None:
        if kind == RELEASE:
            self.let_go(offset)
        else:
            self.state[offset] = 2 if kind == ACCEPT else ARCHIVED


@pytest.mark.parametrize("seed", range(30))
def test_random_operations_keep_the_invariants(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance.choice((1, 3, 4)), 10, deliveries=chance.choice((2, 3, 5)), records=chance.choice((12, 100)))
    model = Model(world.limits.deliveries)
    members = ["a", "b", "c"]
    for _ in range(150):
        member = chance.choice(members)
        held = sorted(o for o, s in model.state.items() if s == ACQUIRED and model.owner[o] == member)
        move = chance.random()
        if move < 0.4:
            most = chance.choice((1, 2, 5, 50))
            for given in world.read(member, most, chance.choice((1, 4, 50)), chance.random() < 0.3):
                model.given(member, *given)
        elif move < 0.85 and held:
            first = chance.choice(held)
            last = first
            while last + 1 in held and chance.random() < 0.7:
                last += 1
            kinds = [chance.choice((ACCEPT, RELEASE, REJECT, GAP)) for _ in range(last - first + 1)]
            if chance.random() < 0.5:
                kinds = [kinds[0]] * len(kinds)
                assert world.tell(member, (first, last, kinds[:1])) == 0
            else:
                assert world.tell(member, (first, last, kinds)) == 0
            for offset, kind in zip(range(first, last + 1), kinds, strict=True):
                model.told(offset, kind)
        elif move < 0.9:
            world.clock.advance(LOCK_MS)
            for offset, state in list(model.state.items()):
                if state == ACQUIRED:
                    model.let_go(offset)
        elif move < 0.95:
            world.partition.release(member, lambda error: None)
            for offset in held:
                model.let_go(offset)
        else:
            # A restart: records that were acquired but not acknowledged return to their stored state.
            world.partition.close()
            world.storage.batches = combined(world.storage.batches, (), max(world.start, 0))
            world.open(world.start)
            stored = {
                offset: (batch.state, batch.delivery_count)
                for batch in world.storage.batches
                for offset in range(batch.first, batch.last + 1)
            }
            for offset in list(model.state):
                if offset >= world.start:
                    model.state[offset], model.count[offset] = stored.get(offset, (AVAILABLE, 0))
        expected = {offset: state for offset, state in model.state.items() if offset >= world.start}
        found = world.states()
        assert {o: s for o, s in found.items() if s != AVAILABLE} == {
            o: s for o, s in expected.items() if s != AVAILABLE
        }
        assert all(state in DONE for offset, state in model.state.items() if offset < world.start)
        assert world.partition.in_flight.done_count == sum(state in DONE for state in expected.values())
