"""Leads, loads and resigns the partitions of a coordinator's topic (Kafka: part of BrokerMetadataPublisher).

Groups, transactions and share state each have one host. It exists from the start of the broker; the coordinator
itself is created, and its modules are imported, when its topic exists or a request needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator, NotLeaderOrFollower
from ottla.metadata.image import TopicState
from ottla.records.batch import Batch
from ottla.replication.partition import Partition
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.coordinator.runtime.runtime import CoordinatorRuntime
    from ottla.server.services import CoordinatorServices

RuntimeT = TypeVar("RuntimeT", bound="CoordinatorRuntime")  # type: ignore[type-arg]


class CoordinatorPartition:
    """A coordinator's access to the partition with its records."""

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
        """Call back immediately with one replica, otherwise when the in-sync replicas have the records, unless the
        leader changes first.
        """
        self._partition.when_committed(
            offset, lambda error: callback(NotCoordinator() if isinstance(error, NotLeaderOrFollower) else error)
        )


class CoordinatorHost(Generic[RuntimeT]):
    """One coordinator of a broker, and the partitions of its topic that the broker leads."""

    __slots__ = ("_make", "_services", "_stopped", "in_use", "topic_name")

    def __init__(self, services: CoordinatorServices, topic_name: str, make: Callable[[], RuntimeT]) -> None:
        self._services = services
        self.topic_name = topic_name
        self._make = make
        self.in_use: RuntimeT | None = None
        """The coordinator, if it has been needed."""
        self._stopped = False

    @property
    def coordinator(self) -> RuntimeT:
        if self.in_use is None:
            self.in_use = self._make()
            if not self._stopped:
                self.in_use.start()
        return self.in_use

    def start(self) -> None:
        """Lead every partition of the topic, if it exists."""
        topic = self._services.metadata.topics.get(self.topic_name)
        if topic is not None:
            self._lead_all(topic)
        self._services.replicas.on_topic_removed.append(self._topic_removed)

    def stop(self) -> None:
        self._stopped = True
        if self.in_use is not None:
            self.in_use.stop()

    # -- following the metadata

    def metadata_changed(self, records: Sequence[Message]) -> None:
        """The topic was created, or the leaders of its partitions changed."""
        topic = self._services.metadata.topics.get(self.topic_name)
        if topic is None:
            return
        if any(isinstance(record, stored.TopicRecord) and record.name == self.topic_name for record in records):
            self._lead_all(topic)
            return
        for record in records:
            if (
                isinstance(record, (stored.PartitionRecord, stored.PartitionChangeRecord))
                and record.topic_id == topic.topic_id
            ):
                self._lead_or_resign(topic, record.partition_id)

    def _lead_all(self, topic: TopicState) -> None:
        # The topic may be older than the setting: its own partition count decides where a key lives.
        self.coordinator.partition_count = len(topic.partitions)
        for index in topic.partitions:
            self._lead_or_resign(topic, index)

    def _lead_or_resign(self, topic: TopicState, index: int) -> None:
        state = topic.partitions[index]
        if state.leader != self._services.node_id:
            self.coordinator.resign(index)
        elif not self.coordinator.leads(index, state.leader_epoch):
            self.load(index)

    def load(self, index: int) -> None:
        """Load the state of a partition from its log, even if this broker leads it already."""
        partition = self._services.replicas.leader(self.topic_name, index)
        stored_batches = partition.log.batches(partition.log_start_offset)
        self.coordinator.lead(index, CoordinatorPartition(partition), stored_batches, partition.leader_epoch)

    def _topic_removed(self, topic: TopicState) -> None:
        if topic.name == self.topic_name and self.in_use is not None:
            self.in_use.resign_all()
