"""Online migration of groups between the two protocols (KIP-848).

The first ConsumerGroupHeartbeat in a classic group of consumers converts it into a consumer group. The old members
continue to use the classic protocol: their generation is their member epoch, JoinGroup and SyncGroup carry the
reconciliation, and the answer to a heartbeat makes them rejoin when there is something to reconcile. When the last
member of the new protocol leaves, the group becomes a classic group again. `group.consumer.migration.policy` can forbid
either direction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.coordinator.groups.classic import consumer_metadata as consumer_protocol
from ottla.coordinator.groups.classic.consumer_metadata import PROTOCOL_TYPE, MalformedMetadata
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicMember
from ottla.coordinator.groups.classic.records import classic_group_record
from ottla.coordinator.groups.consumer.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    PartitionEpochs,
    check_instance,
)
from ottla.coordinator.groups.consumer.records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.groups.interfaces import join_error
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.wire.messages import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

# -- conversions


def upgrade(shard: GroupShard, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
    """Append the records that convert the group to `records`, and return a draft of the consumer group."""
    settings, group_id = shard.settings, classic.group_id
    refusal = f"Cannot upgrade classic group {group_id} to consumer group because "
    if not settings.upgrade_enabled:
        raise GroupIdNotFound(refusal + "online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        raise GroupIdNotFound(refusal + "the group does not use the consumer embedded protocol.")
    if len(classic.members) > settings.consumer_max_size:
        raise GroupIdNotFound(refusal + "the group size exceeds the consumer group maximum size.")
    try:
        members = [_upgraded(shard, classic, member) for member in classic.members.values()]
    except MalformedMetadata:
        raise GroupIdNotFound(refusal + "the embedded consumer protocol is malformed.") from None
    # Members that wait in the classic group must join again; then they join the new group.
    for waiting in list(classic.members.values()):
        classic.answer_join(waiting, RebalanceInProgress.code, member_id=waiting.member_id)
        classic.answer_sync(waiting, SyncGroupResponse(error_code=RebalanceInProgress.code))
    draft = ConsumerGroup(group_id)
    draft.epoch = draft.target_epoch = classic.generation
    for member in members:
        draft.put_member(member)
        draft.target[member.member_id] = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
    draft.metadata_hash = shard.consumer.metadata_hash(draft, members)
    records += classic.tombstones()
    records += [member_record(group_id, member) for member in members]
    records.append(epoch_record(group_id, draft.epoch, draft.metadata_hash))
    records += [target_record(group_id, member.member_id, draft.target[member.member_id]) for member in members]
    records.append(target_epoch_record(group_id, draft.target_epoch, 0))
    records += [current_record(group_id, member) for member in members]
    for member in members:
        assert member.classic is not None
        shard.consumer.keep_alive(group_id, member.member_id, member.classic.session_timeout_ms)
    return draft


def _upgraded(shard: GroupShard, classic: ClassicGroup, member: ClassicMember) -> ConsumerMember:
    metadata = next((data for name, data in member.protocols if name == classic.protocol), member.protocols[0][1])
    subscription = consumer_protocol.decode_subscription(metadata)
    assignment = consumer_protocol.decode_assignment(member.assignment)
    if assignment.user_data:
        raise GroupIdNotFound(
            f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom assignor "
            "is in use. Please refer to the documentation or switch to a default assignor before re-attempting the "
            "upgrade."
        )
    assigned: PartitionEpochs = {}
    for each in assignment.assigned_partitions:
        topic = shard.image.topic(each.topic)
        if topic is not None:
            assigned[topic.topic_id] = dict.fromkeys(sorted(each.partitions), classic.generation)
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=assigned,
    )


def can_downgrade(shard: GroupShard, group: ConsumerGroup, leaving: Collection[str]) -> bool:
    left = len(group.members) - len(leaving)
    return (
        0 < left <= shard.settings.max_size and shard.settings.downgrade_enabled and group.only_classic_without(leaving)
    )


def downgrade(
    shard: GroupShard,
    group: ConsumerGroup,
    *,
    leaving: Iterable[str] = (),
    joining: ConsumerMember | None = None,
    rebalance: bool = True,
) -> Result[None]:
    """Replace the consumer group by a classic group with the remaining members, then rebalance it."""
    group_id = group.group_id
    gone = set(leaving)
    members = group.members_with(joining, gone)
    classic = ClassicGroup(group_id, shard.clock.now_ms())
    classic.generation = group.epoch
    for member in members.values():
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                PROTOCOL_TYPE,
                member.classic.protocols,
            )
        )
    classic.protocol = classic.select_protocol()
    assignments: dict[str, bytes] = {}
    for classic_member in classic.members.values():
        target = group.target.get(classic_member.member_id)
        if target is None and classic_member.instance_id is not None:
            target = group.target.get(group.static_members.get(classic_member.instance_id, ""))
        assignments[classic_member.member_id] = _assignment_bytes(
            shard, classic_member.metadata(classic.protocol), target or {}
        )
    # A static member that was just replaced no longer exists; its successor takes its place.
    ending = set(group.members) if joining is None else set(members)
    records = [*group_tombstones(group, ending), classic_group_record(classic, assignments)]

    def stored(error: KafkaError | None) -> None:
        if error is not None:
            return
        for member_id in group.members:
            shard.consumer.cancel_timers(group_id, member_id)
        current = shard.classic.find(group_id)
        if current is not None:
            shard.classic.on_loaded(current)
            if rebalance and current.can_rebalance and current.members:
                shard.run(shard.classic.prepare_rebalance(current))

    return Result(records, None, stored)


# -- classic requests to a consumer group


def join(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, client: Client
) -> Result[JoinGroupResponse]:
    """JoinGroup does the work of a heartbeat: subscribe, report owned partitions, get an epoch."""
    protocol = shard.consumer
    member_id = request.member_id or shard.new_uuid()
    protocol.check_size(group, member_id)
    if not group.supports_classic(request.protocol_type, [each.name for each in request.protocols]):
        raise InconsistentGroupProtocol
    if not request.member_id and request.group_instance_id is None and client.version >= 4:
        return Result((), join_error(MemberIdRequired.code, member_id, client.version))
    records: list[CoordinatorRecord] = []
    replaced = group.static_member(request.group_instance_id)
    member = _joining(shard, group, request, member_id, records)
    try:
        subscription = consumer_protocol.decode_subscription(request.protocols[0].metadata)
    except MalformedMetadata as error:
        raise UnknownServerError(f"Malformed embedded consumer protocol: {error}") from None
    updated = _subscribed(member, request, subscription, client)
    if updated != member or member_id not in group.members:
        records.append(member_record(group.group_id, updated))
    regex_changed, _ = protocol.update_regex(group, member, updated, client, records)
    changed = updated.topics != member.topics or regex_changed
    epoch = group.epoch
    if changed or group.needs_refresh:
        epoch = protocol.refresh(group, group.members_with(updated), changed, records)
    response = JoinGroupResponse(
        member_id=member_id,
        generation_id=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        members=[],
    )
    if replaced is not None and _can_downgrade_replacing(shard, group, replaced):
        if changed:  # the classic group will begin its own generation
            response.generation_id = updated.epoch
        ended = downgrade(shard, group, joining=updated, rebalance=changed)
        return Result([*records, *ended.records], response, ended.then)
    target_epoch, target = protocol.assign(group, epoch, updated, records)
    owned = _owned(shard, subscription)
    response.generation_id = protocol.reconcile(group, updated, target_epoch, target, owned, changed, records).epoch
    _joined(shard, group, request, member_id)
    return Result(records, response)


def _joining(
    shard: GroupShard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    records: list[CoordinatorRecord],
) -> ConsumerMember:
    """The member that joins: a known one, a new one, or a static member that has restarted."""
    instance_id = request.group_instance_id
    if instance_id is not None:
        existing = group.static_member(instance_id)
        if request.member_id:
            return _static(group, member_id, instance_id)
        if existing is not None:
            return shard.consumer.replace_static(group, existing, member_id, records)
    return shard.consumer.dynamic_member(group, member_id, create=True)


def _subscribed(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    client: Client,
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=client.client_id,
        client_host=client.host,
        classic=ClassicMetadata(
            request.session_timeout_ms, tuple((each.name, each.metadata) for each in request.protocols)
        ),
    )


def _can_downgrade_replacing(shard: GroupShard, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether no member uses the new protocol once a classic member replaces `replaced`."""
    return (
        shard.settings.downgrade_enabled
        and len(group.members) <= shard.settings.max_size
        and group.only_classic_without([replaced.member_id])
    )


