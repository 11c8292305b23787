"""Share groups (KIP-932): membership, records, offsets. The code is loaded with the first request."""

from __future__ import annotations

from ottla.answers import Answer, started
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import NONE, KafkaError
from ottla.server.api import ChecksItself, GuardedBy, OnEach, OnGroup, RequestContext, handles
from ottla.server.share import fetching, groups
from ottla.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def _heartbeat_error(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest, error: KafkaError
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)


@handles(
    ShareGroupHeartbeatRequest,
    versions=(1, 1),
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[
        OnGroup(AclOperation.READ),
        GuardedBy("groups.subscribed_topics", "DESCRIBE on each topic that it subscribes to"),
    ],
    on_error=_heartbeat_error,
)
def share_group_heartbeat(
    ctx: RequestContext, request: ShareGroupHeartbeatRequest
) -> Answer[ShareGroupHeartbeatResponse]:
    """v1. Join, stay and leave; members make their own id."""
    return groups.heartbeat(ctx, request)


def _described_error(
    ctx: RequestContext, request: ShareGroupDescribeRequest, error: KafkaError
) -> ShareGroupDescribeResponse:
    described = ShareGroupDescribeResponse.DescribedGroup
    return ShareGroupDescribeResponse(
        groups=[
            described(group_id=group_id, error_code=error.code, error_message=error.message, members=[])
            for group_id in request.group_ids
        ]
    )


@handles(
    ShareGroupDescribeRequest,
    versions=(1, 1),
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[
        OnEach(AclOperation.DESCRIBE, ResourceType.GROUP, "group_ids", answers="groups", name=""),
        GuardedBy("groups.described_topics", "DESCRIBE on its topics"),
    ],
    on_error=_described_error,
)
def share_group_describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """v1. State, epochs, and members with their assignments."""
    response = groups.describe(ctx, request)
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == NONE:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
    return response


def _fetch_error(ctx: RequestContext, request: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error.code)


@handles(
    ShareFetchRequest,
    versions=(1, 2),
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnGroup(AclOperation.READ),
    on_error=_fetch_error,
    carries_records=True,
)
def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> Answer[ShareFetchResponse]:
    """v1–v2. Acquires records for as long as their lock lasts, and acknowledges earlier ones. v2 accepts exact limits
    (KIP-1206) and renews locks (KIP-1222)."""
    return fetching.share_fetch(ctx, request)


def _acknowledge_error(
    ctx: RequestContext, request: ShareAcknowledgeRequest, error: KafkaError
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=error.code)


@handles(
    ShareAcknowledgeRequest,
    versions=(1, 2),
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnGroup(AclOperation.READ),
    on_error=_acknowledge_error,
)
def share_acknowledge(ctx: RequestContext, request: ShareAcknowledgeRequest) -> Answer[ShareAcknowledgeResponse]:
    """v1–v2. The results of records: accepted, released, rejected, absent, and since v2 still in progress
    (KIP-1222).
    """
    return fetching.share_acknowledge(ctx, request)


def _offsets_error(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> DescribeShareGroupOffsetsResponse:
    described = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    return DescribeShareGroupOffsetsResponse(
        groups=[
            described(group_id=group.group_id, topics=[], error_code=error.code, error_message=error.message)
            for group in request.groups
        ]
    )


@handles(
    DescribeShareGroupOffsetsRequest,
    versions=(0, 1),
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnEach(AclOperation.DESCRIBE, ResourceType.GROUP, "groups", name="group_id"),
    on_error=_offsets_error,
)
def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Answer[DescribeShareGroupOffsetsResponse]:
    """v0–v1. The start offsets of groups; v1 also their lag (KIP-1226)."""
    return started(groups.describe_offsets(ctx, request))


@handles(
    AlterShareGroupOffsetsRequest,
    versions=(0, 0),
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=ChecksItself("READ on the group and on each topic"),
)
def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Answer[AlterShareGroupOffsetsResponse]:
    """v0. For groups without members."""
    return groups.alter_offsets(ctx, request)


@handles(
    DeleteShareGroupOffsetsRequest,
    versions=(0, 0),
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=ChecksItself("DELETE on the group, READ on each topic"),
)
def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Answer[DeleteShareGroupOffsetsResponse]:
    """v0. For groups without members, topic by topic."""
    return groups.delete_offsets(ctx, request)
