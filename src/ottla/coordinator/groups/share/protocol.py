"""ShareGroupHeartbeat (KIP-932): join, stay and leave; and what records and time do to share groups.

Partitions that a group has not read yet first get state at the share coordinator: the heartbeat that meets them notes
it, asks for it once the note is kept, and a later heartbeat finds them ready to be handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ottla.coordinator.groups.consumer.assignors import MemberSpec, Target
from ottla.coordinator.groups.consumer.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.coordinator.groups.description import members_in_order
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.groups.share.assignor import assign_simple
from ottla.coordinator.groups.share.group import (
    NO_INDEXES,
    NO_TOPICS,
    ShareGroup,
    ShareMember,
    ShareTopics,
    share_group,
)
from ottla.coordinator.groups.share.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
    topics_record,
)
from ottla.coordinator.groups.topic_hash import group_hash
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.runtime.deadlines import Deadline
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, InvalidRequest, KafkaError
from ottla.metadata.java_hash_order import java_names
from ottla.wire.messages import ShareGroupDescribeResponse, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.wire.stored import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

logger = logging.getLogger(__name__)

ASSIGNOR = "simple"
NO_OFFSET = -1
"""The start offset of a share partition that nobody has read: the group's settings say where it begins."""

Outcome = Mapping[tuple[bytes, int], KafkaError | None]
Offsets = Mapping[bytes, Mapping[int, int]]


class ShareState(Protocol):
    """The share coordinators, wherever they are. `done` is called at once or later."""

    def initialize(
        self, group_id: str, state_epoch: int, offsets: Offsets, done: Callable[[Outcome], None]
    ) -> None: ...

    def delete(
        self, group_id: str, partitions: Mapping[bytes, frozenset[int]], done: Callable[[Outcome], None]
    ) -> None: ...


def protocol(shard: GroupShard) -> ShareProtocol:
    return ShareProtocol(shard)


