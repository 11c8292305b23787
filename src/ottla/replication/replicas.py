"""The partitions on this broker, created, changed and removed according to the metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.config import Config, TopicConfig
from ottla.enums import ConfigResourceType
from ottla.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from ottla.log.options import LogConfig
from ottla.metadata.image import MetadataImage, PartitionState, TopicState
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.records.validation import ValidationOptions
from ottla.replication.partition import Partition
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.log.manager import LogManager
    from ottla.replication.leadership import ReplicationContext

logger = logging.getLogger(__name__)

MADE_AT_ONCE = 64
"""How many partitions of one change get their folders immediately. Above this number, if no placement depends on them,
folders are created on first use: thousands take seconds, and most stay empty. Apache Kafka also creates missing
folders."""

METADATA_LOG_CONFIG = LogConfig(delete=False, retention_ms=-1, refuse_damage=True)


class Replicas:
    """Partition look-up for the handlers. Follows the metadata log for this broker."""

    def __init__(self, broker_id: int, image: MetadataImage, config: Callable[[], Config], clock: Clock) -> None:
        self._broker_id = broker_id
        self._image = image
        self._logs: LogManager
        self._config = config
        self._clock = clock
        self._partitions: dict[str, dict[int, Partition]] = {}
        self.on_topic_removed: list[Callable[[TopicState], None]] = []
        self.context: ReplicationContext | None = None
        """Set if other brokers hold replicas of these partitions."""
        self.on_placed: Callable[[Partition], None] = lambda partition: None
        """Called for each partition that starts to lead or follow, and for each removed one."""

    def use(self, logs: LogManager) -> None:
        """Keep the partitions in these logs (which call `log_config`)."""
        self._logs = logs

    # -- look-up -----------------------------------------------------------------------------------------------

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it. Otherwise raises the error that redirects the client."""
        by_index = self._partitions.get(topic)
        partition = by_index.get(index) if by_index is not None else None
        if partition is None:
            partition = self._open(topic, index)
        if partition.state.leader != self._broker_id:
            raise NotLeaderOrFollower()
        return partition

    def leader_at(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        """Like `leader`, but checks the client's leader epoch first, even on a follower."""
        partition = self.replica(topic, index)
        partition.check_leader_epoch(current_leader_epoch)
        partition.check_leads()
        return partition

    def replica(self, topic: str, index: int) -> Partition:
        """The partition, as leader or follower."""
        partition = self.get(topic, index)
        return partition if partition is not None else self._open(topic, index)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if it is open."""
        return self._partitions.get(topic, {}).get(index)

    def __iter__(self) -> Iterator[Partition]:
        """The open partitions."""
        for by_index in self._partitions.values():
            yield from by_index.values()

    def held(self) -> list[tuple[str, int]]:
        """Topic and index of every partition of this broker, with or without a folder."""
        found = [key for key in self._logs.partitions() if key[0] != CLUSTER_METADATA_TOPIC]
        placed = (
            (topic.name, state.index) for topic, state in self._image.partitions() if self._broker_id in state.replicas
        )
        return list(dict.fromkeys([*found, *placed]))

    # -- following the metadata --------------------------------------------------------------------------------

    def report_missing(self) -> None:
        """Report the partitions of this broker whose folders are missing."""
        self._logs.report_missing(
            (topic.name, state.index) for topic, state in self._image.partitions() if self._broker_id in state.replicas
        )

    def set_strays_aside(self) -> None:
        """Rename folders that belong to no topic of the cluster, from a deletion that a crash interrupted."""
        found = self._logs.partitions()
        if not self._image.topics and len(found) > 1:
            logger.error(
                "%s-0 knows no topic, but there are %d folders of partitions, which are set aside now. If that log was "
                "lost: stop the broker, restore it from a backup, and take what was added off the folders' names",
                CLUSTER_METADATA_TOPIC,
                len(found) - 1,
            )
        for topic, index in found:
            if topic == CLUSTER_METADATA_TOPIC:
                continue
            known = self._image.topics.get(topic)
            noted_id = self._logs.topic_id(topic, index)
            if known is None or index not in known.partitions or noted_id not in (None, known.topic_id):
                self._logs.mark_stray(topic, index)

    def _open(self, topic: str, index: int) -> Partition:
        """Open a partition when it is first used: thousands of idle ones cost nothing at start-up."""
        known = self._image.topics.get(topic)
        state = known.partitions.get(index) if known is not None else None
        if known is None or state is None:
            raise UnknownTopicOrPartition()
        if self._broker_id not in state.replicas or (topic, index) in self._logs.left_out:
            raise NotLeaderOrFollower()
        return self._add(known, state, self._topic_config(topic))

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """Apply records that were just appended to the metadata log."""
        configs: dict[str, TopicConfig] = {}
        left = MADE_AT_ONCE if self.context is None and not self._logs.disk.is_spread else len(records)
        for record in records:
            if isinstance(record, stored.PartitionRecord):
                topic = self._image.topics_by_id.get(record.topic_id)
                left -= 1
                if topic is not None and left >= 0 and self._broker_id in record.replicas:
                    config = configs.get(topic.name)
                    if config is None:
                        config = configs[topic.name] = self._topic_config(topic.name)
                    try:
                        self._add(topic, topic.partitions[record.partition_id], config)
                    except KafkaStorageError as error:
                        # The topic exists by now. Its partition is tried again on the next request.
                        logger.error("%s-%d has no folder yet: %s", topic.name, record.partition_id, error)
            elif isinstance(record, stored.RemoveTopicRecord):
                self._remove(self._image.removed_topics.pop(record.topic_id))
            elif isinstance(record, stored.PartitionChangeRecord):
                self._changed(record)
            elif isinstance(record, stored.ClearElrRecord) and self.context is not None:
                # Proposals of leaders were for the previous state of the partition.
                for partition in self:
                    if partition.leadership is not None:
                        partition.leadership.metadata_changed()
        self._reconfigure(records)

    def _add(self, topic: TopicState, state: PartitionState, config: TopicConfig) -> Partition:
        by_index = self._partitions.setdefault(topic.name, {})
        log = self._logs.get_or_create(topic.name, state.index, topic.topic_id)
        partition = by_index[state.index] = Partition(
            topic.name,
            state,
            log,
            ValidationOptions.from_topic_config(config),
            self._clock,
            self._broker_id,
            self.context,
        )
        if self.context is not None:
            self.on_placed(partition)
        return partition

    def take_offline(self, keys: Iterable[tuple[str, int]]) -> None:
        """Their data folder failed: stop leading and following them. Clients get the reason."""
        for topic, index in keys:
            partition = self._partitions.get(topic, {}).pop(index, None)
            if partition is not None:
                if self.context is not None:
                    self._resign(partition)
                partition.changed()

    def _remove(self, topic: TopicState) -> None:
        for index, state in topic.partitions.items():
            partition = self.get(topic.name, index)
            if partition is not None:
                partition.changed()
                if self.context is not None:
                    self._resign(partition)
            if self._broker_id in state.replicas:
                self._logs.delete(topic.name, index)
        self._partitions.pop(topic.name, None)
        for removed in self.on_topic_removed:
            removed(topic)

    def _resign(self, partition: Partition) -> None:
        leadership, partition.leadership = partition.leadership, None
        if leadership is not None:
            leadership.resign()
        self.on_placed(partition)

    def _changed(self, record: stored.PartitionChangeRecord) -> None:
        topic = self._image.topics_by_id.get(record.topic_id)
        if topic is None:
            return
        partition = self.get(topic.name, record.partition_id)
        if self.context is not None:
            self._change_role(topic, topic.partitions[record.partition_id], partition)
        elif partition is not None:
            partition.changed()

    def _change_role(self, topic: TopicState, state: PartitionState, partition: Partition | None) -> None:
        """Apply a new leader, a new ISR, or a replica that was added to or removed from this broker."""
        assert self.context is not None
        if self._broker_id not in state.replicas:
            if partition is not None:
                del self._partitions[topic.name][state.index]
                partition.lead_or_follow(self.context)
                self.on_placed(partition)
                partition.changed()
            self._logs.delete(topic.name, state.index)
        elif partition is None:
            key = (topic.name, state.index)
            if key not in self._logs.offline and key not in self._logs.left_out:
                self._add(topic, state, self._topic_config(topic.name))
        elif partition.lead_or_follow(self.context):
            self.on_placed(partition)
            partition.changed()

    def _reconfigure(self, records: Sequence[Message]) -> None:
        """Apply changed configs to open logs. Broker settings are the defaults of every topic."""
        changed = {(r.resource_type, r.resource_name) for r in records if isinstance(r, stored.ConfigRecord)}
        new = {record.name for record in records if isinstance(record, stored.TopicRecord)}
        names = {name for kind, name in changed if kind == ConfigResourceType.TOPIC} - new
        everywhere = any(kind == ConfigResourceType.BROKER for kind, _ in changed)
        if not everywhere and not names:
            return
        self._logs.settings_changed()
        configs: dict[str, tuple[LogConfig, ValidationOptions]] = {}
        # Not every open log has a partition yet: after an unclean stop all logs are opened for recovery.
        for log in self._logs.logs():
            topic = log.topic
            if topic == CLUSTER_METADATA_TOPIC or not (everywhere or topic in names):
                continue
            if topic not in configs:
                options = ValidationOptions.from_topic_config(self._topic_config(topic))
                configs[topic] = (self.log_config(topic), options)
            partition = self.get(topic, log.partition)
            if partition is not None:
                partition.reconfigure(*configs[topic])
            else:
                log.update_config(configs[topic][0])

    def _topic_config(self, name: str) -> TopicConfig:
        return self._config().topic(self._image.topic_configs(name))

    def log_config(self, topic: str) -> LogConfig:
        """The log settings of a topic."""
        if topic == CLUSTER_METADATA_TOPIC:
            return METADATA_LOG_CONFIG
        return LogConfig.from_topic_config(self._topic_config(topic), self._config()["producer.id.expiration.ms"])
