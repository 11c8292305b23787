"""The records of streams groups in `__consumer_offsets` (types 17 and 19 to 23), and what each does when replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.records import CoordinatorRecord, StoredRecord, register_types
from ottla.coordinator.groups.streams.group import StreamsGroup, StreamsMember
from ottla.coordinator.groups.streams.tasks import Target, TaskEpochs, TaskSets, sets_of, task_ids
from ottla.coordinator.groups.streams.topology import Topology
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.wire.schema import Message
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
    from ottla.coordinator.groups.group_shard import GroupShard

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
    """In the order that replay expects."""
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


# -- replay


def _group(shard: GroupShard, group_id: str, value: Any) -> StreamsGroup | None:
    """The group that a record is about; a tombstone makes none."""
    group = shard.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        return group
    if value is None:
        return None
    # A group that exists by its offsets only has no records, so it can become anything.
    if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
        raise CorruptRecord(f"group {group_id} is a {group.type_name} group, but has a record of a streams group")
    created = shard.groups[group_id] = StreamsGroup(group_id)
    return created


def _replay_epoch(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        del shard.groups[key.group_id]
        shard.other("streams").forget(key.group_id)
        if key.group_id in shard.offsets.groups:
            shard.ensure_group(key.group_id)
        return
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash
    group.validated_topology_epoch = value.validated_topology_epoch
    group.last_configs = {each.key: each.value for each in value.last_assignment_configs or ()}


def _replay_topology(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is not None:
        group.topology = None if value is None else Topology(value)


def _replay_member(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.remove_member(key.member_id)
    else:
        group.put_member(group.members.get(key.member_id, StreamsMember(key.member_id)).with_metadata(value))


def _replay_target_epoch(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is not None:
        group.target_epoch = -1 if value is None else value.assignment_epoch
        group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = Target(
            sets_of(value.active_tasks), sets_of(value.standby_tasks), sets_of(value.warmup_tasks)
        )


def _replay_current(shard: GroupShard, key: Any, value: Any) -> None:
    group = _group(shard, key.group_id, value)
    if group is None:
        return
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member((member or StreamsMember(key.member_id)).with_assignment(value))
    elif member is not None:
        group.put_member(member.without_assignment())


REPLAY: Mapping[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    StreamsGroupMetadataKey: _replay_epoch,
    StreamsGroupTopologyKey: _replay_topology,
    StreamsGroupMemberMetadataKey: _replay_member,
    StreamsGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    StreamsGroupTargetAssignmentMemberKey: _replay_target,
    StreamsGroupCurrentMemberAssignmentKey: _replay_current,
}
