"""The controller: turns requested changes of the cluster into metadata records.

Every operation reads the image and returns `(records, result)`; `Controller.commit` appends the records to the metadata
log, which replays them into the image and notifies the replicas. A refused operation writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.config import Config, ConfigError
from ottla.enums import ConfigResourceType
from ottla.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.lazy_imports import lazy
from ottla.metadata.image import MetadataImage, PartitionState, TopicState
from ottla.metadata.java_hash_order import by_hash
from ottla.metadata.replica_placement import check_assignment, place_replicas
from ottla.metadata.topics import INTERNAL_TOPICS, check_topic_name, collision_key, internal_topic_settings
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.metadata import broker_changes as broker_changes_module
    from ottla.metadata.broker_changes import BrokerChanges
else:
    broker_changes_module = lazy("ottla.metadata.broker_changes")

PRODUCER_ID_BLOCK = 1000
"""The number of ids that a broker gets at a time, as in Kafka. Ids are never reused; a restart leaves gaps."""

RECORDS_PER_REQUEST_MAX = 10_000
"""Kafka's limit of records for one request; a larger request is refused as a whole."""


Admit = Callable[[int], None]
"""Counts partitions that are about to be created, and raises if there are too many."""


class Randomness(Protocol):
    """The source of randomness, passed in so that a run can be repeated."""

    def randbelow(self, limit: int) -> int: ...

    def randbytes(self, count: int) -> bytes: ...

    def uuid(self) -> bytes: ...


class MetadataWriter(Protocol):
    """Appends metadata records, replays them into the image, and notifies the replicas."""

    def append(self, records: Sequence[Message]) -> None: ...


class NewTopic:
    """A requested topic; -1 means the broker's default."""

    __slots__ = ("assignments", "configs", "name", "num_partitions", "replication_factor")

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: list[tuple[int, list[int]]] | None = None,
        configs: Mapping[str, str | None] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments = assignments if assignments is not None else []
        self.configs: dict[str, str | None] = dict(configs) if configs is not None else {}


