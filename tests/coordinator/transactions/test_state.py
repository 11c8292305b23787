"""The state machine of transactions: every state with every input, from a table taken from Apache Kafka 4.3.1."""

from collections.abc import Callable

import pytest

from ottla.coordinator.transactions import state as machine
from ottla.coordinator.transactions.state import LAST_CLIENT_EPOCH, MAX_EPOCH, Identity, State, Transaction
from ottla.errors import KafkaError, name_of

EPOCH, LAST_EPOCH = 7, 6
OWN, OTHER_ID = 5, 99
NOW_MS, START_MS = 5_000, 1_000
NEXT_ID = 1234

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = list(State)[:6]
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)


def transaction(state: State, epoch: int = EPOCH, **more: object) -> Transaction:
    fields: dict[str, object] = {
        "producer_id": OWN,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": frozenset({("t", 0)}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset(),
        "start_ms": -1 if state is EMPTY else START_MS,
        "update_ms": START_MS,
        "previous_producer_id": OWN,
        "client_version": 2,
        "last_producer_epoch": LAST_EPOCH,
    }
    return Transaction(**{**fields, **more})  # type: ignore[arg-type]


def init(expected: Identity | None) -> Callable[[Transaction], Transaction | None]:
    def apply(known: Transaction) -> Transaction | None:
        machine.check_init(known, expected)
        if known.state is ONGOING:
            return machine.fenced(known, NOW_MS, 2, lambda: NEXT_ID)
        return machine.initialized(known, expected, 30_000, NOW_MS, lambda: NEXT_ID)

    return apply


def add(producer: Identity, *partitions: tuple[str, int]) -> Callable[[Transaction], Transaction | None]:
    return lambda known: machine.with_partitions(known, producer, partitions, NOW_MS, 2)


def end(producer: Identity, commit: bool, version: int = 2) -> Callable[[Transaction], Transaction | None]:
    return lambda known: machine.ended(known, producer, NOW_MS, version, lambda: NEXT_ID, commit=commit)


def verify(producer: Identity, partition: tuple[str, int]) -> Callable[[Transaction], None]:
    def apply(known: Transaction) -> None:
        for error in machine.missing_partitions(known, producer, [partition]).values():
            raise error

    return apply


CURRENT, REPEATED, NEWER, FOREIGN = (
    Identity(OWN, EPOCH),
    Identity(OWN, LAST_EPOCH),
    Identity(OWN, EPOCH + 1),
    Identity(OTHER_ID, EPOCH),
)
OLD = Identity(OWN, 2)

INPUTS: dict[str, Callable[[Transaction], Transaction | None]] = {
    "init": init(None),
    "init current": init(CURRENT),
    "init repeated": init(REPEATED),
    "init old": init(OLD),
    "init newer": init(NEWER),
    "init foreign": init(FOREIGN),
    "add new": add(CURRENT, ("t", 1)),
    "add known": add(CURRENT, ("t", 0)),
    "add old": add(REPEATED, ("t", 1)),
    "add newer": add(NEWER, ("t", 1)),
    "add foreign": add(FOREIGN, ("t", 1)),
    "verify known": verify(CURRENT, ("t", 0)),
    "verify new": verify(CURRENT, ("t", 1)),
    "verify old": verify(REPEATED, ("t", 0)),
    "verify foreign": verify(FOREIGN, ("t", 0)),
    "v1 commit": end(CURRENT, True, 0),
    "v1 abort": end(CURRENT, False, 0),
    "v1 commit old": end(REPEATED, True, 0),
    "v1 abort newer": end(NEWER, False, 0),
    "v1 commit foreign": end(FOREIGN, True, 0),
    "commit": end(CURRENT, True),
    "abort": end(CURRENT, False),
    "commit repeated": end(REPEATED, True),
    "abort repeated": end(REPEATED, False),
    "commit old": end(OLD, True),
    "abort newer": end(NEWER, False),
    "commit foreign": end(FOREIGN, True),
}

SAME, FENCED, CONCURRENT, INVALID, MAPPING = (
    "no change",
    "PRODUCER_FENCED",
    "CONCURRENT_TRANSACTIONS",
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
)
ABORTABLE = "TRANSACTION_ABORTABLE"
PC, PA = f"PrepareCommit {EPOCH + 1}", f"PrepareAbort {EPOCH + 1}"
PC1, PA1 = f"PrepareCommit {EPOCH}", f"PrepareAbort {EPOCH}"
NEW, KEPT, OPEN = f"Empty {EPOCH + 1}", f"Empty {EPOCH}", f"Ongoing {EPOCH}"

