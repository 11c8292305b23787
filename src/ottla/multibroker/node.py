"""A broker of a cluster: it follows the controller's metadata, and its partitions have replicas on other brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.errors import NONE, CoordinatorLoadInProgress, IneligibleReplica, StaleBrokerEpoch
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.channel import NetworkChannel
from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.controller_link import ActiveController, ControllerLink
from ottla.multibroker.fetcher import ReplicaFetchers
from ottla.multibroker.folder_reports import FolderReports
from ottla.multibroker.network import Network
from ottla.multibroker.throttle import LEADER, ReplicationThrottle
from ottla.multibroker.to_controller import ControllerGate, forwarding_registry
from ottla.replication.leadership import Leadership, Throttle
from ottla.server.api import Registry, registered_apis
from ottla.server.broker import Broker, StartError
from ottla.server.peers import PeerServer, Unreachable
from ottla.server.producer_ids import ProducerIds
from ottla.server.topology import Topology
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.server.log_dirs import Assignment

logger = logging.getLogger(__name__)

PROPOSAL_RETRY_MS = 500
REGISTRATION_RETRY_MS = 50


class NodeReplication:
    """The replication context of a broker, for the leaders on it."""

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


def forwarding_apis(server: Broker) -> Registry:
    """All APIs of a broker in a cluster, including those that it does not advertise."""
    assert isinstance(server.topology, BrokerNode)
    return forwarding_registry(server.topology, registered_apis())


class BrokerNode(Topology):
    """The surroundings of one of several brokers in a process: a controller, a network, and replicas on other
    brokers.
    """

    has_other_replicas = True

    def __init__(self, cluster: ClusterNodes, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.fetchers: ReplicaFetchers
        self.broker_epoch = -1
        self.is_alive = False
        """True from the start to the end, even while paused."""
        self.serves_peers = False
        """A node whose broker is down can still be up as a controller."""
        self._min_isr: dict[str, int] = {}
        self._min_isr_version = -1
        self.followed: FollowedMetadata
        self.link: ControllerLink = cluster.link_for(self)
        self.folder_reports = FolderReports(self)

    def assemble(self, broker: Broker) -> None:
        self.broker = broker
        broker.channel = NetworkChannel(self)
        broker.producer_ids = ProducerIds(self._allocate_producer_ids)
        broker.registry = forwarding_registry(self, broker.registry)
        self.fetchers = ReplicaFetchers(self)

    def _allocate_producer_ids(self) -> Reply[range]:
        allocated: Reply[range] = Reply()

        def allocate(active: ActiveController) -> Any:
            return active.when_committed(active.controller.allocate_producer_ids(self.node_id, self.broker_epoch))

        def answered(block: range | None, error: Exception | None) -> None:
            if block is None:
                allocated.fail(error or CoordinatorLoadInProgress())
            else:
                allocated.resolve(block)

        self.link.call(allocate, answered)
        return allocated

    @property
    def network(self) -> Network:
        return self.cluster.network

    def peer_server(self, broker_id: int) -> PeerServer:
        """The server of another broker, which answers requests."""
        peer = self.cluster.brokers[broker_id]
        if not peer.serves_peers:
            raise Unreachable(f"broker {broker_id} does not run")
        return peer.broker.peer_server

    @property
    def epoch(self) -> int:
        return self.broker_epoch  # even if it was unregistered

    def unaddressed(self, listener: str) -> Container[int]:
        """All brokers are on this machine: one client address is enough for all that listen on every interface."""
        nodes = self.cluster.brokers.items()
        return {number for number, node in nodes if listener in node.broker.wildcard_listeners}

    # -- parts -------------------------------------------------------------------------------------------------

    def open_metadata(self) -> None:
        broker, cluster_id = self.broker, self.link.cluster_id
        broker.identity = broker.logs.open(
            cluster_id, self.node_id, self.link.directory_id or uuid_to_base64(broker.chance.uuid())
        )
        if broker.cluster_id != cluster_id:
            raise StartError(
                f"the data folder of broker {self.node_id} belongs to another cluster ({broker.cluster_id})"
            )
        broker.directory_id = uuid_from_base64(broker.identity.directory_id or "")
        broker.open_log_dirs()
        self.followed = FollowedMetadata(broker.metadata, 0)
        broker.metadata_log = self.followed
        self.link.follow(self.followed)
        broker.controller = ControllerGate(self)

    def open_logs(self) -> None:
        replicas = self.broker.replicas
        if self.broker.log_dirs is not None:
            self.broker.log_dirs.open()
        replicas.set_strays_aside()
        self._remove_former_replicas()
        replicas.context = NodeReplication(self)
        replicas.on_placed = self.fetchers.placed

    def _remove_former_replicas(self) -> None:
        """Remove partitions that were moved to other brokers while this one was down."""
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
        self.link.register(record, previous)

    # -- life --------------------------------------------------------------------------------------------------

    async def before_start(self) -> None:
        """Wait until the controller can be reached."""
        self.is_alive = True
        self.cluster.joined(self)
        await self._until(self.link.is_ready)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.cluster.pause(REGISTRATION_RETRY_MS)

    async def before_serving(self) -> None:
        """Open every replica, so that it leads or follows; then send heartbeats until the broker is unfenced."""
        broker = self.broker
        self.serves_peers = True
        for topic, partition in list(broker.metadata.partitions()):
            if self.node_id in partition.replicas and (topic.name, partition.index) not in broker.logs.left_out:
                broker.replicas.replica(topic.name, partition.index)
        await self.link.registered()
        if broker.log_dirs is not None:
            broker.log_dirs.assign_all()
        self.folder_reports.registered()
        self._heartbeat()
        await self._until(lambda: not broker.metadata.brokers[self.node_id].fenced)
        broker.every(max(broker.config["replica.lag.time.max.ms"] // 2, 1), self._shrink_isrs)
        broker.every(
            broker.config["replica.high.watermark.checkpoint.interval.ms"], broker.logs.checkpoint_high_watermarks
        )

    def before_stop(self) -> None:
        """Hand over leadership to other brokers, as Kafka does, unless the whole cluster stops."""
        if not self.cluster.is_stopping and self.broker.config["controlled.shutdown.enable"]:
            # Unregistered or unreachable: there is nothing to hand over, or no broker to take over.
            self.link.call(
                lambda active: active.duties.begin_shutdown(self.node_id, self.broker_epoch), lambda *_: None
            )
        self.fetchers.close()
        for partition in self.broker.replicas:
            if partition.leadership is not None:
                partition.leadership.resign()

    def before_kill(self) -> None:
        self.fetchers.close()

    def ended(self) -> None:
        self.is_alive = self.serves_peers = False
        self.link.close()
        self.cluster.left(self)

    def stopped(self) -> None:
        if not self.cluster.is_stopping:
            self.cluster.fence(self.node_id)

    def pause(self) -> None:
        """Freeze, as SIGSTOP does: nothing runs, requests get no answer, and connections stay open."""
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
        self.heartbeat_now()
        self.broker.timer.schedule(interval_ms, self._heartbeat)

    def heartbeat_now(self) -> None:
        node_id, epoch = self.node_id, self.broker_epoch
        failed = tuple(self.folder_reports.failed)

        def beat(active: ActiveController) -> Any:
            return active.when_committed(active.duties.heartbeat(node_id, epoch, self.followed.last_offset, failed))

        def answered(fenced: bool | None, error: Exception | None) -> None:
            if error is None:
                self.folder_reports.heard(failed)
            elif isinstance(error, StaleBrokerEpoch):
                logger.error("broker %d: the controller knows a newer one of this id", node_id)

        self.link.call(beat, answered)

    def folders_failed(self, directory_ids: Sequence[bytes]) -> None:
        self.folder_reports.report_failed(directory_ids)

    def assign_folders(self, assigned: Sequence[Assignment]) -> None:
        self.folder_reports.assign(assigned)

    def followed_way_open(self) -> None:
        """Continue reading, if the controller can be reached."""
        if self.is_alive:
            self.link.way_open()
            self.fetchers.go_on()

    def metadata_appended(self) -> None:
        """Read the records that the controller appended: now, or when the network allows it."""
        self.link.metadata_appended()

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
                # For a replica that has not fetched yet, use the epoch in the metadata.
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

        def answered(reply: Reply[AlterPartitionResponse]) -> None:
            if not self.is_alive or leadership.proposed is not isr:
                return
            if isinstance(reply.error, Unreachable):
                self.broker.timer.schedule(PROPOSAL_RETRY_MS, again)
                return
            changed = None if reply.error is not None else reply.value.topics[0].partitions[0]
            if changed is None or changed.error_code == IneligibleReplica.code:
                leadership.refused()
            elif changed.error_code == NONE:
                leadership.settled(changed.partition_epoch)
            # Any other error: newer metadata is on its way and decides.

        def again() -> None:
            if leadership.proposed is isr and self.is_alive:
                self.propose(leadership, isr)

        self.broker.channel.send(CONTROLLER_ID, request).listen(answered)

    def _shrink_isrs(self) -> None:
        for partition in self.broker.replicas:
            if partition.leadership is not None:
                partition.leadership.maybe_shrink_isr()

    def min_isr(self, topic: str) -> int:
        """`min.insync.replicas`, which every append with followers needs."""
        if self._min_isr_version != self.broker.metadata.version:
            self._min_isr.clear()
            self._min_isr_version = self.broker.metadata.version
        value = self._min_isr.get(topic)
        if value is None:
            value = self._min_isr[topic] = self.broker.controller.min_isr(topic)
        return value
