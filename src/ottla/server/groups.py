"""Connects the group coordinator to the broker: the metadata that it reads, and the changes that it must hear of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.enums import ConfigResourceType
from ottla.lazy_imports import lazy
from ottla.metadata.image import MetadataImage, TopicState
from ottla.metadata.topics import GROUP_METADATA_TOPIC
from ottla.server.coordinator_host import CoordinatorHost
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.groups import coordinator, settings
    from ottla.coordinator.groups.coordinator import GroupCoordinator
    from ottla.server.broker import Broker
else:
    coordinator = lazy("ottla.coordinator.groups.coordinator")
    settings = lazy("ottla.coordinator.groups.settings")


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


class GroupsOfBroker:
    """The group coordinator of a broker, and what it has to know of the metadata."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self.host: CoordinatorHost[GroupCoordinator] = CoordinatorHost(broker, GROUP_METADATA_TOPIC, self._make)
        self.stop = self.host.stop

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.host.coordinator

    def _make(self) -> GroupCoordinator:
        broker = self._broker
        return coordinator.GroupCoordinator(
            ClusterForGroups(broker),
            settings.GroupSettings.from_config(self._config),
            broker.clock,
            broker.timer,
            broker.chance.uuid,
            broker.coordinator_loader,
        )

    def start(self) -> None:
        self.host.start()
        self._broker.replicas.on_topic_removed.append(self._topic_removed)

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Follow the metadata log: the offsets topic itself, and the topics that groups read."""
        self.host.metadata_changed(records)
        if self.host.in_use is None:
            return
        topics_by_id = self._broker.metadata.topics_by_id
        created = {record.name for record in records if isinstance(record, stored.TopicRecord)}
        changed = {
            topic.name
            for record in records
            if isinstance(record, (stored.PartitionRecord, stored.PartitionChangeRecord))
            and (topic := topics_by_id.get(record.topic_id)) is not None
        }
        if created or changed:
            self.host.in_use.on_topics_changed(created=created, changed=changed - created)

    def _topic_removed(self, topic: TopicState) -> None:
        if self.host.in_use is not None:
            self.host.in_use.on_topic_deleted(topic.name, topic.topic_id)
