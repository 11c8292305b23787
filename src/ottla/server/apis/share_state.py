"""The share coordinator's requests (KIP-932): the requests between brokers about the state of share partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply, started
from ottla.coordinator.share_state.state import ShareKey, StateBatch
from ottla.enums import AclOperation, AnsweredBy, ApiKey
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.wire.messages import (
    RESPONSES,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.runtime.result import Result
    from ottla.coordinator.share_state.shard import ShareStateShard
    from ottla.coordinator.share_state.state import ShareKey, ShareState


def _topic_type(request: Any) -> Any:
    """The type of a topic's results: `WriteStateResult` for WriteShareGroupState."""
    name = type(request).__name__.removesuffix("Request").replace("ShareGroup", "") + "Result"
    return getattr(RESPONSES[request.API_KEY], name)


async def _each(
    ctx: RequestContext,
    request: Any,
    run: Callable[[ShareKey, Any], Callable[[ShareStateShard], Result[Any]]],
    fill: Callable[[Any, ShareState], None] | None = None,
    *,
    must_exist: bool = False,
) -> Any:
    """One answer for each share partition. The answer is empty if the request has no group, no topics, or a topic
    without partitions; InitializeShareGroupState accepts such a topic.

    With `must_exist` the partitions have to be in the metadata. For the other requests Kafka looks for the state first.
    """
    response_type: Any = RESPONSES[ctx.api_key]
    response = response_type(results=[])
    if not request.group_id:
        return response
    if ctx.api_key != ApiKey.INITIALIZE_SHARE_GROUP_STATE and not all(topic.partitions for topic in request.topics):
        return response
    states = ctx.services.share.states
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            key = ShareKey(request.group_id, topic.topic_id, wanted.partition)
            result = response_type.PartitionResult(partition=wanted.partition)
            try:
                operation = run(key, wanted)
                answer = states.run(key, _if_it_exists(ctx, key, operation) if must_exist else operation)
                if isinstance(answer, Reply):
                    answer = await answer
                if fill is not None:
                    fill(result, answer)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            results.append(result)
        response.results.append(_topic_type(request)(topic_id=topic.topic_id, partitions=results))
    return response


def _if_it_exists(
    ctx: RequestContext, key: ShareKey, operation: Callable[[ShareStateShard], Result[Any]]
) -> Callable[[ShareStateShard], Result[Any]]:
    """The operation for a share partition that is in the metadata. NOT_COORDINATOR comes first, as in Kafka."""

    def checked(shard: ShareStateShard) -> Result[Any]:
        topic = ctx.services.metadata.topics_by_id.get(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise UnknownTopicOrPartition
        return operation(shard)

    return checked


def _failed(ctx: RequestContext, request: Any, error: KafkaError) -> Any:
    """The error is set for each share partition."""
    response_type: Any = RESPONSES[ctx.api_key]
    topic_type = _topic_type(request)
    return response_type(
        results=[
            topic_type(
                topic_id=topic.topic_id,
                partitions=[
                    response_type.PartitionResult(
                        partition=wanted.partition, error_code=error.code, error_message=error.message
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    InitializeShareGroupStateRequest,
    versions=(0, 0),
    answered_by=AnsweredBy.SHARE_COORDINATOR,
    permission=OnCluster(AclOperation.CLUSTER_ACTION),
    on_error=_failed,
)
def initialize_share_group_state(
    ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> Answer[InitializeShareGroupStateResponse]:
    """v0. A group starts to read partitions, or its offsets are changed."""

    def run(key: ShareKey, wanted: Any) -> Callable[[ShareStateShard], Result[Any]]:
        return lambda shard: shard.initialize(key, wanted.state_epoch, wanted.start_offset)

    return started(_each(ctx, request, run, must_exist=True))


@handles(
    ReadShareGroupStateRequest,
    versions=(0, 0),
    answered_by=AnsweredBy.SHARE_COORDINATOR,
    permission=OnCluster(AclOperation.CLUSTER_ACTION),
    on_error=_failed,
)
def read_share_group_state(
    ctx: RequestContext, request: ReadShareGroupStateRequest
) -> Answer[ReadShareGroupStateResponse]:
    """v0. A partition's leader starts to serve a group."""

    def run(key: ShareKey, wanted: Any) -> Callable[[ShareStateShard], Result[Any]]:
        return lambda shard: shard.read(key, wanted.leader_epoch)

    def fill(result: ReadShareGroupStateResponse.PartitionResult, state: ShareState) -> None:
        result.state_epoch = state.state_epoch
        result.start_offset = state.start_offset
        result.state_batches = [
            ReadShareGroupStateResponse.StateBatch(
                first_offset=first, last_offset=last, delivery_state=mark, delivery_count=count
            )
            for first, last, mark, count in state.batches
        ]

    return started(_each(ctx, request, run, fill))


@handles(
    WriteShareGroupStateRequest,
    versions=(0, 1),
    answered_by=AnsweredBy.SHARE_COORDINATOR,
    permission=OnCluster(AclOperation.CLUSTER_ACTION),
    on_error=_failed,
)
def write_share_group_state(
    ctx: RequestContext, request: WriteShareGroupStateRequest
) -> Answer[WriteShareGroupStateResponse]:
    """v0–v1. Acknowledgements and deliveries; v1 how many records are done beyond the start offset (KIP-1226)."""

    def run(key: ShareKey, wanted: Any) -> Callable[[ShareStateShard], Result[Any]]:
        changed = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in wanted.state_batches
        ]
        return lambda shard: shard.write(
            key,
            wanted.state_epoch,
            wanted.leader_epoch,
            wanted.start_offset,
            wanted.delivery_complete_count,
            changed,
        )

    return started(_each(ctx, request, run))


@handles(
    DeleteShareGroupStateRequest,
    versions=(0, 0),
    answered_by=AnsweredBy.SHARE_COORDINATOR,
    permission=OnCluster(AclOperation.CLUSTER_ACTION),
    on_error=_failed,
)
def delete_share_group_state(
    ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> Answer[DeleteShareGroupStateResponse]:
    """v0. A group is deleted, or its offsets of a topic."""

    def run(key: ShareKey, wanted: Any) -> Callable[[ShareStateShard], Result[Any]]:
        return lambda shard: shard.delete(key)

    return started(_each(ctx, request, run, must_exist=True))


@handles(
    ReadShareGroupStateSummaryRequest,
    versions=(0, 1),
    answered_by=AnsweredBy.SHARE_COORDINATOR,
    permission=OnCluster(AclOperation.CLUSTER_ACTION),
    on_error=_failed,
)
def read_share_group_state_summary(
    ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> Answer[ReadShareGroupStateSummaryResponse]:
    """v0–v1. The start offset of a group; v1 how many records are done beyond it (KIP-1226)."""

    def run(key: ShareKey, wanted: Any) -> Callable[[ShareStateShard], Result[Any]]:
        return lambda shard: shard.summary(key)

    def fill(result: ReadShareGroupStateSummaryResponse.PartitionResult, state: ShareState) -> None:
        result.state_epoch = state.state_epoch
        result.leader_epoch = state.leader_epoch
        result.start_offset = state.start_offset
        result.delivery_complete_count = state.done_count

    return started(_each(ctx, request, run, fill, must_exist=True))
