"""ConsumerGroupHeartbeat (KIP-848): one request to join, stay and leave.

v0: the broker may generate the member id. v1: regular expressions, and the client generates its id (KIP-1082).
A heartbeat creates or updates the member, brings the group's target assignment up to date, and moves this member one
step towards it. Nothing changes before the records are replayed: the function works on a copy of the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.consumer import migration, regex
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS, MemberSpec
from ottla.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    TargetPartitions,
    check_instance,
)
from ottla.coordinator.groups.consumer.reconciliation import reconcile
from ottla.coordinator.groups.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.groups.interfaces import NO_MEMBER, join_error
from ottla.coordinator.groups.modern import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ModernProtocol
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import NOTHING, Result
from ottla.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    UnreleasedInstanceId,
)
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

REGEX_REFRESH_MIN_INTERVAL_MS = 10_000
"""New patterns or topics that arrive together are resolved together and cause one rebalance."""


class ConsumerProtocol(ModernProtocol[ConsumerGroup]):
    __slots__ = ("_resolving",)

    group_type = ConsumerGroup

    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard)
        self._resolving: set[str] = set()

    # -- the request

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """The answer to a request that `validation.validate` accepts."""
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group(request.group_id, joins, records)
        self.check_size(group, request.member_id)
        member_id = request.member_id or self._shard.new_uuid()
        owned = _owned(request)
        if request.instance_id is None:
            member = self.dynamic_member(group, member_id, create=joins)
            _check_epoch(member, request.member_epoch, owned)
        else:
            member = self._static_member(group, member_id, request, owned, records)
        updated = _updated(member, request, client)
        if updated is not member or member_id not in group.members:
            records.append(member_record(group.group_id, updated))
        topics_changed = updated.topics != member.topics
        regex_changed, is_resolved = self.update_regex(group, member, updated, client, records)
        epoch = group.epoch
        bump = topics_changed or (regex_changed and is_resolved)
        if bump or group.needs_refresh:
            epoch = self.refresh(group, group.members_with(updated), bump, records)
        target_epoch, target = self.assign(group, epoch, updated, records)
        changed = self.reconcile(group, updated, target_epoch, target, owned, topics_changed or regex_changed, records)
        self.keep_alive(group.group_id, member_id, self.session_timeout_ms(group.group_id))
        response = ConsumerGroupHeartbeatResponse(
            member_id=changed.member_id,
            member_epoch=changed.epoch,
            heartbeat_interval_ms=self._shard.group_setting(
                group.group_id,
                "consumer.heartbeat.interval.ms",
                self._shard.settings.consumer_heartbeat_interval_ms,
            ),
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if joins or is_full or _partitions(changed) != _partitions(member):
            response.assignment = _assignment(changed)
        return Result(records, response)

    def _group(self, group_id: str, create: bool, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group, or a draft of it that becomes real when the records are replayed."""
        group = self._shard.groups.get(group_id)
        if group is None:
            if not create:
                raise GroupIdNotFound(f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id)
        classic = self._shard.classic.find(group_id) if create else None
        if classic is None:
            return self.require(group, group_id)
        if classic.is_empty:
            # No members to convert: the classic group is removed, its offsets stay.
            records += classic.tombstones()
            return ConsumerGroup(group_id)
        return migration.upgrade(self._shard, classic, records)

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._shard.settings.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {limit} members.")

    # -- members

    def dynamic_member(self, group: ConsumerGroup, member_id: str, *, create: bool) -> ConsumerMember:
        if create and member_id not in group.members:
            return ConsumerMember(member_id)
        return group.member(member_id)

    def _static_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        owned: OwnedPartitions | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        instance_id = request.instance_id
        assert instance_id is not None
        existing = group.static_member(instance_id)
        if request.member_epoch == JOIN_EPOCH:
            if existing is None:
                return self.dynamic_member(group, member_id, create=True)
            if existing.classic is None and existing.epoch != LEAVE_STATIC_EPOCH:
                raise UnreleasedInstanceId(
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {existing.member_id} member."
                )
            return self.replace_static(group, existing, member_id, records)
        check_instance(existing, member_id, instance_id)
        assert existing is not None
        _check_epoch(existing, request.member_epoch, owned)
        return existing

    def replace_static(
        self, group: ConsumerGroup, old: ConsumerMember, member_id: str, records: list[CoordinatorRecord]
    ) -> ConsumerMember:
        """A static member has rejoined with a new id: it takes over the state of its old incarnation."""
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        records += member_tombstones(group.group_id, old.member_id)
        records.append(member_record(group.group_id, member))
        records.append(target_record(group.group_id, member_id, group.target.get(old.member_id, {})))
        records.append(current_record(group.group_id, member))
        return member

    # -- the group's epoch and target

    def refresh(
        self, group: ConsumerGroup, members: Mapping[str, ConsumerMember], bump: bool, records: list[CoordinatorRecord]
    ) -> int:
        """Recompute the metadata hash. If it changed, bump the group epoch. Returns the group epoch."""
        metadata_hash = self.metadata_hash(group, members.values())
        epoch = group.epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
        group.needs_refresh = False
        if group.has_partition_metadata:
            records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def metadata_hash(self, group: ConsumerGroup, members: Iterable[ConsumerMember]) -> int:
        names: set[str] = set()
        for member in members:
            names |= group.topics_of(member)
        return self.topics_hash(names)

    def assign(
        self, group: ConsumerGroup, epoch: int, updated: ConsumerMember, records: list[CoordinatorRecord]
    ) -> tuple[int, TargetPartitions]:
        """Compute the target for `epoch` unless the last one is too recent; returns the epoch and target for
        `updated`."""
        now_ms = self._shard.clock.now_ms()
        if epoch <= group.target_epoch or self.is_too_soon(group, now_ms):
            return group.target_epoch, _target_of(group, updated)
        members = group.members_with(updated)
        image = self._shard.image
        counts: dict[bytes, int] = {}
        ids: dict[str, bytes] = {}
        for name in {name for member in members.values() for name in group.topics_of(member)}:
            topic = image.topic(name)
            if topic is not None:
                ids[name] = topic.topic_id
                counts[topic.topic_id] = topic.partition_count
        specs = {
            member.member_id: MemberSpec(
                member.instance_id,
                frozenset(ids[name] for name in group.topics_of(member) if name in ids),
                _target_of(group, member),
            )
            for member in members.values()
        }
        assignor = ASSIGNORS[group.preferred_assignor(members, self._shard.settings.consumer_assignors[0])]
        targets = assignor(specs, counts)
        self.add_targets(group, epoch, members, targets, now_ms, records)
        return epoch, targets[updated.member_id]

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target_epoch: int,
        target: TargetPartitions,
        owned: OwnedPartitions | None,
        subscription_changed: bool,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        if member.state is MemberState.UNKNOWN:
            # A newer broker wrote this state: only a member that owns nothing can start again.
            if owned is None or any(owned.values()):
                raise FencedMemberEpoch(
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            member = replace(member, state=MemberState.UNRELEASED_PARTITIONS)
        image = self._shard.image
        subscribed = frozenset(
            topic.topic_id for name in group.topics_of(member) if (topic := image.topic(name)) is not None
        )
        moved = reconcile(
            member,
            target,
            target_epoch,
            subscribed,
            owned,
            group.owner_epoch,
            subscription_changed=subscription_changed,
        )
        if moved != member:
            records.append(current_record(group.group_id, moved))
            if moved.classic is None:
                self.watch_revocation(group.group_id, moved)
        return moved

    # -- regular expressions

    def update_regex(
        self,
        group: ConsumerGroup,
        old: ConsumerMember,
        new: ConsumerMember,
        client: Client,
        records: list[CoordinatorRecord],
    ) -> tuple[bool, bool]:
        """Whether the member's pattern changed, and whether the new one is resolved already.

        An unknown pattern is resolved after this heartbeat, so that it does not delay it. The group epoch is bumped
        then.
        """
        changed, is_resolved, is_new = old.regex != new.regex, False, False
        if changed:
            if old.regex and group.regex_count(old.regex) == 1:
                records.append(regex_tombstone(group.group_id, old.regex))
            if not new.regex:
                is_resolved = True
            elif group.regex_count(new.regex) == 0:
                regex.check(new.regex)
                is_new = True
            else:
                is_resolved = new.regex in group.regexes
        if is_new or group.regexes or new.regex:
            self._maybe_resolve(group, new, client, is_new)
        return changed, is_resolved

    def _maybe_resolve(self, group: ConsumerGroup, updated: ConsumerMember, client: Client, is_new: bool) -> None:
        group_id = group.group_id
        now_ms = self._shard.clock.now_ms()
        last_ms = max((resolved.timestamp_ms for resolved in group.regexes.values()), default=-(2**62))
        if group_id in self._resolving or now_ms <= last_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
            return
        patterns = group.subscribed_regexes(group.members_with(updated))
        version = max((resolved.version for resolved in group.regexes.values()), default=-1)
        is_old = now_ms > last_ms + self._shard.settings.consumer_regex_refresh_interval_ms
        has_new_topics = version < self._shard.topics_version
        if patterns and (is_new or len(patterns) != len(group.regexes) or has_new_topics or is_old):
            self._resolving.add(group_id)
            self._shard.timer.schedule(0, lambda: self._resolve(group_id, client))

    def _resolve(self, group_id: str, client: Client) -> None:
        self._resolving.discard(group_id)
        group = self.find(group_id)
        if group is not None:
            self._shard.run(self._resolved(group, client))

    def _resolved(self, group: ConsumerGroup, client: Client) -> Result[None]:
        """Every pattern of the group, resolved to the topics that this client may see."""
        image = self._shard.image
        patterns = group.subscribed_regexes(group.members)
        names, now_ms = image.topic_names(), self._shard.clock.now_ms()
        resolved = regex.resolve(patterns, names, image.version, now_ms, client.may_see)
        records: list[CoordinatorRecord] = []
        bump = False
        for pattern, now in resolved.items():
            bump |= group.regexes.get(pattern, regex.UNRESOLVED).topics != now.topics
            records.append(regex_record(group.group_id, pattern, now))
        draft = ConsumerGroup(group.group_id)
        draft.regexes = {**group.regexes, **resolved}
        metadata_hash = self.metadata_hash(draft, group.members.values())
        if bump or metadata_hash != group.metadata_hash:
            records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return Result(records)

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Result[ConsumerGroupHeartbeatResponse]:
        group = self.require(self._shard.groups.get(request.group_id), request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            existing = group.static_member(request.instance_id)
            check_instance(existing, request.member_id, request.instance_id)
            assert existing is not None
            member = existing
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                # Leaves temporarily: the member and its partitions are kept until the session ends.
                away = replace(
                    member,
                    epoch=LEAVE_STATIC_EPOCH,
                    revoking={},
                    assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
                )
                return Result([current_record(group.group_id, away)], response)
        return self.fence(group, [member.member_id]).with_response(response)

    def fence(self, group: ConsumerGroup, member_ids: list[str]) -> Result[None]:
        """Remove members. If only classic ones are left, the group becomes a classic group again."""
        if not member_ids:
            return NOTHING
        if migration.can_downgrade(self._shard, group, member_ids):
            return migration.downgrade(self._shard, group, leaving=member_ids)
        records: list[CoordinatorRecord] = []
        for member_id in member_ids:
            records += member_tombstones(group.group_id, member_id)
        left = group.members_with(without=member_ids)
        patterns = group.subscribed_regexes(left)
        gone = group.subscribed_regexes({member_id: group.members[member_id] for member_id in member_ids}) - patterns
        records += [regex_tombstone(group.group_id, pattern) for pattern in sorted(gone)]
        records.append(epoch_record(group.group_id, group.epoch + 1, self.metadata_hash(group, left.values())))
        for member_id in member_ids:
            self.cancel_timers(group.group_id, member_id)
        return Result(records)

    def remove(self, group: ConsumerGroup, member_id: str) -> Result[None]:
        return self.fence(group, [member_id])

    # -- specific to consumer groups

    def session_timeout_ms(self, group_id: str) -> int:
        default = self._shard.settings.consumer_session_timeout_ms
        return self._shard.group_setting(group_id, "consumer.session.timeout.ms", default)

    def assignment_interval_ms(self, group_id: str) -> int:
        default = self._shard.settings.consumer_assignment_interval_ms
        return self._shard.group_setting(group_id, "consumer.assignment.interval.ms", default)

    def on_loaded(self, group: ConsumerGroup) -> None:
        super().on_loaded(group)
        for member in group.members.values():
            if member.classic is not None:
                self.keep_alive(group.group_id, member.member_id, member.classic.session_timeout_ms)

    def next_epoch_record(self, group: ConsumerGroup) -> CoordinatorRecord:
        return epoch_record(group.group_id, group.epoch + 1, group.metadata_hash)

    def target_record(self, group_id: str, member_id: str, target: TargetPartitions) -> CoordinatorRecord:
        return target_record(group_id, member_id, target)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        return target_epoch_record(group_id, epoch, timestamp_ms)

    def partitions_of(self, group: ConsumerGroup, member: ConsumerMember) -> Iterable[tuple[str, int]]:
        return self.named(member.assigned)

    # -- requests of members that use the classic protocol

    def classic_join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: Client
    ) -> Result[JoinGroupResponse]:
        if group.is_empty:
            return super().classic_join(group, request, client)
        try:
            return migration.join(self._shard, group, request, client)
        except KafkaError as error:  # without the member's id, as in Kafka
            return Result((), join_error(error.code, NO_MEMBER, client.version))

    def classic_sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, client: Client
    ) -> Result[SyncGroupResponse]:
        if group.is_empty:
            return super().classic_sync(group, request, client)
        return migration.sync(self._shard, group, request)

    def classic_heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        return migration.heartbeat(
            self._shard, group, request.member_id, request.group_instance_id, request.generation_id
        )

    def classic_leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        return migration.leave(self._shard, group, request)

    # -- replay

    def _replay_partition_metadata(self, group: ConsumerGroup, key: Any, value: Any) -> None:
        group.has_partition_metadata = value is not None

    def _replay_regex(self, group: ConsumerGroup, key: Any, value: Any) -> None:
        if value is None:
            group.regexes.pop(key.regular_expression, None)
        else:
            group.regexes[key.regular_expression] = regex.ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )

    replays = {
        ConsumerGroupMetadataKey: ModernProtocol.replay_group,
        ConsumerGroupMemberMetadataKey: ModernProtocol.replay_member,
        ConsumerGroupTargetAssignmentMetadataKey: ModernProtocol.replay_target_metadata,
        ConsumerGroupTargetAssignmentMemberKey: ModernProtocol.replay_target_member,
        ConsumerGroupCurrentMemberAssignmentKey: ModernProtocol.replay_current_assignment,
        ConsumerGroupPartitionMetadataKey: _replay_partition_metadata,
        ConsumerGroupRegularExpressionKey: _replay_regex,
    }


