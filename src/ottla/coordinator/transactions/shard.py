"""One partition of `__transaction_state`: operations on its transactional ids, and the completion of their transactions
(Kafka: TransactionStateManager for the state, TransactionMarkerChannelManager for the completion).

A transaction ends with two records. The first (PrepareCommit or PrepareAbort) decides the outcome, which cannot change
any more. Then a marker is written into every partition of the transaction. After the last marker, the second record
completes the transaction. If the broker stops in between, loading finds the first record without the second and
continues.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.answers import Answer, Reply
from ottla.clock import Clock
from ottla.coordinator.runtime.committed_view import CommittedView
from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.shard import STEP, CoordinatorShard
from ottla.coordinator.transactions import state as machine
from ottla.coordinator.transactions.records import TransactionRecord, decode_record
from ottla.coordinator.transactions.state import PREPARED, Identity, State, TopicPartition, Transaction
from ottla.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import java_concurrent_map
from ottla.metadata.topics import java_hash

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TOMBSTONES_PER_BATCH: Final = 1000
"""A transactional id may be long; a batch of this many stays below `max.message.bytes` unless all of them are long."""

HISTORY_MAX: Final = 500
"""The number of past states that a shard keeps for operators."""


class Marker(NamedTuple):
    """The marker that is written into each partition when a transaction ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0


class MarkerWriter(Protocol):
    """Writes markers into partitions, on this broker or on others."""

    def write(
        self, marker: Marker, partition: TopicPartition, done: Callable[[TopicPartition, KafkaError | None], None]
    ) -> None:
        """Write a marker. Call `done`, now or later, when it is committed or cannot be written."""
        ...

    def send(self) -> None:
        """Send the markers: all markers of a transaction were passed to `write`."""
        ...


class Environment(Protocol):
    """The services that a shard needs from its coordinator."""

    @property
    def markers(self) -> MarkerWriter: ...
    @property
    def transaction_version(self) -> int: ...
    @property
    def answers_before_markers(self) -> bool: ...
    def new_producer_id(self) -> int: ...
    def retry_later(self, shard: TransactionShard) -> None: ...
    def limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None]: ...


