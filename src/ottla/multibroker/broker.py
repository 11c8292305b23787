"""A broker of a cluster: it follows the controller's metadata, and its partitions have replicas on other brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.config import Config
from ottla.errors import (
    NONE,
    BrokerIdNotRegistered,
    IneligibleReplica,
    KafkaError,
    RequestTimedOut,
    StaleBrokerEpoch,
)
from ottla.log.files import Disk
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.channel import NetworkChannel
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.multibroker.fetcher import ReplicaFetchers
from ottla.multibroker.network import Network
from ottla.multibroker.peers import ControllerGate, passing_on
from ottla.multibroker.throttle import LEADER, ReplicationThrottle
from ottla.replication.leadership import Leadership, Throttle
from ottla.replication.replicas import Replicas
from ottla.server.api import Registry
from ottla.server.broker import Broker, StartError
from ottla.server.peers import Channel, Unreachable
from ottla.server.producer_ids import Allocated, ProducerIds
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.ensemble import Ensemble

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


class Around:
    """What the leaders on a broker need from it."""

    def __init__(self, node: NodeBroker) -> None:
        self._node = node
        self.image = node.metadata
        self.clock: Clock = node.clock
        self.throttle: Throttle = ReplicationThrottle(node, LEADER)
        self.kept_out: Collection[tuple[str, int, int]] = node.ensemble.kept_out

    @property
    def lag_max_ms(self) -> int:
        value: int = self._node.config["replica.lag.time.max.ms"]
        return value

    def min_isr(self, topic: str) -> int:
        return self._node.min_isr(topic)

    def propose(self, leadership: Leadership, isr: list[int]) -> None:
        self._node.propose(leadership, isr)


class NodeBroker(Broker):
    """One of several brokers of an ensemble."""

    def __init__(
        self,
        ensemble: Ensemble,
        config: Config,
        *,
        disk: Disk,
        chance: Randomness | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.ensemble = ensemble
        super().__init__(config, disk=disk, clock=ensemble.clock, chance=chance, registry=registry)
        self.registry = passing_on(self, self.registry)
        self.fetchers = ReplicaFetchers(self)
        self.broker_epoch = -1
        self.is_alive = False
        """From the start to the end, paused or not."""
        self._min_isr: dict[str, int] = {}
        self._min_isr_version = -1
        self.followed: FollowedMetadata
        self._reader: MetadataReader | None = None

    @property
    def network(self) -> Network:
        return self.ensemble.network

    @property
    def controller_node(self) -> ControllerNode:
        return self.ensemble.controller

    def peer(self, broker_id: int) -> NodeBroker:
        return self.ensemble.nodes[broker_id]

    @property
    def epoch(self) -> int:
        return self.broker_epoch  # also when somebody had it forgotten

    def _unaddressed(self, listener: str) -> Container[int]:
        return {number for number, peer in self.ensemble.nodes.items() if listener in peer._wildcard_listeners}

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.is_alive = True
        self.ensemble.joined(self)
        try:
            await self._until(lambda: self.network.reaches(self.node_id, CONTROLLER_ID))
            await super().start()
        except BaseException:
            self._leave()
            raise

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.ensemble.pause(REGISTRATION_RETRY_MS)

    def _open_storage(self) -> None:
        source = self.controller_node
        self.replicas = Replicas(self.node_id, self.metadata, lambda: self.config, self.clock)
        self.logs = self._new_logs()
        self.replicas.use(self.logs)
        self.identity = self.logs.open(source.cluster_id, self.node_id, uuid_to_base64(self.chance.uuid()))
        if self.identity.cluster_id != source.cluster_id:
            raise StartError(
                f"the data folder of broker {self.node_id} belongs to another cluster ({self.identity.cluster_id})"
            )
        self._directory_id = uuid_from_base64(self.identity.directory_id or "")
        self.followed = followed = FollowedMetadata(self.metadata, source.leader_epoch)
        self._metadata_log = followed
        self._reader = MetadataReader(followed, source)
        self._reader.catch_up()
        self.metadata.removed_topics.clear()
        self.controller = self._new_controller()
        self._apply_dynamic_config()
        self.replicas.set_strays_aside()
        self._remove_former_replicas()
        self.logs.load_all()
        self.replicas.around = Around(self)
        self.replicas.on_placed = self.fetchers.placed
        followed.subscribe(self._follow_dynamic_config)
        followed.subscribe(self.replicas.metadata_changed)

    def _remove_former_replicas(self) -> None:
        """Partitions that were moved to other brokers while this one was away."""
        for topic, index in self.logs.partitions():
            known = self.metadata.topics.get(topic)
            if known is not None and self.node_id not in known.partitions[index].replicas:
                self.logs.delete(topic, index)
        assert CLUSTER_METADATA_TOPIC not in self.metadata.topics

    def _new_controller(self) -> Controller:
        return ControllerGate(self, self.controller_node)

    def _new_channel(self) -> Channel:
        return NetworkChannel(self)

    def _new_producer_ids(self) -> ProducerIds:
        return ProducerIds(self._allocate_producer_ids)

    def _allocate_producer_ids(self, allocated: Allocated) -> None:
        try:
            allocated(self.controller.allocate_producer_ids(self.node_id, self.epoch))
        except RequestTimedOut:
            allocated(None)

    def _register(self) -> None:
        advertised = self._advertised()
        self._wildcard_listeners = frozenset(name for name, host, _ in advertised if not host)
        previous = self.logs.previous_broker_epoch if self.logs.clean_start else -1
        self.broker_epoch = self.controller_node.register(self._registration(self.node_id, advertised, 0), previous)

    async def _before_serving(self) -> None:
        """Open every replica, so that it leads or follows; then say hello to be let in."""
        for topic, partition in list(self.metadata.partitions()):
            if self.node_id in partition.replicas:
                self.replicas.replica(topic.name, partition.index)
        self._heartbeat()
        await self._until(lambda: not self.metadata.brokers[self.node_id].fenced)
        self._every(max(self.config["replica.lag.time.max.ms"] // 2, 1), self._look_for_laggards)
        self._every(self.config["replica.high.watermark.checkpoint.interval.ms"], self.logs.checkpoint_high_watermarks)

    async def stop(self) -> None:
        """With a hand-over to others, as Kafka does, unless the whole cluster stops."""
        if not self._running:
            return
        if (
            not self.ensemble.is_stopping
            and self.config["controlled.shutdown.enable"]
            and self.network.reaches(self.node_id, CONTROLLER_ID)
        ):
            with suppress(BrokerIdNotRegistered):  # forgotten: there is nothing to hand over
                self.controller_node.begin_shutdown(self.node_id, self.broker_epoch)
        self.fetchers.close()
        for partition in self.replicas:
            if partition.leadership is not None:
                partition.leadership.resign()
        await super().stop()
        self._leave()
        if not self.ensemble.is_stopping:
            self.controller_node.fence(self.node_id)

    def kill(self) -> None:
        if self._running:
            self.fetchers.close()
            super().kill()
            self._leave()

    def _leave(self) -> None:
        self.is_alive = False
        self.ensemble.left(self)

    def pause(self) -> None:
        """As SIGSTOP: nothing moves, nothing is answered, connections stay."""
        self.network.pause(self.node_id)
        self.timer.pause()
        for listener in self._listeners:
            listener.hold()
        for connection in self._connections:
            connection.hold_back()

    def resume(self) -> None:
        self.timer.resume()
        self.network.resume(self.node_id)
        self.followed_way_open()
        for listener in self._listeners:
            listener.release()
        for connection in tuple(self._connections):
            connection.let_go()

    # -- the controller ----------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        interval_ms: int = self.config["broker.heartbeat.interval.ms"]
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
        self.timer.schedule(interval_ms, self._heartbeat)

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
        brokers = self.metadata.brokers
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
                self.timer.schedule(PROPOSAL_RETRY_MS, again)
            elif response is None or response.topics[0].partitions[0].error_code == IneligibleReplica.code:
                leadership.refused()
            elif response.topics[0].partitions[0].error_code == NONE:
                leadership.settled(response.topics[0].partitions[0].partition_epoch)
            # Any other error: newer metadata is on its way, and says what is.

        def again() -> None:
            if leadership.proposed is isr and self.is_alive:
                self.propose(leadership, isr)

        self.channel.send(CONTROLLER_ID, request, answered)

    def _look_for_laggards(self) -> None:
        for partition in self.replicas:
            if partition.leadership is not None:
                partition.leadership.maybe_shrink_isr()

    def min_isr(self, topic: str) -> int:
        """`min.insync.replicas`, which every append with followers asks for."""
        if self._min_isr_version != self.metadata.version:
            self._min_isr.clear()
            self._min_isr_version = self.metadata.version
        value = self._min_isr.get(topic)
        if value is None:
            value = self._min_isr[topic] = self.controller.min_isr(topic)
        return value
