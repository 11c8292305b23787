"""Group requests: validation that does not need the group, and the choice of shard and protocol.

Each function returns a response, or a `Reply` if the answer must wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.answers import Answer, Reply, in_slices
from ottla.coordinator.groups import description
from ottla.coordinator.groups.classic import description as classic_description
from ottla.coordinator.groups.classic.protocol import validate_join
from ottla.coordinator.groups.consumer import description as consumer_description
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.groups.interfaces import NO_MEMBER, join_error, unknown_members
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    UnknownMemberId,
)
from ottla.lazy_imports import lazy
from ottla.metadata.java_hash_order import java_computed_map, java_concurrent_map, partition_hash
from ottla.metadata.topics import GROUP_METADATA_TOPIC
from ottla.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer import validation as consumer_validation
else:
    consumer_validation = lazy("ottla.coordinator.groups.consumer.validation")

DESCRIBED_AT_A_TIME: Final = 1000
"""Groups described in one step, which takes a few milliseconds; other requests run between two steps."""

OffsetsOfGroup: TypeAlias = OffsetFetchResponse.OffsetFetchResponseGroup


def join(
    coordinator: GroupCoordinator, request: JoinGroupRequest, client: Client
) -> JoinGroupResponse | Reply[JoinGroupResponse]:
    settings = coordinator.settings
    if client.version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    try:
        validate_join(request, settings.min_session_timeout_ms, settings.max_session_timeout_ms)
        shard = coordinator.shard_for(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is None:
            return shard.run(shard.classic.join(request, client))
        return shard.run(shard.protocol(group.type_name).classic_join(group, request, client))
    except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator) as error:
        return join_error(error.code, NO_MEMBER, client.version)  # as in Kafka, these do not name the member
    except KafkaError as error:
        return join_error(error.code, request.member_id or NO_MEMBER, client.version)


def sync(
    coordinator: GroupCoordinator, request: SyncGroupRequest, client: Client
) -> SyncGroupResponse | Reply[SyncGroupResponse]:
    if client.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol
    if not request.group_id:
        raise InvalidGroupId
    shard = coordinator.shard_for(request.group_id)
    group = shard.groups.get(request.group_id)
    if group is None:
        return shard.run(shard.classic.sync(request, client))
    return shard.run(shard.protocol(group.type_name).classic_sync(group, request, client))


def heartbeat(coordinator: GroupCoordinator, request: HeartbeatRequest) -> HeartbeatResponse | Reply[HeartbeatResponse]:
    if not request.group_id:
        raise InvalidGroupId
    try:
        shard = coordinator.shard_for(request.group_id)
    except CoordinatorLoadInProgress:
        # The member is not loaded yet. It will get a full session after loading, so no error is needed.
        return HeartbeatResponse()
    group = shard.groups.get(request.group_id)
    if group is None:
        raise UnknownMemberId
    return shard.run(shard.protocol(group.type_name).classic_heartbeat(group, request))


def leave(
    coordinator: GroupCoordinator, request: LeaveGroupRequest, client: Client
) -> LeaveGroupResponse | Reply[LeaveGroupResponse]:
    """Before v3: one member, with a top-level error. Since v3: many members, each with its own error."""
    if not request.group_id:
        raise InvalidGroupId
    if client.version < 3:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    shard = coordinator.shard_for(request.group_id)
    group = shard.groups.get(request.group_id)
    result: Result[LeaveGroupResponse]
    if group is None:
        result = Result((), unknown_members(request))
    else:
        result = shard.protocol(group.type_name).classic_leave(group, request)
    if client.version < 3:
        assert isinstance(result.response, LeaveGroupResponse)
        result = result.with_response(_single(result.response))
    return shard.run(result)


def _single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    response.error_code = response.members[0].error_code
    response.members = []
    return response


def consumer_heartbeat(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupHeartbeatResponse | Reply[ConsumerGroupHeartbeatResponse]:
    consumer_validation.validate(request, client.version, coordinator.settings.consumer_assignors)
    shard = coordinator.shard_for(request.group_id)
    return shard.run(shard.consumer.heartbeat(request, client))


def commit_offsets(
    coordinator: GroupCoordinator, request: OffsetCommitRequest, client: Client
) -> OffsetCommitResponse | Reply[OffsetCommitResponse]:
    shard = coordinator.shard_for(request.group_id)
    return shard.run(shard.offsets.commit(request, client))


def commit_transactional_offsets(
    coordinator: GroupCoordinator, request: TxnOffsetCommitRequest, client: Client
) -> TxnOffsetCommitResponse | Reply[TxnOffsetCommitResponse]:
    if not request.group_id:
        raise InvalidGroupId
    shard = coordinator.shard_for(request.group_id)
    return shard.run(shard.offsets.commit_transactional(request, client))


def fetch_offsets(
    coordinator: GroupCoordinator,
    group: OffsetFetchRequest.OffsetFetchRequestGroup,
    *,
    by_id: bool,
    require_stable: bool,
    shown: Callable[[OffsetsOfGroup], OffsetsOfGroup] = lambda found: found,
) -> OffsetsOfGroup | Reply[OffsetsOfGroup]:
    """Raises only if this broker does not serve the group. `shown` removes the topics that the client may not see."""
    shard = coordinator.shard_for(group.group_id)
    found = shown(shard.offsets.fetch(group, by_id=by_id, require_stable=require_stable))
    # Stable offsets are the newest ones: the answer is sent once they are committed.
    return shard.run(Result((), found)) if require_stable else found


def delete_offsets(
    coordinator: GroupCoordinator, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Reply[OffsetDeleteResponse]:
    if not request.group_id:
        raise InvalidGroupId
    shard = coordinator.shard_for(request.group_id)
    return shard.run(shard.offsets.delete(request))


def list_groups(
    coordinator: GroupCoordinator, states: Iterable[str] = (), types: Iterable[str] = ()
) -> ListGroupsResponse:
    """List the loaded groups. If a shard is still loading, the response has an error: the list would be incomplete."""
    if coordinator.is_loading:
        raise CoordinatorLoadInProgress
    state_names, type_names = list(states), list(types)
    shards = {shard.partition: shard for shard in coordinator.shards()}
    order = java_concurrent_map(shards, lambda index: partition_hash((GROUP_METADATA_TOPIC, index)))
    return ListGroupsResponse(
        groups=[listed for index in order for listed in description.list_groups(shards[index], state_names, type_names)]
    )


def in_answers_order(
    coordinator: GroupCoordinator, group_ids: Iterable[str], within: Callable[[list[str]], list[str]] = list
) -> list[str]:
    """Kafka's order for several groups: by their partitions, in the order of Java's hash map."""
    named = [(coordinator.partition_for(group_id), group_id) for group_id in group_ids]
    by_partition: dict[int, list[str]] = {}
    for partition, group_id in named:
        by_partition.setdefault(partition, []).append(group_id)
    order = java_computed_map(
        (partition for partition, _ in named), lambda index: partition_hash((GROUP_METADATA_TOPIC, index))
    )
    return [group_id for partition in order for group_id in within(by_partition[partition])]


def describe_groups(
    coordinator: GroupCoordinator, group_ids: Iterable[str], version: int
) -> Answer[list[DescribeGroupsResponse.DescribedGroup]]:
    def describe(group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        try:
            return classic_description.describe(coordinator.shard_for(group_id), group_id, version)
        except KafkaError as error:
            return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code, members=[])

    ordered = in_answers_order(coordinator, group_ids)
    return in_slices(ordered, DESCRIBED_AT_A_TIME, lambda some: list(map(describe, some)))


def describe_consumer_groups(
    coordinator: GroupCoordinator, group_ids: Iterable[str]
) -> Answer[list[ConsumerGroupDescribeResponse.DescribedGroup]]:
    result = ConsumerGroupDescribeResponse.DescribedGroup

    def describe(group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        if not group_id:
            return result(group_id="", error_code=InvalidGroupId.code, members=[])
        try:
            return consumer_description.describe(coordinator.shard_for(group_id), group_id)
        except KafkaError as error:
            return result(group_id=group_id, error_code=error.code, error_message=error.message, members=[])

    named = list(group_ids)
    ordered = [*(name for name in named if not name), *in_answers_order(coordinator, filter(None, named))]
    return in_slices(ordered, DESCRIBED_AT_A_TIME, lambda some: list(map(describe, some)))


def delete_groups(
    coordinator: GroupCoordinator, group_ids: Iterable[str]
) -> list[DeleteGroupsResponse.DeletableGroupResult | Reply[DeleteGroupsResponse.DeletableGroupResult]]:
    results: list[DeleteGroupsResponse.DeletableGroupResult | Reply[DeleteGroupsResponse.DeletableGroupResult]] = []
    for group_id in group_ids:
        try:
            shard = coordinator.shard_for(group_id)
            results.append(shard.run(description.delete_group(shard, group_id)))
        except KafkaError as error:
            results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error.code))
    return results
