"""Connects the transaction coordinator to the broker: its log, the markers it writes, and who may write into what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from ottla.answers import Answer, attempt, then
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
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
)
from ottla.lazy_imports import import_late
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, internal_partition
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
    Batch,
    Buffer,
    end_transaction_marker,
    entry_size,
)
from ottla.replication.partition import Partition
from ottla.server.coordinator_host import CoordinatorHost

if TYPE_CHECKING:
    from ottla.coordinator.transactions.coordinator import TransactionCoordinator
    from ottla.coordinator.transactions.shard import Marker
    from ottla.coordinator.transactions.state import Identity
    from ottla.server.broker import Broker
    from ottla.server.services import Services
    from ottla.wire.messages.produce import ProduceRequest

FEATURE = "transaction.version"

ABORTABLE_PRODUCE_VERSION = 11
ADDING_PRODUCE_VERSION = 12
ABORTABLE_OFFSETS_VERSION = 4
ADDING_OFFSETS_VERSION = 5

TopicPartition = tuple[str, int]
Refusals = dict[TopicPartition, KafkaError]


class LocalMarkers:
    """Writes markers into partitions that this broker leads."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write(
        self, marker: Marker, partition: TopicPartition, done: Callable[[TopicPartition, KafkaError | None], None]
    ) -> None:
        try:
            written, offset = self.append(marker, *partition)
        except KafkaError as error:
            done(partition, error)
        else:
            written.when_committed(offset, lambda error: done(partition, error))

    def send(self) -> None:
        """Each was written when it was handed over."""

    def append(self, marker: Marker, topic: str, index: int) -> tuple[Partition, int]:
        """The partition and the marker's offset, which may not be committed yet; raises what keeps the marker out."""
        broker = self._broker
        partition = broker.replicas.leader(topic, index)
        if partition.leadership is not None:
            partition.leadership.check_enough_replicas()
        if topic == GROUP_METADATA_TOPIC:
            # The group coordinator writes into its partitions itself: the marker makes pending offsets count.
            shard = broker.groups.shard(index)
            if shard is None:
                raise NotLeaderOrFollower
            offset = shard.complete_transaction(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, commit=marker.commit
            )
            return partition, offset
        batch = end_transaction_marker(
            marker.commit,
            marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=broker.clock.now_ms(),
        )
        info = partition.append_own((Batch(batch),), transaction_version=marker.transaction_version)
        return partition, info.last_offset


class TransactionsOfBroker:
    """The transaction coordinator of a broker, and what writers of partitions ask it."""

    ANSWERS_BEFORE_MARKERS: ClassVar[bool] = False
    """Whether an end is answered while other processes still write its markers."""

    def __init__(self, broker: Broker, markers: LocalMarkers | None = None) -> None:
        self._broker = broker
        self._config = broker.config
        self.markers = markers if markers is not None else LocalMarkers(broker)
        self.host: CoordinatorHost[TransactionCoordinator] = CoordinatorHost(
            broker, TRANSACTION_STATE_TOPIC, self._make
        )
        self.start = self.host.start
        self.stop = self.host.stop
        self.metadata_changed = self.host.metadata_changed

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.host.coordinator

    def _make(self) -> TransactionCoordinator:
        import_late("ottla.coordinator.transactions.coordinator")
        from ottla.coordinator.transactions.coordinator import TransactionCoordinator, TransactionSettings

        broker = self._broker
        return TransactionCoordinator(
            TransactionSettings.from_config(self._config),
            broker.clock,
            broker.timer,
            self.markers,
            broker.next_producer_id,
            lambda: broker.metadata.features.get(FEATURE, 0),
            broker.coordinator_loader,
            answers_before_markers=self.ANSWERS_BEFORE_MARKERS,
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
        """Partitions that are about to get their first records of a transaction: which are refused, and why.

        Newer clients leave it to the broker to add them (`adds`, KIP-890); of older ones it is checked that they did.
        The answer comes later where another process keeps the transaction.
        """
        from ottla.coordinator.transactions.state import EPOCH_BUMP_VERSION

        def ask() -> Answer[Refusals]:
            if TRANSACTION_STATE_TOPIC not in self._broker.metadata.topics:
                raise CoordinatorNotAvailable  # there is nobody whom this broker could be mistaken for
            if not adds:
                return self.coordinator.missing_partitions(transactional_id, producer, partitions)
            added = self.coordinator.add_partitions(transactional_id, producer, partitions, EPOCH_BUMP_VERSION)
            return then(added, lambda _: {})

        return then(
            attempt(ask, lambda error: dict.fromkeys(partitions, error)),
            lambda refused: {place: for_writers(error, abortable=abortable) for place, error in refused.items()},
        )


class TransactionsOfOneOfMany(TransactionsOfBroker):
    """Of a broker that is not alone: others may lead the partition that a transaction is kept in."""

    def admit(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        topic = self._broker.metadata.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is not None:
            leader = topic.partitions[internal_partition(transactional_id, len(topic.partitions))].leader
            if leader not in (self._broker.node_id, NO_LEADER):
                return self._admit_there(leader, transactional_id, producer, partitions, adds, abortable)
        return super().admit(transactional_id, producer, partitions, adds=adds, abortable=abortable)

    def _admit_there(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        """As `admit`, asked of the broker that coordinates."""
        raise AssertionError("how others are reached is for who has them to say")


def for_writers(error: KafkaError, *, abortable: bool) -> KafkaError:
    """The coordinator's error as clients know it in answers to writes."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch()
    if isinstance(error, TransactionAbortable) and not abortable:
        return InvalidTxnState("Partition was not added to the transaction")
    return error


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch belongs to a transaction, by a look at two bytes of its header."""
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and records[FLAGS_OFFSET] & TRANSACTIONAL_FLAG != 0
        and records[MAGIC_OFFSET] == 2
    )


def holds_transaction(request: ProduceRequest) -> bool:
    """Whether a partition's first batch belongs to a transaction; raises CorruptMessage for one that cannot be a batch.

    Kafka looks for this before anything else, so what it cannot read there fails the request and not its partition.
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
        """Raises what refuses the whole request. `places` are the partitions that could be written to."""
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
        from ottla.coordinator.transactions.state import Identity  # not before there is a transaction

        producer = Identity(producer_id, epoch)
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
                continue  # the append says it again
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
        """Errors that older producers do not expect here become one that they retry without new metadata."""
        passing = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
        if isinstance(error, passing) or (
            isinstance(error, ConcurrentTransactions) and self._version < ADDING_PRODUCE_VERSION
        ):
            return NotEnoughReplicas(
                f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            )
        return error
