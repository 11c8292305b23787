"""Where things are in the cluster: the brokers' addresses, the leaders of partitions, the coordinators of keys."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from ottla.errors import CoordinatorNotAvailable, FencedLeaderEpoch, KafkaError, NotLeaderOrFollower
from ottla.metadata.image import NO_LEADER, BrokerState, MetadataImage, TopicState
from ottla.metadata.topics import internal_partition

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.server.requester import Requester

logger = logging.getLogger(__name__)

Node = tuple[BrokerState, str, int]
"""A broker with its host and port."""


class Directory:
    """The cluster's addresses and leaders, from the metadata."""

    def __init__(
        self, image: MetadataImage, controller: Controller, unaddressed: Callable[[str], Container[int]]
    ) -> None:
        """`unaddressed` returns the brokers that advertise no address on a listener, because it listens on all
        interfaces.
        """
        self._image = image
        self._controller = controller
        self._unaddressed = unaddressed
        self._nodes: dict[tuple[str, bool], list[Node]] = {}
        self._nodes_version = -1
        self._cannot_make: set[str] = set()

    def nodes(self, requester: Requester, *, fenced: bool = False) -> list[Node]:
        """The brokers with their address on the listener that a client uses."""
        if self._nodes_version != self._image.version:
            self._nodes.clear()
            self._nodes_version = self._image.version
        name = requester.listener.name
        nodes = self._nodes.get((name, fenced))
        if nodes is None:
            nodes = self._nodes[name, fenced] = self._find_nodes(name, fenced)
        unaddressed = self._unaddressed(name)
        if not unaddressed:
            return nodes
        # These brokers are on this machine: the address that the client used leads to each of them.
        local = requester.local_host
        return [(node, local if node.broker_id in unaddressed else host, port) for node, host, port in nodes]

    def _find_nodes(self, listener: str, fenced: bool) -> list[Node]:
        known = sorted(self._image.brokers.values(), key=lambda broker: broker.broker_id)
        return [
            (broker, endpoint.host, endpoint.port)
            for broker in known
            if fenced or not broker.fenced
            for endpoint in broker.endpoints
            if endpoint.name == listener
        ]

    def coordinator_of(self, topic: str, key: str) -> int:
        """The broker that coordinates `key`: the leader of its partition of an internal topic, which is created if
        needed.
        """
        state = self._internal_topic(topic)
        leader = state.partitions[internal_partition(key, len(state.partitions))].leader
        if leader == NO_LEADER:
            raise CoordinatorNotAvailable()
        return leader

    def _internal_topic(self, topic: str) -> TopicState:
        try:
            return self._controller.create_internal_topic(topic)
        except KafkaError as error:
            if topic not in self._cannot_make:  # clients retry
                self._cannot_make.add(topic)
                logger.warning("there is no coordinator, because topic %s cannot be created: %s", topic, error.message)
            raise CoordinatorNotAvailable() from error

    def leader_of(self, key: tuple[bytes | str, int]) -> tuple[int, int] | None:
        """(leader, epoch) of a partition named by topic name or id."""
        name, index = key
        image = self._image
        topic = image.topics_by_id.get(name) if isinstance(name, bytes) else image.topics.get(name)
        partition = topic.partitions.get(index) if topic is not None else None
        return (partition.leader, partition.leader_epoch) if partition is not None else None


def names_leader(error: KafkaError) -> bool:
    """Whether the answer with this error may carry the current leader (KIP-951)."""
    return isinstance(error, (NotLeaderOrFollower, FencedLeaderEpoch))
