"""ShareGroupHeartbeat (KIP-932): join, stay and leave; also the records and timeouts of share groups.

New partitions first need state at the share coordinator. The heartbeat that finds them writes a record, and once it is
committed requests the state. A later heartbeat can then assign the partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ottla.coordinator.groups.consumer.assignors import MemberSpec, Target
from ottla.coordinator.groups.interfaces import SHARE_MEMBER_ID_MAX
from ottla.coordinator.groups.modern import JOIN_EPOCH, LEAVE_EPOCH, ModernProtocol, is_blank
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.groups.share.assignor import assign_simple
from ottla.coordinator.groups.share.group import (
    NO_INDEXES,
    NO_TOPICS,
    ShareGroup,
    ShareMember,
    ShareTopics,
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
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, InvalidRequest, KafkaError
from ottla.wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
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
"""The start offset of a share partition that was never read: the group's settings decide where it begins."""

Outcome = Mapping[tuple[bytes, int], KafkaError | None]
Offsets = Mapping[bytes, Mapping[int, int]]


class ShareState(Protocol):
    """The share coordinators, local or remote. `done` may be called before the method returns."""

    def initialize(
        self, group_id: str, state_epoch: int, offsets: Offsets, done: Callable[[Outcome], None]
    ) -> None: ...

    def delete(
        self, group_id: str, partitions: Mapping[bytes, frozenset[int]], done: Callable[[Outcome], None]
    ) -> None: ...


class ShareProtocol(ModernProtocol[ShareGroup]):
    __slots__ = ("_asked_ms",)

    group_type = ShareGroup

    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard)
        self._asked_ms: dict[tuple[str, bytes], float] = {}
        """When the state of a topic was requested. A request without an answer is repeated after some time."""

    # -- the request

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client) -> Result[ShareGroupHeartbeatResponse]:
        """The answer to a request that `validate` accepts."""
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
        # An assignment that is already due will include these partitions: no need for another one.
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
        self.keep_alive(group.group_id, updated.member_id, self.session_timeout_ms(group.group_id))
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
        return self.require(group, group_id)

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
        return self.topics_hash({name for member in members for name in member.topics})

    def _assign(
        self,
        group: ShareGroup,
        epoch: int,
        members: Mapping[str, ShareMember],
        updated: ShareMember,
        records: list[CoordinatorRecord],
    ) -> tuple[int, Target]:
        """Compute the target for `epoch` unless the last one is too recent; returns the epoch and target for
        `updated`."""
        now_ms = self._shard.clock.now_ms()
        if epoch <= group.target_epoch or self.is_too_soon(group, now_ms):
            return group.target_epoch, group.target.get(updated.member_id, {})
        specs = {
            member.member_id: MemberSpec(None, self._topic_ids(member), group.target.get(member.member_id, {}))
            for member in members.values()
        }
        targets = assign_simple(specs, group.topics.initialized)
        self.add_targets(group, epoch, members, targets, now_ms, records)
        return epoch, targets[updated.member_id]

    def _topic_ids(self, member: ShareMember) -> frozenset[bytes]:
        image = self._shard.image
        return frozenset(topic.topic_id for name in member.topics if (topic := image.topic(name)) is not None)

    def _at_target(
        self,
        group: ShareGroup,
        member: ShareMember,
        target_epoch: int,
        target: Target,
        topics_changed: bool,
        records: list[CoordinatorRecord],
    ) -> ShareMember:
        """The member with its target, restricted to the topics that it still subscribes to."""
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
        """Partitions of subscribed topics whose state was not requested yet, or was requested too long ago."""
        image = self._shard.image
        now_ms = self._shard.clock.monotonic_ms()
        retry_ms = self._shard.settings.share_initialize_retry_interval_ms
        wanted: dict[bytes, tuple[str, frozenset[int]]] = {}
        for name in {name for member in members.values() for name in member.topics}:
            topic = image.topic(name)
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
        """A callback for when the record is committed: request the state from the share coordinators."""
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
        found: ShareState = self._shard.image.share_state()
        return found

    def initialized(self, group_id: str, outcome: Outcome) -> None:
        """The share coordinators have answered: store which partitions have state now."""
        group = self.find(group_id)
        if group is None:
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
        group = self.require(self._shard.groups.get(request.group_id), request.group_id)
        member = group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
        return self.remove(group, member.member_id).with_response(response)

    def remove(self, group: ShareGroup, member_id: str) -> Result[None]:
        left = [member for member in group.members.values() if member.member_id != member_id]
        records: list[CoordinatorRecord] = [*member_tombstones(group.group_id, member_id)]
        records.append(epoch_record(group.group_id, group.epoch + 1, self._metadata_hash(left)))
        self.cancel_timers(group.group_id, member_id)
        return Result(records)

    # -- specific to share groups

    def session_timeout_ms(self, group_id: str) -> int:
        default = self._shard.settings.share_session_timeout_ms
        return self._shard.group_setting(group_id, "share.session.timeout.ms", default)

    def assignment_interval_ms(self, group_id: str) -> int:
        default = self._shard.settings.share_assignment_interval_ms
        return self._shard.group_setting(group_id, "share.assignment.interval.ms", default)

    def next_epoch_record(self, group: ShareGroup) -> CoordinatorRecord:
        return epoch_record(group.group_id, group.epoch + 1, group.metadata_hash)

    def target_record(self, group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
        return target_record(group_id, member_id, target)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        return target_epoch_record(group_id, epoch, timestamp_ms)

    def partitions_of(self, group: ShareGroup, member: ShareMember) -> Iterable[tuple[str, int]]:
        return self.named(member.assigned)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        for group in self.groups():
            if group.topics.knows(topic_id):
                self._shard.run(Result([topics_record(group.group_id, group.topics.without([topic_id]))]))

    # -- replay

    def _replay_topics(self, group: ShareGroup, key: Any, value: Any) -> None:
        group.topics = NO_TOPICS if value is None else ShareTopics.of(value)

    replays = {
        ShareGroupMetadataKey: ModernProtocol.replay_group,
        ShareGroupMemberMetadataKey: ModernProtocol.replay_member,
        ShareGroupTargetAssignmentMetadataKey: ModernProtocol.replay_target_metadata,
        ShareGroupTargetAssignmentMemberKey: ModernProtocol.replay_target_member,
        ShareGroupCurrentMemberAssignmentKey: ModernProtocol.replay_current_assignment,
        ShareGroupStatePartitionMetadataKey: _replay_topics,
    }


PROTOCOL = ShareProtocol
"""The class that a shard instantiates."""


def validate(request: ShareGroupHeartbeatRequest) -> None:
    """What a request must contain. As in Kafka, this is checked before the coordinator of the group is found."""
    if not request.member_id or len(request.member_id) > SHARE_MEMBER_ID_MAX:
        raise InvalidRequest("")
    if is_blank(request.member_id):
        raise InvalidRequest("MemberId can't be empty.")
    if is_blank(request.group_id):
        raise InvalidRequest("GroupId can't be empty.")
    if request.rack_id is not None and is_blank(request.rack_id):
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
