"""Requests about share groups and their offsets, from the message to the shard of the group coordinator."""

from __future__ import annotations

from asyncio import Future
from typing import Any

from ottla.coordinator import share_offsets
from ottla.coordinator.replies import waitable, when_answered
from ottla.coordinator.requests import in_answers_order
from ottla.coordinator.share_state import NO_COUNT, NO_OFFSET, ShareKey, ShareState
from ottla.errors import GroupAuthorizationFailed, InvalidGroupId, KafkaError, TopicAuthorizationFailed
from ottla.server.api import RequestContext
from ottla.server.handlers.groups import client_of
from ottla.server.share.fetching import check_supported
from ottla.server.share.manager import for_clients
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.primitives import ZERO_UUID

READ, DELETE, DESCRIBE = 3, 6, 8
TOPIC, GROUP = 2, 3

AltersTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Described = ShareGroupDescribeResponse.DescribedGroup
OffsetsOfGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
OffsetsOfTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
OffsetOfPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


def heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Future[ShareGroupHeartbeatResponse]:
    check_supported(ctx)
    shard = ctx.broker.groups.shard_for(request.group_id)
    answer: Any = shard.run(shard.other("share").heartbeat(request, client_of(ctx)))
    return waitable(answer)


def describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    check_supported(ctx)
    coordinator = ctx.broker.groups
    described = [
        Described(group_id="", error_code=InvalidGroupId.code, members=[])
        for group_id in request.group_ids
        if not group_id
    ]
    for group_id in in_answers_order(coordinator, filter(None, request.group_ids)) if any(request.group_ids) else ():
        try:
            described.append(coordinator.shard_for(group_id).other("share").describe(group_id))
        except KafkaError as error:
            described.append(
                Described(group_id=group_id, error_code=error.code, error_message=error.message, members=[])
            )
    return ShareGroupDescribeResponse(groups=described)


# -- offsets


def alter_offsets(ctx: RequestContext, request: AlterShareGroupOffsetsRequest) -> Any:
    check_supported(ctx)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    if not ctx.may(READ, GROUP, request.group_id):
        raise GroupAuthorizationFailed
    refused = TopicAuthorizationFailed()
    answered, partition = AltersTopic, AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
    denied = [
        answered(
            topic_name=topic.topic_name,
            partitions=[
                partition(partition_index=each.partition_index, error_code=refused.code, error_message=refused.message)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if not ctx.may(READ, TOPIC, topic.topic_name)
    ]
    _leave_out(request, denied)
    shard = ctx.broker.groups.shard_for(request.group_id)
    return when_answered(
        shard.run(share_offsets.alter(shard, request)), lambda response: _with_denied(response, denied)
    )


def delete_offsets(ctx: RequestContext, request: DeleteShareGroupOffsetsRequest) -> Any:
    check_supported(ctx)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    if not ctx.may(DELETE, GROUP, request.group_id):
        raise GroupAuthorizationFailed
    refused = TopicAuthorizationFailed()
    denied = [
        DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=refused.code, error_message=refused.message
        )
        for topic in request.topics
        if not ctx.may(READ, TOPIC, topic.topic_name)
    ]
    _leave_out(request, denied)
    shard = ctx.broker.groups.shard_for(request.group_id)
    return when_answered(
        shard.run(share_offsets.delete(shard, request)), lambda response: _with_denied(response, denied)
    )


def _leave_out(request: Any, denied: list[Any]) -> None:
    names = {topic.topic_name for topic in denied}
    request.topics = [topic for topic in request.topics if topic.topic_name not in names]


def _with_denied(response: Any, denied: list[Any]) -> Any:
    response.responses += denied
    return response


async def describe_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    check_supported(ctx)
    response = DescribeShareGroupOffsetsResponse(groups=[])
    for asked in request.groups:
        try:
            response.groups.append(await _offsets_of(ctx, asked))
        except KafkaError as error:
            response.groups.append(
                OffsetsOfGroup(group_id=asked.group_id, topics=[], error_code=error.code, error_message=error.message)
            )
    return response


async def _offsets_of(
    ctx: RequestContext, asked: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
) -> OffsetsOfGroup:
    group_id = asked.group_id
    if not group_id:
        return OffsetsOfGroup(group_id="", topics=[])
    known = {topic.name: topic for topic in share_offsets.known_topics(ctx.broker.groups.shard_for(group_id), group_id)}
    if asked.topics is None:
        wanted = [(name, topic.partitions) for name, topic in known.items() if ctx.may(DESCRIBE, TOPIC, name)]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = []
    for name, indexes in wanted:
        if not ctx.may(DESCRIBE, TOPIC, name):
            code, message = TopicAuthorizationFailed.code, TopicAuthorizationFailed().message
            refused = [
                OffsetOfPartition(partition_index=index, start_offset=-1, error_code=code, error_message=message)
                for index in indexes
            ]
            topics.append(OffsetsOfTopic(topic_name=name, partitions=refused))
            continue
        state = ctx.broker.metadata.topics.get(name)
        topic_id = ZERO_UUID if state is None else state.topic_id
        topics.append(
            OffsetsOfTopic(
                topic_name=name,
                topic_id=topic_id,
                partitions=[await _offset_of(ctx, ShareKey(group_id, topic_id, index), name) for index in indexes],
            )
        )
    return OffsetsOfGroup(group_id=group_id, topics=topics)


async def _offset_of(ctx: RequestContext, key: ShareKey, topic: str) -> OffsetOfPartition:
    broker = ctx.broker
    one = OffsetOfPartition(partition_index=key.partition, start_offset=NO_OFFSET)
    if key.topic_id == ZERO_UUID or key.partition < 0:
        return one
    answered: Future[ShareState] = broker.loop.create_future()

    def told(state: ShareState | None, error: KafkaError | None) -> None:
        if answered.done():
            return
        if state is not None:
            answered.set_result(state)
        else:
            answered.set_exception(error or KafkaError())

    broker.share.states.summary(key, told)
    try:
        state = await answered
    except KafkaError as error:
        failed = for_clients(error)
        one.error_code, one.error_message = failed.code, failed.message
        return one
    one.start_offset, one.leader_epoch = state.start_offset, max(state.leader_epoch, 0)
    if state.start_offset != NO_OFFSET and state.done_count != NO_COUNT:
        end = await broker.share.end_offset(topic, key.partition)
        if end is not None:
            one.lag = end - state.start_offset - state.done_count
    return one