EXPECTED: dict[str, tuple[str, str, str, str, str, str]] = {
    # input           Empty     Ongoing    PrepareCommit PrepareAbort CompleteCommit CompleteAbort
    "init": (NEW, PA, CONCURRENT, CONCURRENT, NEW, NEW),
    "init current": (NEW, PA, CONCURRENT, CONCURRENT, NEW, NEW),
    "init repeated": (KEPT, PA, CONCURRENT, CONCURRENT, KEPT, KEPT),
    "init old": (FENCED, PA, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "init newer": (FENCED, PA, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "init foreign": (FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "add new": (OPEN, OPEN, CONCURRENT, CONCURRENT, OPEN, OPEN),
    "add known": (OPEN, SAME, CONCURRENT, CONCURRENT, OPEN, OPEN),
    "add old": (FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "add newer": (FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "add foreign": (MAPPING, MAPPING, CONCURRENT, CONCURRENT, MAPPING, MAPPING),
    "verify known": (ABORTABLE, SAME, CONCURRENT, CONCURRENT, ABORTABLE, ABORTABLE),
    "verify new": (ABORTABLE, ABORTABLE, CONCURRENT, CONCURRENT, ABORTABLE, ABORTABLE),
    "verify old": (FENCED,) * 6,
    "verify foreign": (MAPPING,) * 6,
    "v1 commit": (INVALID, PC1, CONCURRENT, CONCURRENT, SAME, INVALID),
    "v1 abort": (INVALID, PA1, CONCURRENT, CONCURRENT, INVALID, SAME),
    "v1 commit old": (FENCED,) * 6,
    "v1 abort newer": (FENCED,) * 6,
    "v1 commit foreign": (MAPPING,) * 6,
    "commit": (INVALID, PC, CONCURRENT, CONCURRENT, INVALID, INVALID),
    "abort": (PA, PA, CONCURRENT, CONCURRENT, PA, PA),
    "commit repeated": (FENCED, FENCED, CONCURRENT, CONCURRENT, SAME, INVALID),
    "abort repeated": (FENCED, FENCED, CONCURRENT, CONCURRENT, INVALID, SAME),
    "commit old": (FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "abort newer": (FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED),
    "commit foreign": (MAPPING, MAPPING, CONCURRENT, CONCURRENT, MAPPING, MAPPING),
}


def outcome(known: Transaction, step: Callable[[Transaction], Transaction | None]) -> str:
    try:
        changed = step(known)
    except KafkaError as error:
        return name_of(error.code)
    return SAME if changed is None else f"{changed.state.value} {changed.producer_epoch}"


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
@pytest.mark.parametrize("name", INPUTS)
def test_every_request_in_every_state_gets_kafkas_answer(name: str, state: State) -> None:
    assert outcome(transaction(state), INPUTS[name]) == EXPECTED[name][STATES.index(state)]


def test_the_table_has_every_pair() -> None:
    assert EXPECTED.keys() == INPUTS.keys()


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_markers_complete_a_prepared_end(state: State) -> None:
    done = machine.completed(transaction(state), NOW_MS)
    assert done.state.value == state.value.replace("Prepare", "Complete")
    assert (done.partitions, done.start_ms, done.update_ms, done.producer_epoch) == (
        frozenset(),
        START_MS,
        NOW_MS,
        EPOCH,
    )


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_a_prepared_end_can_be_completed(state: State) -> None:
    with pytest.raises(AssertionError):
        machine.completed(transaction(state), NOW_MS)


def test_a_new_producer_gets_epoch_0_even_if_it_expects_another() -> None:
    fresh = Transaction(OWN, machine.NO_EPOCH, 1000)
    for expected in (None, Identity(77, 3)):
        made = init(expected)(fresh)
        assert made is not None
        assert (made.producer_id, made.producer_epoch, made.last_producer_epoch) == (OWN, 0, -1)


def test_a_repeated_init_is_accepted_from_the_same_producer_only() -> None:
    made = init(CURRENT)(transaction(EMPTY))
    assert made is not None and made.last_producer_epoch == EPOCH
    assert outcome(made, init(CURRENT)) == f"Empty {EPOCH + 1}"
    # A new producer started in between: the old one is fenced.
    other = init(None)(made)
    assert other is not None
    assert outcome(other, init(CURRENT)) == FENCED


def test_after_a_fence_the_old_producer_may_return_once() -> None:
    """As on Kafka 4.3.1: with KIP-890 the fenced epoch is the last one, so its init counts as a repeated one."""
    fenced = machine.fenced(transaction(ONGOING), NOW_MS, 2, lambda: NEXT_ID)
    done = machine.completed(fenced, NOW_MS)
    assert outcome(done, init(CURRENT)) == f"Empty {EPOCH + 1}"
    first_protocol = machine.completed(machine.fenced(transaction(ONGOING), NOW_MS, 0, lambda: NEXT_ID), NOW_MS)
    assert outcome(first_protocol, init(CURRENT)) == FENCED


def test_the_last_epoch_is_never_used() -> None:
    known = transaction(EMPTY, epoch=LAST_CLIENT_EPOCH)
    made = init(None)(known)
    assert made is not None
    assert (made.producer_id, made.producer_epoch, made.previous_producer_id) == (NEXT_ID, 0, OWN)
    assert made.last_producer_epoch == -1
    recovered = init(Identity(OWN, LAST_CLIENT_EPOCH))(known)
    assert recovered is not None and recovered.last_producer_epoch == LAST_CLIENT_EPOCH
    # Its answer was lost: the old id with its last epoch gets the same answer again.
    again = init(Identity(OWN, LAST_CLIENT_EPOCH))(recovered)
    assert again is not None and (again.producer_id, again.producer_epoch) == (NEXT_ID, 0)


def test_an_end_at_the_last_epoch_gives_a_new_producer_id() -> None:
    own = Identity(OWN, LAST_CLIENT_EPOCH)
    prepared = end(own, True)(transaction(ONGOING, epoch=LAST_CLIENT_EPOCH))
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (OWN, MAX_EPOCH)
    assert prepared.next_identity == (NEXT_ID, 0)
    done = machine.completed(prepared, NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (NEXT_ID, 0, OWN)
    assert done.next_producer_id == -1
    assert outcome(done, end(own, True)) == SAME
    assert outcome(done, end(own, False)) == INVALID


def test_a_fence_at_the_last_epoch_gives_a_new_producer_id() -> None:
    """Seen on Kafka 4.3.1: the next init continues from there."""
    opened = transaction(ONGOING, epoch=LAST_CLIENT_EPOCH)
    fenced = machine.fenced(opened, NOW_MS, 2, lambda: NEXT_ID)
    assert (fenced.producer_id, fenced.producer_epoch, fenced.next_producer_id) == (OWN, MAX_EPOCH, NEXT_ID)
    done = machine.completed(fenced, NOW_MS)
    assert (done.producer_id, done.producer_epoch) == (NEXT_ID, 0)
    made = init(None)(done)
    assert made is not None and (made.producer_id, made.producer_epoch) == (NEXT_ID, 1)
    before = machine.fenced(transaction(ONGOING, epoch=LAST_CLIENT_EPOCH - 1), NOW_MS, 2, lambda: NEXT_ID)
    assert before.next_producer_id == -1
    first_protocol = machine.completed(machine.fenced(opened, NOW_MS, 0, lambda: NEXT_ID), NOW_MS)
    assert (first_protocol.producer_id, first_protocol.producer_epoch) == (OWN, MAX_EPOCH)


def test_an_init_with_a_wrong_last_epoch_is_fenced() -> None:
    """Seen on Kafka 4.3.1: UNKNOWN_SERVER_ERROR even for a repeated init."""
    known = transaction(EMPTY, epoch=LAST_CLIENT_EPOCH, last_producer_epoch=LAST_CLIENT_EPOCH - 1)
    assert outcome(known, init(Identity(OWN, LAST_CLIENT_EPOCH - 1))) == "UNKNOWN_SERVER_ERROR"
    assert outcome(known, init(Identity(OWN, LAST_CLIENT_EPOCH))) == "Empty 0"


def test_times() -> None:
    opened = add(CURRENT, ("t", 3))(transaction(COMPLETE_COMMIT))
    assert opened is not None and (opened.start_ms, opened.update_ms) == (NOW_MS, NOW_MS)
    grown = add(CURRENT, ("t", 3))(transaction(ONGOING))
    assert grown is not None and (grown.start_ms, grown.update_ms) == (START_MS, NOW_MS)
    assert grown.partitions == {("t", 0), ("t", 3)}
    empty_abort = end(CURRENT, False)(transaction(EMPTY))
    assert empty_abort is not None and empty_abort.start_ms == NOW_MS
    made = init(None)(transaction(COMPLETE_ABORT))
    assert made is not None and (made.start_ms, made.timeout_ms) == (-1, 30_000)


def test_only_open_transactions_time_out_and_only_idle_ids_expire() -> None:
    late = START_MS + 60_001
    assert [state for state in STATES if machine.is_timed_out(transaction(state), late)] == [ONGOING]
    assert not machine.is_timed_out(transaction(ONGOING), late - 1)
    idle = [state for state in STATES if machine.is_expired(transaction(state), START_MS + 500, 500)]
    assert idle == [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT]
    assert not machine.is_expired(transaction(EMPTY), START_MS + 499, 500)


def test_states_have_kafkas_names_and_numbers() -> None:
    assert [(state.number, state.value) for state in State] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
