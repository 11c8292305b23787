"""The consumer group (KIP-848; Kafka: ConsumerGroup): each partition is read by one member.

The group epoch grows when a subscription or a subscribed topic changes (see `modern` for the epochs). The state that
clients see follows from them:

    Empty         no members
    Assigning     the group epoch is ahead of the target
    Reconciling   some member is not at the target's epoch, or waits for partitions
    Stable        all members have reached the target

`protocol` handles the requests, and `reconciliation` moves one member towards its target.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ottla.coordinator.groups.classic.consumer_metadata import PROTOCOL_TYPE
from ottla.coordinator.groups.consumer.assignors import Target
from ottla.coordinator.groups.consumer.records import group_tombstones
from ottla.coordinator.groups.consumer.regex import ResolvedRegex
from ottla.coordinator.groups.interfaces import CheckPartition
from ottla.coordinator.groups.modern import LEAVE_EPOCH, ModernGroup
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.errors import (
    FencedInstanceId,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.metadata.java_hash_order import java_names
from ottla.wire.stored import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
)

TargetPartitions = Target
PartitionEpochs = dict[bytes, dict[int, int]]
"""Topic id -> partition -> the epoch at which the member got it (KIP-1251: separates late from stale commits)."""
OwnedPartitions = Mapping[bytes, Iterable[int]]


class MemberState(enum.Enum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """The data of a member that uses the classic protocol in a consumer group (online migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
            ),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=_epochs(value.assigned_partitions, value.member_epoch),
            revoking=_epochs(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """The member after the first of its tombstones, before the last one is replayed."""
        return replace(
            self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, state=MemberState.STABLE, assigned={}, revoking={}
        )


class ConsumerGroup(ModernGroup[ConsumerMember, TargetPartitions]):
    __slots__ = ("_owner_epochs", "has_partition_metadata", "regexes", "static_members")

    type_name = "consumer"
    protocol_type = PROTOCOL_TYPE
    becomes_classic = True

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        """Brokers before 4.1 wrote topic metadata instead of a hash. The next write removes that record."""
        self._owner_epochs: dict[bytes, dict[int, int]] = {}

    # -- queries

    @property
    def state_name(self) -> str:
        return self.reconciliation_state if self.members else "Empty"

    def is_reconciled(self, member: ConsumerMember) -> bool:
        return member.is_reconciled_to(self.target_epoch)

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that owns a partition, or must still give it up; -1 if it is free."""
        return self._owner_epochs.get(topic_id, {}).get(partition, -1)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        if not member.regex:
            return member.topics
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def members_with(
        self, updated: ConsumerMember | None = None, without: Iterable[str] = ()
    ) -> dict[str, ConsumerMember]:
        """The members after `updated` is added (replacing its static predecessor) and others are removed."""
        members = dict(self.members)
        for member_id in without:
            members.pop(member_id, None)
        if updated is not None:
            previous = self.static_member(updated.instance_id)
            if previous is not None and previous.member_id != updated.member_id:
                members.pop(previous.member_id, None)
            members[updated.member_id] = updated
        return members

    def regex_count(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def subscribed_regexes(self, members: Mapping[str, ConsumerMember]) -> set[str]:
        return {member.regex for member in members.values() if member.regex}

    def preferred_assignor(self, members: Mapping[str, ConsumerMember], default: str) -> str:
        votes: dict[str, int] = {}
        for member in members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        # If two have equal votes, the first one in a Java map wins.
        return max(java_names(votes), key=votes.__getitem__) if votes else default

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether all classic members of the group support one of these protocols."""
        if protocol_type != "consumer":
            return False
        offered = list(names)
        classic = [member.classic for member in self.members.values() if member.classic is not None]
        return any(all(any(name == known for known, _ in each.protocols) for each in classic) for name in offered)

    def only_classic_without(self, leaving: Iterable[str]) -> bool:
        """Whether a consumer-protocol member leaves and all remaining members use the classic protocol."""
        gone = set(leaving)
        return any(self.members[member_id].classic is None for member_id in gone if member_id in self.members) and all(
            member.classic is not None for member_id, member in self.members.items() if member_id not in gone
        )

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            index not in member.assigned.get(topic_id, ()) and self.owner_epoch(topic_id, index) != -1
            for topic_id, indexes in self.target.get(member.member_id, {}).items()
            for index in indexes
        )

    # -- validation

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """Raise if the sender may not commit. For an older epoch, return a check to run for each partition.

        A member at a newer epoch may still commit with its old epoch, for partitions that it already owned then.
        """
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and version < 9:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch == member.epoch:
            return None
        error = IllegalGeneration if member.classic is not None else StaleMemberEpoch
        if epoch > member.epoch:
            raise error(f"Received epoch {epoch} is newer than current member epoch {member.epoch}.")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(partition)
            if since is None or epoch < since:
                raise error(f"Epoch {epoch} is older than the assignment of partition {partition}.")

        return check

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None:
            if epoch < 0:
                return
            raise UnknownServerError  # Kafka looks up a member without an id, and fails
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId
        if epoch != member.epoch:
            raise IllegalGeneration if member.classic is not None else StaleMemberEpoch

    def validate_offset_delete(self) -> None:
        """Always allowed; subscribed topics are refused individually."""

    # -- replay

    def new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id)

    @staticmethod
    def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> TargetPartitions:
        return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
                del self.static_members[old.instance_id]
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                owners = self._owner_epochs.setdefault(topic_id, {})
                for partition in epochs:
                    owners[partition] = member.epoch

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                owners = self._owner_epochs.get(topic_id)
                if owners is None:
                    continue
                for partition in epochs:
                    owners.pop(partition, None)
                if not owners:
                    del self._owner_epochs[topic_id]


def check_instance(existing: ConsumerMember | None, member_id: str, instance_id: str) -> None:
    if existing is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        )


def _epochs(
    partitions: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> PartitionEpochs:
    """Records before 4.3 have no epochs: the member's epoch is a safe default."""
    return {
        each.topic_id: dict(
            zip(
                each.partitions,
                each.assignment_epochs or [member_epoch] * len(each.partitions),
                strict=True,
            )
        )
        for each in partitions
    }
