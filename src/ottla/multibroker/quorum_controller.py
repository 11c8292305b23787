"""A controller of a quorum: a node with its own listener and a copy of the metadata log.

It runs as a `server.Broker` that holds no partitions: listeners, TLS, SASL, ACLs and the log of requests are the
same as a broker's. Its registry has the APIs that Kafka's controllers serve.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, then
from ottla.enums import AnsweredBy, ApiKey
from ottla.errors import KafkaError, NotController
from ottla.lazy_imports import lazy
from ottla.metadata.controller import Controller
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.metadata_log import FOLDER, METADATA_TOPIC_ID, bootstrap_records, formatted_records
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.controller_duties import ControllerDuties
from ottla.multibroker.quorum_metadata import QuorumMetadata
from ottla.multibroker.quorum_requests import QuorumRequests
from ottla.multibroker.raft_node import RaftNode, raft_settings
from ottla.multibroker.voter_changes import VoterChanges
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.server.api import Api, Handler, Registry, RequestContext
from ottla.server.registration import registration_record
from ottla.server.topology import Topology
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import TimerHandle
    from ottla.config import Listener
    from ottla.metadata.image import MetadataImage
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.server.apis import quorum as quorum_apis
    from ottla.server.apis import raft as raft_apis
    from ottla.server.broker import Broker
    from ottla.server.security import quotas as quotas_module
    from ottla.server.security.quotas import Quotas
else:
    quotas_module = lazy("ottla.server.security.quotas")
    quorum_apis = lazy("ottla.server.apis.quorum")
    raft_apis = lazy("ottla.server.apis.raft")

logger = logging.getLogger(__name__)

REGISTRATION_RETRY_MS = 100
OF_THE_QUORUM = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)


def controller_registry(node: QuorumController, registry: Registry) -> Registry:
    """The APIs of a controller. Only the active one answers for the cluster, and only with committed data."""

    def wrap(api: Api) -> Handler:
        if api.key == ApiKey.FETCH:
            return raft_apis.fetch_metadata
        if api.answered_by is not AnsweredBy.CONTROLLER:
            return api.handler

        def active_only(ctx: RequestContext, request: Any) -> Any:
            if not node.log.is_active:
                if api.key in OF_THE_QUORUM:
                    return quorum_apis.refuse_without_leading(ctx, request)
                raise node.not_active()
            return then(api.handler(ctx, request), node.when_committed)

        return active_only

    wrapped = registry.wrapped(wrap)
    fetch = wrapped.apis[ApiKey.FETCH]
    fetch.model = None
    fetch.permissions = (raft_apis.CLUSTER_ACTION,)
    fetch.min_version = 12
    return wrapped


class QuorumController(Topology):
    """The surroundings of a controller: the other controllers, and the brokers that follow."""

    def __init__(self, cluster: ClusterNodes, node_id: int, voters: VoterSet, sock: socket.socket | None) -> None:
        """`sock` is already bound at the first start, because the others must know the port."""
        self.cluster = cluster
        self.node_id = node_id
        self._voters = voters
        self._socket = sock
        self.raft: RaftNode
        self.log: QuorumMetadata
        self._duties: ControllerDuties | None = None
        self.is_alive = False
        self._incarnation = b""
        self._registering: TimerHandle | None = None
        self.voter_changes = VoterChanges(self)

    # -- the active controller ---------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self.is_alive and self.log.is_active

    @property
    def duties(self) -> ControllerDuties:
        if self._duties is None:
            raise NotController
        return self._duties

    def not_active(self) -> NotController:
        leader_id = self.raft.replica.leader_id
        if leader_id < 0:
            return NotController("No controller appears to be active.")
        return NotController(f"The active controller appears to be node {leader_id}.")

    @property
    def controller(self) -> Controller:
        return self.broker.controller

    @property
    def image(self) -> MetadataImage:
        return self.broker.metadata

    @property
    def quotas(self) -> Quotas | None:
        return self.broker.access.quotas

    def when_committed(self, value: Any) -> Answer[Any]:
        return self.log.when_committed(value)

    # -- parts -------------------------------------------------------------------------------------------------

    def assemble(self, broker: Broker) -> None:
        self.broker = broker
        broker.channel = self.new_channel()
        broker.producer_ids = self.new_producer_ids()
        broker.registry = controller_registry(self, broker.registry)

    def sockets(self) -> Sequence[tuple[Listener, socket.socket | None]]:
        sock, self._socket = self._socket, None
        return [(self.broker.config.listeners[0], sock)]

    def open_metadata(self) -> None:
        broker, cluster = self.broker, self.cluster
        directory_id = uuid_to_base64(broker.chance.uuid())
        broker.identity = broker.logs.open(cluster.cluster_id, self.node_id, directory_id)
        broker.directory_id = uuid_from_base64(broker.identity.directory_id or "")
        log = broker.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        broker.logs.metadata_log = log
        if not log.log_end_offset and not any(name.endswith(".checkpoint") for name in broker.disk.scan(FOLDER)):
            formatted_records(broker.disk, broker.clock.now_ms())
        self.raft = RaftNode(
            cluster.raft_network,
            ReplicaKey(self.node_id, broker.directory_id),
            broker.cluster_id,
            broker.disk,
            log,
            self._voters,
            raft_settings(broker.config),
            broker.clock,
            broker.chance,
        )
        self.log = QuorumMetadata(
            self.raft,
            broker.metadata,
            broker.clock,
            broker.config["metadata.log.max.record.bytes.between.snapshots"],
        )
        self.log.on_claim = self._claim
        self.log.on_lost = self._lost
        self.log.on_rebuilt = self._rebuilt
        self.log.serve_node = QuorumRequests(self).serve
        self.log.voter_changes = self.voter_changes
        self.log.start()
        broker.metadata_log = self.log
        broker.controller = Controller(
            broker.metadata, self.log, lambda: broker.config, broker.chance, self._directory_of_broker
        )

    def _directory_of_broker(self, broker_id: int) -> bytes:
        return self.image.folder_for_new(broker_id)

    def open_logs(self) -> None:
        """Do nothing: a controller has no partitions."""

    def register(self) -> None:
        """Register with the active controller, when there is one."""
        self._incarnation = self.broker.chance.uuid()

    @property
    def epoch(self) -> int:
        return -1

    def unaddressed(self, listener: str) -> tuple[int, ...]:
        return ()

    # -- life --------------------------------------------------------------------------------------------------

    async def before_serving(self) -> None:
        self.is_alive = True
        self.cluster.controller_joined(self)
        self.raft.start()
        self.register_with_active()

    def before_stop(self) -> None:
        """Hand over leadership before stopping."""
        if not self.cluster.is_stopping:
            self.raft.resign()

    def before_kill(self) -> None:
        self.raft.stop()

    def ended(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self.raft.stop()
            self._lost()
            self.cluster.controller_left(self)

    def pause(self) -> None:
        self.cluster.network.pause(self.node_id)
        self.broker.pause()

    def resume(self) -> None:
        self.broker.resume()
        self.cluster.network.resume(self.node_id)
        self.raft.step()
        self.broker.release_connections()

    def way_open(self) -> None:
        self.raft.step()

    # -- becoming active ---------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Become active: the image contains everything that was committed."""
        logger.info("controller %d is active in epoch %d", self.node_id, self.raft.replica.epoch)
        broker = self.broker
        if METADATA_VERSION not in self.image.features:
            formatted = formatted_records(broker.disk, broker.clock.now_ms())
            self.log.append(bootstrap_records(formatted, broker.config["min.insync.replicas"]))
        self._duties = ControllerDuties(
            broker.config, broker.clock, broker.timer, broker.controller, lambda: self.log.last_offset
        )
        self._duties.begin(takes_over=True)
        self.cluster.controller_changed(self)

    def _lost(self) -> None:
        if self._duties is not None:
            self._duties.end()
            self._duties = None

    def _rebuilt(self) -> None:
        self.broker.security.metadata_replaced()

    def register_with_active(self) -> None:
        """Register with the active controller, until the metadata has this start (KIP-919)."""
        if self._registering is not None:
            self._registering.cancel()
        known = self.image.controllers.get(self.node_id)
        if not self.is_alive or (known is not None and known.incarnation_id == self._incarnation):
            return
        active = self.cluster.active_controller
        if active is not None and self.cluster.network.reaches(self.node_id, active.node_id):
            try:
                active.log.append([self._registration()])
            except KafkaError as error:
                logger.debug("controller %d cannot register now: %s", self.node_id, error)
        self._registering = self.broker.timer.schedule(REGISTRATION_RETRY_MS, self.register_with_active)

    def _registration(self) -> stored.RegisterControllerRecord:
        broker = self.broker
        as_broker = registration_record(
            self.node_id, self._incarnation, -1, broker.config, broker.bound_listeners, broker.advertise(), []
        )
        endpoint, feature = (
            stored.RegisterControllerRecord.ControllerEndpoint,
            stored.RegisterControllerRecord.ControllerFeature,
        )
        return stored.RegisterControllerRecord(
            controller_id=self.node_id,
            incarnation_id=self._incarnation,
            end_points=[
                endpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in as_broker.end_points
            ],
            features=[
                feature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in as_broker.features
            ],
        )
