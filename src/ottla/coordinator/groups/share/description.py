"""ShareGroupDescribe: a group with its epochs and members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.groups.modern import members_in_order
from ottla.coordinator.groups.share.group import ShareMember
from ottla.coordinator.groups.share.protocol import ASSIGNOR
from ottla.metadata.java_hash_order import java_names
from ottla.wire.messages import ShareGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard


def describe(shard: GroupShard, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
    group = shard.share.require(shard.seen(group_id).group, group_id)
    return ShareGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_described(shard, member) for member in members_in_order(group.members)],
    )


def _described(shard: GroupShard, member: ShareMember) -> ShareGroupDescribeResponse.Member:
    places = ShareGroupDescribeResponse.TopicPartitions
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=java_names(member.topics),
        assignment=ShareGroupDescribeResponse.Assignment(
            topic_partitions=[
                places(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
                for topic_id, indexes in member.assigned.items()
                if (topic := shard.image.topic_by_id(topic_id)) is not None
            ]
        ),
    )