class Controller:
    """Manages topics, partitions and ids; there is one for the cluster."""

    def __init__(
        self,
        image: MetadataImage,
        writer: MetadataWriter,
        config: Callable[[], Config],
        chance: Randomness,
        directory_of: Callable[[int], bytes],
        *,
        shares_folder: bool = False,
    ) -> None:
        """With `shares_folder`, all brokers keep their partitions in one folder: a second replica would use the same
        files."""
        self.image = image
        self._writer = writer
        self._config = config
        self._chance = chance
        self._directory_of = directory_of
        self._shares_folder = shares_folder
        self._collisions: dict[str, set[str]] = {}
        self._collisions_version = -1

    def commit(self, records: Sequence[Message]) -> None:
        if records:
            self._writer.append(records)

    # -- topics ------------------------------------------------------------------------------------------------

    def create_topics(
        self, wanted: Sequence[NewTopic], validate_only: bool = False, admit: Admit | None = None
    ) -> list[TopicState | KafkaError]:
        """Create each topic or return its error, in the order of the request. An error does not affect other topics.

        `admit` may refuse a topic because of its number of partitions; quotas use this.

        As in Kafka, names are only compared with existing topics: one request may create both `a.b` and `a_b`.
        """
        self._check_size(wanted)
        outcomes: list[TopicState | KafkaError] = []
        records: list[Message] = []
        for topic in wanted:
            try:
                made, outcome = self.plan_topic(topic)
                if admit is not None:
                    admit(len(outcome.partitions))
            except KafkaError as error:
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            records += made
        if len(records) > RECORDS_PER_REQUEST_MAX:
            raise PolicyViolation("Unable to perform excessively large batch operation.")
        if not validate_only:
            self.commit(records)
        return outcomes

    def _check_size(self, wanted: Iterable[NewTopic]) -> None:
        default: int = self._config()["num.partitions"]
        counts = (default if t.num_partitions == -1 else t.num_partitions for t in wanted if not t.assignments)
        if sum(count for count in counts if count > 0) > RECORDS_PER_REQUEST_MAX:
            raise PolicyViolation("Excessively large number of partitions per request.")

    def plan_topic(self, wanted: NewTopic) -> tuple[list[Message], TopicState]:
        """The records that create one topic, and the resulting topic."""
        check_topic_name(wanted.name)
        if wanted.name in self.image.topics:
            raise TopicAlreadyExists(f"Topic '{wanted.name}' already exists.")
        self._check_collision(wanted.name)
        overrides = self._checked_overrides(wanted)
        assignments = self._assignments(wanted)
        topic = TopicState(wanted.name, self._chance.uuid())
        records: list[Message] = [stored.TopicRecord(name=topic.name, topic_id=topic.topic_id)]
        records += [
            stored.ConfigRecord(
                resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value
            )
            for name, value in overrides.items()
        ]
        for index, replicas in enumerate(assignments):
            records.append(self._partition_record(topic, index, replicas))
        return records, topic

    def _partition_record(self, topic: TopicState, index: int, replicas: list[int]) -> stored.PartitionRecord:
        brokers = self.image.brokers
        isr = [broker for broker in replicas if broker in brokers and not brokers[broker].fenced]
        if not isr:
            raise InvalidReplicaAssignment(
                "All brokers specified in the manual partition assignment for "
                f"partition {index} are fenced or in controlled shutdown."
            )
        if self._shares_folder and len(replicas) > 1:
            raise InvalidReplicaAssignment(
                f"Partition {index} is to have {len(replicas)} replicas, but all workers share their data folders."
            )
        record = stored.PartitionRecord(
            partition_id=index,
            topic_id=topic.topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=self.directories(replicas),
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

    def _check_collision(self, name: str) -> None:
        if "." not in name and "_" not in name:
            return
        if self._collisions_version != self.image.version:
            self._collisions = {}
            for existing in self.image.topics:
                if "." in existing or "_" in existing:
                    self._collisions.setdefault(collision_key(existing), set()).add(existing)
            self._collisions_version = self.image.version
        clashing = self._collisions.get(collision_key(name))
        if clashing:
            raise InvalidTopicException(f"Topic '{name}' collides with existing topic: {min(clashing)}")

    def _checked_overrides(self, wanted: NewTopic) -> dict[str, str]:
        missing = [name for name, value in wanted.configs.items() if value is None]
        if missing:
            raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
        overrides = {name: value for name, value in wanted.configs.items() if value is not None}
        if len(overrides) > 1:
            overrides = by_hash(overrides)
        try:
            self._config().validate_topic(overrides)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
        return overrides

    def _assignments(self, wanted: NewTopic) -> list[list[int]]:
        if wanted.assignments:
            return self._manual_assignments(wanted)
        config = self._config()
        if wanted.replication_factor < -1 or wanted.replication_factor == 0:
            raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
        if wanted.num_partitions < -1 or wanted.num_partitions == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        partitions = config["num.partitions"] if wanted.num_partitions == -1 else wanted.num_partitions
        factor = config["default.replication.factor"] if wanted.replication_factor == -1 else wanted.replication_factor
        return self._place(partitions, factor)

    def _place(self, partitions: int, factor: int) -> list[list[int]]:
        known = self.image.brokers
        if self._shares_folder and factor > 1:
            # Refused with the same message as on a single broker.
            place_replicas([self.image.live_brokers()[0].broker_id], {}, partitions, factor, self._chance.randbelow)
        return place_replicas(
            [broker.broker_id for broker in self.image.live_brokers()],
            {broker.broker_id: broker.rack for broker in known.values()},
            partitions,
            factor,
            self._chance.randbelow,
            sorted(broker.broker_id for broker in known.values() if broker.fenced),
        )

    def _manual_assignments(self, wanted: NewTopic) -> list[list[int]]:
        if wanted.replication_factor != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if wanted.num_partitions != -1:
            raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
        chosen: dict[int, list[int]] = {}
        factor: int | None = None
        for index, replicas in wanted.assignments:
            if index in chosen:
                raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
            check_assignment(replicas, self.image.brokers, factor)
            factor = len(replicas)
            chosen[index] = replicas
        if any(index not in chosen for index in range(len(chosen))):
            raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
        return [chosen[index] for index in range(len(chosen))]

    def create_internal_topic(self, name: str) -> TopicState:
        """Create an internal topic if it does not exist."""
        existing = self.image.topics.get(name)
        if existing is not None:
            return existing
        partitions, factor, overrides = internal_topic_settings(name, self._config())
        configs: dict[str, str | None] = dict(overrides)
        records, topic = self.plan_topic(NewTopic(name, partitions, factor, configs=configs))
        self.commit(records)
        return topic

    def auto_create_topic(self, name: str) -> TopicState:
        """Create a topic because a client requested its metadata."""
        if name in INTERNAL_TOPICS:
            return self.create_internal_topic(name)
        records, topic = self.plan_topic(NewTopic(name))
        self.commit(records)
        return topic

    def delete_topics(self, topics: Iterable[TopicState]) -> None:
        """Remove topics from the metadata; their replicas remove the folders."""
        self.commit([stored.RemoveTopicRecord(topic_id=topic.topic_id) for topic in topics])

    # -- partitions --------------------------------------------------------------------------------------------

    def create_partitions(
        self,
        wanted: Iterable[tuple[str, int, list[list[int]] | None]],
        validate_only: bool = False,
        admit: Admit | None = None,
    ) -> list[KafkaError | None]:
        """Increase the number of partitions of each topic to the given one, or return its error."""
        outcomes: list[KafkaError | None] = []
        records: list[Message] = []
        for name, count, assignments in wanted:
            try:
                more = self._more_partitions(name, count, assignments, RECORDS_PER_REQUEST_MAX - len(records))
                if admit is not None:
                    admit(len(more))
                records += more
                outcomes.append(None)
            except KafkaError as error:
                outcomes.append(error)
        if not validate_only:
            self.commit(records)
        return outcomes

    def _more_partitions(
        self, name: str, count: int, assignments: list[list[int]] | None, records_max: int
    ) -> list[Message]:
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition()
        first = len(topic.partitions)
        if count == first:
            raise InvalidPartitions(f"Topic already has {first} partition(s).")
        if count < first:
            raise InvalidPartitions(
                f"The topic {name} currently has {first} partition(s); {count} would not be an increase."
            )
        if assignments is not None and len(assignments) != count - first:
            raise InvalidReplicaAssignment(
                f"Attempted to add {count - first} additional partition(s), but only {len(assignments)} "
                "assignment(s) were specified."
            )
        if count - first > records_max:
            # Kafka returns the same error but still adds the partitions that fit; here none are added.
            raise UnknownServerError()
        factor = len(topic.partitions[0].replicas)
        if assignments is None:
            assignments = self._place(count - first, factor)
        else:
            for replicas in assignments:
                check_assignment(replicas, self.image.brokers, factor)
        planned = TopicState(topic.name, topic.topic_id)
        return [self._partition_record(planned, first + n, replicas) for n, replicas in enumerate(assignments)]

    def directories(self, replicas: Iterable[int]) -> list[bytes]:
        """The ids of the data folders for new replicas on these brokers."""
        return [self._directory_of(broker) for broker in replicas]

    # -- brokers -----------------------------------------------------------------------------------------------

    @property
    def broker_changes(self) -> BrokerChanges:
        """Plans partition changes when brokers start, stop or fail."""
        return broker_changes_module.BrokerChanges(self.image, self.directories, self.min_isr, self.may_elect_unclean)

    def min_isr(self, topic: str) -> int:
        """`min.insync.replicas` of a topic."""
        value: int = self._config().topic(self.image.topic_configs(topic))["min.insync.replicas"]
        return value

    def may_elect_unclean(self, topic: str) -> bool:
        value: bool = self._config().topic(self.image.topic_configs(topic))["unclean.leader.election.enable"]
        return value

    # -- producer ids ------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """The next block of producer ids, which are never reused."""
        first = self.image.next_producer_id
        self.commit(
            [
                stored.ProducerIdsRecord(
                    broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
                )
            ]
        )
        return range(first, first + PRODUCER_ID_BLOCK)
