"""Group membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, and listing, describing and
deleting groups."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.answers import Answer, attempt, gather, in_slices, then
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.interfaces import NO_MEMBER, join_error
from ottla.coordinator.runtime.interfaces import Client
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import NONE, KafkaError
from ottla.metadata.java_hash_order import java_names
from ottla.server.api import GuardedBy, OnEach, OnGroup, RequestContext, handles
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

"""An operation and two kinds of resources of the authorizer, which is loaded only if it is used."""


def client_of(ctx: RequestContext) -> Client:
    if ctx.services.authorizer is None:
        return Client(ctx.client_id or "", ctx.client_host, ctx.version)

    def may_see(topic: str) -> bool:
        return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic, audit=False)

    return Client(ctx.client_id or "", ctx.client_host, ctx.version, may_see)


def _join_error(ctx: RequestContext, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return join_error(error.code, NO_MEMBER, ctx.version)


@handles(
    JoinGroupRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnGroup(AclOperation.READ),
    on_error=_join_error,
)
def join_group(ctx: RequestContext, request: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    """v0–v9. v0 has no rebalance timeout; v4 a new member must join again with its id (KIP-394); v5 static members
    (KIP-345); v7 the protocol type in the answer; v9 a static leader may skip the assignment (KIP-814)."""
    return requests.join(ctx.services.groups, request, client_of(ctx))


@handles(
    SyncGroupRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnGroup(AclOperation.READ),
)
def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    """v0–v5. v3 static members; v5 the protocol type and name must be given, and must match (KIP-559)."""
    return requests.sync(ctx.services.groups, request, client_of(ctx))


@handles(
    HeartbeatRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnGroup(AclOperation.READ),
)
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    """v0–v4. v3 static members."""
    return requests.heartbeat(ctx.services.groups, request)


@handles(
    LeaveGroupRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnGroup(AclOperation.READ),
)
def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> Answer[LeaveGroupResponse]:
    """v0–v5. v3 several members, by member or instance id; v5 a reason (KIP-800), which is not kept."""
    return requests.leave(ctx.services.groups, request, client_of(ctx))


@handles(
    ConsumerGroupHeartbeatRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[
        OnGroup(AclOperation.READ),
        GuardedBy("groups.subscribed_topics", "DESCRIBE on each topic that it subscribes to"),
    ],
)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    """v0–v1 (KIP-848). v1 regular expressions, and members make their own id (KIP-1082)."""
    return requests.consumer_heartbeat(ctx.services.groups, request, client_of(ctx))


def _described_error(ctx: RequestContext, request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code, members=[])
            for group_id in request.groups
        ]
    )


@handles(
    DescribeGroupsRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnEach(AclOperation.DESCRIBE, ResourceType.GROUP, "groups", name=""),
    on_error=_described_error,
)
def describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> Answer[DescribeGroupsResponse]:
    """v0–v6. v6 returns GROUP_ID_NOT_FOUND for an absent group, which was only shown as Dead before (KIP-1043)."""

    def described(groups: list[DescribeGroupsResponse.DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == NONE:
                    group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
        return DescribeGroupsResponse(groups=groups)

    return then(requests.describe_groups(ctx.services.groups, request.groups, ctx.version), described)


def _consumer_described_error(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message, members=[]
            )
            for group_id in request.group_ids
        ]
    )


@handles(
    ConsumerGroupDescribeRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[
        OnEach(AclOperation.DESCRIBE, ResourceType.GROUP, "group_ids", answers="groups", name=""),
        GuardedBy("groups.described_topics", "DESCRIBE on its topics"),
    ],
    on_error=_consumer_described_error,
)
def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> Answer[ConsumerGroupDescribeResponse]:
    """v0–v1 (KIP-848). v1 distinguishes classic members from those of the new protocol."""

    def described(groups: list[ConsumerGroupDescribeResponse.DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == NONE:
                    group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
        return ConsumerGroupDescribeResponse(groups=groups)

    return then(requests.describe_consumer_groups(ctx.services.groups, request.group_ids), described)


@handles(
    ListGroupsRequest,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=GuardedBy("groups.list_groups", "DESCRIBE on the cluster or on each group"),
)
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """v0–v5. v4 filters by state (KIP-518), v5 by type (KIP-848)."""
    return requests.list_groups(ctx.services.groups, request.states_filter, request.types_filter)


def _deleted_error(ctx: RequestContext, request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )


@handles(
    DeleteGroupsRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=OnEach(AclOperation.DELETE, ResourceType.GROUP, "groups_names", answers="results", name=""),
    on_error=_deleted_error,
)
def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> Answer[DeleteGroupsResponse]:
    """v0–v2. Deletes only groups without members, together with their offsets."""
    result = DeleteGroupsResponse.DeletableGroupResult
    group_ids = list(requests.in_answers_order(ctx.services.groups, dict.fromkeys(request.groups_names), java_names))

    def deleted(
        group_id: str, answer: Answer[DeleteGroupsResponse.DeletableGroupResult]
    ) -> Answer[DeleteGroupsResponse.DeletableGroupResult]:
        return attempt(lambda: answer, lambda error: result(group_id=group_id, error_code=error.code))

    def delete(some: Sequence[str]) -> list[Answer[DeleteGroupsResponse.DeletableGroupResult]]:
        return list(map(deleted, some, requests.delete_groups(ctx.services.groups, some)))

    return then(
        then(in_slices(group_ids, requests.DESCRIBED_AT_A_TIME, delete), gather),
        lambda results: DeleteGroupsResponse(results=results),
    )
