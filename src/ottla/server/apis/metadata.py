"""Metadata, DescribeCluster and DescribeTopicPartitions: which brokers are in the cluster, and where the partitions
are."""

from __future__ import annotations

from collections.abc import Container

from ottla.enums import AclOperation, AnsweredBy, EndpointType, ResourceType
from ottla.errors import (
    NONE,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    ListenerNotFound,
    MismatchedEndpointType,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from ottla.metadata.image import NO_LEADER, BrokerState, MetadataImage, PartitionState, TopicState
from ottla.metadata.java_hash_order import scala_set
from ottla.metadata.topics import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    check_topic_name,
    is_legal_topic_name,
    java_hash,
)
from ottla.server.api import GuardedBy, OpenToAll, RequestContext, handles
from ottla.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from ottla.wire.primitives import ZERO_UUID

NOT_REQUESTED = -(1 << 31)

_INT32 = 1 << 31

_KEPT_ANSWERS = 8
"""Encoded answers kept per topic: only a few versions are in use at a time."""

Described = MetadataResponse.MetadataResponseTopic | bytes


def _metadata_error(ctx: RequestContext, request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        topics=[
            topic(name=wanted.name or "", topic_id=wanted.topic_id, error_code=error.code)
            for wanted in request.topics or ()
        ],
        error_code=error.code,
    )


def _may_create(image: MetadataImage, request: MetadataRequest) -> bool:
    """Whether the request names a topic that is unknown here: the controller may know or create it."""
    for topic in request.topics or ():
        if topic.topic_id == ZERO_UUID:
            if topic.name not in image.topics:
                return True
        elif topic.topic_id not in image.topics_by_id:
            return True
    return False


@handles(
    MetadataRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=GuardedBy("topics.metadata", "DESCRIBE on each topic, CREATE for new ones"),
    on_error=_metadata_error,
    may_create_topics=_may_create,
)
def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """v0–v13. v1 null means all topics; v4 auto-creation can be refused; v10 topic ids in the answer; v12 topics by id.

    Kafka answers UNKNOWN_TOPIC_OR_PARTITION for a topic that it is about to create. Here the topic is ready
    immediately.
    """
    broker = ctx.services
    topics: list[Described]
    if request.topics is None or (ctx.version == 0 and not request.topics):
        topics = [_described(ctx, request, topic) for topic in broker.metadata.all_topics()]
    else:
        topics = _wanted_topics(ctx, request, request.topics)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in broker.directory.nodes(ctx.connection)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            ctx.operations(ResourceType.CLUSTER) if ctx.may(AclOperation.DESCRIBE, ResourceType.CLUSTER) else 0
        )
    return response


def _wanted_topics(
    ctx: RequestContext, request: MetadataRequest, wanted: list[MetadataRequest.MetadataRequestTopic]
) -> list[Described]:
    """In Kafka's order: unknown ids, then existing topics, then unknown names.

    If any topic has an id, it is a request by ids, and names are ignored. Duplicates are answered once.
    """
    image = ctx.services.metadata
    by_id = any(topic.topic_id != ZERO_UUID for topic in wanted)
    if by_id and ctx.version < 12:
        raise InvalidRequest("Topic IDs are not supported before version 12 of the Metadata request.")
    if not by_id and any(topic.name is None for topic in wanted):
        # v12 allows a null name together with an id; without an id Kafka fails on it.
        raise InvalidRequest() if ctx.version < 12 else UnknownServerError()
    unknown_ids: dict[bytes, Described] = {}
    there: dict[str, Described] = {}
    absent: dict[str, Described] = {}
    names: dict[str, None] = {}
    for topic in wanted:
        if not by_id:
            names[topic.name or ""] = None
        elif topic.topic_id != ZERO_UUID:
            found = image.topics_by_id.get(topic.topic_id)
            if found is not None:
                names[found.name] = None
            else:
                unknown_ids[topic.topic_id] = MetadataResponse.MetadataResponseTopic(
                    error_code=UnknownTopicId.code, name=None, topic_id=topic.topic_id
                )
    for name in scala_set(names, java_hash):
        found = image.topics.get(name)
        if found is None:
            absent[name] = _absent(ctx, request, name)
        else:
            there[name] = _described(ctx, request, found)
    return [*unknown_ids.values(), *there.values(), *absent.values()]