class ShareProtocol:
    __slots__ = ("_asked_ms", "_sessions", "_shard")

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._sessions: dict[tuple[str, str], Deadline] = {}
        self._asked_ms: dict[tuple[str, bytes], float] = {}
        """When the state of a topic was asked for; what got no answer is asked for again after a while."""

    # -- the request

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client) -> Result[ShareGroupHeartbeatResponse]:
        _validate(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group(request.group_id, create=joins)
        limit = self._shard.settings.share_max_size
        if len(group.members) >= limit and request.member_id not in group.members:
            raise GroupMaxSizeReached(f"The share group has reached its maximum capacity of {limit} members.")
        if joins and request.member_id not in group.members:
            member = ShareMember(request.member_id)
        else:
            member = group.member(request.member_id)
            _check_epoch(member, request.member_epoch)
        updated = _updated(member, request, client)
        records: list[CoordinatorRecord] = []
        if updated != member or request.member_id not in group.members:
            records.append(member_record(group.group_id, updated))
        topics_changed = updated.topics != member.topics
        members = {**group.members, updated.member_id: updated}
        epoch = group.epoch
        # What an assignment that is due will hand out anyway is no reason for another.
        bump = topics_changed or (group.epoch <= group.target_epoch and group.has_unassigned)
        if bump or group.needs_refresh:
            epoch = self._refresh(group, members, bump, records)
        target_epoch, target = self._assign(group, epoch, members, updated, records)
        changed = self._at_target(group, updated, target_epoch, target, topics_changed, records)
        wanted = self._uninitialized(group, members)
        then = None
        if wanted:
            records.append(topics_record(group.group_id, group.topics.with_initializing(wanted)))
            then = self._asking(group.group_id, epoch, wanted)
        self._keep_alive(group.group_id, updated.member_id)
        response = ShareGroupHeartbeatResponse(
            member_id=changed.member_id,
            member_epoch=changed.epoch,
            heartbeat_interval_ms=self._shard.group_setting(
                group.group_id, "share.heartbeat.interval.ms", self._shard.settings.share_heartbeat_interval_ms
            ),
        )
        if joins or request.subscribed_topic_names is not None or changed.assigned != member.assigned:
            response.assignment = ShareGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                    for topic_id, indexes in changed.assigned.items()
                ]
            )
        return Result(records, response, then)

    def _group(self, group_id: str, *, create: bool) -> ShareGroup:
        group = self._shard.groups.get(group_id)
        if group is None:
            if not create:
                raise GroupIdNotFound(f"Share group {group_id} not found.")
            return ShareGroup(group_id)
        return share_group(group, group_id)

    # -- the group's epoch and target

    def _refresh(
        self, group: ShareGroup, members: Mapping[str, ShareMember], bump: bool, records: list[CoordinatorRecord]
    ) -> int:
        metadata_hash = self._metadata_hash(members.values())
        epoch = group.epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
        group.needs_refresh = False
        return epoch

    def _metadata_hash(self, members: Iterable[ShareMember]) -> int:
        cluster = self._shard.cluster
        names = {name for member in members for name in member.topics}
        topics = [topic for name in names if (topic := cluster.topic(name)) is not None]
        return group_hash(topics, self._shard.topic_hashes)

    def _assign(
        self,
        group: ShareGroup,
        epoch: int,
        members: Mapping[str, ShareMember],
        updated: ShareMember,
        records: list[CoordinatorRecord],
    ) -> tuple[int, Target]:
        """Bring the target to `epoch`, unless the last one is too young; what `updated` shall have."""
        now_ms = self._shard.clock.now_ms()
        interval_ms = self._shard.group_setting(
            group.group_id, "share.assignment.interval.ms", self._shard.settings.share_assignment_interval_ms
        )
        is_due = not group.target_timestamp_ms or now_ms >= group.target_timestamp_ms + interval_ms
        if epoch <= group.target_epoch or not is_due:
            return group.target_epoch, group.target.get(updated.member_id, {})
        specs = {
            member.member_id: MemberSpec(None, self._topic_ids(member), group.target.get(member.member_id, {}))
            for member in members.values()
        }
        targets = assign_simple(specs, group.topics.initialized)
        for member_id in members:
            if targets[member_id] != group.target.get(member_id):
                records.append(target_record(group.group_id, member_id, targets[member_id]))
        records.append(target_epoch_record(group.group_id, epoch, now_ms))
        return epoch, targets[updated.member_id]

    def _topic_ids(self, member: ShareMember) -> frozenset[bytes]:
        cluster = self._shard.cluster
        return frozenset(topic.topic_id for name in member.topics if (topic := cluster.topic(name)) is not None)

    def _at_target(
        self,
        group: ShareGroup,
        member: ShareMember,
        target_epoch: int,
        target: Target,
        topics_changed: bool,
        records: list[CoordinatorRecord],
    ) -> ShareMember:
        """The member with all that the target gives it, of the topics that it still wants."""
        if member.epoch == target_epoch and not topics_changed:
            return member
        wanted = self._topic_ids(member)
        source = member.assigned if member.epoch == target_epoch else target
        moved = replace(
            member,
            assigned={topic_id: indexes for topic_id, indexes in source.items() if topic_id in wanted},
            epoch=target_epoch,
            previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        )
        if moved != member:
            records.append(current_record(group.group_id, moved))
        return moved

    # -- state at the share coordinator

    def _uninitialized(
        self, group: ShareGroup, members: Mapping[str, ShareMember]
    ) -> dict[bytes, tuple[str, frozenset[int]]]:
        """Partitions of subscribed topics that nobody has asked state for, or whose state has not come for long."""
        cluster = self._shard.cluster
        now_ms = self._shard.clock.monotonic_ms()
        retry_ms = self._shard.settings.share_initialize_retry_interval_ms
        wanted: dict[bytes, tuple[str, frozenset[int]]] = {}
        for name in {name for member in members.values() for name in member.topics}:
            topic = cluster.topic(name)
            if topic is None or topic.topic_id in group.topics.deleting:
                continue
            missing = frozenset(range(topic.partition_count)) - group.topics.initialized.get(topic.topic_id, NO_INDEXES)
            waiting = group.topics.initializing.get(topic.topic_id, NO_INDEXES)
            asked_ms = self._asked_ms.get((group.group_id, topic.topic_id))
            if missing <= waiting and asked_ms is not None and now_ms < asked_ms + retry_ms:
                continue
            if missing:
                wanted[topic.topic_id] = (name, missing)
        return wanted

    def _asking(
        self, group_id: str, state_epoch: int, wanted: Mapping[bytes, tuple[str, frozenset[int]]]
    ) -> Callable[[KafkaError | None], None]:
        """What to do once the note of these partitions is kept: have them get their state."""
        offsets = {topic_id: dict.fromkeys(indexes, NO_OFFSET) for topic_id, (_, indexes) in wanted.items()}
        now_ms = self._shard.clock.monotonic_ms()

        def ask(error: KafkaError | None) -> None:
            if error is None:
                for topic_id in offsets:
                    self._asked_ms[group_id, topic_id] = now_ms
                self.state.initialize(
                    group_id, state_epoch, offsets, lambda outcome: self.initialized(group_id, outcome)
                )

        return ask

    @property
    def state(self) -> ShareState:
        found: ShareState = self._shard.cluster.share_state()
        return found

    def initialized(self, group_id: str, outcome: Outcome) -> None:
        """Answers of the share coordinators are in: note the partitions that have state now."""
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return
        found: dict[bytes, set[int]] = {}
        for (topic_id, index), error in outcome.items():
            if error is not None:
                logger.warning("state of share partition %s-%d of group %s: %s", topic_id.hex(), index, group_id, error)
            elif index in group.topics.initializing.get(topic_id, NO_INDEXES):
                found.setdefault(topic_id, set()).add(index)
        if found:
            ready = {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
            self._shard.run(Result([topics_record(group_id, group.topics.with_initialized(ready))]))

    # -- leaving

    def _leave(self, request: ShareGroupHeartbeatRequest) -> Result[ShareGroupHeartbeatResponse]:
        group = share_group(self._shard.groups.get(request.group_id), request.group_id)
        member = group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
        return self.remove(group, member.member_id).with_response(response)

    def remove(self, group: ShareGroup, member_id: str) -> Result[None]:
        left = [member for member in group.members.values() if member.member_id != member_id]
        records: list[CoordinatorRecord] = [*member_tombstones(group.group_id, member_id)]
        records.append(epoch_record(group.group_id, group.epoch + 1, self._metadata_hash(left)))
        session = self._sessions.pop((group.group_id, member_id), None)
        if session is not None:
            session.cancel()
        return Result(records)

    # -- time

    def _keep_alive(self, group_id: str, member_id: str) -> None:
        session = self._sessions.get((group_id, member_id))
        if session is None:

            def elapsed() -> None:
                group = self._shard.groups.get(group_id)
                if isinstance(group, ShareGroup) and member_id in group.members:
                    self._shard.run(self.remove(group, member_id))

            session = Deadline(self._shard.clock, self._shard.timer, elapsed)
            self._sessions[group_id, member_id] = session
        session.push(
            self._shard.group_setting(
                group_id, "share.session.timeout.ms", self._shard.settings.share_session_timeout_ms
            )
        )

    def on_loaded(self, group: ShareGroup) -> None:
        for member_id in group.members:
            self._keep_alive(group.group_id, member_id)

    def on_unloaded(self) -> None:
        for session in self._sessions.values():
            session.cancel()
        self._sessions.clear()

    def forget(self, group_id: str) -> None:
        """A group is taken away with all its members: no timer is left."""
        for key in [key for key in self._sessions if key[0] == group_id]:
            self._sessions.pop(key).cancel()

    def on_topics_changed(self, names: Iterable[str]) -> None:
        changed = set(names)
        for group in self._groups():
            if any(group.is_subscribed_to(name) for name in changed):
                group.needs_refresh = True

    def on_topic_deleted(self, topic_id: bytes) -> None:
        for group in list(self._groups()):
            if group.topics.knows(topic_id):
                self._shard.run(Result([topics_record(group.group_id, group.topics.without([topic_id]))]))

    def _groups(self) -> Iterable[ShareGroup]:
        return [group for group in self._shard.groups.values() if isinstance(group, ShareGroup)]

    # -- looking at groups

    def describe(self, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        group = share_group(self._shard.seen(group_id).group, group_id)
        return ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR,
            members=[self._described(member) for member in members_in_order(group.members)],
        )

    def _described(self, member: ShareMember) -> ShareGroupDescribeResponse.Member:
        cluster = self._shard.cluster
        places = ShareGroupDescribeResponse.TopicPartitions
        return ShareGroupDescribeResponse.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=java_names(member.topics),
            assignment=ShareGroupDescribeResponse.Assignment(
                topic_partitions=[
                    places(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
                    for topic_id, indexes in member.assigned.items()
                    if (topic := cluster.topic_by_id(topic_id)) is not None
                ]
            ),
        )

    # -- replay

    def replay(self, key: Any, value: Any) -> None:
        _REPLAY[type(key)](self, key, value)

    def _kept_group(self, group_id: str, *, create: bool) -> ShareGroup | None:
        group = self._shard.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if not create:
            return None
        if group is not None and not getattr(group, "is_simple", False):
            raise CorruptRecord(f"group {group_id} is a {group.type_name} group, but has a record of a share group")
        created = self._shard.groups[group_id] = ShareGroup(group_id)
        return created

    def _replay_epoch(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            del self._shard.groups[key.group_id]
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash

    def _replay_member(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.members.pop(key.member_id, None)
        else:
            member = group.members.get(key.member_id, ShareMember(key.member_id))
            group.members[key.member_id] = member.with_metadata(value)

    def _replay_target_epoch(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is not None:
            group.target_epoch = -1 if value is None else value.assignment_epoch
            group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def _replay_current(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is None:
            return
        member = group.members.get(key.member_id)
        if value is not None:
            group.members[key.member_id] = (member or ShareMember(key.member_id)).with_assignment(value)
        elif member is not None:
            group.members[key.member_id] = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})

    def _replay_topics(self, key: Any, value: Any) -> None:
        group = self._kept_group(key.group_id, create=value is not None)
        if group is not None:
            group.topics = NO_TOPICS if value is None else ShareTopics.of(value)


_REPLAY: Mapping[type, Callable[[ShareProtocol, Any, Any], None]] = {
    ShareGroupMetadataKey: ShareProtocol._replay_epoch,
    ShareGroupMemberMetadataKey: ShareProtocol._replay_member,
    ShareGroupTargetAssignmentMetadataKey: ShareProtocol._replay_target_epoch,
    ShareGroupTargetAssignmentMemberKey: ShareProtocol._replay_target,
    ShareGroupCurrentMemberAssignmentKey: ShareProtocol._replay_current,
    ShareGroupStatePartitionMetadataKey: ShareProtocol._replay_topics,
}


def _validate(request: ShareGroupHeartbeatRequest) -> None:
    if not request.member_id.strip():
        raise InvalidRequest("")
    if not request.group_id.strip():
        raise InvalidRequest("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequest("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")


def _check_epoch(member: ShareMember, received: int) -> None:
    if received > member.epoch:
        raise FencedMemberEpoch(
            f"The share group member has a greater member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
    # The answer that bumped the epoch may have been lost.
    if received not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        raise FencedMemberEpoch(
            f"The share group member has a smaller member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}), and it does not match the previous member epoch "
            f"({member.previous_epoch}). The member must abandon all its partitions and rejoin."
        )


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=client.client_id,
        client_host=client.host,
    )
