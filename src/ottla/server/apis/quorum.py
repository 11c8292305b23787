"""DescribeQuorum, UnregisterBroker, AddRaftVoter and RemoveRaftVoter: the metadata quorum, which is this broker."""

from __future__ import annotations

from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import (
    NONE,
    BrokerIdNotRegistered,
    InconsistentClusterId,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
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

Partition = DescribeQuorumResponse.PartitionData


@handles(
    DescribeQuorumRequest,
    answered_by=AnsweredBy.CONTROLLER,
    changes_metadata=False,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def describe_quorum(ctx: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """v0–v2 (KIP-595). v1 times of the last fetch (KIP-836); v2 error messages, directory ids and nodes (KIP-853).

    As the voters are fixed (kraft.version 0) directory ids are zero. Only the one partition of the metadata log may be
    asked for, alone.
    """
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    topic_data = DescribeQuorumResponse.TopicData
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            topics=[
                topic_data(
                    topic_name=topic.topic_name,
                    partitions=[
                        Partition(
                            partition_index=part.partition_index,
                            error_code=UnknownTopicOrPartition.code,
                            error_message=UnknownTopicOrPartition.default_message,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    broker = ctx.services
    now_ms = broker.clock.now_ms()
    end_offset = broker.metadata_log.last_offset + 1
    partition = Partition(
        partition_index=0,
        error_code=NONE,
        leader_id=broker.controller_id,
        leader_epoch=broker.metadata_log.leader_epoch,
        high_watermark=end_offset,
        current_voters=[
            DescribeQuorumResponse.ReplicaState(
                replica_id=broker.controller_id,
                log_end_offset=end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[
            DescribeQuorumResponse.ReplicaState(
                replica_id=follower,
                log_end_offset=follower_end,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for follower, follower_end in broker.metadata_log.observers()
        ],
    )
    return DescribeQuorumResponse(
        topics=[topic_data(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=_voters(ctx),
    )


def _voters(ctx: RequestContext) -> list[DescribeQuorumResponse.Node]:
    """The controller has no port of its own: what is sent to a controller is answered where clients are served."""
    name = ctx.services.config["controller.listener.names"][0]
    listener = DescribeQuorumResponse.Listener
    return [
        DescribeQuorumResponse.Node(node_id=node.broker_id, listeners=[listener(name=name, host=host, port=port)])
        for node, host, port in ctx.services.directory.nodes(ctx.connection)
        if node.broker_id == ctx.services.controller_id
    ]


@handles(
    UnregisterBrokerRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
)
def unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """v0 (KIP-631): forgets a broker that is gone for good.

    Kafka lets a broker be forgotten while it serves. Alone it would leave its cluster without one: that is refused.
    """
    broker = ctx.services
    known = broker.metadata.brokers.get(request.broker_id)
    if known is None:
        raise BrokerIdNotRegistered(f"Broker ID {request.broker_id} is not currently registered")
    if request.broker_id == broker.node_id and broker.is_controller:
        raise InvalidRequest(f"Broker ID {request.broker_id} is the one that serves this request")
    broker.controller.commit(broker.controller.broker_changes.unregistered(request.broker_id))
    return UnregisterBrokerResponse(error_code=NONE, error_message="")


def _check_cluster(ctx: RequestContext, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != ctx.services.cluster_id:
        raise InconsistentClusterId(
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{ctx.services.cluster_id}"'
        )


@handles(
    AddRaftVoterRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.ALTER),
)
def add_raft_voter(ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """v0–v1 (KIP-853). The voters are fixed (kraft.version 0), so that none can be added."""
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
    raise UnsupportedVersion("Cluster doesn't support adding voter because the kraft.version feature is 0")


@handles(
    RemoveRaftVoterRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OnCluster(AclOperation.ALTER),
)
def remove_raft_voter(ctx: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """v0 (KIP-853). The voters are fixed (kraft.version 0), so that none can be removed."""
    _check_cluster(ctx, request.cluster_id)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise InvalidRequest("Remove voter request didn't include a valid voter")
    raise UnsupportedVersion("Cluster doesn't support removing voter because the kraft.version feature is 0")
