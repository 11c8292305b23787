"""The common parts of consumer, share and streams groups (KIP-848; Kafka: ModernGroup).

The broker computes the assignment, and members follow it with heartbeats. There are three epochs. The group epoch
increases when anything changes that an assignment depends on. The target assignment has the group epoch that it was
computed for. A member's epoch is the epoch of the target that it has reached.

A group has five kinds of records: the group's epoch, each member, the target's epoch, each member's target, and each
member's current assignment. Members are immutable: a change creates a new member object and a record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

from ottla.coordinator.groups import history
from ottla.coordinator.groups.interfaces import Group, GroupProtocol
from ottla.coordinator.groups.topic_hash import group_hash
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.runtime.deadlines import Deadline
from ottla.coordinator.runtime.result import Result
from ottla.errors import UnknownMemberId
from ottla.metadata.java_hash_order import FIRST_SLOTS, timeline_map, timeline_slots
from ottla.metadata.topics import java_hash
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.groups.records import CoordinatorRecord

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
FIRST_EPOCH: Final = 1

_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))

T = TypeVar("T")


def is_blank(text: str) -> bool:
    """Whether nothing is left after Java's trim(). It removes control characters, but no spaces beyond ASCII."""
    return not text.strip(_BLANKS)


class ModernMember(Protocol):
    """The common interface of members (Kafka: ModernGroupMember)."""

    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...

    @property
    def is_revoking(self) -> bool:
        """Whether it must revoke something, within its rebalance timeout, before it gets more."""
        ...

    @property
    def rebalance_timeout_ms(self) -> int: ...

    def with_metadata(self, value: Any) -> Self: ...
    def with_assignment(self, value: Any) -> Self: ...

    def without_assignment(self) -> Self:
        """The member after the first of its tombstones, before the last one is replayed."""
        ...


MemberT = TypeVar("MemberT", bound=ModernMember)
TargetT = TypeVar("TargetT")


class ModernGroup(Group, Generic[MemberT, TargetT]):
    __slots__ = (
        "epoch",
        "members",
        "metadata_hash",
        "needs_refresh",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    members: dict[str, MemberT]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members = {}
        self.target: dict[str, TargetT] = {}
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.needs_refresh = True
        """In memory only: a topic that the assignment depends on may have changed, so check all of them again."""

    def copy(self) -> Self:
        """A shallow copy: members are immutable."""
        other = type(self)(self.group_id)
        for layer in type(self).__mro__:
            for name in getattr(layer, "__slots__", ()):
                value = getattr(self, name)
                setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other

    def as_committed(self, *, has_offsets: bool) -> Self:
        return self.copy()

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation_or_epoch(self) -> int:
        return self.epoch

    @property
    def reconciliation_state(self) -> str:
        """The state of a group that has members, derived from its epochs."""
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(self.is_reconciled(member) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @abstractmethod
    def is_reconciled(self, member: MemberT) -> bool:
        """Whether a member has reached the target."""

    def member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def depends_on(self, topic: str) -> bool:
        """Whether a change of the topic may change the assignment."""
        return self.is_subscribed_to(topic)

    # -- replay

    def load_epoch(self, value: Any) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    @abstractmethod
    def new_member(self, member_id: str) -> MemberT:
        """A member without any records yet."""

    def put_member(self, member: MemberT) -> None:
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        self.members.pop(member_id, None)

    @staticmethod
    @abstractmethod
    def target_of(value: Any) -> TargetT:
        """A member's target, from its record."""


GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])
Replay = Callable[[Any, Any, Any, Any], None]
"""A method of a protocol that applies a record (key and value) to a group."""


class MemberTimers:
    """A member's deadlines: session, revocation, and for a classic member rejoin and sync."""

    __slots__ = ("join", "rebalance", "session", "sync")

    def __init__(self) -> None:
        self.session: Deadline | None = None
        self.rebalance: Deadline | None = None
        self.join: Deadline | None = None
        self.sync: Deadline | None = None

    def cancel(self) -> None:
        for deadline in (self.session, self.rebalance, self.join, self.sync):
            if deadline is not None:
                deadline.cancel()


