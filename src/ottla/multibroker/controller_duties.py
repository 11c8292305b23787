"""The duties of the active controller: it handles heartbeats, fences silent brokers and changes partitions.

Its decisions become records of the metadata log, which its owner keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.enums import LeaderRecoveryState
from ottla.errors import (
    NONE,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    NotLeaderOrFollower,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.metadata.delegation_tokens import expired_tokens
from ottla.metadata.elections import assign_folders
from ottla.metadata.image import BrokerState, MetadataImage, PartitionState, TopicState
from ottla.metadata.partition_change import ONLINE, UNCHANGED, UNCLEAN
from ottla.metadata.reassignment import change_of
from ottla.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.config import Config
    from ottla.metadata.controller import Controller

logger = logging.getLogger(__name__)

CHECKS_PER_SESSION = 18
"""How often sessions are checked: twice a second for a session of nine seconds."""

Change = AlterPartitionRequest.PartitionData
Changed = AlterPartitionResponse.PartitionData


class ControllerDuties:
    """Registers brokers, handles their heartbeats, changes partitions."""

    def __init__(
        self, config: Config, clock: Clock, timer: Timer, controller: Controller, last_offset: Callable[[], int]
    ) -> None:
        """`last_offset` returns the last offset of the metadata log."""
        self.config = config
        self.clock = clock
        self._timer = timer
        self.controller = controller
        self._last_offset = last_offset
        self._heard_ms: dict[int, float] = {}
        self._greeted: set[int] = set()
        """Brokers that registered here, or sent a heartbeat; others in `_heard_ms` may have gone earlier."""
        self._check_due_ms = 0.0
        self._ended = False

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def begin(self, *, takes_over: bool = False) -> None:
        """Become active. Registered brokers get a full session from now on."""
        if takes_over:
            now_ms = self.clock.monotonic_ms()
            self._heard_ms = {broker.broker_id: now_ms for broker in self.image.live_brokers()}
        self._watch_sessions()
        self._every(self.config["leader.imbalance.check.interval.seconds"] * 1000, self._balance)
        self._every(self.config["unclean.leader.election.interval.ms"], self._elect_unclean)
        if self.config["delegation.token.secret.key"]:
            self._every(self.config["delegation.token.expiry.check.interval.ms"], self._sweep_tokens)

    def end(self) -> None:
        self._ended = True

    def _every(self, interval_ms: int, job: Callable[[], None]) -> None:
        def run() -> None:
            if not self._ended:
                job()
                self._timer.schedule(interval_ms, run)

        self._timer.schedule(interval_ms, run)

    # -- brokers -----------------------------------------------------------------------------------------------

    def register(self, record: stored.RegisterBrokerRecord, previous_epoch: int) -> int:
        """Register a broker that starts, and return its epoch.

        `previous_epoch` is the epoch at its last clean stop, or -1. Apache Kafka makes a broker wait until its old
        session expires; here the new registration ends the old session.
        """
        broker_id = record.broker_id
        known = self.image.brokers.get(broker_id)
        if known is not None and not known.fenced and broker_id in self._greeted:
            self.fence(broker_id)
        # The epoch is the offset of the record, so that it grows with every start.
        if known is not None and previous_epoch != known.epoch:
            self.controller.commit(self.controller.broker_changes.came_back_unclean(broker_id))
        record.broker_epoch = self._last_offset() + 1
        record.fenced = True
        self.controller.commit([record])
        self._hear(broker_id)
        return record.broker_epoch

    def heartbeat(
        self, broker_id: int, epoch: int, metadata_offset: int, offline_folders: Sequence[bytes] = ()
    ) -> bool:
        """Handle a heartbeat; returns whether the broker is fenced.

        A broker that has read its own registration is unfenced.

        `offline_folders` are the ids of data folders that failed: the broker loses its replicas there (KIP-858).
        """
        known = self.check_epoch(broker_id, epoch)
        self._hear(broker_id)
        if offline_folders:
            self.controller.commit(self.controller.broker_changes.folders_failed(broker_id, offline_folders))
        if known.fenced and metadata_offset >= epoch and not known.in_controlled_shutdown:
            self.controller.commit(self.controller.broker_changes.unfenced(broker_id))
        return self.image.brokers[broker_id].fenced

    def _hear(self, broker_id: int) -> None:
        self._greeted.add(broker_id)
        self._heard_ms[broker_id] = self.clock.monotonic_ms()

    def check_epoch(self, broker_id: int, epoch: int) -> BrokerState:
        """Refuse a broker with the epoch of an earlier start, and one that is not registered, as in Kafka."""
        known = self.image.brokers.get(broker_id)
        if known is None or known.epoch != epoch:
            raise StaleBrokerEpoch()
        return known

    def begin_shutdown(self, broker_id: int, epoch: int) -> None:
        self.check_epoch(broker_id, epoch)
        self.controller.commit(self.controller.broker_changes.shutting_down(broker_id))

    def fence(self, broker_id: int) -> None:
        """Fence a broker: from now on it leads nothing."""
        self._heard_ms.pop(broker_id, None)
        self._greeted.discard(broker_id)
        known = self.image.brokers.get(broker_id)
        if known is not None and not known.fenced:
            logger.info("broker %d is fenced", broker_id)
            self.controller.commit(self.controller.broker_changes.fenced(broker_id))

    def _watch_sessions(self) -> None:
        timeout_ms: int = self.config["broker.session.timeout.ms"]
        interval_ms = max(timeout_ms // CHECKS_PER_SESSION, 10)
        self._check_due_ms = self.clock.monotonic_ms() + interval_ms

        def check() -> None:
            now_ms = self.clock.monotonic_ms()
            # If this process was suspended, heartbeats could not arrive either.
            late_ms = max(now_ms - self._check_due_ms - interval_ms, 0.0)
            for broker_id in list(self._heard_ms):
                self._heard_ms[broker_id] += late_ms
                if now_ms - self._heard_ms[broker_id] > timeout_ms:
                    self.fence(broker_id)
            self._check_due_ms = now_ms + interval_ms

        self._every(interval_ms, check)

    def _balance(self) -> None:
        if self.config["auto.leader.rebalance.enable"]:
            self.controller.commit(self.controller.broker_changes.preferred())

    def _elect_unclean(self) -> None:
        self.controller.commit(self.controller.broker_changes.unclean())

    def _sweep_tokens(self) -> None:
        self.controller.commit(expired_tokens(self.image, self.clock.now_ms()))

    # -- partitions --------------------------------------------------------------------------------------------

    def serve(self, request: Message) -> Message:
        """Answer a request that brokers send to the controller."""
        assert isinstance(request, AlterPartitionRequest), f"a broker sent {type(request).__name__} to the controller"
        return self.alter_partition(request)

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """A broker reports which of its data folders hold its replicas. It cannot lead replicas in a failed folder."""
        self.check_epoch(request.broker_id, request.broker_epoch)
        answer = AssignReplicasToDirsResponse
        response = answer(error_code=NONE)
        assigned: list[tuple[bytes, int, bytes]] = []
        for folder in request.directories:
            topics: list[AssignReplicasToDirsResponse.TopicData] = []
            response.directories.append(answer.DirectoryData(id=folder.id, topics=topics))
            for asked in folder.topics:
                partitions: list[AssignReplicasToDirsResponse.PartitionData] = []
                topics.append(answer.TopicData(topic_id=asked.topic_id, partitions=partitions))
                for part in asked.partitions:
                    code = self._assignment_error(request.broker_id, asked.topic_id, part.partition_index)
                    partitions.append(answer.PartitionData(partition_index=part.partition_index, error_code=code))
                    if code == NONE:
                        assigned.append((asked.topic_id, part.partition_index, folder.id))
        self.controller.commit(assign_folders(self.image, request.broker_id, assigned))
        self.controller.commit(self.controller.broker_changes.left_in_failed_folders(request.broker_id, assigned))
        return response

    def _assignment_error(self, broker_id: int, topic_id: bytes, index: int) -> int:
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            return UnknownTopicId.code
        partition = topic.partitions.get(index)
        if partition is None:
            return UnknownTopicOrPartition.code
        return NONE if broker_id in partition.replicas else NotLeaderOrFollower.code

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change the ISR for its leader (KIP-497). Broker epochs keep out replicas from before a restart (KIP-903)."""
        self.check_epoch(request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse(error_code=NONE)
        records: list[Message] = []
        for asked in request.topics:
            answers: list[Changed] = []
            response.topics.append(AlterPartitionResponse.TopicData(topic_id=asked.topic_id, partitions=answers))
            topic = self.image.topics_by_id.get(asked.topic_id)
            for wanted in asked.partitions:
                try:
                    if topic is None:
                        raise UnknownTopicId
                    partition, record = self._altered(request.broker_id, topic, wanted)
                except KafkaError as error:
                    answers.append(Changed(partition_index=wanted.partition_index, error_code=error.code))
                    continue
                if record is not None:
                    records.append(record)
                answers.append(_answer(request.broker_id, partition, record))
        self.controller.commit(records)
        return response

    def _altered(
        self, broker_id: int, topic: TopicState, wanted: Change
    ) -> tuple[PartitionState, stored.PartitionChangeRecord | None]:
        partition = topic.partitions.get(wanted.partition_index)
        if partition is None:
            raise UnknownTopicOrPartition
        self._check_alteration(broker_id, partition, wanted)
        controller = self.controller
        change = change_of(
            self.image,
            partition,
            directories=controller.directories,
            min_isr=controller.min_isr(topic.name),
            election=UNCLEAN if controller.may_elect_unclean(topic.name) else ONLINE,
        )
        change.isr = [state.broker_id for state in wanted.new_isr_with_epochs]
        change.recovery_state = wanted.leader_recovery_state
        return partition, change.record()

    def _check_alteration(self, broker_id: int, partition: PartitionState, wanted: Change) -> None:
        if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
            raise NotController  # the leader has newer metadata than this controller
        if wanted.leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpoch
        if broker_id != partition.leader:
            raise InvalidRequest
        if wanted.partition_epoch < partition.partition_epoch:
            raise InvalidUpdateVersion
        isr = [state.broker_id for state in wanted.new_isr_with_epochs]
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or broker_id not in isr:
            raise InvalidRequest
        if wanted.leader_recovery_state == LeaderRecoveryState.RECOVERING and (
            len(isr) > 1 or partition.leader_recovery_state == LeaderRecoveryState.RECOVERED
        ):
            raise InvalidRequest
        for state in wanted.new_isr_with_epochs:
            known = self.image.brokers.get(state.broker_id)
            if not self.image.is_active(state.broker_id) or known is None:
                raise IneligibleReplica
            if state.broker_epoch not in (-1, known.epoch):
                raise IneligibleReplica


def _answer(broker_id: int, partition: PartitionState, record: stored.PartitionChangeRecord | None) -> Changed:
    """The partition after the change."""
    leader = partition.leader if record is None or record.leader == UNCHANGED else record.leader
    if leader != broker_id:
        # This completes a reassignment, and the old leader is one of the removed replicas.
        return Changed(partition_index=partition.index, error_code=NewLeaderElected.code)
    isr = partition.isr if record is None or record.isr is None else record.isr
    return Changed(
        partition_index=partition.index,
        error_code=NONE,
        leader_id=leader,
        leader_epoch=partition.leader_epoch + (record is not None and record.leader != UNCHANGED),
        isr=isr,
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        partition_epoch=partition.partition_epoch + (record is not None),
    )
