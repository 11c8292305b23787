"""The records of consumer groups in `__consumer_offsets` (types 3 to 8, and 16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.groups.records import CoordinatorRecord, StoredRecord, register_types
from ottla.wire.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer.group import (
        ConsumerGroup,
        ConsumerMember,
        PartitionEpochs,
        TargetPartitions,
    )
    from ottla.coordinator.groups.consumer.regex import ResolvedRegex

register_types(
    "consumer",
    {
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    },
)


def member_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    classic = None
    if member.classic is not None:
        classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def member_tombstone(group_id: str, member_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return StoredRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def epoch_tombstone(group_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_record(group_id: str, member_id: str, partitions: TargetPartitions) -> StoredRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
        ]
    )
    return StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_tombstone(group_id: str, member_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_epoch_tombstone(group_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def current_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_epochs(member.assigned),
        partitions_pending_revocation=_epochs(member.revoking),
    )
    return StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def current_tombstone(group_id: str, member_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> StoredRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def _epochs(partitions: PartitionEpochs) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in partitions.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones for all records of a member, in the order that replay expects."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def group_tombstones(group: ConsumerGroup, member_ids: Iterable[str] | None = None) -> list[CoordinatorRecord]:
    """Tombstones for all records of a consumer group, in the order that replay expects."""
    group_id = group.group_id
    ids = sorted(group.members if member_ids is None else member_ids)
    records: list[CoordinatorRecord] = [current_tombstone(group_id, member_id) for member_id in ids]
    records += [target_tombstone(group_id, member_id) for member_id in ids]
    records.append(target_epoch_tombstone(group_id))
    records += [member_tombstone(group_id, member_id) for member_id in ids]
    if group.has_partition_metadata:
        records.append(partition_metadata_tombstone(group_id))
    records += [regex_tombstone(group_id, pattern) for pattern in sorted(group.regexes)]
    records.append(epoch_tombstone(group_id))
    return records
