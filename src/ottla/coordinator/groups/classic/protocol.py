"""The classic protocol's requests (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) and their timeouts.

Each function reads the group, changes in-memory state (waiting requests, pending members) and returns a `Result`.
Persisted state changes when the result's records are replayed; after that, `then` answers the waiting members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.answers import Reply, settled
from ottla.coordinator.groups import history
from ottla.coordinator.groups.classic import consumer_metadata as consumer_protocol
from ottla.coordinator.groups.classic.append_errors import append_error_code
from ottla.coordinator.groups.classic.group import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicMember,
)
from ottla.coordinator.groups.classic.records import classic_group_record
from ottla.coordinator.groups.interfaces import NO_MEMBER, GroupProtocol, join_error
from ottla.coordinator.runtime.deadlines import Deadline
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import NOTHING, Result
from ottla.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.stored import GroupMetadataValue

T = TypeVar("T")

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""The timeout of a new member's first join. Its client cannot send heartbeats before the answer."""


class ClassicProtocol(GroupProtocol[ClassicGroup]):
    __slots__ = ()

    group_type = ClassicGroup

    # -- JoinGroup

    def join(self, request: JoinGroupRequest, client: Client) -> Result[JoinGroupResponse]:
        """Add or update a member. The answer is usually sent when the whole group has joined."""
        group_id, member_id = request.group_id, request.member_id
        is_new_group = self.find(group_id) is None
        group = self._group_to_join(group_id, create=not member_id)
        if group is None:
            return Result((), join_error(UnknownMemberId.code, member_id, client.version))
        if not self._accepts(group, member_id):
            group.remove(member_id)
            result = Result((), join_error(GroupMaxSizeReached.code, NO_MEMBER, client.version))
        elif not member_id:
            result = self._join_new(group, request, client)
        else:
            result = self._join_known(group, request, client)
        if is_new_group and not result.records:
            # The group must survive a restart even if its first member never joins with its new id.
            return result._replace(records=[classic_group_record(group, {}, empty=True)])
        return result

    def _group_to_join(self, group_id: str, *, create: bool) -> ClassicGroup | None:
        """The classic group with this id, if any. `create` creates it, and replaces an empty group of another kind."""
        shard = self._shard
        group = shard.groups.get(group_id)
        if create and group is not None and group.can_become_classic:
            shard.run(Result(group.tombstones()))
            group = None
        if create and group is None:
            shard.groups[group_id] = ClassicGroup(group_id, shard.clock.now_ms())
        return self.find(group_id)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        max_size = self._shard.settings.max_size
        if group.state is PREPARING:
            member = group.members.get(member_id)
            return (member is not None and member.join_reply is not None) or group.awaiting_join < max_size
        if group.state in (COMPLETING, STABLE):
            return member_id in group.members or len(group.members) < max_size
        return True

    def _join_new(self, group: ClassicGroup, request: JoinGroupRequest, client: Client) -> Result[JoinGroupResponse]:
        protocols = _protocols(request)
        if group.state is DEAD:
            return Result((), join_error(CoordinatorNotAvailable.code, NO_MEMBER, client.version))
        if not group.supports(request.protocol_type, protocols):
            return Result((), join_error(InconsistentGroupProtocol.code, NO_MEMBER, client.version))
        instance_id = request.group_instance_id
        new_id = self._shard.new_member_id(client.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._rejoin_static(group, instance_id, new_id, request, client)
            return self._add(group, new_id, request, client)
        if client.version < 4:
            return self._add(group, new_id, request, client)
        # KIP-394: a client that crashes before it learns its id must not leave a ghost member behind.
        pending = Deadline(self._shard.clock, self._shard.timer, lambda: self._expire_member(group, new_id))
        group.pending_joins[new_id] = pending
        pending.push(request.session_timeout_ms)
        return Result((), join_error(MemberIdRequired.code, new_id, client.version))

    def _join_known(self, group: ClassicGroup, request: JoinGroupRequest, client: Client) -> Result[JoinGroupResponse]:
        member_id, protocols = request.member_id, _protocols(request)
        if group.state is DEAD:
            return Result((), join_error(CoordinatorNotAvailable.code, member_id, client.version))
        if not group.supports(request.protocol_type, protocols):
            return Result((), join_error(InconsistentGroupProtocol.code, member_id, client.version))
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Kafka fails here: static members never get a pending id. The id stays valid for a dynamic member.
                return Result((), join_error(UnknownServerError.code, NO_MEMBER, client.version))
            return self._add(group, member_id, request, client)
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return Result((), join_error(error.code, member_id, client.version))
        if group.state is PREPARING:
            return self._rejoin(group, member, request, client)
        unchanged = member.protocols == protocols
        is_leader = group.leader == member_id
        if group.state is COMPLETING:
            if unchanged:
                # The member did not receive the last answer; nothing else has changed.
                return Result((), group.join_response(member_id, with_members=is_leader))
            return self._rejoin(group, member, request, client)
        if group.state is STABLE:
            if is_leader or not unchanged:
                # A leader that joins again wants to change the assignment (new partitions, for example).
                return self._rejoin(group, member, request, client)
            return Result((), group.join_response(member_id, with_members=False))
        return Result((), join_error(UnknownMemberId.code, member_id, client.version))

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroupRequest, client: Client
    ) -> Result[JoinGroupResponse]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            _protocols(request),
        )
        member.is_new = True
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        reply: Reply[JoinGroupResponse] = Reply()
        self._shard.note(group.group_id, history.JOINED, member_id, request.reason or None)
        group.add(member)
        group.expect_join(member, reply, client.version)
        self.keep_alive(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return _with_reply(self._rebalance_or_complete(group), reply)

    def _rejoin(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, client: Client
    ) -> Result[JoinGroupResponse]:
        reply: Reply[JoinGroupResponse] = Reply()
        protocols = _protocols(request)
        if member.protocols != protocols:
            self._shard.note(group.group_id, history.CHANGED, member.member_id, request.reason or None)
        elif group.state is STABLE:
            self._shard.note(group.group_id, history.REJOINED, member.member_id, request.reason or None)
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.expect_join(member, reply, client.version)
        return _with_reply(self._rebalance_or_complete(group), reply)

    def _rejoin_static(
        self, group: ClassicGroup, instance_id: str, new_id: str, request: JoinGroupRequest, client: Client
    ) -> Result[JoinGroupResponse]:
        """KIP-345: a restarted static member takes over its old state, without a rebalance if the group is stable."""
        old_id, old_leader = group.static_members[instance_id], group.leader
        member = group.replace_static(instance_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self.keep_alive(group, member, member.session_timeout_ms)
        reply: Reply[JoinGroupResponse] = Reply()
        group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms)
        group.expect_join(member, reply, client.version)
        if group.state is STABLE:
            if group.protocol != group.select_protocol():
                return _with_reply(self._rebalance_or_complete(group), reply)

            def stored(error: KafkaError | None) -> None:
                if error is None:
                    # KIP-814: the answer tells the member that it leads, and that it must skip the assignment. Versions
                    # before v9 have no field for this, so the answer names the old member id as the leader.
                    if client.version >= 9:
                        leads = group.leader == new_id
                        response = group.join_response(new_id, with_members=leads, skip_assignment=leads)
                    else:
                        response = group.join_response(new_id, with_members=False)
                        response.leader = old_leader or ""
                    group.settle_join(member, response)
                else:
                    group.expect_join(member, None, client.version)
                    restored = group.replace_static(instance_id, old_id)
                    group.update(restored, *before)
                    self.keep_alive(group, restored, restored.session_timeout_ms)
                    reply.resolve(join_error(append_error_code(error), NO_MEMBER, client.version))

            assignments = {each.member_id: each.assignment for each in group.members.values()}
            return Result([classic_group_record(group, assignments)], reply, stored)
        if group.state is COMPLETING:
            return _with_reply(self.prepare_rebalance(group), reply)
        assert group.state is PREPARING, f"a static member is known in state {group.state_name}"
        return _with_reply(self._complete_if_joined(group), reply)

    # -- the join barrier

    def _rebalance_or_complete(self, group: ClassicGroup) -> Result[None]:
        return self.prepare_rebalance(group) if group.can_rebalance else self._complete_if_joined(group)

    def prepare_rebalance(self, group: ClassicGroup) -> Result[None]:
        """Start a rebalance: members that wait for a sync must join again."""
        shard = self._shard
        if group.state is COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self._answer_syncs(group, RebalanceInProgress.code)
        group.pending_syncs.clear()
        if group.sync_timeout is not None:
            group.sync_timeout.cancel()
        is_initial = group.state is EMPTY
        group.move_to(PREPARING, shard.clock.now_ms())
        if is_initial:
            delay_ms = shard.settings.initial_rebalance_delay_ms
            return self._initial_delay(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        if group.has_all_joined:
            return self._complete_join(group)
        self._on_join_timeout(group, group.rebalance_timeout_ms)
        return NOTHING

    def _initial_delay(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> Result[None]:
        """The first members of a group rarely join together: wait a short time, and extend it while more arrive."""
        shard = self._shard
        if delay_ms == 0:
            return self._complete_join(group)

        def elapsed() -> None:
            if not self._is_current(group):
                return
            if group.new_member_added and left_ms > 0:
                group.new_member_added = False
                next_ms = min(shard.settings.initial_rebalance_delay_ms, left_ms)
                shard.run(self._initial_delay(group, next_ms, max(left_ms - delay_ms, 0)))
            else:
                shard.run(self._complete_join(group))

        if group.join_timeout is not None:
            group.join_timeout.cancel()
        group.join_timeout = Deadline(shard.clock, shard.timer, elapsed)
        group.join_timeout.push(delay_ms)
        return NOTHING

    def _on_join_timeout(self, group: ClassicGroup, delay_ms: int) -> None:
        def elapsed() -> None:
            if self._is_current(group) and group.state is PREPARING:
                self._shard.run(self._complete_join(group))

        if group.join_timeout is not None:
            group.join_timeout.cancel()
        group.join_timeout = Deadline(self._shard.clock, self._shard.timer, elapsed)
        group.join_timeout.push(delay_ms)

    def _complete_if_joined(self, group: ClassicGroup) -> Result[None]:
        # During the initial delay the rebalance must not complete early.
        if group.state is PREPARING and group.previous_state is not EMPTY and group.has_all_joined:
            return self._complete_join(group)
        return NOTHING

    def _complete_join(self, group: ClassicGroup) -> Result[None]:
        """Remove members that did not rejoin, except static ones, and begin the next generation."""
        shard = self._shard
        if group.join_timeout is not None:
            group.join_timeout.cancel()
        for member in list(group.members.values()):
            if member.join_reply is None and member.instance_id is None:
                self._shard.note(group.group_id, history.TIMED_OUT, member.member_id, "did not join again in time")
                group.remove(member.member_id)
        if group.state is DEAD:
            return NOTHING
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: wait again until they join or their sessions end.
            self._on_join_timeout(group, group.rebalance_timeout_ms)
            return NOTHING
        group.next_generation(shard.clock.now_ms())
        shard.note(group.group_id, history.GENERATION, generation=group.generation, members=len(group.members))
        group.new_member_added = False
        if group.state is EMPTY:
            return Result([classic_group_record(group, {})])
        for member in group.members.values():
            is_leader = group.leader == member.member_id
            group.settle_join(member, group.join_response(member.member_id, with_members=is_leader))
            self.keep_alive(group, member, member.session_timeout_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._await_syncs(group)
        return NOTHING

    # -- SyncGroup

    def sync(self, request: SyncGroupRequest, client: Client) -> Result[SyncGroupResponse]:
        """Answer with the leader's assignments. All members wait for them."""
        group = self.find(request.group_id)
        if group is None or group.is_empty:
            return Result((), SyncGroupResponse(error_code=UnknownMemberId.code))
        if group.state is DEAD:
            return Result((), SyncGroupResponse(error_code=CoordinatorNotAvailable.code))
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise IllegalGeneration
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
            raise InconsistentGroupProtocol
        if group.state is PREPARING:
            raise RebalanceInProgress
        self._synced(group, member)
        if group.state is STABLE:
            return Result(
                (),
                SyncGroupResponse(
                    protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
                ),
            )
        reply: Reply[SyncGroupResponse] = Reply()
        member.sync_reply = reply
        if group.leader != member.member_id:
            return Result((), reply)
        given = {each.member_id: each.assignment for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation

        def stored(error: KafkaError | None) -> None:
            # A member may have joined or left while the record was being replicated. Then a new rebalance has begun,
            # and the members that waited here must join again.
            if group.state is not COMPLETING or group.generation != generation or not self._is_current(group):
                return
            if error is None:
                group.settle_assignments(assignments, self._shard.clock.now_ms())
                self._answer_syncs(group, 0)
            else:
                self._answer_syncs(group, append_error_code(error))
                self._shard.run(self._rebalance_or_complete(group))

        return Result([classic_group_record(group, assignments)], reply, stored)

    def _answer_syncs(self, group: ClassicGroup, error_code: int) -> None:
        for member in group.members.values():
            if error_code:
                response = SyncGroupResponse(error_code=error_code)
            else:
                response = SyncGroupResponse(
                    protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
                )
            if group.answer_sync(member, response):
                self.keep_alive(group, member, member.session_timeout_ms)

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs and group.sync_timeout is not None:
            group.sync_timeout.cancel()

    def _await_syncs(self, group: ClassicGroup) -> None:
        generation = group.generation

        def elapsed() -> None:
            if not self._is_current(group) or group.generation != generation:
                return
            if group.state in (COMPLETING, STABLE) and group.pending_syncs:
                for member_id in list(group.pending_syncs):
                    self._shard.note(group.group_id, history.TIMED_OUT, member_id, "did not sync in time")
                    group.remove(member_id)
                self._shard.run(self.prepare_rebalance(group))

        if group.sync_timeout is not None:
            group.sync_timeout.cancel()
        group.sync_timeout = Deadline(self._shard.clock, self._shard.timer, elapsed)
        group.sync_timeout.push(group.rebalance_timeout_ms)

    # -- Heartbeat

    def classic_heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        if group.state is DEAD:
            raise CoordinatorNotAvailable
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise IllegalGeneration
        if group.state is EMPTY:
            raise UnknownMemberId
        self.keep_alive(group, member, member.session_timeout_ms)
        if group.state is PREPARING:
            raise RebalanceInProgress
        return Result((), HeartbeatResponse())

    def keep_alive(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int) -> None:
        """Restart the member's session: it has sent a request."""
        session = member.session
        if session is None:
            member_id = member.member_id
            session = Deadline(self._shard.clock, self._shard.timer, lambda: self._expire_member(group, member_id))
            member.session = session
        session.push(timeout_ms)

    def _expire_member(self, group: ClassicGroup, member_id: str) -> None:
        if not self._is_current(group) or group.state is DEAD:
            return
        if member_id in group.pending_joins:
            group.remove(member_id)
            if group.state is PREPARING and group.has_all_joined:
                self._shard.run(self._complete_join(group))
            return
        member = group.members.get(member_id)
        if member is not None and not member.awaits_answer:
            group.answer_join(member, UnknownMemberId.code, member_id=NO_MEMBER)
            self._shard.note(group.group_id, history.TIMED_OUT, member_id, "no heartbeat within its session")
            group.remove(member_id)
            self._shard.run(self._after_removal(group))

    def _after_removal(self, group: ClassicGroup) -> Result[None]:
        if group.state in (STABLE, COMPLETING):
            return self._rebalance_or_complete(group)
        if group.state is PREPARING and group.has_all_joined:
            return self._complete_join(group)
        return NOTHING

    # -- LeaveGroup

    def classic_leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Each member has its own result, but all of them cause one rebalance."""
        if group.state is DEAD:
            raise CoordinatorNotAvailable
        answers = [self._leave_one(group, identity) for identity in request.members]
        response = LeaveGroupResponse(members=answers)
        if all(answer.error_code for answer in answers):
            return Result((), response)
        if group.state in (STABLE, COMPLETING):
            return self._rebalance_or_complete(group).with_response(response)
        return self._complete_if_joined(group).with_response(response)

    def _leave_one(
        self, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity
    ) -> LeaveGroupResponse.MemberResponse:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        answer = LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id)
        if not member_id:
            # An administrator removes a static member by its instance id alone.
            known = None if instance_id is None else group.static_members.get(instance_id)
            if known is None:
                answer.error_code = UnknownMemberId.code
                return answer
            member_id = known
        elif member_id in group.pending_joins:
            group.remove(member_id)
            return answer
        else:
            try:
                group.validate_member(member_id, instance_id)
            except KafkaError as error:
                answer.error_code = error.code
                return answer
        group.answer_join(group.members[member_id], UnknownMemberId.code, member_id=NO_MEMBER)
        self._shard.note(group.group_id, history.LEFT, member_id, identity.reason or None)
        group.remove(member_id)
        return answer

    def classic_join(self, group: ClassicGroup, request: JoinGroupRequest, client: Client) -> Result[JoinGroupResponse]:
        return self.join(request, client)

    # -- replay

    def replay(self, key: Any, value: GroupMetadataValue | None) -> None:
        shard, group_id = self._shard, key.group
        live = self.find(group_id)
        if value is None:
            shard.groups.pop(group_id, None)
            if live is not None:
                live.cancel_timers()
            return
        if (
            shard.is_loaded
            and live is not None
            # Members that are not in memory belong to a consumer group that was just converted.
            and all(member.member_id in live.members for member in value.members)
        ):
            # This coordinator wrote the record; the group's state changes once the record is committed.
            live.stored = value
            return
        shard.groups[group_id] = ClassicGroup.from_stored(group_id, value)

    # -- lifecycle of the shard

    def on_loaded(self, group: ClassicGroup) -> None:
        """After a restart, every member has a full session timeout to reconnect."""
        for member in group.members.values():
            self.keep_alive(group, member, member.session_timeout_ms)
        if len(group.members) > self._shard.settings.max_size:
            self._shard.run(self.prepare_rebalance(group))

    def on_unloaded(self) -> None:
        for group in self.groups():
            self.forget(group)

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Nothing to do: clients detect the change themselves and rejoin."""

    def forget(self, group: ClassicGroup) -> None:
        group.cancel_timers()
        group.move_to(DEAD, self._shard.clock.now_ms())
        for member in group.members.values():
            group.answer_join(member, NotCoordinator.code, member_id=member.member_id)
            group.answer_sync(member, SyncGroupResponse(error_code=NotCoordinator.code))

    # -- actions of tests and operators

    def remove(self, group: ClassicGroup, member_id: str) -> Result[LeaveGroupResponse]:
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member_id, group_instance_id=group.members[member_id].instance_id
        )
        return self.classic_leave(group, LeaveGroupRequest(group_id=group.group_id, members=[identity]))

    def rebalance(self, group: ClassicGroup) -> Result[None]:
        return self.prepare_rebalance(group) if group.can_rebalance else NOTHING

    def partitions_of(self, group: ClassicGroup, member: ClassicMember) -> Iterable[tuple[str, int]]:
        """Best effort: clients choose the format of assignments."""
        if not group.uses_consumer_protocol:
            return ()
        try:
            decoded = consumer_protocol.decode_assignment(member.assignment)
        except consumer_protocol.MalformedMetadata:
            return ()
        return [(each.topic, index) for each in decoded.assigned_partitions for index in each.partitions]

    def _is_current(self, group: ClassicGroup) -> bool:
        return self._shard.groups.get(group.group_id) is group


def validate_join(request: JoinGroupRequest, min_session_timeout_ms: int, max_session_timeout_ms: int) -> None:
    if not request.group_id:
        raise InvalidGroupId
    if not min_session_timeout_ms <= request.session_timeout_ms <= max_session_timeout_ms:
        raise InvalidSessionTimeout


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def _with_reply(result: Result[None], reply: Reply[T]) -> Result[T]:
    return result.with_response(settled(reply))


def _differs(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known


PROTOCOL = ClassicProtocol
"""The class that a shard instantiates."""
