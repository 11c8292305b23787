"""The records of share groups in `__consumer_offsets` (types 10 to 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.groups.records import StoredRecord, register_types
from ottla.wire.stored import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer.assignors import Target
    from ottla.coordinator.groups.share.group import ShareMember, ShareTopics

register_types(
    "share",
    {
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    },
)


def member_record(group_id: str, member: ShareMember) -> StoredRecord:
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return StoredRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return StoredRecord(ShareGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> StoredRecord:
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ShareGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in target.items()
        ]
    )
    return StoredRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return StoredRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: ShareMember) -> StoredRecord:
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=0,
        assigned_partitions=[
            ShareGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in member.assigned.items()
        ],
    )
    return StoredRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """Tombstones for all records of a member, in the order that replay expects."""
    return [
        StoredRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[StoredRecord]:
    return [
        StoredRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        StoredRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        StoredRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]


def topics_record(group_id: str, topics: ShareTopics) -> StoredRecord:
    """The share partitions whose state at a share coordinator exists, is being created or is being deleted."""
    info = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=[
            info(topic_id=topic_id, topic_name=topics.names[topic_id], partitions=sorted(indexes))
            for topic_id, indexes in topics.initializing.items()
        ],
        initialized_topics=[
            info(topic_id=topic_id, topic_name=topics.names[topic_id], partitions=sorted(indexes))
            for topic_id, indexes in topics.initialized.items()
        ],
        deleting_topics=[
            ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic_id, topic_name=topics.names[topic_id])
            for topic_id in topics.deleting
        ],
    )
    return StoredRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)
