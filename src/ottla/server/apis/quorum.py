"""DescribeQuorum, UnregisterBroker, AddRaftVoter and RemoveRaftVoter: the metadata quorum and its members."""

from __future__ import annotations

from ottla.answers import Answer, then
from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import (
    NONE,
    BrokerIdNotRegistered,
    InconsistentClusterId,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from ottla.metadata.metadata_source import QuorumReplica, QuorumView
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.raft.voters import Endpoint, Voter
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.wire.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

Partition = DescribeQuorumResponse.PartitionData


@handles(
    DescribeQuorumRequest,
    answered_by=AnsweredBy.CONTROLLER,
    changes_metadata=False,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """v0–v2 (KIP-595). v1 times of the last fetch (KIP-836); v2 error messages, directory ids and nodes (KIP-853).

    With kraft.version 0 the directory ids of voters are zero. Only the one partition of the metadata log may be
    requested.
    """
    if not _is_about_metadata(request):
        return _undescribed(request, UnknownTopicOrPartition)
    view = ctx.services.metadata_log.describe_quorum()
    partition = Partition(
        partition_index=0,
        error_code=NONE,
        leader_id=view.leader_id,
        leader_epoch=view.leader_epoch,
        high_watermark=view.high_watermark,
        current_voters=[_replica_state(replica) for replica in view.voters],
        observers=[_replica_state(replica) for replica in view.observers],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=_voter_nodes(ctx, view),
    )


def _is_about_metadata(request: DescribeQuorumRequest) -> bool:
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    return asked == [(CLUSTER_METADATA_TOPIC, 0)]


def _undescribed(request: DescribeQuorumRequest, error: type[KafkaError]) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    Partition(
                        partition_index=part.partition_index,
                        error_code=error.code,
                        error_message=error.default_message,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse_without_leading(ctx: RequestContext, request: Message) -> DescribeQuorumResponse:
    """The answer of a controller that does not lead, to the requests that are about the quorum itself."""
    if isinstance(request, DescribeQuorumRequest):
        is_known = _is_about_metadata(request)
        return _undescribed(request, NotLeaderOrFollower if is_known else UnknownTopicOrPartition)
    assert isinstance(request, (AddRaftVoterRequest, RemoveRaftVoterRequest))
    _check_cluster(ctx, request.cluster_id)
    raise NotLeaderOrFollower("")


def _replica_state(replica: QuorumReplica) -> DescribeQuorumResponse.ReplicaState:
    return DescribeQuorumResponse.ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _voter_nodes(ctx: RequestContext, view: QuorumView) -> list[DescribeQuorumResponse.Node]:
    """A controller without its own port is part of its broker, which answers requests for the controller."""
    name = ctx.services.config["controller.listener.names"][0]
    endpoints = view.endpoints or {
        node.broker_id: [(name, host, port)]
        for node, host, port in ctx.services.directory.nodes(ctx.connection)
        if node.broker_id == view.leader_id
    }
    listener = DescribeQuorumResponse.Listener
    return [
        DescribeQuorumResponse.Node(
            node_id=node_id, listeners=[listener(name=name, host=host, port=port) for name, host, port in addresses]
        )
        for node_id, addresses in endpoints.items()
    ]


@handles(
    UnregisterBrokerRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
)
def unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """v0 (KIP-631): unregisters a broker, even a running one: it leads nothing until its next start."""
    broker = ctx.services
    known = broker.metadata.brokers.get(request.broker_id)
    if known is None:
        raise BrokerIdNotRegistered(f"Broker ID {request.broker_id} is not currently registered")
    broker.controller.commit(broker.controller.broker_changes.unregistered(request.broker_id))
    return UnregisterBrokerResponse(error_code=NONE, error_message="")


def _check_cluster(ctx: RequestContext, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != ctx.services.cluster_id:
        raise InconsistentClusterId(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{ctx.services.cluster_id}"'
        )


@handles(
    AddRaftVoterRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
)
def add_raft_voter(ctx: RequestContext, request: AddRaftVoterRequest) -> Answer[AddRaftVoterResponse]:
    """v0–v1 (KIP-853). Needs kraft.version 1; the new voter must already fetch the log."""
    _check_cluster(ctx, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequest("Add voter request didn't include a valid voter")
    name = ctx.services.config["controller.listener.names"][0]
    if all(listener.name.upper() != name.upper() for listener in request.listeners):
        given = ", ".join(
            f"ListenerName({listener.name})={listener.host}/<unresolved>:{listener.port}"
            for listener in request.listeners
        )
        raise InvalidRequest(
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{given}}})) "
            f"for the default listener ListenerName({name})"
        )
    endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners)
    voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
    return then(ctx.services.metadata_log.add_voter(voter), lambda _: AddRaftVoterResponse(error_code=NONE))


@handles(
    RemoveRaftVoterRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
)
def remove_raft_voter(ctx: RequestContext, request: RemoveRaftVoterRequest) -> Answer[RemoveRaftVoterResponse]:
    """v0 (KIP-853). Needs kraft.version 1. The leader may be removed; then it resigns."""
    _check_cluster(ctx, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequest("Remove voter request didn't include a valid voter")
    voter = Voter(request.voter_id, request.voter_directory_id)
    return then(ctx.services.metadata_log.remove_voter(voter), lambda _: RemoveRaftVoterResponse(error_code=NONE))
