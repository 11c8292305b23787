"""The state of one transactional id, and all its transitions.

    state            init           add partitions  end (first protocol)  end (KIP-890)         markers written
    Empty            Empty          Ongoing         INVALID_TXN_STATE     abort: PrepareAbort   -
    Ongoing          PrepareAbort   Ongoing         PrepareCommit/Abort   PrepareCommit/Abort   -
    PrepareCommit    CONCURRENT     CONCURRENT      commit: CONCURRENT    commit: CONCURRENT    CompleteCommit
    PrepareAbort     CONCURRENT     CONCURRENT      abort: CONCURRENT     abort: CONCURRENT     CompleteAbort
    CompleteCommit   Empty          Ongoing         commit: done already  abort: PrepareAbort   -
    CompleteAbort    Empty          Ongoing         abort: done already   abort: PrepareAbort   -

All other cases are INVALID_TXN_STATE. An init during an open transaction aborts it first, with a new epoch that no
producer gets, and answers CONCURRENT_TRANSACTIONS; the client retries. A wrong producer id is
INVALID_PRODUCER_ID_MAPPING, a wrong epoch is PRODUCER_FENCED.

With KIP-890 (transaction version 2), every end bumps the epoch, so that late records of an ended transaction are
fenced. A request with the previous epoch is then a retry and gets the same answer as the first one:

                      abort, repeated   abort, current   commit, repeated   commit, current
    Empty             fenced            new epoch        fenced             INVALID_TXN_STATE
    CompleteAbort     done already      new epoch        INVALID_TXN_STATE  INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE new epoch        done already       INVALID_TXN_STATE

The functions here are pure: they take a state and return the next one, or raise the error for the client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
)

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 2**15 - 1
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
"""Clients never get the last epoch, so that the coordinator can always fence."""
EPOCH_BUMP_VERSION: Final = 2
"""From this transaction version on (KIP-890), every end of a transaction bumps the epoch."""

TopicPartition: TypeAlias = tuple[str, int]


class State(Enum):
    """The value is the name that tools show; `number` is stored."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def number(self) -> int:
        return _NUMBERS[self]


_NUMBERS: Final = {state: number for number, state in enumerate(State)}
BY_NUMBER: Final = {number: state for state, number in _NUMBERS.items()}
BY_NAME: Final = {state.value: state for state in State}

PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
IDLE: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


class Transaction(NamedTuple):
    """A transactional id: its producer, and the state of its transaction."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    """The next producer id, when this one's epochs are exhausted."""
    client_version: int = 0
    """The transaction version of the client's last request."""
    last_producer_epoch: int = NO_EPOCH
    """Detects a retried init (KIP-360). As in Kafka it is not stored, so a restart loses it."""

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def next_identity(self) -> tuple[int, int]:
        """(producer id, epoch) for the producer's next transaction."""
        if self.next_producer_id != NO_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class Identity(NamedTuple):
    """The producer id and epoch that a client sends as its own."""

    producer_id: int
    producer_epoch: int


NewProducerId: TypeAlias = Callable[[], int]


def _check_complete(transaction: Transaction) -> None:
    """Raise CONCURRENT_TRANSACTIONS while markers are missing: the client may already have its next identity.

    So this check comes first, as in Kafka (KAFKA-18575), except where only clients of the first protocol are involved.
    """
    if transaction.state in PREPARED:
        raise ConcurrentTransactions


# -- init


def check_init(transaction: Transaction, expected: Identity | None) -> None:
    """Raise if a client may not start again: a client that expects a different producer is fenced."""
    _check_complete(transaction)
    if expected is not None and not (
        transaction.producer_epoch == NO_EPOCH
        or expected.producer_id == transaction.producer_id
        # The answer with a new id may have been lost.
        or (expected.producer_id == transaction.previous_producer_id and expected.producer_epoch >= LAST_CLIENT_EPOCH)
    ):
        raise ProducerFenced


