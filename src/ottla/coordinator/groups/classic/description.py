"""DescribeGroups. Groups that are not classic are shown as Dead, since v6 with GROUP_ID_NOT_FOUND (KIP-1043)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.groups.classic.group import STABLE, ClassicGroup
from ottla.errors import GroupIdNotFound
from ottla.wire.messages import DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

DescribedGroup = DescribeGroupsResponse.DescribedGroup


def describe(shard: GroupShard, group_id: str, version: int) -> DescribedGroup:
    try:
        group = shard.classic.require(shard.seen(group_id).group, group_id)
    except GroupIdNotFound as error:
        described = DescribedGroup(group_id=group_id, group_state="Dead", members=[])
        if version >= 6:
            described.error_code, described.error_message = error.code, error.message
        return described
    return _described(group)


def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