def _absent(ctx: RequestContext, request: MetadataRequest, name: str) -> Described:
    """Refuse a missing topic, and create it for the next request."""
    if not is_legal_topic_name(name):
        return _refused(ctx, request, name, InvalidTopicException.code)
    # Before v4 a client could not refuse auto-creation.
    allowed = request.allow_auto_topic_creation or ctx.version < 4
    if allowed and ctx.services.config["auto.create.topics.enable"] and name != CLUSTER_METADATA_TOPIC:
        try:
            ctx.services.controller.auto_create_topic(name)
            if ctx.services.config.shows_new_topics_at_once:
                return _described(ctx, request, ctx.services.metadata.topics[name])
        except KafkaError:
            pass  # Kafka creates topics in the background, so it does not report a collision or too few brokers
    return _refused(ctx, request, name, UnknownTopicOrPartition.code)


def _refused(ctx: RequestContext, request: MetadataRequest, name: str, code: int) -> Described:
    refused = MetadataResponse.MetadataResponseTopic(error_code=code, name=name)
    if request.include_topic_authorized_operations:
        refused.topic_authorized_operations = ctx.operations(ResourceType.TOPIC, name)
    return refused


def _described(ctx: RequestContext, request: MetadataRequest, topic: TopicState) -> bytes:
    """A topic's part of the answer, kept encoded until the topic or the brokers change."""
    image = ctx.services.metadata
    operations = (
        ctx.operations(ResourceType.TOPIC, topic.name) if request.include_topic_authorized_operations else NOT_REQUESTED
    )
    listener = ctx.connection.listener.name
    key = (ctx.version, operations, image.brokers_version, listener)
    encoded = topic.answers.get(key)
    if encoded is None:
        if len(topic.answers) >= _KEPT_ANSWERS:
            topic.answers.clear()
        encoded = topic.answers[key] = _describe(image, topic, operations, listener, ctx.version).encode_item(
            ctx.version
        )
    return encoded


def _describe(
    image: MetadataImage, topic: TopicState, operations: int, listener: str, version: int
) -> MetadataResponse.MetadataResponseTopic:
    live, reachable = image.brokers, _reachable(image, listener)
    errors = {
        leader: _leader_error(live.get(leader), listener, version)
        for leader in {partition.leader for partition in topic.partitions.values()}
    }
    return MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=errors[partition.leader],
                partition_index=partition.index,
                leader_id=partition.leader if errors[partition.leader] == NONE else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=_offline(image, partition, reachable),
            )
            for partition in topic.partitions.values()
        ],
        topic_authorized_operations=operations,
    )


def _leader_error(leader: BrokerState | None, listener: str, version: int) -> int:
    """The client cannot use a leader without its listener; since v6 it gets the reason."""
    if leader is not None and any(endpoint.name == listener for endpoint in leader.endpoints):
        return NONE
    return LeaderNotAvailable.code if leader is None or version < 6 else ListenerNotFound.code


def _reachable(image: MetadataImage, listener: str) -> set[int]:
    """The live brokers that have the client's listener."""
    return {
        broker.broker_id
        for broker in image.brokers.values()
        if not broker.fenced and any(endpoint.name == listener for endpoint in broker.endpoints)
    }


def _offline(image: MetadataImage, partition: PartitionState, reachable: Container[int]) -> list[int]:
    """The replicas whose broker the client cannot reach, or whose data folder has failed."""
    return [
        replica
        for replica in partition.replicas
        if replica not in reachable or not image.has_online_folder(partition, replica)
    ]