def initialized(
    transaction: Transaction, expected: Identity | None, timeout_ms: int, now_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    """A producer starts, or continues after an error (`expected`, KIP-360), with no open transaction."""
    assert transaction.state in IDLE
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    last_epoch = NO_EPOCH if expected is None else epoch
    if expected is not None and epoch != NO_EPOCH and expected.producer_epoch != epoch:
        if transaction.is_exhausted:
            raise UnknownServerError  # Kafka fails here, before it checks whether the request is a retry
        if expected.producer_epoch != transaction.last_producer_epoch:
            raise ProducerFenced
        # A retry: the first answer was lost, so send the same one again.
        last_epoch = transaction.last_producer_epoch
    elif transaction.is_exhausted:
        producer_id, epoch = new_producer_id(), 0
    else:
        epoch += 1
    return transaction._replace(
        producer_id=producer_id,
        previous_producer_id=transaction.producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        update_ms=now_ms,
    )


def fenced(
    transaction: Transaction, now_ms: int, transaction_version: int, new_producer_id: NewProducerId
) -> Transaction:
    """The broker aborts an open transaction and bumps its epoch, because it timed out or a new producer started.

    With KIP-890 the old epoch is kept, so that its producer may continue with it, and a new producer id follows the
    last epoch.
    """
    assert transaction.state is State.ONGOING
    bumps_epoch = transaction_version >= EPOCH_BUMP_VERSION
    return transaction._replace(
        previous_producer_id=transaction.producer_id,
        next_producer_id=new_producer_id() if bumps_epoch and transaction.is_exhausted else NO_ID,
        producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=transaction.producer_epoch if bumps_epoch else NO_EPOCH,
        state=State.PREPARE_ABORT,
        update_ms=now_ms,
        client_version=transaction_version if bumps_epoch else 0,
    )


# -- partitions


def _check_owner(transaction: Transaction, producer: Identity) -> None:
    if transaction.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping
    if transaction.producer_epoch != producer.producer_epoch:
        raise ProducerFenced


def with_partitions(
    transaction: Transaction,
    producer: Identity,
    partitions: Collection[TopicPartition],
    now_ms: int,
    client_version: int,
) -> Transaction | None:
    """Add partitions to the transaction, which begins with the first one; None if nothing changes."""
    _check_complete(transaction)
    _check_owner(transaction, producer)
    is_open = transaction.state is State.ONGOING
    if is_open and transaction.partitions.issuperset(partitions):
        return None
    return transaction._replace(
        previous_producer_id=transaction.producer_id,
        state=State.ONGOING,
        partitions=transaction.partitions.union(partitions),
        start_ms=transaction.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def missing_partitions(
    transaction: Transaction, producer: Identity, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """The partitions that are not in the transaction, with the error for each."""
    _check_owner(transaction, producer)
    _check_complete(transaction)
    return {partition: TransactionAbortable() for partition in partitions if partition not in transaction.partitions}


# -- the end


def ended(
    transaction: Transaction,
    producer: Identity,
    now_ms: int,
    client_version: int,
    new_producer_id: NewProducerId,
    *,
    commit: bool,
) -> Transaction | None:
    """The client commits or aborts. None if that has already happened: the request is a retry."""
    if client_version < EPOCH_BUMP_VERSION:
        return _ended_first_protocol(transaction, producer, now_ms, commit=commit)
    _check_complete(transaction)
    # A retry of the end that used the last epoch still has the old id.
    repeats_rotation = (
        transaction.previous_producer_id == producer.producer_id
        and producer.producer_epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )
    repeats = repeats_rotation or transaction.producer_epoch == producer.producer_epoch + 1
    if transaction.producer_id != producer.producer_id and not repeats_rotation:
        raise InvalidProducerIdMapping
    state = transaction.state
    is_current = producer.producer_epoch == transaction.producer_epoch
    is_known = is_current or (repeats and state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
    if not is_known:
        raise ProducerFenced
    if state is State.ONGOING or (state in IDLE and not commit and is_current):
        # An abort without partitions only bumps the epoch, which a client may need.
        return transaction._replace(
            previous_producer_id=transaction.producer_id,
            next_producer_id=new_producer_id() if transaction.is_exhausted else NO_ID,
            producer_epoch=min(transaction.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=transaction.producer_epoch,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            start_ms=transaction.start_ms if state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )
    _check_repeated_end(state, commit=commit, allowed=not is_current)
    return None


def _ended_first_protocol(
    transaction: Transaction, producer: Identity, now_ms: int, *, commit: bool
) -> Transaction | None:
    _check_owner(transaction, producer)
    _check_complete(transaction)
    if transaction.state is State.ONGOING:
        return transaction._replace(
            previous_producer_id=transaction.producer_id,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            update_ms=now_ms,
            client_version=0,
        )
    _check_repeated_end(transaction.state, commit=commit, allowed=True)
    return None


def _check_repeated_end(state: State, *, commit: bool, allowed: bool) -> None:
    if state is not (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT) or not allowed:
        raise InvalidTxnState


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All partitions have their marker."""
    assert transaction.state in PREPARED
    producer_id, epoch = transaction.next_identity if transaction.bumps_epoch else transaction[:2]
    return transaction._replace(
        producer_id=producer_id,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_ID,
        producer_epoch=epoch,
        state=State.COMPLETE_COMMIT if transaction.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        partitions=frozenset(),
        update_ms=now_ms,
    )


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    return transaction.state is State.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms


def is_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    return transaction.state in IDLE and transaction.update_ms <= now_ms - expiration_ms
