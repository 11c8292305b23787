"""Looking at groups, and removing them: ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups.

ListGroups: v4 filter by state, v5 by type; unknown states and types match nothing. DescribeGroups is for classic
groups: an absent one is Dead, from v6 on with GROUP_ID_NOT_FOUND (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla.coordinator.groups.classic.consumer_metadata import PROTOCOL_TYPE
from ottla.coordinator.groups.classic.group import STABLE, ClassicGroup
from ottla.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.interfaces import OtherGroup
from ottla.coordinator.runtime.result import Reply, Result
from ottla.errors import GroupIdNotFound, KafkaError
from ottla.metadata.java_hash_order import FIRST_SLOTS, java_names, timeline_map, timeline_slots
from ottla.metadata.topics import java_hash
from ottla.wire.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import AnyGroup, GroupShard

T = TypeVar("T")
Deleted = DeleteGroupsResponse.DeletableGroupResult

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def list_groups(
    shard: GroupShard, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListGroupsResponse.ListedGroup]:
    state_filter = {state.strip().lower() for state in states}
    type_filter = {name.strip().lower() for name in types}
    listed = []
    for group in shard.seen_groups():
        state = group.state_name
        filter_name = group.state_filter_name if isinstance(group, OtherGroup) else state.lower()
        if state_filter and filter_name not in state_filter:
            continue
        if type_filter and group.type_name not in type_filter:
            continue
        protocol_type = PROTOCOL_TYPE if isinstance(group, ConsumerGroup) else group.protocol_type or ""
        listed.append(
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=group.type_name,
            )
        )
    return listed


def describe_classic(shard: GroupShard, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
    group = shard.seen(group_id).group
    if not isinstance(group, ClassicGroup):
        described = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state="Dead", members=[])
        if version >= 6:
            described.error_code = GroupIdNotFound.code
            described.error_message = (
                f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
            )
        return described
    is_stable = group.state is STABLE
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
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


def members_in_order(members: Mapping[str, T]) -> list[T]:
    """As a map of Kafka has them into which each member was put more than once."""
    slots = FIRST_SLOTS
    for size in range(len(members) + 1):
        slots = timeline_slots(size, slots)
    return [members[member_id] for member_id in timeline_map(members, java_hash, slots)]


def describe_consumer(shard: GroupShard, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    group = shard.seen(group_id).group
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=group_id, error_code=GroupIdNotFound.code, error_message=message, members=[]
        )
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(group.members, shard.settings.consumer_assignors[0]),
        members=[_describe_member(shard, group, member) for member in members_in_order(group.members)],
    )


def _describe_member(
    shard: GroupShard, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=java_names(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(shard, member.assigned),
        target_assignment=_assignment(shard, group.target.get(member.member_id, {})),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(
    shard: GroupShard, partitions: dict[bytes, dict[int, int]] | dict[bytes, frozenset[int]]
) -> ConsumerGroupDescribeResponse.Assignment:
    """Topics that were deleted meanwhile have no name any more and are left out."""
    found = []
    for topic_id, indexes in partitions.items():
        topic = shard.cluster.topic_by_id(topic_id)
        if topic is not None:
            found.append(
                ConsumerGroupDescribeResponse.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
            )
    return ConsumerGroupDescribeResponse.Assignment(topic_partitions=found)


def delete_group(shard: GroupShard, group_id: str) -> Result[Deleted]:
    """The group and all its offsets; refused while it has members."""
    group = _deletable(shard, group_id)
    response = Deleted(group_id=group_id)
    if isinstance(group, OtherGroup):
        reply: Reply[Deleted] = Reply()

        def done(error: KafkaError | None) -> None:
            try:
                if error is not None:
                    raise error
                answer = shard.run(_deleted(shard, _deletable(shard, group_id), response))
            except KafkaError as refusal:
                response.error_code = refusal.code
                reply.resolve(response)
                return
            if isinstance(answer, Reply):
                answer.forward(reply)
            else:
                reply.resolve(answer)

        first = group.before_deleted(shard, done)
        if first is not None:
            return first.with_response(reply)
    return _deleted(shard, group, response)


def _deletable(shard: GroupShard, group_id: str) -> AnyGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    group.validate_delete()
    return group


def _deleted(shard: GroupShard, group: AnyGroup, response: Deleted) -> Result[Deleted]:
    return Result([*shard.offsets.tombstones(group.group_id), *shard.group_tombstones(group)], response)