def _joined(shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    """The member has joined; it must send a SyncGroup next."""
    protocol = shard.consumer
    timers = protocol.timers(group.group_id, member_id)
    if timers.join is not None:
        timers.join.cancel()
        timers.join = None
    protocol.keep_alive(group.group_id, member_id, request.session_timeout_ms)
    timers.sync = timers.sync or protocol.fencing_deadline(group.group_id, member_id)
    timers.sync.push(request.rebalance_timeout_ms)


def sync(shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
    member = _classic_member(group, request.member_id, request.group_instance_id)
    assert member.classic is not None
    if request.generation_id != member.epoch:
        raise IllegalGeneration
    name, metadata = member.classic.protocols[0]
    if (request.protocol_type not in (None, PROTOCOL_TYPE)) or (request.protocol_name not in (None, name)):
        raise InconsistentGroupProtocol
    if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # A newer rebalance has begun. A member that is revoking has rejoined already and must finish first.
        _expect_rejoin(shard, group, member)
        raise RebalanceInProgress
    timers = shard.consumer.timers(group.group_id, member.member_id)
    if timers.sync is not None:
        timers.sync.cancel()
        timers.sync = None
    shard.consumer.keep_alive(group.group_id, member.member_id, member.classic.session_timeout_ms)
    assignment = _assignment_bytes(shard, metadata, member.assigned)
    return Result(
        (),
        SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        ),
    )


def heartbeat(
    shard: GroupShard, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> Result[HeartbeatResponse]:
    member = _classic_member(group, member_id, instance_id)
    assert member.classic is not None
    if generation != member.epoch:
        raise IllegalGeneration
    protocol = shard.consumer
    protocol.keep_alive(group.group_id, member.member_id, member.classic.session_timeout_ms)
    if not _must_rejoin(group, member):
        return Result((), HeartbeatResponse())
    _expect_rejoin(shard, group, member)
    return Result((), HeartbeatResponse(error_code=RebalanceInProgress.code))


def leave(shard: GroupShard, group: ConsumerGroup, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
    answers = []
    leaving: list[str] = []
    for identity in request.members:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        answer = LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id)
        answers.append(answer)
        try:
            if instance_id is not None and not member_id:
                member = group.static_member(instance_id)
                if member is None:
                    raise UnknownMemberId
            else:
                member = group.member(member_id) if instance_id is None else _static(group, member_id, instance_id)
        except KafkaError as error:
            answer.error_code = error.code
            continue
        if member.member_id not in leaving:
            leaving.append(member.member_id)
    return shard.consumer.fence(group, leaving).with_response(LeaveGroupResponse(members=answers))


def _expect_rejoin(shard: GroupShard, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The answer makes the member rejoin: it must do so within its rebalance timeout."""
    timers = shard.consumer.timers(group.group_id, member.member_id)
    if timers.join is None:
        timers.join = shard.consumer.fencing_deadline(group.group_id, member.member_id)
        timers.join.push(member.rebalance_timeout_ms)


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
    )


def _static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    check_instance(member, member_id, instance_id)
    assert member is not None
    return member


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.member(member_id) if instance_id is None else _static(group, member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    return member


def _owned(shard: GroupShard, subscription: ConsumerProtocolSubscription) -> OwnedPartitions:
    owned: dict[bytes, list[int]] = {}
    for each in subscription.owned_partitions:
        topic = shard.image.topic(each.topic)
        if topic is not None:
            owned[topic.topic_id] = each.partitions
    return owned


def _assignment_bytes(
    shard: GroupShard, metadata: bytes, partitions: PartitionEpochs | dict[bytes, frozenset[int]]
) -> bytes:
    """Partitions in the client's format, in the version it uses; deleted topics are left out."""
    named: dict[str, list[int]] = {}
    for topic_id, indexes in partitions.items():
        topic = shard.image.topic_by_id(topic_id)
        if topic is not None:
            named[topic.name] = sorted(indexes)
    return consumer_protocol.encode_assignment(consumer_protocol.read_version(metadata), named)
