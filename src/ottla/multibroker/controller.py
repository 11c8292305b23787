"""The controller of a cluster in one process: it alone writes the metadata, and everybody follows what it wrote.

It is a node of its own, as in a KRaft cluster with separate controllers, and one that does not fail: what a test wants
to see is the failure of brokers. It keeps its log, `__cluster_metadata-0`, in a folder of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.enums import LeaderRecoveryState
from ottla.errors import (
    NONE,
    BrokerIdNotRegistered,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.lazy_imports import lazy
from ottla.log.manager import LogManager
from ottla.metadata.controller import Controller, Randomness
from ottla.metadata.delegation_tokens import expired_tokens
from ottla.metadata.image import BrokerState, MetadataImage, PartitionState, TopicState
from ottla.metadata.metadata_log import METADATA_TOPIC_ID, MetadataLog
from ottla.metadata.partition_change import ONLINE, UNCHANGED, UNCLEAN
from ottla.metadata.reassignment import change_of
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.replication.replicas import METADATA_LOG_CONFIG
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.primitives import ZERO_UUID, uuid_to_base64
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.config import Config
    from ottla.log.files import Disk
    from ottla.server.security import quotas
    from ottla.server.security.quotas import Quotas
else:
    quotas = lazy("ottla.server.security.quotas")

logger = logging.getLogger(__name__)

CONTROLLER_ID = 3000

CHECKS_PER_SESSION = 18
"""How finely sessions are watched: of nine seconds, twice a second."""

Change = AlterPartitionRequest.PartitionData
Changed = AlterPartitionResponse.PartitionData


class _Remembering(MetadataImage):
    """The controller's image, which also keeps what it was made from, for brokers that start later."""

    def __init__(self) -> None:
        super().__init__()
        self.replayed: list[tuple[int, Message]] = []

    def replay(self, record: Message, offset: int) -> None:
        super().replay(record, offset)
        self.replayed.append((offset, record))


