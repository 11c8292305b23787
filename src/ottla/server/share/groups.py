"""Requests about share groups and their offsets, from the message to the shard of the group coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.answers import Answer, Reply, then
from ottla.coordinator.groups.requests import in_answers_order
from ottla.coordinator.groups.share import offsets as share_offsets
from ottla.coordinator.groups.share.description import describe as describe_share
from ottla.coordinator.groups.share.protocol import validate
from ottla.coordinator.share_state.state import NO_COUNT, NO_OFFSET, ShareKey, ShareState
from ottla.enums import AclOperation, ResourceType
from ottla.errors import (
    NONE,
    GroupAuthorizationFailed,
    InvalidGroupId,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from ottla.metadata.java_hash_order import java_computed_map, uuid_hash
from ottla.server.api import RequestContext
from ottla.server.apis.groups import client_of
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

AltersTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Described = ShareGroupDescribeResponse.DescribedGroup
OffsetsOfGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
OffsetsOfTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
OffsetOfPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


def heartbeat(ctx: RequestContext, request: ShareGroupHeartbeatRequest) -> Answer[ShareGroupHeartbeatResponse]:
    check_supported(ctx)
    validate(request)
    shard = ctx.services.groups.shard_for(request.group_id)
    answer: Answer[ShareGroupHeartbeatResponse] = shard.run(shard.share.heartbeat(request, client_of(ctx)))
    return answer


def describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    check_supported(ctx)
    coordinator = ctx.services.groups
    described = [
        Described(group_id="", error_code=InvalidGroupId.code, members=[])
        for group_id in request.group_ids
        if not group_id
    ]
    for group_id in in_answers_order(coordinator, filter(None, request.group_ids)) if any(request.group_ids) else ():
        try:
            described.append(describe_share(coordinator.shard_for(group_id), group_id))
        except KafkaError as error:
            described.append(
                Described(group_id=group_id, error_code=error.code, error_message=error.message, members=[])
            )
    return ShareGroupDescribeResponse(groups=described)


# -- offsets


def alter_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Answer[AlterShareGroupOffsetsResponse]:
    check_supported(ctx)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
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
        if not ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name)
    ]
    _leave_out(request, denied)
    shard = ctx.services.groups.shard_for(request.group_id)
    return then(shard.run(share_offsets.alter(shard, request)), lambda response: _with_denied(response, denied))


def delete_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Answer[DeleteShareGroupOffsetsResponse]:
    check_supported(ctx)
    if not request.group_id:
        raise InvalidGroupId("The group id is invalid.")
    if not ctx.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise GroupAuthorizationFailed
    refused = TopicAuthorizationFailed()
    denied = [
        DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=refused.code, error_message=refused.message
        )
        for topic in request.topics
        if not ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name)
    ]
    _leave_out(request, denied)
    shard = ctx.services.groups.shard_for(request.group_id)
    return then(shard.run(share_offsets.delete(shard, request)), lambda response: _with_denied(response, denied))


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
    if asked.topics is None:
        found = share_offsets.known_topics(ctx.services.groups.shard_for(group_id), group_id) if group_id else []
        wanted = [
            (topic.name, topic.partitions)
            for topic in found
            if ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    there: list[tuple[bytes, int]] = []
    names: dict[bytes, str] = {}
    missing: list[OffsetsOfTopic] = []
    denied: list[OffsetsOfTopic] = []
    for name, indexes in wanted:
        if not ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            denied.append(_without_offsets(name, indexes, TopicAuthorizationFailed()))
            continue
        state = ctx.services.metadata.topics.get(name)
        if state is None:
            missing.append(_without_offsets(name, indexes))
            continue
        if not group_id or not indexes or min(indexes) < 0:
            raise UnknownServerError  # in this case Kafka does not ask the share coordinator, and the whole group fails
        names[state.topic_id] = name
        there += ((state.topic_id, index) for index in indexes)
    topics = [
        OffsetsOfTopic(
            topic_name=names[topic_id],
            topic_id=topic_id,
            partitions=[
                await _offset_of(ctx, ShareKey(group_id, topic_id, index), names[topic_id])
                for index in java_computed_map([index for other, index in there if other == topic_id], int)
            ],
        )
        for topic_id in java_computed_map([topic_id for topic_id, _ in there], uuid_hash)
    ]
    return OffsetsOfGroup(group_id=group_id, topics=topics + missing + denied)


def _without_offsets(name: str, indexes: Iterable[int], error: KafkaError | None = None) -> OffsetsOfTopic:
    code, message = (NONE, None) if error is None else (error.code, error.message)
    return OffsetsOfTopic(
        topic_name=name,
        partitions=[
            OffsetOfPartition(partition_index=index, start_offset=NO_OFFSET, error_code=code, error_message=message)
            for index in indexes
        ],
    )


async def _offset_of(ctx: RequestContext, key: ShareKey, topic: str) -> OffsetOfPartition:
    broker = ctx.services
    one = OffsetOfPartition(partition_index=key.partition, start_offset=NO_OFFSET)
    answered: Reply[ShareState] = Reply()

    def told(state: ShareState | None, error: KafkaError | None) -> None:
        if state is not None:
            answered.resolve(state)
        else:
            answered.fail(error or KafkaError())

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
