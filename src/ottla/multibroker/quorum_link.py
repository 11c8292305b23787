"""Connects a broker to a quorum: it observes the metadata log, and sends requests to the controller that leads it.

If a controller is gone or no longer leads, its requests are sent again to the next leader, as Kafka's brokers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply
from ottla.errors import KafkaError, NotController, RequestTimedOut
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import MemoryDisk
from ottla.log.loader import open_log
from ottla.metadata.controller import Controller
from ottla.metadata.image import MetadataImage
from ottla.metadata.image_changes import changes_between
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, records_of
from ottla.metadata.metadata_source import FollowedMetadata
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.multibroker.controller_link import RETRY_MS, Work
from ottla.multibroker.network import Answered
from ottla.multibroker.raft_node import RaftNode, raft_settings
from ottla.raft.roles import Follower
from ottla.raft.voters import ReplicaKey
from ottla.records.batch import batches
from ottla.replication.replicas import METADATA_LOG_CONFIG
from ottla.server.peers import Unreachable
from ottla.wire.primitives import uuid_from_base64, uuid_to_base64

if TYPE_CHECKING:
    from ottla.clock import TimerHandle
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.node import BrokerNode
    from ottla.multibroker.quorum_controller import QuorumController
    from ottla.wire.stored import metadata as stored


class _Call:
    """A call to the active controller."""

    def __init__(self, work: Work, answered: Answered, until_ms: float) -> None:
        self.work = work
        self.answered = answered
        self.until_ms = until_ms
        self.sent_to = -1
        """The controller that has the call but has not answered yet."""
        self.attempts = 0
        self.is_over = False
        self.timer: TimerHandle | None = None

    def end(self, result: Any, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            if self.timer is not None:
                self.timer.cancel()
            self.answered(result, error)


class QuorumLink:
    """The link to the leader of the quorum, as far as this broker knows it."""

    def __init__(self, node: BrokerNode, cluster: ClusterNodes) -> None:
        self._node = node
        self._cluster = cluster
        self.cluster_id = cluster.cluster_id
        self._raft: RaftNode | None = None
        self._is_shared = False
        """Whether the replica is shared with the controller on the same node."""
        self._followed: FollowedMetadata | None = None
        self._applied_to = 0
        self._loaded = 0
        self._is_following = False
        self._leader_id = -1
        self._calls: list[_Call] = []
        self._registration: tuple[stored.RegisterBrokerRecord, int] | None = None
        self.directory_id = ""

    # -- following ---------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether the broker knows a leader, and has read everything that this leader had committed."""
        if self._raft is None:
            self._raft = self._shared() or self._observe()
            self._raft.on_step.append(self._step)
            self._raft.start()
        replica = self._raft.replica
        leader = replica.leading
        if leader is not None:
            return replica.log.high_watermark > leader.start_offset
        return isinstance(replica.role, Follower) and replica.role.is_caught_up

    def _shared(self) -> RaftNode | None:
        """A node that is also a controller has one copy of the log for both roles."""
        controller = self._cluster.controllers.get(self._node.node_id)
        self._is_shared = controller is not None and controller.is_alive
        return controller.raft if controller is not None and controller.is_alive else None

    def _observe(self) -> RaftNode:
        """Follow the log without a vote. The copy is in memory: the broker reads it again at each start."""
        broker, cluster = self._node.broker, self._cluster
        first = broker.disk.parts()[0]
        meta = MetaProperties.read(first) if first.exists("") else None
        self.directory_id = (meta and meta.directory_id) or uuid_to_base64(broker.chance.uuid())
        disk = MemoryDisk(broker.clock)
        log = open_log(disk, CLUSTER_METADATA_TOPIC, 0, METADATA_LOG_CONFIG, broker.clock, topic_id=METADATA_TOPIC_ID)
        return RaftNode(
            cluster.raft_network,
            ReplicaKey(self._node.node_id, uuid_from_base64(self.directory_id)),
            self.cluster_id,
            disk,
            log,
            cluster.voters,
            raft_settings(broker.config),
            broker.clock,
            broker.chance,
        )

    def follow(self, followed: FollowedMetadata) -> None:
        self._followed = followed
        self._catch_up()

    def _step(self) -> None:
        assert self._raft is not None
        leader_id = self._raft.replica.leader_id
        if leader_id != self._leader_id:
            self._leader_id = leader_id
            for call in list(self._calls):
                self._send(call)  # to the new one
        if self._followed is not None:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._is_following:
            return
        self._is_following = True
        try:
            self._follow_committed()
        finally:
            self._is_following = False

    def _follow_committed(self) -> None:
        raft, followed = self._raft, self._followed
        assert raft is not None and followed is not None
        replica = raft.replica
        followed.leader_epoch = replica.epoch
        while self._applied_to < replica.log.high_watermark:
            if replica.snapshots_loaded != self._loaded or self._applied_to < replica.log.start_offset:
                self._loaded = replica.snapshots_loaded
                self._load_snapshot(followed)
            for batch in replica.log.committed(self._applied_to):
                self._applied_to = batch.next_offset
                followed.follow(list(records_of(batch)), batch.last_offset)

    def _load_snapshot(self, followed: FollowedMetadata) -> None:
        """The log no longer has the missing records: apply the differences to the snapshot."""
        assert self._raft is not None
        snapshots = self._raft.replica.log.snapshots
        latest = snapshots.latest
        assert latest is not None
        image = MetadataImage()
        for batch in batches(snapshots.read(latest)):
            for _, record in records_of(batch, snapshots.path(latest)):
                image.replay(record, latest.offset - 1)
        changes = list(changes_between(self._node.broker.metadata, image))
        self._applied_to = latest.offset
        followed.follow([(latest.offset - 1, record) for record in changes], latest.offset - 1)

    # -- registering -------------------------------------------------------------------------------------------

    def register(self, record: stored.RegisterBrokerRecord, previous_epoch: int) -> None:
        self._registration = (record, previous_epoch)

    async def registered(self) -> None:
        assert self._registration is not None
        record, previous_epoch = self._registration
        while True:
            try:
                answer = self.ask(lambda active: active.when_committed(active.duties.register(record, previous_epoch)))
                self._node.broker_epoch = await answer if isinstance(answer, Reply) else answer
                return
            except (RequestTimedOut, NotController):
                await self._cluster.pause(RETRY_MS)

    # -- requests ----------------------------------------------------------------------------------------------

    def _leader(self) -> QuorumController | None:
        found = self._cluster.controllers.get(self._leader_id)
        return found if found is not None and found.is_alive else None

    def call(self, work: Work, answered: Answered) -> None:
        timeout_ms = self._cluster.network.request_timeout_ms
        call = _Call(work, answered, self._cluster.clock.monotonic_ms() + timeout_ms)
        self._calls.append(call)
        self._send(call)

    def ask(self, work: Work) -> Answer[Any]:
        reply: Reply[Any] = Reply()

        def answered(result: Any, error: Exception | None) -> None:
            if isinstance(error, Unreachable):
                reply.fail(RequestTimedOut())
            elif error is not None:
                reply.fail(error)
            else:
                reply.resolve(result)

        self.call(work, answered)
        if not reply.done:
            return reply
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _send(self, call: _Call) -> None:
        """Send a call to the current leader; if there is none, or it refuses, retry a little later."""
        if call.is_over:
            return
        if call.timer is not None:
            call.timer.cancel()
        leader, cluster, node_id = self._leader(), self._cluster, self._node.node_id
        if leader is None:
            self._later(call)
            return
        if call.sent_to == leader.node_id:
            return  # that controller has it, and will answer
        call.attempts += 1
        call.sent_to, attempt = leader.node_id, call.attempts

        def answered(result: Any, error: Exception | None) -> None:
            if call.is_over or call.attempts != attempt:
                return  # it has been sent to another one since
            if isinstance(error, (NotController, Unreachable)):
                call.sent_to = -1
                self._later(call)
            else:
                self._end(call, result, error)

        if not cluster.network.is_direct(node_id, leader.node_id):
            cluster.network.ask(node_id, leader.node_id, lambda: _run(leader, call.work), answered)
            return
        try:
            result = _run(leader, call.work)
        except KafkaError as error:
            answered(None, error)
            return
        if isinstance(result, Reply):
            result.when_done(lambda reply: answered(None if reply.error else reply.value, _error_of(reply)))
        else:
            answered(result, None)

    def _later(self, call: _Call) -> None:
        if self._cluster.clock.monotonic_ms() >= call.until_ms or not self._node.is_alive:
            self._end(call, None, Unreachable("no controller answered in time"))
            return
        call.timer = self._cluster.timer.schedule(RETRY_MS, lambda: self._send(call))

    def _end(self, call: _Call, result: Any, error: Exception | None) -> None:
        if call in self._calls:
            self._calls.remove(call)
        call.end(result, error)

    def controller(self) -> Controller:
        leader = self._leader()
        if (
            leader is None
            or not leader.is_active
            or not self._cluster.network.reaches(self._node.node_id, leader.node_id)
        ):
            raise RequestTimedOut
        return leader.controller

    def way_open(self) -> None:
        if self._raft is not None:
            self._raft.step()

    def metadata_appended(self) -> None:
        """Nothing to do: the log is fetched."""

    def close(self) -> None:
        if self._raft is not None:
            self._raft.on_step.remove(self._step)
            if not self._is_shared:
                self._raft.stop()
        for call in list(self._calls):
            self._end(call, None, Unreachable("the broker stopped"))


def _run(leader: QuorumController, work: Work) -> Any:
    if not leader.is_active:
        raise NotController
    return work(leader)


def _error_of(reply: Reply[Any]) -> Exception | None:
    error = reply.error
    return error if error is None or isinstance(error, Exception) else Unreachable("the controller went away")