class ControllerNode:
    """Registers brokers, hears their heartbeats, decides about partitions."""

    def __init__(self, config: Config, disk: Disk, clock: Clock, timer: Timer, chance: Randomness) -> None:
        self.config = config
        self.clock = clock
        self._timer = timer
        self._chance = chance
        self._disk = disk
        self.image = _Remembering()
        self.logs = LogManager(
            disk,
            lambda topic: METADATA_LOG_CONFIG,
            clock,
            new_token=lambda: chance.uuid().hex(),
            schedule=timer.schedule,
        )
        self._log: MetadataLog
        self.controller: Controller
        self.cluster_id = ""
        self.quotas: Quotas | None = None
        """For changes to topics, which are counted here and not by each broker."""
        self._heard_ms: dict[int, float] = {}
        self._check_due_ms = 0.0
        self.batches: list[int] = []
        """Where each append ends in what was replayed: brokers take them one by one."""
        self.on_append: Callable[[], None] = lambda: None
        self._closed = False

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        identity = self.logs.open(
            uuid_to_base64(self._chance.uuid()), CONTROLLER_ID, uuid_to_base64(self._chance.uuid())
        )
        self.cluster_id = identity.cluster_id
        log_ = self.logs.get_or_create(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        self.logs.metadata_log = log_
        self._log = MetadataLog(self._disk, log_, self.image, self.clock, CONTROLLER_ID)
        self.controller = Controller(self.image, self, self._effective_config, self._chance, self.directory_of)
        self._log.open(self.config["min.insync.replicas"])
        self._follow_quotas()
        self.image.removed_topics.clear()
        self.batches.append(len(self.image.replayed))
        self._watch_sessions()
        self._every(self.config["leader.imbalance.check.interval.seconds"] * 1000, self._balance)
        self._every(self.config["unclean.leader.election.interval.ms"], self._elect_unclean)
        if self.config["delegation.token.secret.key"]:
            self._every(self.config["delegation.token.expiry.check.interval.ms"], self._sweep_tokens)

    def stop(self) -> None:
        self._closed = True
        self.logs.close()

    def _every(self, interval_ms: int, job: Callable[[], None]) -> None:
        def run() -> None:
            if not self._closed:
                job()
                self._timer.schedule(interval_ms, run)

        self._timer.schedule(interval_ms, run)

    def _effective_config(self) -> Config:
        cluster, _ = self.image.broker_configs(CONTROLLER_ID)
        return self.config.with_dynamic(cluster, {}) if cluster else self.config

    def directory_of(self, broker_id: int) -> bytes:
        broker = self.image.brokers.get(broker_id)
        return broker.log_dirs[0] if broker is not None and broker.log_dirs else ZERO_UUID

    @property
    def log(self) -> MetadataLog:
        return self._log

    @property
    def last_offset(self) -> int:
        return self._log.last_offset

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    def append(self, records: Sequence[Message]) -> None:
        """Write, replay, and let everybody know."""
        self._log.append(records)
        if any(isinstance(record, stored.ClientQuotaRecord) for record in records):
            self._follow_quotas()
        self.image.removed_topics.clear()
        self.batches.append(len(self.image.replayed))
        self.on_append()

    def _follow_quotas(self) -> None:
        if not self.image.quotas:
            self.quotas = None
            return
        self.quotas = quotas.Quotas.followed(self.quotas, self.image, self.config, self.clock)

    # -- brokers -----------------------------------------------------------------------------------------------

    def register(self, record: stored.RegisterBrokerRecord, previous_epoch: int) -> int:
        """A broker starts; returns its epoch. `previous_epoch` is what its last clean stop noted, -1 without one.

        Apache Kafka makes a broker wait until its former session is over; here that ends the former one.
        """
        broker_id = record.broker_id
        known = self.image.brokers.get(broker_id)
        if known is not None and not known.fenced and broker_id in self._heard_ms:
            self.fence(broker_id)
        # The epoch is the offset of the record, so that it grows with every start.
        if known is not None and previous_epoch != known.epoch:
            self.controller.commit(self.controller.broker_changes.came_back_unclean(broker_id))
        record.broker_epoch = self.last_offset + 1
        record.fenced = True
        self.append([record])
        self._heard_ms[broker_id] = self.clock.monotonic_ms()
        return record.broker_epoch

    def heartbeat(self, broker_id: int, epoch: int, metadata_offset: int) -> bool:
        """A broker is there; returns whether it is fenced. One that knows of its own start is let in."""
        known = self._check_epoch(broker_id, epoch)
        self._heard_ms[broker_id] = self.clock.monotonic_ms()
        if known.fenced and metadata_offset >= epoch and not known.in_controlled_shutdown:
            self.controller.commit(self.controller.broker_changes.unfenced(broker_id))
        return self.image.brokers[broker_id].fenced

    def _check_epoch(self, broker_id: int, epoch: int) -> BrokerState:
        known = self.image.brokers.get(broker_id)
        if known is None:
            raise BrokerIdNotRegistered()
        if known.epoch != epoch:
            raise StaleBrokerEpoch()
        return known

    def begin_shutdown(self, broker_id: int, epoch: int) -> None:
        self._check_epoch(broker_id, epoch)
        self.controller.commit(self.controller.broker_changes.shutting_down(broker_id))

    def fence(self, broker_id: int) -> None:
        """From now on it leads nothing, whatever it believes itself."""
        self._heard_ms.pop(broker_id, None)
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
            # When this process did not run for a while, the heartbeats could not come either.
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

    def serve(self, broker_id: int, request: Message) -> Message:
        """Answer a request that brokers send to the controller."""
        assert isinstance(request, AlterPartitionRequest), f"a broker sent {type(request).__name__} to the controller"
        return self.alter_partition(request)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """A leader wants another ISR (KIP-497). Broker epochs keep out replicas of before a restart (KIP-903)."""
        self._check_epoch(request.broker_id, request.broker_epoch)
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
            raise NotController  # whoever told the leader knows more than this controller
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
    """The partition as it will be."""
    leader = partition.leader if record is None or record.leader == UNCHANGED else record.leader
    if leader != broker_id:
        # A reassignment is complete with this, and the leader was one of those that go.
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
