"""Connects the coordinators to the broker: partitions they write to, metadata they read, changes they must hear of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.enums import ConfigResourceType
from ottla.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator, NotLeaderOrFollower
from ottla.lazy_imports import import_late
from ottla.metadata.image import MetadataImage, TopicState
from ottla.metadata.topics import GROUP_METADATA_TOPIC
from ottla.records.batch import Batch, Buffer
from ottla.replication.partition import Partition
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupCoordinator
    from ottla.coordinator.share_state.shard import ShareCoordinator
    from ottla.server.broker import Broker


class TopicInCluster:
    """A topic as assignors see it."""

    __slots__ = ("_image", "_topic")

    def __init__(self, topic: TopicState, image: MetadataImage) -> None:
        self._topic = topic
        self._image = image

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def topic_id(self) -> bytes:
        return self._topic.topic_id

    @property
    def partition_count(self) -> int:
        return len(self._topic.partitions)

    def racks(self, partition: int) -> Sequence[str]:
        brokers = self._image.brokers
        replicas = self._topic.partitions[partition].replicas
        return [rack for replica in replicas if replica in brokers and (rack := brokers[replica].rack) is not None]


class ClusterForGroups:
    """The part of the metadata that groups read."""

    __slots__ = ("_broker", "_image")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._image = broker.metadata

    @property
    def version(self) -> int:
        return self._image.version

    def topic(self, name: str) -> TopicInCluster | None:
        topic = self._image.topics.get(name)
        return TopicInCluster(topic, self._image) if topic is not None else None

    def topic_by_id(self, topic_id: bytes) -> TopicInCluster | None:
        topic = self._image.topics_by_id.get(topic_id)
        return TopicInCluster(topic, self._image) if topic is not None else None

    def topic_names(self) -> Iterable[str]:
        return self._image.topics

    def group_config(self, group_id: str, key: str) -> Any | None:
        overrides = self._image.configs.get((ConfigResourceType.GROUP, group_id))
        if overrides is None or key not in overrides:
            return None
        return self._broker.config.group(overrides)[key]

    def share_state(self) -> Any:
        return self._broker.share.states


class CoordinatorPartition:
    """A coordinator's end of the partition it keeps its records in."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def append(self, batch: bytearray) -> int:
        partition = self._partition
        if partition.leadership is not None and partition.leadership.is_under_min_isr:
            raise CoordinatorNotAvailable()
        partition.check_leads()
        return partition.append_own((Batch(batch),)).first_offset

    @property
    def commits_at_once(self) -> bool:
        return self._partition.leadership is None

    def append_run(self, batches: Sequence[bytearray]) -> Sequence[int]:
        self._partition.check_leads()
        return self._partition.append_own_run([Batch(batch) for batch in batches])

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        """At once with one replica; with more when those in sync have it, unless another leads before that."""
        self._partition.when_committed(
            offset, lambda error: callback(NotCoordinator() if isinstance(error, NotLeaderOrFollower) else error)
        )


class GroupsOfBroker:
    """The group coordinator of a broker, led through the partitions of the offsets topic.

    It is made, and its modules are imported, when there is an offsets topic or somebody asks: many a broker never
    has a group, and none has one in the moment in which it starts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self._made: GroupCoordinator | None = None
        self._stopped = False

    @property
    def coordinator(self) -> GroupCoordinator:
        return self._made if self._made is not None else self._make()

    def _make(self) -> GroupCoordinator:
        import_late("ottla.coordinator.groups.group_shard")
        from ottla.coordinator.groups.group_shard import GroupCoordinator
        from ottla.coordinator.groups.settings import GroupSettings

        broker = self._broker
        made = self._made = GroupCoordinator(
            ClusterForGroups(broker),
            GroupSettings.from_config(self._config),
            broker.clock,
            broker.timer,
            broker.chance.uuid,
        )
        if not self._stopped:
            made.start()
        return made

    def start(self) -> None:
        """Load the groups of every partition of the offsets topic, if there is one already."""
        topic = self._broker.metadata.topics.get(GROUP_METADATA_TOPIC)
        if topic is not None:
            self._lead_all(topic)
        self._broker.replicas.on_topic_removed.append(self._topic_removed)

    def stop(self) -> None:
        self._stopped = True
        if self._made is not None:
            self._made.stop()

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Follow the metadata log: the offsets topic itself, and the topics that groups read."""
        topics_by_id = self._broker.metadata.topics_by_id
        offsets_topic = self._broker.metadata.topics.get(GROUP_METADATA_TOPIC)
        created = {record.name for record in records if isinstance(record, stored.TopicRecord)}
        grown: set[str] = set()
        for record in records:
            if isinstance(record, (stored.PartitionRecord, stored.PartitionChangeRecord)):
                topic = topics_by_id.get(record.topic_id)
                if topic is not None and topic.name not in created:
                    grown.add(topic.name)
                    if topic is offsets_topic:
                        self._lead_or_resign(topic, record.partition_id)
        if GROUP_METADATA_TOPIC in created:
            self._lead_all(self._broker.metadata.topics[GROUP_METADATA_TOPIC])
        if self._made is not None and (created or grown):
            self._made.on_topics_changed(created=created, changed=grown)

    def _lead_all(self, topic: TopicState) -> None:
        # The topic may be older than the setting: its own partition count decides where a group lives.
        self.coordinator.settings.offsets_partitions = len(topic.partitions)
        for index in topic.partitions:
            self._lead_or_resign(topic, index)

    def _lead_or_resign(self, topic: TopicState, index: int) -> None:
        lead_or_resign(self._broker, self.coordinator, topic, index)

    def _topic_removed(self, topic: TopicState) -> None:
        if self._made is None:
            return
        if topic.name == GROUP_METADATA_TOPIC:
            for index in topic.partitions:
                self._made.resign(index)
        self._made.on_topics_changed(deleted=[topic.name])
        for shard in self._made.shards():
            shard.on_topic_id_deleted(topic.topic_id)


def follow_topic(
    name: str,
    image: MetadataImage,
    records: Iterable[Message],
    lead_all: Callable[[TopicState], None],
    lead_or_resign: Callable[[TopicState, int], None],
) -> None:
    """For a coordinator that lives in a topic: tell it when that was made, and whose leaders may have changed."""
    topic = image.topics.get(name)
    for record in records:
        if isinstance(record, stored.TopicRecord) and record.name == name:
            assert topic is not None
            lead_all(topic)
        elif (
            isinstance(record, stored.PartitionChangeRecord) and topic is not None and record.topic_id == topic.topic_id
        ):
            lead_or_resign(topic, record.partition_id)


def lead_or_resign(
    broker: Broker, coordinator: GroupCoordinator | ShareCoordinator, topic: TopicState, index: int
) -> None:
    """As with Kafka a leader that stays one in a new epoch goes on with what it has."""
    if topic.partitions[index].leader != broker.node_id:
        coordinator.resign(index)
    elif coordinator.shard(index) is None:
        partition = broker.replicas.leader(topic.name, index)
        coordinator.lead(index, CoordinatorPartition(partition), stored_batches(partition))


def stored_batches(partition: Partition) -> Iterator[Buffer]:
    """Everything in a partition's log, for a coordinator to replay."""
    for batch in partition.log.batches(partition.log_start_offset):
        yield batch.view()
