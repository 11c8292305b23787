"""The controller: turns wishes about the cluster into metadata records.

Every operation reads the image and returns `(records, result)`; `Controller.commit` appends the records to the metadata
log, which replays them into the image and tells the replicas. A refused operation writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ottla.cluster.metadata import RESOURCE_TOPIC, MetadataImage, PartitionState, TopicState
from ottla.cluster.placement import place_replicas
from ottla.cluster.topics import INTERNAL_TOPICS, check_topic_name, collision_key, internal_topic_settings
from ottla.config import Config, ConfigError
from ottla.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

PRODUCER_ID_BLOCK = 1000
"""Ids handed to a broker at a time, as in Kafka: an id is never given twice, at the price of gaps after a restart."""


class Chance(Protocol):
    """The source of randomness, passed in so that a run can be repeated."""

    def randbelow(self, limit: int) -> int: ...

    def uuid(self) -> bytes: ...


class MetadataWriter(Protocol):
    """Where metadata records go: appended, replayed into the image, told to the replicas."""

    def append(self, records: Sequence[Message]) -> None: ...


@dataclass(slots=True)
class NewTopic:
    """A topic that somebody wants; -1 stands for the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: dict[int, list[int]] = field(default_factory=dict)
    duplicate_assignment: bool = False
    configs: dict[str, str | None] = field(default_factory=dict)


