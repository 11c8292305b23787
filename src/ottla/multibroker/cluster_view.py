"""A view of a cluster as one server: the controller's metadata, and each partition at its leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.errors import CoordinatorNotAvailable, LeaderNotAvailable
from ottla.metadata.image import NO_LEADER, PartitionState
from ottla.metadata.topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, internal_partition
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.node import BrokerNode
    from ottla.server.broker import Broker


@dataclass(frozen=True)
class PartitionView:
    """A partition at one moment."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    eligible_leader_replicas: list[int]
    adding: list[int]
    removing: list[int]
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    """{broker: log end offset} of the running brokers."""
    high_watermarks: Mapping[int, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": self.replicas,
            "isr": self.isr,
            "eligible_leader_replicas": self.eligible_leader_replicas,
            "end_offsets": {str(broker): offset for broker, offset in self.end_offsets.items()},
            "high_watermarks": {str(broker): offset for broker, offset in self.high_watermarks.items()},
        }


class ClusterServer:
    """The interface of a cluster for helpers that inspect a broker."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self.nodes = nodes
        self.metadata = nodes.controller.image
        self.controller = nodes.controller.controller
        self.clock = nodes.clock
        self.replicas = self
        self.groups = _Groups(self)

    @property
    def as_server(self) -> Any:
        """This object as a server, for helpers that inspect one: this class has everything that they use."""
        return self

    @property
    def running(self) -> list[Broker]:
        """The brokers that are up."""
        return [node.broker for node in self.nodes.brokers.values() if node.is_alive and node.broker.is_running]

    def leader(self, topic: str, index: int) -> Partition:
        """The partition on the broker that leads it."""
        leader = self.state(topic, index).leader
        node = self.nodes.brokers.get(leader)
        if leader == NO_LEADER or node is None or not node.is_alive:
            raise LeaderNotAvailable(f"there is no leader of {topic}-{index} now")
        return node.broker.replicas.leader(topic, index)

    def state(self, topic: str, index: int) -> PartitionState:
        known = self.metadata.topics.get(topic)
        if known is None or index not in known.partitions:
            raise ValueError(f"there is no partition {topic}-{index}; create the topic first")
        return known.partitions[index]

    def topic_names(self) -> list[str]:
        return sorted(set(self.metadata.topics) - INTERNAL_TOPICS)

    def coordinator(self, topic: str, key: str) -> int:
        known = self.metadata.topics.get(topic)
        if known is None:
            raise ValueError(f"no broker has coordinated anything yet ({topic} does not exist); let a client ask first")
        return known.partitions[internal_partition(key, len(known.partitions))].leader

    def coordinating(self, topic: str, key: str) -> Any:
        """The broker that coordinates `key`. Without the internal topic, any broker: its error says what is missing."""
        if topic not in self.metadata.topics:
            return self.running[0] if self.running else self
        node = self.nodes.brokers.get(self.coordinator(topic, key))
        if node is None or not node.is_alive:
            raise ValueError(f"there is no coordinator of {key!r} now")
        return node.broker

    def partition_view(self, topic: str, index: int) -> PartitionView:
        state = self.state(topic, index)
        logs = {
            broker.node_id: replica.log
            for broker in self.running
            if (replica := broker.replicas.get(topic, index)) is not None
        }
        return PartitionView(
            topic=topic,
            partition=index,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=list(state.replicas),
            isr=list(state.isr),
            eligible_leader_replicas=list(state.eligible_leader_replicas),
            adding=list(state.adding_replicas),
            removing=list(state.removing_replicas),
            end_offsets={broker: log.log_end_offset for broker, log in logs.items()},
            high_watermarks={broker: log.high_watermark for broker, log in logs.items()},
        )

    def describe_topics(self) -> dict[str, Any]:
        return {
            name: [self.partition_view(name, index).to_dict() for index in self.metadata.topics[name].partitions]
            for name in self.topic_names()
        }


class _Groups:
    """The groups of all brokers."""

    def __init__(self, server: ClusterServer) -> None:
        self._server = server

    def shard_for(self, group_id: str) -> GroupShard:
        node: BrokerNode | None = self._server.nodes.brokers.get(
            self._server.coordinator(GROUP_METADATA_TOPIC, group_id)
        )
        if node is None or not node.is_alive:
            raise CoordinatorNotAvailable
        return node.broker.groups.shard_for(group_id)

    def shards(self) -> list[GroupShard]:
        return [shard for broker in self._server.running for shard in broker.groups.shards()]
