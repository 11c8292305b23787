"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071). Their code is loaded with the first such request."""

from __future__ import annotations

from ottla.answers import Answer
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import GroupAuthorizationFailed, KafkaError, UnsupportedVersion
from ottla.server import streams_groups as streams
from ottla.server.api import ChecksItself, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def _check_enabled(ctx: RequestContext) -> None:
    broker = ctx.services
    if "streams" not in broker.config["group.coordinator.rebalance.protocols"] or not broker.metadata.features.get(
        "streams.version", 0
    ):
        raise UnsupportedVersion


def _heartbeat_error(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest, error: KafkaError
) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=own_message(error))


@handles(
    StreamsGroupHeartbeatRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=ChecksItself("READ on the group, DESCRIBE on its topics, CREATE for internal ones"),
    on_error=_heartbeat_error,
)
def streams_group_heartbeat(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest
) -> Answer[StreamsGroupHeartbeatResponse]:
    """v0 (KIP-1071). The broker creates the internal topics of the topology."""
    _check_enabled(ctx)
    if not ctx.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise GroupAuthorizationFailed
    return streams.heartbeat(ctx, request)


def _described_error(
    ctx: RequestContext, request: StreamsGroupDescribeRequest, error: KafkaError
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


def _refused(group_id: str, error: KafkaError) -> StreamsGroupDescribeResponse.DescribedGroup:
    return StreamsGroupDescribeResponse.DescribedGroup(
        group_id=group_id, error_code=error.code, error_message=own_message(error), members=[]
    )


@handles(
    StreamsGroupDescribeRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=ChecksItself("DESCRIBE on each group and on its topics"),
    on_error=_described_error,
)
def streams_group_describe(ctx: RequestContext, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    """v0 (KIP-1071)."""
    _check_enabled(ctx)
    denied = GroupAuthorizationFailed.code
    allowed, groups = [], []
    for group_id in request.group_ids:
        if ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            groups.append(StreamsGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=denied, members=[]))
    groups += streams.described(ctx, allowed, include_operations=request.include_authorized_operations)
    return StreamsGroupDescribeResponse(groups=groups)
