"""Connects the transaction coordinator to the broker: its log, its markers, and which producers may write."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.answers import Answer, Reply, attempt, settled, then
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    error_for,
)
from ottla.lazy_imports import lazy
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topics import TRANSACTION_STATE_TOPIC, internal_partition
from ottla.records.batch import (
    FLAGS_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MIN_LENGTH,
    NO_PRODUCER_ID,
    PRODUCER,
    PRODUCER_OFFSET,
    TRANSACTIONAL_FLAG,
    Buffer,
    entry_size,
)
from ottla.server.coordinator_host import CoordinatorHost

if TYPE_CHECKING:
    from ottla.coordinator.transactions import coordinator, state
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.coordinator.transactions.state import Identity
    from ottla.server import transaction_markers
    from ottla.server.services import CoordinatorServices, Services
    from ottla.server.transaction_markers import GroupShards, MarkerWriter
    from ottla.wire import messages
    from ottla.wire.messages.produce import ProduceRequest
else:
    coordinator = lazy("ottla.coordinator.transactions.coordinator")
    state = lazy("ottla.coordinator.transactions.state")
    transaction_markers = lazy("ottla.server.transaction_markers")
    messages = lazy("ottla.wire.messages")

FEATURE = "transaction.version"

ABORTABLE_PRODUCE_VERSION = 11
ADDING_PRODUCE_VERSION = 12
ABORTABLE_OFFSETS_VERSION = 4
ADDING_OFFSETS_VERSION = 5

TopicPartition = tuple[str, int]
Refusals = dict[TopicPartition, KafkaError]


class TransactionsOfBroker:
    """The transaction coordinator of a broker, and the checks for producers."""

    def __init__(
        self, services: CoordinatorServices, group_shards: GroupShards, *, answers_before_markers: bool = False
    ) -> None:
        """With `answers_before_markers`, EndTxn is answered while other brokers still write its markers."""
        self._services = services
        self._group_shards = group_shards
        self._config = services.config
        self._answers_before_markers = answers_before_markers
        self._markers: MarkerWriter | None = None
        self._others_reachable = False
        self.host: CoordinatorHost[TransactionCoordinator] = CoordinatorHost(
            services, TRANSACTION_STATE_TOPIC, self._make
        )
        self.start = self.host.start
        self.stop = self.host.stop
        self.metadata_changed = self.host.metadata_changed

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.host.coordinator

    @property
    def markers(self) -> MarkerWriter:
        if self._markers is None:
            self._markers = transaction_markers.MarkerWriter(self._services, self._group_shards)
            if self._others_reachable:
                self._markers.start()
        return self._markers

    def others_reachable(self) -> None:
        """Requests to other brokers arrive from now on."""
        self._others_reachable = True
        if self._markers is not None:
            self._markers.start()

    def _make(self) -> TransactionCoordinator:
        services = self._services
        return coordinator.TransactionCoordinator(
            coordinator.TransactionSettings.from_config(self._config),
            services.clock,
            services.timer,
            self.markers,
            services.producer_ids.next,
            lambda: services.metadata.features.get(FEATURE, 0),
            services.loader(),
            answers_before_markers=self._answers_before_markers,
        )

    # -- who may write

    def admit(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        """Check partitions that get their first records of a transaction: which are refused, and why.

        For newer clients the broker adds them (`adds`, KIP-890); older clients must have added them. The answer comes
        later if another broker coordinates the transaction.
        """
        topic = self._services.metadata.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is not None:
            leader = topic.partitions[internal_partition(transactional_id, len(topic.partitions))].leader
            if leader not in (self._services.node_id, NO_LEADER):
                return self._admit_there(leader, transactional_id, producer, partitions, adds, abortable)

        def ask() -> Answer[Refusals]:
            if topic is None:
                raise CoordinatorNotAvailable
            if not adds:
                return self.coordinator.missing_partitions(transactional_id, producer, partitions)
            added = self.coordinator.add_partitions(transactional_id, producer, partitions, state.EPOCH_BUMP_VERSION)
            return then(added, lambda _: {})

        return then(
            attempt(ask, lambda error: dict.fromkeys(partitions, error)),
            lambda refused: {place: for_writers(error, abortable=abortable) for place, error in refused.items()},
        )

    def _admit_there(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        """Like `admit`, with a request to the coordinating broker."""
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions:
            by_topic.setdefault(name, []).append(index)
        of_topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        transaction = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=not adds,
            topics=[of_topic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        )
        admitted: Reply[Refusals] = Reply()

        def answered(reply: Reply[messages.AddPartitionsToTxnResponse]) -> None:
            if reply.error is not None or reply.value.error_code:
                admitted.resolve(dict.fromkeys(partitions, CoordinatorNotAvailable()))
                return
            admitted.resolve(
                {
                    (topic.name, result.partition_index): for_writers(
                        error_for(result.partition_error_code), abortable=abortable
                    )
                    for topic in reply.value.results_by_transaction[0].topic_results
                    for result in topic.results_by_partition
                    if result.partition_error_code
                }
            )

        request = messages.AddPartitionsToTxnRequest(transactions=[transaction])
        self._services.channel.send(coordinator_id, request, at_once=True).listen(answered)
        return settled(admitted)


def for_writers(error: KafkaError, *, abortable: bool) -> KafkaError:
    """The coordinator's error, converted for answers to writes."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch()
    if isinstance(error, TransactionAbortable) and not abortable:
        return InvalidTxnState("Partition was not added to the transaction")
    return error


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch belongs to a transaction, according to two bytes of its header."""
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and records[FLAGS_OFFSET] & TRANSACTIONAL_FLAG != 0
        and records[MAGIC_OFFSET] == 2
    )


def holds_transaction(request: ProduceRequest) -> bool:
    """Whether a partition's first batch belongs to a transaction; raises CorruptMessage if it cannot be a batch.

    Kafka checks this first, so an unreadable batch fails the whole request and not only its partition.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < LOG_OVERHEAD:
                continue
            if records[LENGTH_OFFSET] or not records[LENGTH_OFFSET + 1] | records[LENGTH_OFFSET + 2]:
                _check_length(records)
            if len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] != 2:
                _check_magic(records[MAGIC_OFFSET])
            elif is_transactional(records):
                return True
    return False


