"""The records of streams groups in `__consumer_offsets` (types 17, and 19 to 23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.groups.records import CoordinatorRecord, StoredRecord, register_types
from ottla.coordinator.groups.streams.tasks import Target, TaskEpochs, TaskSets, task_ids
from ottla.wire.stored.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.streams.group import StreamsGroup, StreamsMember
    from ottla.coordinator.groups.streams.topology import Topology

register_types(
    "streams",
    {
        17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    },
)


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, topology_epoch: int, configs: Mapping[str, str]
) -> StoredRecord:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=topology_epoch,
        last_assignment_configs=[
            StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)
        ],
    )
    return StoredRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: StreamsMember) -> StoredRecord:
    endpoint = member.endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupMemberMetadataValue.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[StreamsGroupMemberMetadataValue.KeyValue(key=key, value=text) for key, text in member.tags],
    )
    return StoredRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def topology_record(group_id: str, topology: Topology) -> StoredRecord:
    return StoredRecord(StreamsGroupTopologyKey(group_id=group_id), topology.stored)


def target_record(group_id: str, member_id: str, target: Target) -> StoredRecord:
    ids = StreamsGroupTargetAssignmentMemberValue.TaskIds
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=task_ids(ids, target.active),
        standby_tasks=task_ids(ids, target.standby),
        warmup_tasks=task_ids(ids, target.warmup),
    )
    return StoredRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return StoredRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: StreamsMember) -> StoredRecord:
    assigned, revoking = member.assigned, member.revoking
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=_without_epochs(assigned.standby),
        warmup_tasks=_without_epochs(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(revoking.active),
        standby_tasks_pending_revocation=_without_epochs(revoking.standby),
        warmup_tasks_pending_revocation=_without_epochs(revoking.warmup),
    )
    return StoredRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _with_epochs(tasks: TaskEpochs) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentValue.TaskIds(
            subtopology_id=name,
            partitions=sorted(tasks[name]),
            assignment_epochs=[tasks[name][index] for index in sorted(tasks[name])],
        )
        for name in sorted(tasks)
    ]


def _without_epochs(tasks: TaskSets) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentValue.TaskIds(
            subtopology_id=name, partitions=sorted(tasks[name]), assignment_epochs=None
        )
        for name in sorted(tasks)
    ]


# -- tombstones


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones for all records of a member, in the order that replay expects."""
    return [
        StoredRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    group_id = group.group_id
    members = [member_tombstones(group_id, member_id) for member_id in sorted(group.members)]
    return [
        *(current for current, _, _ in members),
        *(target for _, target, _ in members),
        StoredRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(metadata for _, _, metadata in members),
        StoredRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        StoredRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]
