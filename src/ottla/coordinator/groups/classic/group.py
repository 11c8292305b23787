"""The classic group: a state machine that waits for its members (Kafka: ClassicGroup).

Clients run the protocol: each member joins, the first one leads and computes the assignment, and the coordinator only
synchronizes them. A rebalance has two barriers. Until every known member has (re)joined, or the rebalance timeout ends,
the group is PreparingRebalance. Then the next generation begins, all joins are answered, and the group is
CompletingRebalance until the leader's SyncGroup brings the assignments. The group is written to the log only then and
when it becomes empty. Everything else is in memory; if the coordinator fails, the members join again.

    state                 event                                        next
    --------------------  -------------------------------------------  --------------------
    Empty                 a member is added                            PreparingRebalance
    PreparingRebalance    all members joined, or the timeout ended     CompletingRebalance
    PreparingRebalance    the same, but no member is left              Empty
    CompletingRebalance   the leader's assignments are stored          Stable
    CompletingRebalance   a member joins, changes, leaves or dies      PreparingRebalance
    Stable                the same                                     PreparingRebalance
    any                   the group is deleted or unloaded             Dead

Every transition that is not in the table is a bug and raises AssertionError.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.answers import Reply
from ottla.coordinator.groups.classic import consumer_metadata as consumer_protocol
from ottla.coordinator.groups.classic.records import classic_group_tombstone
from ottla.coordinator.groups.interfaces import Group, join_error
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.runtime.deadlines import Deadline
from ottla.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.wire.messages import JoinGroupResponse, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.wire.stored import GroupMetadataValue


class State(enum.Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

TRANSITIONS: dict[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}

ProtocolList = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports, best first, each with its metadata."""


class ClassicMember:
    """A member, with its pending request, if any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "join_version",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: ProtocolList,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.join_reply: Reply[JoinGroupResponse] | None = None
        self.join_version = JoinGroupResponse.MAX_VERSION
        self.sync_reply: Reply[SyncGroupResponse] | None = None
        self.is_new = False
        self.session: Deadline | None = None

    @property
    def awaits_answer(self) -> bool:
        """A member that waits for an answer cannot send heartbeats, so it does not time out, unless it is new."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol}")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def stop_session(self) -> None:
        if self.session is not None:
            self.session.cancel()


class ClassicGroup(Group):
    __slots__ = (
        "awaiting_join",
        "generation",
        "join_timeout",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "stored",
        "subscribed_topics",
        "support",
        "sync_timeout",
    )

    type_name = "classic"

    def __init__(self, group_id: str, state_timestamp_ms: int | None, state: State = EMPTY) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Deadline] = {}
        """Member ids sent with MEMBER_ID_REQUIRED whose clients have not joined again yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        self.awaiting_join = 0
        self.support: dict[str, int] = {}
        """For each protocol, the number of members that support it."""
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.join_timeout: Deadline | None = None
        self.sync_timeout: Deadline | None = None
        self.stored: GroupMetadataValue | None = None
        """The last replayed record of this group; None for a group that only has offsets."""

    @classmethod
    def from_stored(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group that a record describes."""
        group = cls(group_id, None, STABLE if value.members else EMPTY)
        group.state_timestamp_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for member in value.members:
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                    member.session_timeout,
                    value.protocol_type,
                    ((value.protocol or "", member.subscription),),
                    member.assignment,
                )
            )
        group.subscribed_topics = group.read_subscriptions()
        group.stored = value
        return group

    # -- queries

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether the group only holds offsets that were committed without membership. It has no group record."""
        return self.protocol_type is None and self.state is EMPTY and not self.pending_joins

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def generation_or_epoch(self) -> int:
        return self.generation

    def as_committed(self, *, has_offsets: bool) -> ClassicGroup | None:
        """Most of a classic group is in memory only, as in Kafka, so reads see the current state.

        A group with neither a record nor offsets was created by an operation that is not committed yet.
        """
        return None if self.stored is None and not has_offsets else self

    def tombstones(self) -> list[CoordinatorRecord]:
        return [classic_group_tombstone(self.group_id)]

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == consumer_protocol.PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return PREPARING in TRANSITIONS[self.state]

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: ProtocolList) -> bool:
        """Whether a member with these protocols can join: all members must support at least one of them."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self.support.get(name, 0) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all members support; the most votes win."""
        count = len(self.members)
        candidates = {name for name, supporters in self.support.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def is_subscribed_to(self, topic: str) -> bool:
        """True if the subscriptions of a consumer group are unknown: it is safer to keep an offset too long."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def validate_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise UnknownMemberId
            if known != member_id:
                raise FencedInstanceId
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId
        return member

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Raise if the sender may not commit. A commit also shows that a member is alive; `epoch` is its generation."""
        if self.state is DEAD:
            raise CoordinatorNotAvailable
        if epoch < 0 and self.state is EMPTY:
            return
        member = None
        if epoch >= 0 or member_id or instance_id is not None:
            member = self.validate_member(member_id, instance_id)
            if epoch != self.generation:
                raise IllegalGeneration
        elif not transactional:
            # A client that is not a member must not move the offsets of an active group.
            raise UnknownMemberId
        if transactional:
            return
        if self.state is COMPLETING:
            raise RebalanceInProgress
        if member is not None and member.session is not None and self.state in (STABLE, PREPARING):
            member.session.push(member.session_timeout_ms)

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        if self.state is DEAD:
            raise GroupIdNotFound(f"Group {self.group_id} is in dead state.")

    def validate_offset_delete(self) -> None:
        if self.state is DEAD:
            raise GroupIdNotFound(f"Group {self.group_id} is in dead state.")
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise NonEmptyGroup

    def validate_delete(self) -> None:
        if self.state is DEAD:
            raise GroupIdNotFound(f"Group {self.group_id} is in dead state.")
        if self.state is not EMPTY:
            raise NonEmptyGroup

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which an offset ages (KIP-211): when the group became empty. None while the group is in use.

        In a Stable consumer group, only offsets of topics without a subscriber age, from their commit.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is STABLE:
            return commit_timestamp_ms
        return None

    # -- changes in memory

    def move_to(self, state: State, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicMember) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"static member {member.instance_id} already exists"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_support(member, 1)
        pending = self.pending_joins.pop(member.member_id, None)
        if pending is not None:
            pending.cancel()

    def remove(self, member_id: str) -> None:
        """Remove a member, joined or pending. If it was the leader, another member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member, -1)
            if member.join_reply is not None:
                self.awaiting_join -= 1
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
            member.stop_session()
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        pending = self.pending_joins.pop(member_id, None)
        if pending is not None:
            pending.cancel()
        self.pending_syncs.discard(member_id)

    def update(
        self, member: ClassicMember, protocols: ProtocolList, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """A static member has rejoined with a new member id: fence the old incarnation and keep its state."""
        old = self.members.pop(self.static_members[instance_id])
        self.answer_join(old, FencedInstanceId.code, member_id=old.member_id)
        self.answer_sync(old, SyncGroupResponse(error_code=FencedInstanceId.code))
        old.stop_session()
        member = ClassicMember(
            new_member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = member
        if self.leader == old.member_id:
            self.leader = new_member_id
        self.static_members[instance_id] = new_member_id
        return member

    def elect_joined_leader(self) -> bool:
        """Replace a leader that did not rejoin; False if no member has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader = member.member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        """All members have joined, or the rebalance timeout has ended."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.move_to(COMPLETING if self.members else EMPTY, now_ms)
        self.pending_syncs.clear()

    def settle_assignments(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The leader's assignments are stored: the group is Stable."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self.move_to(STABLE, now_ms)

    def read_subscriptions(self) -> frozenset[str] | None:
        """The topics that the members of a consumer group read; None if the coordinator cannot decode them."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(consumer_protocol.decode_topics(member.metadata(self.protocol)))
        except consumer_protocol.MalformedMetadata:
            return None
        return frozenset(topics)

    def _count_support(self, member: ClassicMember, change: int) -> None:
        for name, _ in member.protocols:
            self.support[name] = self.support.get(name, 0) + change

    # -- answers

    def expect_join(self, member: ClassicMember, reply: Reply[JoinGroupResponse] | None, version: int) -> None:
        if (reply is None) != (member.join_reply is None):
            self.awaiting_join += -1 if reply is None else 1
        member.join_reply = reply
        member.join_version = version

    def answer_join(self, member: ClassicMember, error_code: int, member_id: str) -> None:
        if member.join_reply is not None:
            self.settle_join(member, join_error(error_code, member_id, member.join_version))

    def settle_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        reply = member.join_reply
        if reply is not None:
            member.join_reply = None
            self.awaiting_join -= 1
            reply.resolve(response)

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        reply = member.sync_reply
        if reply is None:
            return False
        member.sync_reply = None
        reply.resolve(response)
        return True

    def join_response(self, member_id: str, *, with_members: bool, skip_assignment: bool = False) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=list(self._joined()) if with_members else [],
        )

    def _joined(self) -> Iterator[JoinGroupResponse.JoinGroupResponseMember]:
        for member in self.members.values():
            yield JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )

    def timers(self) -> Iterable[Deadline]:
        for member in self.members.values():
            if member.session is not None:
                yield member.session
        yield from self.pending_joins.values()
        if self.join_timeout is not None:
            yield self.join_timeout
        if self.sync_timeout is not None:
            yield self.sync_timeout

    def cancel_timers(self) -> None:
        for deadline in self.timers():
            deadline.cancel()
