"""A broker of a cluster: it follows the controller's metadata, and its partitions have replicas on other brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.errors import (
    NONE,
    BrokerIdNotRegistered,
    IneligibleReplica,
    KafkaError,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.channel import NetworkChannel
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.multibroker.fetcher import ReplicaFetchers
from ottla.multibroker.network import Network
from ottla.multibroker.throttle import LEADER, ReplicationThrottle
from ottla.multibroker.to_controller import ControllerGate, forwarding_registry
from ottla.replication.leadership import Leadership, Throttle
from ottla.server.broker import Broker, StartError
from ottla.server.peers import Unreachable
from ottla.server.producer_ids import Allocated, ProducerIds
from ottla.server.topology import Topology
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.cluster_nodes import ClusterNodes

logger = logging.getLogger(__name__)

PROPOSAL_RETRY_MS = 500
REGISTRATION_RETRY_MS = 50


class MetadataReader:
    """Reads the controller's log, append by append; how far depends on the network."""

    def __init__(self, followed: FollowedMetadata, source: ControllerNode) -> None:
        self._followed = followed
        self._source = source
        self._position = 0
        self._batch = 0
        self._reading = False

    def catch_up(self) -> None:
        """Follow what is new."""
        if self._reading:
            return  # the call that reads already takes what was appended meanwhile
        self._reading = True
        try:
            while self._batch < len(self._source.batches):
                end = self._source.batches[self._batch]
                appended = self._source.image.replayed[self._position : end]
                self._position, self._batch = end, self._batch + 1
                if appended:
                    self._followed.follow(appended, appended[-1][0])
        finally:
            self._reading = False


class NodeReplication:
    """The replication context of a broker: what the leaders on it need."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.image = node.broker.metadata
        self.clock: Clock = node.broker.clock
        self.throttle: Throttle = ReplicationThrottle(node.broker, LEADER)
        self.kept_out: Collection[tuple[str, int, int]] = node.cluster.kept_out

    @property
    def lag_max_ms(self) -> int:
        value: int = self._node.broker.config["replica.lag.time.max.ms"]
        return value

    def min_isr(self, topic: str) -> int:
        return self._node.min_isr(topic)

    def propose(self, leadership: Leadership, isr: list[int]) -> None:
        self._node.propose(leadership, isr)


class BrokerNode(Topology):
    """What is around one of several brokers in a process: a controller, a network, and replicas on other brokers."""

    def __init__(self, cluster: ClusterNodes, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.fetchers: ReplicaFetchers
        self.broker_epoch = -1
        self.is_alive = False
        """From the start to the end, paused or not."""
        self._min_isr: dict[str, int] = {}
        self._min_isr_version = -1
        self.followed: FollowedMetadata
        self._reader: MetadataReader | None = None

    def assemble(self, broker: Broker) -> None:
        self.broker = broker
        broker.channel = NetworkChannel(self)
        broker.producer_ids = ProducerIds(self._allocate_producer_ids)
        broker.registry = forwarding_registry(self, broker.registry)
        self.fetchers = ReplicaFetchers(self)

    def _allocate_producer_ids(self, allocated: Allocated) -> None:
        try:
            allocated(self.broker.controller.allocate_producer_ids(self.node_id, self.broker_epoch))
        except RequestTimedOut:
            allocated(None)

    @property
    def network(self) -> Network:
        return self.cluster.network

    @property
    def controller_node(self) -> ControllerNode:
        return self.cluster.controller

    def peer(self, broker_id: int) -> BrokerNode:
        return self.cluster.brokers[broker_id]

    @property
    def epoch(self) -> int:
        return self.broker_epoch  # also when somebody had it forgotten

    def unaddressed(self, listener: str) -> Container[int]:
        """All brokers are on this machine: one client address does for all that listen on all interfaces."""
        nodes = self.cluster.brokers.items()
        return {number for number, node in nodes if listener in node.broker.wildcard_listeners}

    # -- parts -------------------------------------------------------------------------------------------------

    def open_metadata(self) -> None:
        broker, source = self.broker, self.controller_node
        broker.identity = broker.logs.open(source.cluster_id, self.node_id, uuid_to_base64(broker.chance.uuid()))
        if broker.cluster_id != source.cluster_id:
            raise StartError(
                f"the data folder of broker {self.node_id} belongs to another cluster ({broker.cluster_id})"
            )
        broker.directory_id = uuid_from_base64(broker.identity.directory_id or "")
        self.followed = FollowedMetadata(broker.metadata, source.leader_epoch)
        broker.metadata_log = self.followed
        self._reader = MetadataReader(self.followed, source)
        self._reader.catch_up()
        broker.controller = ControllerGate(self, source)

    def open_logs(self) -> None:
        replicas = self.broker.replicas
        replicas.set_strays_aside()
        self._remove_former_replicas()
        replicas.context = NodeReplication(self)
        replicas.on_placed = self.fetchers.placed

    def _remove_former_replicas(self) -> None:
        """Partitions that were moved to other brokers while this one was away."""
        logs, topics = self.broker.logs, self.broker.metadata.topics
        for topic, index in logs.partitions():
            known = topics.get(topic)
            if known is not None and self.node_id not in known.partitions[index].replicas:
                logs.delete(topic, index)
        assert CLUSTER_METADATA_TOPIC not in topics

    def register(self) -> None:
        broker = self.broker
        previous = broker.logs.previous_broker_epoch if broker.logs.clean_start else -1
        record = broker.registration(self.node_id, broker.advertise(), 0)
        self.broker_epoch = self.controller_node.register(record, previous)

    # -- life --------------------------------------------------------------------------------------------------

    async def before_start(self) -> None:
        """Wait until the controller can be reached."""
        self.is_alive = True
        self.cluster.joined(self)
        await self._until(lambda: self.network.reaches(self.node_id, CONTROLLER_ID))

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.cluster.pause(REGISTRATION_RETRY_MS)

    async def before_serving(self) -> None:
        """Open every replica, so that it leads or follows; then send heartbeats until the broker is unfenced."""
        broker = self.broker
        for topic, partition in list(broker.metadata.partitions()):
            if self.node_id in partition.replicas:
                broker.replicas.replica(topic.name, partition.index)
        self._heartbeat()
        await self._until(lambda: not broker.metadata.brokers[self.node_id].fenced)
        broker.every(max(broker.config["replica.lag.time.max.ms"] // 2, 1), self._shrink_isrs)
        broker.every(
            broker.config["replica.high.watermark.checkpoint.interval.ms"], broker.logs.checkpoint_high_watermarks
        )

    def before_stop(self) -> None:
        """Hand over to others, as Kafka does, unless the whole cluster stops."""
        if (
            not self.cluster.is_stopping
            and self.broker.config["controlled.shutdown.enable"]
            and self.network.reaches(self.node_id, CONTROLLER_ID)
        ):
            with suppress(BrokerIdNotRegistered):  # forgotten: there is nothing to hand over
                self.controller_node.begin_shutdown(self.node_id, self.broker_epoch)
        self.fetchers.close()
        for partition in self.broker.replicas:
            if partition.leadership is not None:
                partition.leadership.resign()

    def before_kill(self) -> None:
        self.fetchers.close()

    def ended(self) -> None:
        self.is_alive = False
        self.cluster.left(self)

    def stopped(self) -> None:
        if not self.cluster.is_stopping:
            self.controller_node.fence(self.node_id)

    def pause(self) -> None:
        """As SIGSTOP: nothing moves, nothing is answered, connections stay."""
        self.network.pause(self.node_id)
        self.broker.pause()

    def resume(self) -> None:
        self.broker.resume()
        self.network.resume(self.node_id)
        self.followed_way_open()
        self.broker.release_connections()

    # -- the controller ----------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        interval_ms: int = self.broker.config["broker.heartbeat.interval.ms"]
        node_id, epoch, controller = self.node_id, self.broker_epoch, self.controller_node

        def beat() -> bool:
            return controller.heartbeat(node_id, epoch, self.followed.last_offset)

        def answered(fenced: bool | None, error: Exception | None) -> None:
            if isinstance(error, StaleBrokerEpoch):
                logger.error("broker %d: the controller knows a newer one of this id", node_id)

        if self.network.is_direct(node_id, CONTROLLER_ID):
            try:
                beat()
            except KafkaError as error:
                answered(None, error)
        else:
            self.network.ask(node_id, CONTROLLER_ID, beat, answered)
        self.broker.timer.schedule(interval_ms, self._heartbeat)

    def followed_way_open(self) -> None:
        """Read on, if the controller can be heard."""
        if self.is_alive and self.network.reaches(CONTROLLER_ID, self.node_id) and self._reader is not None:
            self._reader.catch_up()
            self.fetchers.go_on()

    def metadata_appended(self) -> None:
        """The controller wrote something: it is here now, or when the network brings it."""
        if self._reader is None:
            return
        if self.network.is_direct(CONTROLLER_ID, self.node_id):
            self._reader.catch_up()
        else:
            self.network.send(CONTROLLER_ID, self.node_id, self._reader.catch_up, lambda: None)

    def propose(self, leadership: Leadership, isr: list[int]) -> None:
        state = leadership.state
        brokers = self.broker.metadata.brokers
        member = AlterPartitionRequest.BrokerState
        epochs = {replica: leadership.followers[replica].broker_epoch for replica in isr if replica != self.node_id}
        epochs[self.node_id] = self.broker_epoch
        change = AlterPartitionRequest.PartitionData(
            partition_index=state.index,
            leader_epoch=leadership.leader_epoch,
            new_isr_with_epochs=[
                # One that has not fetched yet is known by the epoch that the metadata has.
                member(
                    broker_id=replica, broker_epoch=brokers[replica].epoch if epochs[replica] < 0 else epochs[replica]
                )
                for replica in isr
            ],
            partition_epoch=leadership.proposed_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=state.topic_id, partitions=[change])],
        )

        def answered(response: AlterPartitionResponse | None, error: Exception | None) -> None:
            if not self.is_alive or leadership.proposed is not isr:
                return
            if isinstance(error, Unreachable):
                self.broker.timer.schedule(PROPOSAL_RETRY_MS, again)
            elif response is None or response.topics[0].partitions[0].error_code == IneligibleReplica.code:
                leadership.refused()
            elif response.topics[0].partitions[0].error_code == NONE:
                leadership.settled(response.topics[0].partitions[0].partition_epoch)
            # Any other error: newer metadata is on its way, and says what is.

        def again() -> None:
            if leadership.proposed is isr and self.is_alive:
                self.propose(leadership, isr)

        self.broker.channel.send(CONTROLLER_ID, request, answered)

    def _shrink_isrs(self) -> None:
        for partition in self.broker.replicas:
            if partition.leadership is not None:
                partition.leadership.maybe_shrink_isr()

    def min_isr(self, topic: str) -> int:
        """`min.insync.replicas`, which every append with followers asks for."""
        if self._min_isr_version != self.broker.metadata.version:
            self._min_isr.clear()
            self._min_isr_version = self.broker.metadata.version
        value = self._min_isr.get(topic)
        if value is None:
            value = self._min_isr[topic] = self.broker.controller.min_isr(topic)
        return value
