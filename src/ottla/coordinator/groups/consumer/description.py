"""ConsumerGroupDescribe: a group with its epochs and members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.modern import members_in_order
from ottla.metadata.java_hash_order import java_names
from ottla.wire.messages import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(shard: GroupShard, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    group = shard.consumer.require(shard.seen(group_id).group, group_id)
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
    """Deleted topics have no name and are left out."""
    found = []
    for topic_id, indexes in partitions.items():
        topic = shard.image.topic_by_id(topic_id)
        if topic is not None:
            found.append(
                ConsumerGroupDescribeResponse.TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
            )
    return ConsumerGroupDescribeResponse.Assignment(topic_partitions=found)