class Completion:
    """The markers of an ended transaction that are not written yet."""

    __slots__ = ("_next", "_then", "answered_early", "given_up", "marker", "on_their_way", "waiting")

    def __init__(
        self, marker: Marker, partitions: Iterable[TopicPartition], then: Callable[[], None] | None = None
    ) -> None:
        self.marker = marker
        self.waiting = set(partitions)
        self.on_their_way: set[TopicPartition] = set()
        """Sent but not answered yet. These are not sent again: a second marker could arrive after the producer has
        begun its next transaction. It would end that one, or be refused, as if the first marker had been refused."""
        self.answered_early = False
        self.given_up = False
        self._then = then
        self._next: list[Callable[[], None]] = []

    def answer(self) -> None:
        """Answer all waiting clients: the transaction is complete, or its completion may take long."""
        self._answer_the_end()
        next_ones, self._next = self._next, []
        for each in next_ones:
            each()

    def answer_early(self) -> None:
        """Answer before the markers are written: the outcome is decided. The producer's next operation waits."""
        self.answered_early = True
        self._answer_the_end()

    def _answer_the_end(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()

    def before(self, then: Callable[[], None]) -> None:
        self._next.append(then)


class TransactionShard(CoordinatorShard):
    """The transactional ids of one partition."""

    LOG_NAME = "transaction log"

    __slots__ = (
        "_environment",
        "_open",
        "committed",
        "completions",
        "coordinator_epoch",
        "history",
        "transactions",
    )

    FIRST_SEQUENCE = -1
    WORKS_ON = True  # markers are written once the decision is committed, even if no client waits any more

    def __init__(
        self, partition: int, writer: PartitionWriter, clock: Clock, coordinator_epoch: int, environment: Environment
    ) -> None:
        super().__init__(partition, writer, clock)
        self.coordinator_epoch = coordinator_epoch
        """The leader epoch of the partition. Markers have it, so that those of a former coordinator are refused."""
        self.transactions: dict[str, Transaction] = {}
        self.committed: CommittedView[str, Transaction | None] = CommittedView(writer)
        self.completions: dict[str, Completion] = {}
        self._open: dict[str, None] = {}
        """The ids with an open transaction: only these can time out."""
        self._environment = environment
        self.history: deque[tuple[str, Transaction]] = deque(maxlen=HISTORY_MAX)
        """The last states of all ids, oldest first. Nothing depends on it; it is for operators."""

    # -- operations

    def init_producer(self, transactional_id: str, timeout_ms: int, expected: Identity | None) -> Result[Identity]:
        """The answer is the producer's identity."""
        now_ms = self.clock.now_ms()
        new_producer_id = self._environment.new_producer_id
        known = self.transactions.get(transactional_id)
        if known is None:
            known = Transaction(new_producer_id(), machine.NO_EPOCH, timeout_ms)
        machine.check_init(known, expected)
        if known.state is State.ONGOING:
            # Abort the open transaction first; the client retries after that.
            return self._fence(transactional_id, known, ConcurrentTransactions())
        made = machine.initialized(known, expected, timeout_ms, now_ms, new_producer_id)
        return Result([self._record(transactional_id, made)], Identity(made.producer_id, made.producer_epoch))

    def _fence(
        self, transactional_id: str, transaction: Transaction, answer: Identity | KafkaError
    ) -> Result[Identity]:
        environment = self._environment
        fenced = machine.fenced(
            transaction, self.clock.now_ms(), environment.transaction_version, environment.new_producer_id
        )
        return self._ending(transactional_id, fenced, answer)

    def add_partitions(
        self, transactional_id: str, producer: Identity, partitions: Collection[TopicPartition], client_version: int
    ) -> Result[None]:
        changed = machine.with_partitions(
            self._known(transactional_id), producer, partitions, self.clock.now_ms(), client_version
        )
        return Result(() if changed is None else [self._record(transactional_id, changed)])

    def missing_partitions(
        self, transactional_id: str, producer: Identity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        return machine.missing_partitions(self._known(transactional_id), producer, partitions)

    def end(self, transactional_id: str, producer: Identity, client_version: int, *, commit: bool) -> Result[Identity]:
        """The answer is the identity for the producer's next transaction."""
        known = self._known(transactional_id)
        new_producer_id = self._environment.new_producer_id
        ended = machine.ended(known, producer, self.clock.now_ms(), client_version, new_producer_id, commit=commit)
        if ended is None:
            return Result((), Identity(*known.next_identity))
        return self._ending(transactional_id, ended, Identity(*ended.next_identity))

    def once_complete(self, transactional_id: str, operation: Callable[[], Answer[T]]) -> Answer[T]:
        """Run an operation, now or once the markers of a transaction that was answered early are written.

        Until then Kafka answers CONCURRENT_TRANSACTIONS, or retries by itself if clients add partitions by writing to
        them (KIP-890). A refused client would wait far longer than the markers take.
        """
        completion = self.completions.get(transactional_id)
        if completion is None or not completion.answered_early:
            return operation()
        reply: Reply[T] = Reply()
        completion.before(lambda: reply.complete(operation))
        return reply

    def _ending(self, transactional_id: str, prepared: Transaction, answer: Identity | KafkaError) -> Result[Identity]:
        """Store the decision, write the markers, and only then answer.

        Kafka answers before the markers are written. Answering after them lets a client see its own commit at once. If
        other processes write the markers (`answers_before_markers`), this answers like Kafka, because waiting for each
        process would slow down every end.
        """
        reply: Reply[Identity] = Reply()

        def give() -> None:
            if isinstance(answer, KafkaError):
                reply.fail(answer)
            else:
                reply.resolve(answer)

        def noted(error: KafkaError | None) -> None:
            if error is None:
                self._begin_completion(transactional_id, give)
            else:
                reply.fail(error)

        return Result([self._record(transactional_id, prepared)], reply, noted)

    def _known(self, transactional_id: str) -> Transaction:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise InvalidProducerIdMapping
        return known

    def _record(self, transactional_id: str, transaction: Transaction | None) -> TransactionRecord:
        return TransactionRecord(transactional_id, transaction, min(self._environment.transaction_version, 1))

    # -- sweeps

    def abort_timed_out(self) -> None:
        now_ms = self.clock.now_ms()
        for transactional_id in [i for i in self._open if machine.is_timed_out(self.transactions[i], now_ms)]:
            logger.info("the transaction of %s is aborted: it took longer than its timeout", transactional_id)
            transaction = self.transactions[transactional_id]
            self.run(self._fence(transactional_id, transaction, Identity(*transaction.next_identity)))

    def expire(self, expiration_ms: int) -> None:
        now_ms = self.clock.now_ms()
        expired = [
            self._record(transactional_id, None)
            for transactional_id, transaction in self.transactions.items()
            if machine.is_expired(transaction, now_ms, expiration_ms)
        ]
        for start in range(0, len(expired), MAX_TOMBSTONES_PER_BATCH):
            self.run(Result(expired[start : start + MAX_TOMBSTONES_PER_BATCH]))

    # -- completion

    def _begin_completion(self, transactional_id: str, then: Callable[[], None] | None = None) -> None:
        transaction = self.transactions[transactional_id]
        marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            self.coordinator_epoch,
            transaction.state is State.PREPARE_COMMIT,
            transaction.client_version,
        )
        self.completions[transactional_id] = Completion(marker, transaction.partitions, then)
        self._go_on(transactional_id)

    def go_on(self) -> None:
        """Retry unfinished completions."""
        for transactional_id in list(self.completions):
            self._go_on(transactional_id)

    def _go_on(self, transactional_id: str) -> None:
        completion = self.completions[transactional_id]

        def done(partition: TopicPartition, error: KafkaError | None) -> None:
            completion.on_their_way.discard(partition)
            if error is None or isinstance(error, UnknownTopicOrPartition):  # a deleted topic needs no marker
                completion.waiting.discard(partition)
                if completion.given_up:
                    self._show_waiting(transactional_id, completion)
                elif not completion.waiting:
                    self._complete(transactional_id, completion)
            elif isinstance(error, (InvalidProducerEpoch, TransactionCoordinatorFenced)):
                # A marker with a higher epoch already exists, perhaps from an operator. Like Kafka, leave the
                # transaction incomplete until the next election of its coordinator.
                logger.warning("the transaction of %s stays open in %s-%d: %s", transactional_id, *partition, error)
                completion.given_up = True
                if self.completions.get(transactional_id) is completion:
                    del self.completions[transactional_id]
                    self._show_waiting(transactional_id, completion)
                completion.answer()
            else:
                self._environment.retry_later(self)
                completion.answer()

        if not completion.waiting:
            self._complete(transactional_id, completion)
        for partition in sorted(completion.waiting - completion.on_their_way):
            completion.on_their_way.add(partition)
            self._environment.markers.write(completion.marker, partition, done)
        self._environment.markers.send()
        if completion.waiting and self._environment.answers_before_markers:
            completion.answer_early()

    def _show_waiting(self, transactional_id: str, completion: Completion) -> None:
        """Show operators the partitions that have no marker yet, and only those.

        This is not stored: the next coordinator starts with all partitions again.
        """
        known = self.transactions.get(transactional_id)
        if known is not None and known.state in PREPARED:
            self.transactions[transactional_id] = known._replace(partitions=frozenset(completion.waiting))

    def _complete(self, transactional_id: str, completion: Completion) -> None:
        if self.completions.get(transactional_id) is not completion:
            return  # given up, or no longer the leader
        transaction = machine.completed(self.transactions[transactional_id], self.clock.now_ms())
        try:
            self.run(Result([self._record(transactional_id, transaction)]))
        except KafkaError as error:
            logger.warning("the end of the transaction of %s is not noted yet: %s", transactional_id, error)
            self._environment.retry_later(self)
        else:
            del self.completions[transactional_id]
        completion.answer()

    def _limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None]:
        return self._environment.limit_wait(give_up)

    # -- reads

    def seen(self, transactional_id: str) -> Transaction | None:
        """The committed state of a transactional id."""
        return self.committed.get(transactional_id, self.transactions.get(transactional_id))

    def all_seen(self) -> Iterator[tuple[str, Transaction]]:
        every = {**self.transactions, **dict.fromkeys(self.committed.keys())}
        for transactional_id in java_concurrent_map(every, java_hash):
            transaction = self.seen(transactional_id)
            if transaction is not None:
                yield transactional_id, transaction

    def keep(self, records: Sequence[TransactionRecord], offset: int) -> None:
        for transactional_id, _, _ in records:
            self.committed.keep(offset, transactional_id, self.transactions.get(transactional_id))

    # -- replay

    def replay(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        transactional_id, transaction, _ = record
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            self._open.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        self.history.append((transactional_id, transaction))
        if transaction.state is State.ONGOING:
            self._open[transactional_id] = None
        else:
            self._open.pop(transactional_id, None)

    decode = staticmethod(decode_record)

    def on_loaded(self) -> Iterator[int]:
        """Continue transactions that a stop interrupted."""
        for transactional_id in [i for i, known in self.transactions.items() if known.state in PREPARED]:
            self._begin_completion(transactional_id)
            yield STEP

    def on_unloaded(self) -> None:
        for completion in self.completions.values():
            completion.answer()
        self.completions.clear()
        self._open.clear()
        self.transactions.clear()