class Controller:
    """Decides about topics, partitions and ids; one for the cluster."""

    def __init__(
        self,
        image: MetadataImage,
        writer: MetadataWriter,
        config: Callable[[], Config],
        chance: Chance,
        directory_of: Callable[[int], bytes],
    ) -> None:
        self.image = image
        self._writer = writer
        self._config = config
        self._chance = chance
        self._directory_of = directory_of
        self._collisions: dict[str, set[str]] = {}
        self._collisions_version = -1

    def commit(self, records: Sequence[Message]) -> None:
        if records:
            self._writer.append(records)

    # -- topics ------------------------------------------------------------------------------------------------

    def create_topics(self, wanted: Iterable[NewTopic], validate_only: bool = False) -> list[TopicState | KafkaError]:
        """Create each topic or say why not, in the order asked; one refused topic does not refuse its siblings."""
        outcomes: list[TopicState | KafkaError] = []
        records: list[Message] = []
        planned: dict[str, str] = {}
        for topic in wanted:
            try:
                made, outcome = self.plan_topic(topic, planned)
            except KafkaError as error:
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            if not validate_only:
                records += made
        self.commit(records)
        return outcomes

    def plan_topic(self, wanted: NewTopic, planned: dict[str, str] | None = None) -> tuple[list[Message], TopicState]:
        """The records that create one topic, and the topic as it will be.

        `planned` holds the names (by their collision key) that the same request is about to create.
        """
        check_topic_name(wanted.name)
        if wanted.name in self.image.topics:
            raise TopicAlreadyExists(f"Topic '{wanted.name}' already exists.")
        self._check_collision(wanted.name, planned)
        overrides = self._checked_overrides(wanted)
        assignments = self._assignments(wanted)
        topic = TopicState(wanted.name, self._chance.uuid())
        records: list[Message] = [stored.TopicRecord(name=topic.name, topic_id=topic.topic_id)]
        records += [
            stored.ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in overrides.items()
        ]
        for index, replicas in enumerate(assignments):
            records.append(self._partition_record(topic, index, replicas))
        if planned is not None:
            planned[collision_key(topic.name)] = topic.name
        return records, topic

    def _partition_record(self, topic: TopicState, index: int, replicas: list[int]) -> stored.PartitionRecord:
        brokers = self.image.brokers
        isr = [broker for broker in replicas if broker in brokers and not brokers[broker].fenced]
        record = stored.PartitionRecord(
            partition_id=index,
            topic_id=topic.topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self._directory_of(broker) for broker in replicas],
        )
        topic.partitions[index] = PartitionState(
            topic_id=topic.topic_id,
            index=index,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        return record

    def _check_collision(self, name: str, planned: dict[str, str] | None) -> None:
        if self._collisions_version != self.image.version:
            self._collisions = {}
            for existing in self.image.topics:
                if "." in existing or "_" in existing:
                    self._collisions.setdefault(collision_key(existing), set()).add(existing)
            self._collisions_version = self.image.version
        if "." not in name and "_" not in name:
            return
        key = collision_key(name)
        clashing = self._collisions.get(key) or ({planned[key]} if planned and key in planned else None)
        if clashing:
            raise InvalidTopicException(f"Topic '{name}' collides with existing topic: {min(clashing)}")

    def _checked_overrides(self, wanted: NewTopic) -> dict[str, str]:
        missing = sorted(name for name, value in wanted.configs.items() if value is None)
        if missing:
            raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
        overrides = {name: value for name, value in wanted.configs.items() if value is not None}
        try:
            self._config().validate_topic(overrides)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
        return overrides

    def _assignments(self, wanted: NewTopic) -> list[list[int]]:
        if wanted.assignments or wanted.duplicate_assignment:
            return self._manual_assignments(wanted)
        config = self._config()
        if wanted.num_partitions < -1 or wanted.num_partitions == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        if wanted.replication_factor < -1 or wanted.replication_factor == 0:
            raise InvalidReplicationFactor("Replication factor was set to an invalid non-positive value.")
        partitions = config["num.partitions"] if wanted.num_partitions == -1 else wanted.num_partitions
        factor = config["default.replication.factor"] if wanted.replication_factor == -1 else wanted.replication_factor
        brokers = [broker.broker_id for broker in self.image.live_brokers()]
        racks = {broker.broker_id: broker.rack for broker in self.image.live_brokers()}
        return place_replicas(brokers, racks, partitions, factor, self._chance.randbelow)

    def _manual_assignments(self, wanted: NewTopic) -> list[list[int]]:
        if wanted.replication_factor != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if wanted.num_partitions != -1:
            raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
        if wanted.duplicate_assignment:
            raise InvalidReplicaAssignment("Found multiple manual assignments for partition 0")
        factor = len(next(iter(wanted.assignments.values())))
        for index, replicas in sorted(wanted.assignments.items()):
            self.check_assignment(replicas, factor)
            if index < 0 or index >= len(wanted.assignments):
                raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
        return [wanted.assignments[index] for index in range(len(wanted.assignments))]

    def check_assignment(self, replicas: list[int], factor: int | None) -> None:
        """Refuse a manual replica list that is empty, repeats a broker, names an unknown one or has another length."""
        if not replicas:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        for broker in sorted(replicas):
            if broker not in self.image.brokers:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such broker is registered."
                )
        if len(set(replicas)) != len(replicas):
            repeated = next(broker for broker in replicas if replicas.count(broker) > 1)
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {repeated} more than once."
            )
        if factor is not None and len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )

    def create_internal_topic(self, name: str) -> TopicState:
        """Make sure that one of the broker's own topics exists."""
        existing = self.image.topics.get(name)
        if existing is not None:
            return existing
        partitions, factor, overrides = internal_topic_settings(name, self._config())
        configs: dict[str, str | None] = dict(overrides)
        records, topic = self.plan_topic(NewTopic(name, partitions, factor, configs=configs))
        self.commit(records)
        return topic

    def auto_create_topic(self, name: str) -> TopicState:
        """Create a topic because somebody asked for its metadata."""
        if name in INTERNAL_TOPICS:
            return self.create_internal_topic(name)
        records, topic = self.plan_topic(NewTopic(name))
        self.commit(records)
        return topic

    def delete_topic(self, *, name: str | None = None, topic_id: bytes | None = None) -> TopicState:
        """Remove a topic from the metadata; its folders are removed by the replicas that hold them."""
        if name is not None:
            topic = self.image.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition()
        else:
            assert topic_id is not None
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicId()
        self.commit([stored.RemoveTopicRecord(topic_id=topic.topic_id)])
        return topic

    # -- producer ids ------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """The next block of producer ids, handed out once and for all."""
        first = self.image.next_producer_id
        self.commit(
            [
                stored.ProducerIdsRecord(
                    broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
                )
            ]
        )
        return range(first, first + PRODUCER_ID_BLOCK)
