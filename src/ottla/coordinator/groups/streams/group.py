"""The streams group (KIP-1071; Kafka: StreamsGroup): a Kafka Streams application whose tasks the broker assigns.

In addition to the epochs of `modern`, it has the topology of its first member with its own epoch, and the internal
topics and number of tasks derived from it. The state that clients see:

    Empty         no members
    NotReady      topics of the topology are missing, or do not match it
    Assigning     the group epoch is ahead of the target
    Reconciling   some member is not at the target's epoch, or waits for tasks
    Stable        all members have reached the target
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.groups.interfaces import CheckPartition
from ottla.coordinator.groups.modern import LEAVE_EPOCH, ModernGroup
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.groups.streams.records import group_tombstones
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED, Assigned, Target, epochs_of, sets_of
from ottla.errors import StaleMemberEpoch, UnknownServerError, UnsupportedVersion
from ottla.wire.stored.streams_groups import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.streams.topology import ConfiguredTopology, Topology


class MemberState(enum.Enum):
    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """Where an application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assigned = NOTHING_ASSIGNED
    revoking: Assigned = NOTHING_ASSIGNED

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            tags=tuple((tag.key, tag.value) for tag in value.client_tags),
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=Assigned(
                epochs_of(value.active_tasks, value.member_epoch),
                sets_of(value.standby_tasks),
                sets_of(value.warmup_tasks),
            ),
            revoking=Assigned(
                epochs_of(value.active_tasks_pending_revocation, value.member_epoch),
                sets_of(value.standby_tasks_pending_revocation),
                sets_of(value.warmup_tasks_pending_revocation),
            ),
        )

    def without_assignment(self) -> StreamsMember:
        """The member after the first of its tombstones, before the last one is replayed."""
        return replace(
            self,
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            assigned=NOTHING_ASSIGNED,
            revoking=NOTHING_ASSIGNED,
        )


Task = tuple[str, int]


class StreamsGroup(ModernGroup[StreamsMember, Target]):
    __slots__ = (
        "active_owner",
        "configured",
        "configured_offset",
        "endpoint_epoch",
        "last_configs",
        "shutdown_by",
        "standby_owners",
        "topology",
        "validated_topology_epoch",
        "warmup_owners",
    )

    type_name = "streams"
    protocol_type = "streams"
    becomes_classic = True

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.last_configs: dict[str, str] = {}
        self.topology: Topology | None = None
        self.active_owner: dict[Task, str] = {}
        """The process that has a task, or still has to give it up."""
        self.standby_owners: dict[Task, frozenset[str]] = {}
        self.warmup_owners: dict[Task, frozenset[str]] = {}
        # In memory only, as in Kafka: a new coordinator computes them again.
        self.configured: ConfiguredTopology | None = None
        self.configured_offset = -1
        """The log's last offset then. As in Kafka, StreamsGroupDescribe shows `configured` only after the next
        record."""
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0

    # -- queries

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        return self.reconciliation_state

    def is_reconciled(self, member: StreamsMember) -> bool:
        return member.is_reconciled_to(self.target_epoch)

    @property
    def state_filter_name(self) -> str:
        name = self.state_name
        return "not_ready" if name == "NotReady" else name.lower()

    def read_by(self, member: StreamsMember) -> Iterable[tuple[str, int]]:
        """The partitions of its active tasks."""
        sources = {} if self.topology is None else self.topology.sources
        return (
            (topic, index)
            for topic, subtopology in sources.items()
            for index in member.assigned.active.get(subtopology, ())
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.sources

    def depends_on(self, topic: str) -> bool:
        return self.topology is not None and topic in self.topology.required

    # -- validation

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CheckPartition | None:
        """A member at a newer epoch may still commit with its old epoch, for tasks that it already had then."""
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and version < 9:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the streams group protocol"
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise StaleMemberEpoch(f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
        topology = self.topology
        if topology is None:
            raise StaleMemberEpoch("Topology is not available for offset commit validation.")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            subtopology = topology.sources.get(topic)
            if subtopology is None:
                raise StaleMemberEpoch(f"Topic {topic} is not in the topology.")
            since = member.assigned.active.get(subtopology, {}).get(partition)
            if since is None:
                since = member.revoking.active.get(subtopology, {}).get(partition)
            if since is None:
                raise StaleMemberEpoch(
                    f"Task {subtopology}-{partition} is not assigned or pending revocation for member."
                )
            if epoch < since:
                raise StaleMemberEpoch(
                    f"Received member epoch {epoch} is older than assignment epoch {since} "
                    f"for task {subtopology}-{partition}."
                )

        return check

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None:
            if epoch < 0:
                return
            raise UnknownServerError  # as in a consumer group
        member = self.member(member_id)
        if epoch != member.epoch:
            raise StaleMemberEpoch(
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            )

    def validate_offset_delete(self) -> None:
        """Always allowed; subscribed topics are refused individually."""

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self)

    # -- replay

    def load_epoch(self, value: StreamsGroupMetadataValue) -> None:
        super().load_epoch(value)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.last_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id)

    @staticmethod
    def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> Target:
        return Target(sets_of(value.active_tasks), sets_of(value.standby_tasks), sets_of(value.warmup_tasks))

    def put_member(self, member: StreamsMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        self.members[member.member_id] = member
        for tasks in (member.assigned, member.revoking):
            for task in _tasks(tasks.active):
                self.active_owner[task] = member.process_id
            for owners, sets in ((self.standby_owners, tasks.standby), (self.warmup_owners, tasks.warmup)):
                for task in _tasks(sets):
                    owners[task] = owners.get(task, frozenset()) | {member.process_id}

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
        if not self.members:
            self.shutdown_by = None

    def _release(self, member: StreamsMember) -> None:
        for tasks in (member.assigned, member.revoking):
            for task in _tasks(tasks.active):
                if self.active_owner.get(task) == member.process_id:
                    del self.active_owner[task]
            for owners, sets in ((self.standby_owners, tasks.standby), (self.warmup_owners, tasks.warmup)):
                for task in _tasks(sets):
                    left = owners.get(task, frozenset()) - {member.process_id}
                    if left:
                        owners[task] = left
                    else:
                        owners.pop(task, None)


def _tasks(tasks: Mapping[str, Iterable[int]]) -> Iterable[Task]:
    return ((subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions)
