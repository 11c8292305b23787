"""The requests that a controller of a quorum answers: those of the quorum itself, and those of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.answers import Answer
from ottla.errors import NONE, KafkaError, NotController
from ottla.multibroker.broker_registration import check_registration
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UpdateRaftVoterRequest,
)
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.multibroker.quorum_controller import QuorumController


class QuorumRequests:
    """Answers for one controller."""

    def __init__(self, node: QuorumController) -> None:
        self._node = node

    def serve(self, request: Message) -> Answer[Message]:
        node = self._node
        if isinstance(request, UpdateRaftVoterRequest):
            return node.voter_changes.update(request)
        if isinstance(
            request,
            (
                BrokerRegistrationRequest,
                BrokerHeartbeatRequest,
                AlterPartitionRequest,
                AssignReplicasToDirsRequest,
                AllocateProducerIdsRequest,
                ControllerRegistrationRequest,
            ),
        ):
            if not node.log.is_active:
                raise NotController
            return node.when_committed(self._of_broker(request))
        return node.raft.serve(request)

    def _of_broker(self, request: Message) -> Message:
        node = self._node
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(error_code=NONE, broker_epoch=self._register(request))
        if isinstance(request, BrokerHeartbeatRequest):
            return self._heartbeat(request)
        if isinstance(request, AlterPartitionRequest):
            return node.duties.alter_partition(request)
        if isinstance(request, AssignReplicasToDirsRequest):
            return node.duties.assign_replicas_to_dirs(request)
        if isinstance(request, AllocateProducerIdsRequest):
            node.duties.check_epoch(request.broker_id, request.broker_epoch)
            block = node.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
            return AllocateProducerIdsResponse(
                error_code=NONE, producer_id_start=block.start, producer_id_len=len(block)
            )
        assert isinstance(request, ControllerRegistrationRequest)
        node.log.append([_controller_record(request)])
        return ControllerRegistrationResponse(error_code=NONE)

    def _register(self, request: BrokerRegistrationRequest) -> int:
        """The epoch of the broker; a repeated request gets the same one."""
        node = self._node
        check_registration(request, node.image, node.broker.cluster_id)
        known = node.image.brokers.get(request.broker_id)
        if known is not None and known.incarnation_id == request.incarnation_id:
            return known.epoch
        return node.duties.register(_broker_record(request), request.previous_broker_epoch)

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        duties = self._node.duties
        try:
            if request.want_shut_down:
                duties.begin_shutdown(request.broker_id, request.broker_epoch)
            fenced = duties.heartbeat(
                request.broker_id,
                request.broker_epoch,
                request.current_metadata_offset,
                request.offline_log_dirs,
            )
        except KafkaError as error:
            return BrokerHeartbeatResponse(error_code=error.code)
        return BrokerHeartbeatResponse(
            error_code=NONE,
            is_caught_up=request.current_metadata_offset >= request.broker_epoch,
            is_fenced=fenced,
            should_shut_down=request.want_shut_down,
        )


def _broker_record(request: BrokerRegistrationRequest) -> stored.RegisterBrokerRecord:
    record = stored.RegisterBrokerRecord
    return record(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            record.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            record.BrokerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
        rack=request.rack,
        log_dirs=request.log_dirs,
    )


def _controller_record(request: ControllerRegistrationRequest) -> stored.RegisterControllerRecord:
    record = stored.RegisterControllerRecord
    return record(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            record.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            record.ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
