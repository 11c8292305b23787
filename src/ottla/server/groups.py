"""Connects the group coordinator to the broker: the metadata that it reads, and the changes that concern it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    from ottla.server.services import CoordinatorServices
    from ottla.server.share.state import ShareStates
else:
    coordinator = lazy("ottla.coordinator.groups.coordinator")
    settings = lazy("ottla.coordinator.groups.settings")


class TopicForGroups:
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


class MetadataForGroups:
    """The part of the metadata that groups read."""

    __slots__ = ("_image", "_services", "_share_states")

    def __init__(self, services: CoordinatorServices, share_states: Callable[[], ShareStates]) -> None:
        self._services = services
        self._image = services.metadata
        self._share_states = share_states

    @property
    def version(self) -> int:
        return self._image.version

    def topic(self, name: str) -> TopicForGroups | None:
        topic = self._image.topics.get(name)
        return TopicForGroups(topic, self._image) if topic is not None else None

    def topic_by_id(self, topic_id: bytes) -> TopicForGroups | None:
        topic = self._image.topics_by_id.get(topic_id)
        return TopicForGroups(topic, self._image) if topic is not None else None

    def topic_names(self) -> Iterable[str]:
        return self._image.topics

    def group_config(self, group_id: str, key: str) -> Any | None:
        overrides = self._image.configs.get((ConfigResourceType.GROUP, group_id))
        if overrides is None or key not in overrides:
            return None
        return self._services.config.group(overrides)[key]

    def share_state(self) -> Any:
        return self._share_states()


class GroupsOfBroker:
    """The group coordinator of a broker, and the metadata that it needs."""

    def __init__(self, services: CoordinatorServices, share_states: Callable[[], ShareStates]) -> None:
        """Only share groups need `share_states`, which are created with the first of them."""
        self._services = services
        self._share_states = share_states
        self._config = services.config
        self.host: CoordinatorHost[GroupCoordinator] = CoordinatorHost(services, GROUP_METADATA_TOPIC, self._make)
        self.stop = self.host.stop

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.host.coordinator

    def _make(self) -> GroupCoordinator:
        services = self._services
        return coordinator.GroupCoordinator(
            MetadataForGroups(services, self._share_states),
            settings.GroupSettings.from_config(self._config),
            services.clock,
            services.timer,
            services.randomness.uuid,
            services.loader(),
        )

    def start(self) -> None:
        self.host.start()
        self._services.replicas.on_topic_removed.append(self._topic_removed)

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Follow the metadata log: the offsets topic itself, and the topics that groups read."""
        self.host.metadata_changed(records)
        if self.host.in_use is None:
            return
        topics_by_id = self._services.metadata.topics_by_id
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