def _check_length(records: Buffer) -> None:
    length = entry_size(records) - LOG_OVERHEAD
    if length < MIN_LENGTH:
        raise CorruptMessage(f"Record size {length} is less than the minimum record overhead ({MIN_LENGTH})")


def _check_magic(magic: int) -> None:
    if magic > 2:
        raise CorruptMessage(f"Invalid magic found in record: {magic if magic < 0x80 else magic - 0x100}")


class TransactionalProduce:
    """The part of a produce request that belongs to a transaction: whether each partition may be written."""

    __slots__ = ("_batches", "_producer", "_services", "_version")

    def __init__(self, services: Services, version: int) -> None:
        self._services = services
        self._version = version
        self._producer: Identity | None = None
        self._batches: dict[TopicPartition, Buffer] = {}

    def refused(
        self, transactional_id: str | None, places: Iterable[tuple[TopicPartition, Buffer]]
    ) -> Answer[Refusals]:
        """Raises an error that refuses the whole request. `places` are the partitions that could be written."""
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailed
        for place, records in places:
            if is_transactional(records):
                self._note(place, records)
        if self._producer is None:
            return {}
        return self._verify(transactional_id, self._producer)

    def _note(self, place: TopicPartition, records: Buffer) -> None:
        producer_id, epoch, _ = PRODUCER.unpack_from(records, PRODUCER_OFFSET)
        if producer_id == NO_PRODUCER_ID:
            return
        producer = state.Identity(producer_id, epoch)
        if self._producer is None:
            self._producer = producer
        elif producer != self._producer:
            raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")
        self._batches[place] = records

    def _verify(self, transactional_id: str, producer: Identity) -> Answer[Refusals]:
        adds = self._version >= ADDING_PRODUCE_VERSION
        if not adds and not self._services.config["transaction.partition.verification.enable"]:
            return {}
        fenced: Refusals = {}
        beginning: list[TopicPartition] = []
        for (topic, index), records in self._batches.items():
            try:
                producers = self._services.replicas.leader(topic, index).log.producers
            except KafkaError:
                continue  # the append reports it again
            known = producers.producers.get(producer.producer_id)
            if known is not None and known.epoch > producer.producer_epoch:
                fenced[topic, index] = InvalidProducerEpoch()
            elif known is None or known.txn_first_offset < 0 or known.epoch != producer.producer_epoch:
                beginning.append((topic, index))
                if len(records) >= HEADER_SIZE:
                    *_, sequence = PRODUCER.unpack_from(records, PRODUCER_OFFSET)
                    producers.begins(*producer, sequence, bumps=adds, now_ms=self._services.clock.now_ms())
        if not beginning:
            return fenced
        refused = self._services.transactions.admit(
            transactional_id, producer, beginning, adds=adds, abortable=self._version >= ABORTABLE_PRODUCE_VERSION
        )
        return then(
            refused,
            lambda refused: fenced | {place: self._for_producers(error) for place, error in refused.items()},
        )

    def _for_producers(self, error: KafkaError) -> KafkaError:
        """Convert errors that older producers do not expect to one that they retry without new metadata."""
        passing = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
        if isinstance(error, passing) or (
            isinstance(error, ConcurrentTransactions) and self._version < ADDING_PRODUCE_VERSION
        ):
            return NotEnoughReplicas(
                f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            )
        return error