@handles(
    DescribeClusterRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=OpenToAll("the answer contains what the sender may do"),
)
def describe_cluster(ctx: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """v0–v2 (KIP-700). v1 endpoint type (KIP-919): brokers know brokers, controllers know controllers; v2 fenced
    brokers (KIP-1073).
    """
    broker = ctx.services
    own = EndpointType.CONTROLLER if broker.config.is_controller else EndpointType.BROKER
    if request.endpoint_type not in (EndpointType.BROKER, EndpointType.CONTROLLER):
        raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != own:
        raise MismatchedEndpointType(
            f"The request was sent to an endpoint of type {own.name}, but we wanted an endpoint of type "
            f"{EndpointType(request.endpoint_type).name}"
        )
    response = DescribeClusterResponse(
        endpoint_type=own,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata_log.leader_id if broker.config.is_controller else broker.controller_id,
        brokers=_controllers(ctx)
        if broker.config.is_controller
        else [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.broker_id, host=host, port=port, rack=node.rack, is_fenced=node.fenced
            )
            for node, host, port in broker.directory.nodes(ctx.connection, fenced=request.include_fenced_brokers)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            ctx.operations(ResourceType.CLUSTER) if ctx.may(AclOperation.DESCRIBE, ResourceType.CLUSTER) else 0
        )
    return response


def _controllers(ctx: RequestContext) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    return [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=controller.controller_id, host=endpoint.host, port=endpoint.port
        )
        for _, controller in sorted(ctx.services.metadata.controllers.items())
        for endpoint in controller.endpoints
        if endpoint.name == ctx.connection.listener.name
    ]


def _describe_partitions_error(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    return DescribeTopicPartitionsResponse(
        topics=[topic(name=wanted.name, error_code=error.code) for wanted in request.topics]
    )


@handles(
    DescribeTopicPartitionsRequest,
    answered_by=AnsweredBy.ANY_BROKER,
    permission=GuardedBy("topics.describe_topic_partitions", "DESCRIBE on each topic"),
    on_error=_describe_partitions_error,
)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """v0 (KIP-966): topics by name, in pages of partitions; the cursor shows where the next page starts."""
    image = ctx.services.metadata
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(
            "DescribeTopicPartitionsRequest cursor partition must be valid: "
            f"Cursor(topicName='{cursor.topic_name}', partitionIndex={cursor.partition_index})"
        )
    if cursor is not None and request.topics and all(topic.name != cursor.topic_name for topic in request.topics):
        raise InvalidRequest(
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
        )
    # Without names, the request means all topics. The order by name makes a cursor stable.
    names = sorted({topic.name for topic in request.topics} if request.topics else image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if not request.topics and cursor.topic_name not in image.topics:
            # The topic was deleted between two pages.
            names = [name for name in names if name != cursor.topic_name]
    if "" in names:
        raise UnknownServerError  # Kafka fails on the empty name, and returns this error for all topics
    left = max(min(ctx.services.config["max.request.partition.size.limit"], request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_undescribed(ctx, name))
            continue
        # Kafka adds 32-bit numbers: if the sum overflows, it answers with no partitions and with a cursor below 0.
        after = (first + left + _INT32) % (2 * _INT32) - _INT32
        described = _described_page(ctx, topic, first, after)
        response.topics.append(described)
        left -= len(described.partitions)
        if after < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=after)
            break
    return response


def _undescribed(
    ctx: RequestContext, name: str
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
        code = UnknownTopicOrPartition.code
    except InvalidTopicException as error:
        code = error.code
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=ctx.operations(ResourceType.TOPIC, name)
    )


def _described_page(
    ctx: RequestContext, topic: TopicState, first: int, after: int
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    image = ctx.services.metadata
    page = [topic.partitions[index] for index in range(first, min(after, len(topic.partitions)))]
    reachable = _reachable(image, ctx.connection.listener.name)
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=ctx.operations(ResourceType.TOPIC, topic.name),
        partitions=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                error_code=NONE if partition.leader != NO_LEADER else LeaderNotAvailable.code,
                partition_index=partition.index,
                leader_id=partition.leader if partition.leader in reachable else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.eligible_leader_replicas,
                last_known_elr=partition.last_known_elr,
                offline_replicas=_offline(image, partition, reachable),
            )
            for partition in page
        ],
    )