PROTOCOL = ConsumerProtocol
"""The class that a shard instantiates."""


def _check_epoch(member: ConsumerMember, received: int, owned: OwnedPartitions | None) -> None:
    if received in (JOIN_EPOCH, member.epoch):
        return
    if received > member.epoch:
        raise FencedMemberEpoch(
            f"The consumer group member has a greater member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
    # The answer that bumped the epoch may have been lost: fine if the member only owns its assigned partitions.
    is_subset = owned is not None and all(
        index in member.assigned.get(topic_id, ()) for topic_id, indexes in owned.items() for index in indexes
    )
    if received != member.previous_epoch or not is_subset:
        raise FencedMemberEpoch(
            f"The consumer group member has a smaller member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """The member updated by this request; the same object if nothing changed."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if pattern is None else pattern,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )
    return member if updated == member else updated


def _target_of(group: ConsumerGroup, member: ConsumerMember) -> TargetPartitions:
    """A static member that has just rejoined has the target of its old incarnation."""
    target = group.target.get(member.member_id)
    if target is None and member.instance_id is not None:
        target = group.target.get(group.static_members.get(member.instance_id, ""))
    return {} if target is None else target


def _partitions(member: ConsumerMember) -> dict[bytes, set[int]]:
    return {topic_id: set(epochs) for topic_id, epochs in member.assigned.items()}


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )
