"""The share group (KIP-932; Kafka: ShareGroup): members share the records of the same partitions.

No member has to give up a partition before another one gets it: a member reaches its target as soon as it receives it
(see `modern` for the epochs). A group also tracks the partitions that have state at the share coordinator; only those
are assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from ottla.coordinator.groups.consumer.assignors import Target
from ottla.coordinator.groups.modern import LEAVE_EPOCH, ModernGroup
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.groups.share import records as share_records
from ottla.coordinator.runtime.result import Result
from ottla.errors import KafkaError
from ottla.wire.stored import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

NO_INDEXES: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Target = field(default_factory=dict)

    instance_id: ClassVar[None] = None
    is_revoking: ClassVar[bool] = False
    rebalance_timeout_ms: ClassVar[int] = -1

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned={each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions},
        )

    def without_assignment(self) -> ShareMember:
        return replace(self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})


@dataclass(frozen=True, slots=True)
class ShareTopics:
    """The partitions whose state at a share coordinator exists, is being created or is being deleted, by topic id."""

    names: Mapping[bytes, str] = field(default_factory=dict)
    initializing: Target = field(default_factory=dict)
    initialized: Target = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, value: ShareGroupStatePartitionMetadataValue) -> ShareTopics:
        names = {each.topic_id: each.topic_name for each in value.deleting_topics}
        for partitions in (*value.initializing_topics, *value.initialized_topics):
            names[partitions.topic_id] = partitions.topic_name
        return cls(
            names,
            {each.topic_id: frozenset(each.partitions) for each in value.initializing_topics},
            {each.topic_id: frozenset(each.partitions) for each in value.initialized_topics},
            frozenset(each.topic_id for each in value.deleting_topics),
        )

    def with_initializing(self, topics: Mapping[bytes, tuple[str, frozenset[int]]]) -> ShareTopics:
        names, initializing, initialized = dict(self.names), dict(self.initializing), dict(self.initialized)
        for topic_id, (name, indexes) in topics.items():
            names[topic_id] = name
            initializing[topic_id] = initializing.get(topic_id, NO_INDEXES) | indexes
            _take(initialized, topic_id, indexes)
        return ShareTopics(names, initializing, initialized, self.deleting - topics.keys())

    def with_initialized(self, partitions: Mapping[bytes, frozenset[int]]) -> ShareTopics:
        initializing, initialized = dict(self.initializing), dict(self.initialized)
        for topic_id, indexes in partitions.items():
            initialized[topic_id] = initialized.get(topic_id, NO_INDEXES) | indexes
            _take(initializing, topic_id, indexes)
        return ShareTopics(self.names, initializing, initialized, self.deleting)

    def with_deleting(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        gone = frozenset(topic_ids)
        return ShareTopics(
            self.names,
            {topic_id: indexes for topic_id, indexes in self.initializing.items() if topic_id not in gone},
            {topic_id: indexes for topic_id, indexes in self.initialized.items() if topic_id not in gone},
            self.deleting | gone,
        )

    def without(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        rest = self.with_deleting(topic_ids)
        gone = frozenset(topic_ids)
        return ShareTopics(
            {topic_id: name for topic_id, name in rest.names.items() if topic_id not in gone},
            rest.initializing,
            rest.initialized,
            rest.deleting - gone,
        )

    def knows(self, topic_id: bytes) -> bool:
        return topic_id in self.initializing or topic_id in self.initialized or topic_id in self.deleting


def _take(partitions: Target, topic_id: bytes, indexes: frozenset[int]) -> None:
    left = partitions.pop(topic_id, NO_INDEXES) - indexes
    if left:
        partitions[topic_id] = left


NO_TOPICS = ShareTopics()


class ShareGroup(ModernGroup[ShareMember, Target]):
    __slots__ = ("topics",)

    type_name = "share"
    protocol_type = "share"
    expires = False

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics = NO_TOPICS

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_reconciled(self, member: ShareMember) -> bool:
        return member.epoch == self.target_epoch

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def tombstones(self) -> list[CoordinatorRecord]:
        records: list[CoordinatorRecord] = []
        for member_id in self.members:
            records += share_records.member_tombstones(self.group_id, member_id)
        return [*records, *share_records.group_tombstones(self.group_id)]

    def before_deleted(self, shard: GroupShard, done: Callable[[KafkaError | None], None]) -> Result[None] | None:
        """The share coordinators delete their state first. Until then, a record keeps what they must delete."""
        partitions = {**self.topics.initializing}
        for topic_id, indexes in self.topics.initialized.items():
            partitions[topic_id] = partitions.get(topic_id, NO_INDEXES) | indexes
        for topic_id in self.topics.deleting:
            if (topic := shard.image.topic_by_id(topic_id)) is not None:
                partitions[topic_id] = frozenset(range(topic.partition_count))
        if not partitions:
            return None

        def then(error: KafkaError | None) -> None:
            if error is None:
                shard.image.share_state().delete(
                    self.group_id, partitions, lambda outcome: done(next(filter(None, outcome.values()), None))
                )
            else:
                done(error)

        return Result([share_records.topics_record(self.group_id, self.topics.with_deleting(partitions))], None, then)

    # -- replay

    def new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id)

    @staticmethod
    def target_of(value: ShareGroupTargetAssignmentMemberValue) -> Target:
        return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    @property
    def has_unassigned(self) -> bool:
        """Whether assignable partitions have no member: their state was created after the last assignment."""
        assigned: dict[bytes, set[int]] = {}
        for member in self.members.values():
            for topic_id, indexes in member.assigned.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        return any(
            self.is_subscribed_to(self.topics.names[topic_id]) and not indexes <= assigned.get(topic_id, NO_INDEXES)
            for topic_id, indexes in self.topics.initialized.items()
        )
