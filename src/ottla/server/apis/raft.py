"""The requests that nodes of a cluster send to a controller: those of the quorum itself, and those of brokers.

Served on the listeners of controllers only, by a controller of a quorum (`metadata_log.serve`).
"""

from __future__ import annotations

from typing import Any

from ottla.answers import Answer, then
from ottla.enums import AclOperation, AnsweredBy
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BeginQuorumEpochRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from ottla.wire.schema import Message

CLUSTER_ACTION = OnCluster(AclOperation.CLUSTER_ACTION)


@handles(VoteRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def vote(ctx: RequestContext, request: VoteRequest) -> Answer[Message]:
    """v0–v2 (KIP-595). v1 voter and directory ids (KIP-853); v2 pre-vote (KIP-996)."""
    return ctx.services.metadata_log.serve(request)


@handles(BeginQuorumEpochRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def begin_quorum_epoch(ctx: RequestContext, request: BeginQuorumEpochRequest) -> Answer[Message]:
    """v0–v1 (KIP-595): a leader announces its election."""
    return ctx.services.metadata_log.serve(request)


@handles(EndQuorumEpochRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def end_quorum_epoch(ctx: RequestContext, request: EndQuorumEpochRequest) -> Answer[Message]:
    """v0–v1 (KIP-595): a leader resigns."""
    return ctx.services.metadata_log.serve(request)


@handles(FetchSnapshotRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def fetch_snapshot(ctx: RequestContext, request: FetchSnapshotRequest) -> Answer[Message]:
    """v0–v1 (KIP-630): a part of a metadata snapshot."""
    return ctx.services.metadata_log.serve(request)


@handles(UpdateRaftVoterRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def update_raft_voter(ctx: RequestContext, request: UpdateRaftVoterRequest) -> Answer[Message]:
    """v0 (KIP-853): a voter reports its endpoints and the kraft.versions that it supports."""
    return ctx.services.metadata_log.serve(request)


@handles(ControllerRegistrationRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def controller_registration(ctx: RequestContext, request: ControllerRegistrationRequest) -> Answer[Message]:
    """v0 (KIP-919): a controller reports its endpoints and features."""
    return ctx.services.metadata_log.serve(request)


@handles(BrokerRegistrationRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def broker_registration(ctx: RequestContext, request: BrokerRegistrationRequest) -> Answer[Message]:
    """v0–v4 (KIP-631). v2 log dirs (KIP-858); v3 the previous epoch (KIP-966); v4 features that start at 0."""
    return ctx.services.metadata_log.serve(request)


@handles(BrokerHeartbeatRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def broker_heartbeat(ctx: RequestContext, request: BrokerHeartbeatRequest) -> Answer[Message]:
    """v0–v2 (KIP-631). v1 offline log dirs (KIP-858); v2 cordoned ones (KIP-1066), which are not kept."""
    return ctx.services.metadata_log.serve(request)


@handles(AlterPartitionRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def alter_partition(ctx: RequestContext, request: AlterPartitionRequest) -> Answer[Message]:
    """v2–v3 (KIP-497): a leader requests another ISR. v3 broker epochs (KIP-903)."""
    if ctx.version < 3:
        for partition in (each for topic in request.topics for each in topic.partitions):
            partition.new_isr_with_epochs = [
                AlterPartitionRequest.BrokerState(broker_id=replica) for replica in partition.new_isr
            ]
    return ctx.services.metadata_log.serve(request)


@handles(AssignReplicasToDirsRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def assign_replicas_to_dirs(ctx: RequestContext, request: AssignReplicasToDirsRequest) -> Answer[Message]:
    """v0 (KIP-858): the folders in which a broker has its replicas."""
    return ctx.services.metadata_log.serve(request)


@handles(AllocateProducerIdsRequest, answered_by=AnsweredBy.QUORUM, permission=CLUSTER_ACTION)
def allocate_producer_ids(ctx: RequestContext, request: AllocateProducerIdsRequest) -> Answer[Message]:
    """v0 (KIP-730): a block of producer ids."""
    return ctx.services.metadata_log.serve(request)


def fetch_metadata(ctx: RequestContext, request: FetchRequest) -> Any:
    """Fetch as controllers answer it: the metadata log, for voters and observers (KIP-595)."""

    def of_version(response: Any) -> Any:
        if ctx.version < 17:
            response.node_endpoints = []  # brokers have it in v16 already, controllers do not
        return response

    return then(ctx.services.metadata_log.serve(request), of_version)