class ModernProtocol(GroupProtocol[GroupT], Generic[GroupT]):
    __slots__ = ("_timers",)

    replays: ClassVar[Mapping[type[Message], Replay]]
    """The replay method for each key: the five below, and those specific to the kind."""

    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard)
        self._timers: dict[tuple[str, str], MemberTimers] = {}

    # -- replay

    def replay(self, key: Any, value: Any) -> None:
        group = self.find(key.group_id)
        if group is None:
            if value is None:
                return
            group = self._created(key.group_id)
        self.replays[type(key)](self, group, key, value)

    def _created(self, group_id: str) -> GroupT:
        known = self._shard.groups.get(group_id)
        if known is not None and not known.is_simple:
            kind = self.group_type.type_name
            raise CorruptRecord(f"group {group_id} is a {known.type_name} group, but has a record of a {kind} group")
        created = self._shard.groups[group_id] = self.group_type(group_id)
        return created

    def replay_group(self, group: GroupT, key: Any, value: Any) -> None:
        """The group's epoch. Its tombstone is the last one of a group."""
        if value is not None:
            before = group.epoch
            group.load_epoch(value)
            if group.epoch != before:
                self._shard.note(group.group_id, history.GENERATION, generation=group.epoch, members=len(group.members))
            return
        del self._shard.groups[group.group_id]
        self.forget(group)
        if group.group_id in self._shard.offsets.groups:
            self._shard.ensure_group(group.group_id)

    def replay_member(self, group: GroupT, key: Any, value: Any) -> None:
        known = group.members.get(key.member_id)
        if value is None:
            if known is not None:
                self._shard.note(group.group_id, history.LEFT, key.member_id)
            group.remove_member(key.member_id)
            return
        member = (known or group.new_member(key.member_id)).with_metadata(value)
        if known is None:
            self._shard.note(group.group_id, history.JOINED, key.member_id)
        elif known != member:
            self._shard.note(group.group_id, history.CHANGED, key.member_id)
        group.put_member(member)

    def replay_target_metadata(self, group: GroupT, key: Any, value: Any) -> None:
        group.target_epoch = -1 if value is None else value.assignment_epoch
        group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def replay_target_member(self, group: GroupT, key: Any, value: Any) -> None:
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = group.target_of(value)

    def replay_current_assignment(self, group: GroupT, key: Any, value: Any) -> None:
        member = group.members.get(key.member_id)
        if value is not None:
            group.put_member((member or group.new_member(key.member_id)).with_assignment(value))
        elif member is not None:
            group.put_member(member.without_assignment())

    # -- the group's epoch and target

    def topics_hash(self, names: Iterable[str]) -> int:
        """The metadata hash of a group that depends on these topics; those that do not exist are left out."""
        image = self._shard.image
        topics = [topic for name in names if (topic := image.topic(name)) is not None]
        return group_hash(topics, self._shard.topic_hashes)

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Groups that depend on these topics check again at their next heartbeat."""
        changed = set(names)
        for group in self.groups():
            if any(map(group.depends_on, changed)):
                group.needs_refresh = True

    @abstractmethod
    def assignment_interval_ms(self, group_id: str) -> int:
        """The shortest time between two assignments (KIP-1263)."""

    def is_too_soon(self, group: GroupT, now_ms: int) -> bool:
        """Whether the last assignment is too recent to compute another one."""
        last_ms = group.target_timestamp_ms
        return bool(last_ms) and now_ms < last_ms + self.assignment_interval_ms(group.group_id)

    @abstractmethod
    def target_record(self, group_id: str, member_id: str, target: Any) -> CoordinatorRecord: ...

    @abstractmethod
    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord: ...

    def add_targets(
        self,
        group: GroupT,
        epoch: int,
        members: Iterable[str],
        targets: Mapping[str, Any],
        now_ms: int,
        records: list[CoordinatorRecord],
    ) -> None:
        """Add the records of a new target: the changed targets of members, then the target's epoch."""
        for member_id in members:
            target = targets[member_id]
            if target != group.target.get(member_id):
                records.append(self.target_record(group.group_id, member_id, target))
        records.append(self.target_epoch_record(group.group_id, epoch, now_ms))

    # -- sessions

    @abstractmethod
    def session_timeout_ms(self, group_id: str) -> int: ...

    def timers(self, group_id: str, member_id: str) -> MemberTimers:
        timers = self._timers.get((group_id, member_id))
        if timers is None:
            timers = self._timers[group_id, member_id] = MemberTimers()
        return timers

    def keep_alive(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Restart the member's session: it has sent a request."""
        timers = self.timers(group_id, member_id)
        if timers.session is None:
            timers.session = self.fencing_deadline(group_id, member_id)
        timers.session.push(timeout_ms)

    def watch_revocation(self, group_id: str, member: ModernMember) -> None:
        timers = self.timers(group_id, member.member_id)
        if timers.rebalance is not None:
            timers.rebalance.cancel()
            timers.rebalance = None
        if member.is_revoking:
            timers.rebalance = self.fencing_deadline(group_id, member.member_id, member.epoch)
            timers.rebalance.push(member.rebalance_timeout_ms)

    def fencing_deadline(self, group_id: str, member_id: str, at_epoch: int | None = None) -> Deadline:
        """A deadline that fences the member; with `at_epoch`, only if it is still at that epoch."""

        def elapsed() -> None:
            group = self.find(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is not None and member is not None and (at_epoch is None or member.epoch == at_epoch):
                why = "no heartbeat within its session" if at_epoch is None else "did not give up partitions in time"
                self._shard.note(group_id, history.TIMED_OUT, member_id, why)
                self._shard.run(self.remove(group, member_id))

        return Deadline(self._shard.clock, self._shard.timer, elapsed)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        timers = self._timers.pop((group_id, member_id), None)
        if timers is not None:
            timers.cancel()

    def on_loaded(self, group: GroupT) -> None:
        for member in group.members.values():
            self.keep_alive(group.group_id, member.member_id, self.session_timeout_ms(group.group_id))
            if member.is_revoking:
                self.watch_revocation(group.group_id, member)

    def on_unloaded(self) -> None:
        for timers in self._timers.values():
            timers.cancel()
        self._timers.clear()

    def forget(self, group: GroupT) -> None:
        for member_id in group.members:
            self.cancel_timers(group.group_id, member_id)

    # -- actions of tests and operators

    def rebalance(self, group: GroupT) -> Result[None]:
        return Result([self.next_epoch_record(group)])

    @abstractmethod
    def next_epoch_record(self, group: GroupT) -> CoordinatorRecord:
        """Bump the epoch although nothing has changed."""

    def named(self, partitions: Mapping[bytes, Iterable[int]]) -> list[tuple[str, int]]:
        """The partitions as (topic, partition); deleted topics are left out."""
        image = self._shard.image
        return [
            (topic.name, index)
            for topic_id, indexes in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
            for index in indexes
        ]


def members_in_order(members: Mapping[str, T]) -> list[T]:
    """In the order of Kafka's hash map, into which Kafka puts each member more than once."""
    slots = FIRST_SLOTS
    for size in range(len(members) + 1):
        slots = timeline_slots(size, slots)
    return [members[member_id] for member_id in timeline_map(members, java_hash, slots)]
