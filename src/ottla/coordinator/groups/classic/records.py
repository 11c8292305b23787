"""The records of classic groups in `__consumer_offsets` (type 2): one record with the group and its members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.coordinator.groups.records import StoredRecord, register_types
from ottla.wire.stored import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from ottla.coordinator.groups.classic.group import ClassicGroup

register_types("classic", {2: (GroupMetadataKey, GroupMetadataValue)})

VALUE_VERSION: Final = 3
"""The version that Kafka 4.3 writes."""


def classic_group_record(group: ClassicGroup, assignments: Mapping[str, bytes], *, empty: bool = False) -> StoredRecord:
    """The group's current state with these assignments. `empty` is the first record, before any protocol is known."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in (() if empty else group.members.values())
    ]
    value = GroupMetadataValue(
        protocol_type="" if empty else group.protocol_type or "",
        generation=0 if empty else group.generation,
        protocol=None if empty else group.protocol,
        leader=None if empty else group.leader,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=members,
    )
    return StoredRecord(GroupMetadataKey(group=group.group_id), value, VALUE_VERSION)


def classic_group_tombstone(group_id: str) -> StoredRecord:
    return StoredRecord(GroupMetadataKey(group=group_id), None)
