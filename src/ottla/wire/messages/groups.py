"""Groups of the classic protocol, and requests about groups of every type."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..primitives import INT32_MIN
from ..schema import Message, Struct, array, boolean, int16, int32, octets, string


class JoinGroupRequest(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """v1 rebalance timeout (v0 uses the session timeout); v4 the broker first assigns an id to a new member, with
    MEMBER_ID_REQUIRED (KIP-394); v5 static members (KIP-345); v8 a reason (KIP-800).
    """

    class JoinGroupRequestProtocol(Struct):
        name: str = string()
        metadata: bytes = octets()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponse(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """v2 throttle time; v5 instance ids; v7 protocol type, and a null protocol name if there is none (KIP-559); v9 the
    leader may be asked to skip the assignment (KIP-814).
    """

    class JoinGroupResponseMember(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = octets()

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class SyncGroupRequest(Message, key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """v3 static members (KIP-345); v5 protocol type and name, which must match (KIP-559)."""

    class SyncGroupRequestAssignment(Struct):
        member_id: str = string()
        assignment: bytes = octets()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """v1 throttle time; v5 protocol type and name."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = octets()


class HeartbeatRequest(Message, key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """v3 static members (KIP-345)."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """v1 throttle time."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


class LeaveGroupRequest(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """v3 several members at once, by member or instance id (KIP-345); v5 a reason (KIP-800)."""

    class MemberIdentity(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class LeaveGroupResponse(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """v1 throttle time; v3 one result for each member."""

    class MemberResponse(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+")
        error_code: int = int16()

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


class DescribeGroupsRequest(Message, key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    """v3 authorized operations on request (KIP-430); v6 an absent group is an error instead of Dead (KIP-1043)."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribeGroupsResponse(Message, key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    """v1 throttle time; v3 authorized operations; v4 instance ids; v6 error message."""

    class DescribedGroupMember(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("4+", nullable="4+", default=None)
        client_id: str = string()
        client_host: str = string()
        member_metadata: bytes = octets()
        member_assignment: bytes = octets()

    class DescribedGroup(Struct):
        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[DescribeGroupsResponse.DescribedGroupMember] = array("DescribedGroupMember")
        authorized_operations: int = int32("3+", default=INT32_MIN)

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Message, key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """v4 filters by state (KIP-518); v5 by type (KIP-848)."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListGroupsResponse(Message, key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """v1 throttle time; v4 state; v5 type."""

    class ListedGroup(Struct):
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+")
        group_type: str = string("5+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """Deletes only empty groups (KIP-229). v2 is flexible."""

    groups_names: list[str] = array(string)


class DeleteGroupsResponse(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """One error for each group."""

    class DeletableGroupResult(Struct):
        group_id: str = string()
        error_code: int = int16()

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
