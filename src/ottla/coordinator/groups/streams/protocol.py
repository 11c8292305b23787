"""StreamsGroupHeartbeat: joining with a topology, following the target, leaving.

Like Kafka 4.3, this refuses features that are not implemented yet: static members, task offsets, warm-up tasks, regular
expressions and topology updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clock import TimerHandle
from ottla.coordinator.groups.modern import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ModernProtocol
from ottla.coordinator.groups.records import CoordinatorRecord
from ottla.coordinator.groups.streams import topology as topologies
from ottla.coordinator.groups.streams.assignor import MemberSpec, SubtopologySpec, assign
from ottla.coordinator.groups.streams.group import (
    Endpoint,
    StreamsGroup,
    StreamsMember,
)
from ottla.coordinator.groups.streams.reconciliation import reconcile
from ottla.coordinator.groups.streams.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
    topology_record,
)
from ottla.coordinator.groups.streams.tasks import NO_TARGET, Target, sets_of, task_ids
from ottla.coordinator.groups.streams.topology import ConfiguredTopology, InternalTopic, Topology
from ottla.coordinator.groups.streams.validation import check_tasks
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.result import Result
from ottla.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownServerError,
)
from ottla.wire.messages.streams_groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.wire.stored.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

STANDBY_REPLICAS = "num.standby.replicas"
Status = StreamsGroupHeartbeatResponse.Status


class Answer(NamedTuple):
    """A response, and the internal topics that the broker should create."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, InternalTopic] = {}


class StreamsProtocol(ModernProtocol[StreamsGroup]):
    __slots__ = ("_delays", "topic_errors")

    group_type = StreamsGroup

    def __init__(self, shard: GroupShard) -> None:
        super().__init__(shard)
        self._delays: dict[str, TimerHandle] = {}
        """Groups whose first assignment waits for more members."""
        self.topic_errors: dict[str, tuple[int, str]] = {}
        """Why internal topics could not be created, each with the time of the next attempt."""

    # -- the request

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, client: Client) -> Result[Answer]:
        """Handle a request that has passed validation."""
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        statuses: list[Status] = []
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group(request.group_id, joins, records)
        if joins and len(group.members) >= self._shard.settings.streams_max_size:
            raise GroupMaxSizeReached(
                "The streams group has reached its maximum capacity of "
                f"{self._shard.settings.streams_max_size} members."
            )
        member = self._member(group, request, create=joins)
        updated = _updated(member, request, client)
        is_changed = updated != member
        if is_changed:
            records.append(member_record(group.group_id, updated))
        topology = _topology(group, request, records)
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            detail = (
                f"The member's topology epoch {updated.topology_epoch} is behind "
                f"the group's topology epoch {group.topology.epoch}."
            )
            statuses.append(Status(status_code=topologies.STALE_TOPOLOGY, status_detail=detail))
        configured, metadata_hash = self._configured(group, topology)
        if configured.subtopologies is not None and configured.is_ready:
            for owned in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                check_tasks(configured.subtopologies, owned)
        epoch = self._epoch(group, topology, configured, metadata_hash, is_changed, records)
        self._maybe_delay(group)
        target_epoch, target = self._assign(group, epoch, updated, configured, statuses, records)
        moved = self._reconcile(group, updated, target_epoch, target, request, records)
        self.keep_alive(group.group_id, moved.member_id, self.session_timeout_ms(group.group_id))
        if request.shutdown_application and group.shutdown_by is None:
            group.shutdown_by = moved.member_id
        response = self._response(group, member, moved, request)
        if configured.problem is not None:
            status, detail = configured.problem
            statuses.append(Status(status_code=status, status_detail=detail))
        if group.shutdown_by is not None:
            detail = (
                f"Streams group member {group.shutdown_by} encountered a fatal error "
                "and requested a shutdown for the entire application."
            )
            statuses.append(Status(status_code=topologies.SHUTDOWN_APPLICATION, status_detail=detail))
        response.status = statuses
        return Result(records, Answer(response, configured.missing))

    def _group(self, group_id: str, create: bool, records: list[CoordinatorRecord]) -> StreamsGroup:
        """The group, or a draft of it that becomes real when the records are replayed."""
        group = self._shard.groups.get(group_id)
        if group is None:
            if not create:
                raise GroupIdNotFound(f"Streams group {group_id} not found.")
            return StreamsGroup(group_id)
        classic = self._shard.classic.find(group_id) if create else None
        if classic is None or not classic.is_empty:
            return self.require(group, group_id)
        records += classic.tombstones()  # its offsets stay
        return StreamsGroup(group_id)

    def _member(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, *, create: bool) -> StreamsMember:
        if create and request.member_id not in group.members:
            return StreamsMember(request.member_id)
        member = group.member(request.member_id)
        _check_epoch(member, request)
        return member

    # -- the group's topology, epoch and target

    def _configured(self, group: StreamsGroup, topology: Topology) -> tuple[ConfiguredTopology, int]:
        """The configured topology, rebuilt if a topic may have changed, and the hash of its topics."""
        metadata_hash = group.metadata_hash
        if group.topology is not None and group.configured is not None and not group.needs_refresh:
            return group.configured, metadata_hash
        image = self._shard.image
        metadata_hash = self.topics_hash(topology.required)
        if group.topology is None or group.configured is None or metadata_hash != group.metadata_hash:
            group.configured = topologies.configure(topology, image)
            group.configured_offset = self._shard.written_offset
        return group.configured, metadata_hash

    def _epoch(
        self,
        group: StreamsGroup,
        topology: Topology,
        configured: ConfiguredTopology,
        metadata_hash: int,
        is_changed: bool,
        records: list[CoordinatorRecord],
    ) -> int:
        """The group's epoch, one higher if anything changed that tasks depend on."""
        topology_epoch = topology.epoch if configured.is_ready else -1
        configs = self._assignment_configs(group.group_id)
        if (
            is_changed
            or metadata_hash != group.metadata_hash
            or topology_epoch != group.validated_topology_epoch
            or configs != group.last_configs
        ):
            records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash, topology_epoch, configs))
            return group.epoch + 1
        # Do not clear this earlier: if writing the record above failed, the change would be lost.
        group.needs_refresh = False
        return group.epoch

    def _assignment_configs(self, group_id: str) -> dict[str, str]:
        replicas = self._shard.group_setting(
            group_id, "streams.num.standby.replicas", self._shard.settings.streams_standby_replicas
        )
        return {STANDBY_REPLICAS: str(replicas)}

    def _maybe_delay(self, group: StreamsGroup) -> None:
        """Delay the first assignment of an empty group: other members may be about to join."""
        group_id = group.group_id
        if not group.is_empty or group_id in self._delays:
            return
        delay_ms = self._shard.group_setting(
            group_id, "streams.initial.rebalance.delay.ms", self._shard.settings.streams_initial_rebalance_delay_ms
        )
        if delay_ms > 0:
            self._delays[group_id] = self._shard.timer.schedule(delay_ms, lambda: self._delay_over(group_id))

    def _delay_over(self, group_id: str) -> None:
        self._delays.pop(group_id, None)
        group = self.find(group_id)
        if group is None or group.is_empty or group.configured is None:
            return
        if group.epoch > group.target_epoch:
            records: list[CoordinatorRecord] = []
            self._assign(group, group.epoch, None, group.configured, [], records, group.last_configs)
            self._shard.run(Result(records))

    def _assign(
        self,
        group: StreamsGroup,
        epoch: int,
        updated: StreamsMember | None,
        configured: ConfiguredTopology,
        statuses: list[Status],
        records: list[CoordinatorRecord],
        configs: Mapping[str, str] | None = None,
    ) -> tuple[int, Target]:
        """Compute the target for `epoch`, unless it is too early; returns the epoch and target for `updated`."""
        if group.group_id in self._delays:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(status_code=topologies.ASSIGNMENT_DELAYED, status_detail=detail))
            return group.target_epoch, NO_TARGET
        last = NO_TARGET if updated is None else group.target.get(updated.member_id, NO_TARGET)
        if group.target_epoch >= epoch:
            return group.target_epoch, last
        now_ms = self._shard.clock.now_ms()
        if self.is_too_soon(group, now_ms):
            detail = "Assignment delayed due to the configured assignment interval."
            statuses.append(Status(status_code=topologies.ASSIGNMENT_DELAYED, status_detail=detail))
            return group.target_epoch, last
        members = dict(group.members)
        if updated is not None:
            members[updated.member_id] = updated
        if configs is None:
            configs = self._assignment_configs(group.group_id)
        targets = _targets(group, members, configured, int(configs.get(STANDBY_REPLICAS, 0)))
        self.add_targets(group, epoch, members, targets, now_ms, records)
        return epoch, NO_TARGET if updated is None else targets[updated.member_id]

    def _reconcile(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        target_epoch: int,
        target: Target,
        request: StreamsGroupHeartbeatRequest,
        records: list[CoordinatorRecord],
    ) -> StreamsMember:
        if member.is_reconciled_to(target_epoch):
            return member
        moved = reconcile(group, member, target_epoch, target, _owned(request))
        if moved != member:
            records.append(current_record(group.group_id, moved))
            self.watch_revocation(group.group_id, moved)
        return moved

    # -- answers

    def _response(
        self, group: StreamsGroup, before: StreamsMember, member: StreamsMember, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupHeartbeatResponse:
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._shard.group_setting(
                group.group_id, "streams.heartbeat.interval.ms", self._shard.settings.streams_heartbeat_interval_ms
            ),
        )
        if request.member_epoch == JOIN_EPOCH or before.assigned != member.assigned:
            ids = StreamsGroupHeartbeatResponse.TaskIds
            response.active_tasks = task_ids(ids, member.assigned.active)
            response.standby_tasks = task_ids(ids, member.assigned.standby)
            response.warmup_tasks = task_ids(ids, member.assigned.warmup)
            if member.endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            others = [each for each in group.members.values() if each.member_id != member.member_id]
            response.partitions_by_user_endpoint = [
                self._endpoint(group, each) for each in (*others, member) if each.endpoint is not None
            ]
        if group.group_id in self._shard.groups:
            response.endpoint_information_epoch = group.endpoint_epoch
        return response

    def _endpoint(
        self, group: StreamsGroup, member: StreamsMember
    ) -> StreamsGroupHeartbeatResponse.EndpointToPartitions:
        assert member.endpoint is not None
        configured = None if group.configured is None else group.configured.subtopologies
        if configured is None:
            raise UnknownServerError
        make, image = StreamsGroupHeartbeatResponse.TopicPartition, self._shard.image
        return StreamsGroupHeartbeatResponse.EndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(host=member.endpoint.host, port=member.endpoint.port),
            active_partitions=topologies.topics_of_tasks(member.assigned.active, configured, image, make),
            standby_partitions=topologies.topics_of_tasks(member.assigned.standby, configured, image, make),
        )

    # -- leaving

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> Result[Answer]:
        group = self.require(self._shard.groups.get(request.group_id), request.group_id)
        if request.shutdown_application and group.shutdown_by is None:
            group.shutdown_by = request.member_id
        member = group.member(request.member_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, status=[]
        )
        return self.remove(group, member.member_id).with_response(Answer(response))

    def remove(self, group: StreamsGroup, member_id: str) -> Result[None]:
        """Force a member out of the group."""
        self.cancel_timers(group.group_id, member_id)
        return Result([*member_tombstones(group.group_id, member_id), self.next_epoch_record(group)])

    # -- specific to streams groups

    def session_timeout_ms(self, group_id: str) -> int:
        default = self._shard.settings.streams_session_timeout_ms
        return self._shard.group_setting(group_id, "streams.session.timeout.ms", default)

    def assignment_interval_ms(self, group_id: str) -> int:
        default = self._shard.settings.streams_assignment_interval_ms
        return self._shard.group_setting(group_id, "streams.assignment.interval.ms", default)

    def next_epoch_record(self, group: StreamsGroup) -> CoordinatorRecord:
        return epoch_record(
            group.group_id, group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.last_configs
        )

    def target_record(self, group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
        return target_record(group_id, member_id, target)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        return target_epoch_record(group_id, epoch, timestamp_ms)

    def partitions_of(self, group: StreamsGroup, member: StreamsMember) -> Iterable[tuple[str, int]]:
        return group.read_by(member)

    def on_unloaded(self) -> None:
        super().on_unloaded()
        for handle in self._delays.values():
            handle.cancel()
        self._delays.clear()

    def forget(self, group: StreamsGroup) -> None:
        super().forget(group)
        handle = self._delays.pop(group.group_id, None)
        if handle is not None:
            handle.cancel()

    # -- replay

    def _replay_topology(self, group: StreamsGroup, key: Any, value: Any) -> None:
        group.topology = None if value is None else Topology(value)

    replays = {
        StreamsGroupMetadataKey: ModernProtocol.replay_group,
        StreamsGroupMemberMetadataKey: ModernProtocol.replay_member,
        StreamsGroupTargetAssignmentMetadataKey: ModernProtocol.replay_target_metadata,
        StreamsGroupTargetAssignmentMemberKey: ModernProtocol.replay_target_member,
        StreamsGroupCurrentMemberAssignmentKey: ModernProtocol.replay_current_assignment,
        StreamsGroupTopologyKey: _replay_topology,
    }


PROTOCOL = StreamsProtocol
"""The class that a shard instantiates."""


def _updated(member: StreamsMember, request: StreamsGroupHeartbeatRequest, client: Client) -> StreamsMember:
    endpoint, tags = request.user_endpoint, request.client_tags
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=client.client_id,
        client_host=client.host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        tags=member.tags if tags is None else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
        endpoint=member.endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
    )


def _topology(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, records: list[CoordinatorRecord]) -> Topology:
    """The group's topology. The first member provides it; it cannot change."""
    if request.topology is None:
        if group.topology is None:
            raise UnknownServerError
        return group.topology
    brought = Topology.from_request(request.topology)
    if group.topology is None:
        records.append(topology_record(group.group_id, brought))
        return brought
    if group.topology.epoch <= brought.epoch and not group.topology.is_like(brought):
        raise InvalidRequest("Topology updates are not supported yet.")
    return group.topology


def _targets(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    standby_replicas: int,
) -> dict[str, Target]:
    if configured.subtopologies is None or not configured.is_ready:
        return dict.fromkeys(members, NO_TARGET)
    specs = {
        member_id: MemberSpec(member.process_id, group.target.get(member_id, NO_TARGET))
        for member_id, member in members.items()
    }
    topology = {
        name: SubtopologySpec(each.task_count, bool(each.changelog_topics))
        for name, each in configured.subtopologies.items()
    }
    return assign(specs, topology, standby_replicas)


def _owned(request: StreamsGroupHeartbeatRequest) -> Target | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Target(sets_of(request.active_tasks), sets_of(request.standby_tasks), sets_of(request.warmup_tasks))


def _check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    received = request.member_epoch
    if received in (JOIN_EPOCH, member.epoch):
        return
    if received > member.epoch:
        raise FencedMemberEpoch(
            f"The streams group member has a greater member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
    # The answer that bumped the epoch may have been lost: fine if the member only has its assigned tasks.
    assigned = member.assigned
    is_subset = (
        _are_in(request.active_tasks, assigned.active)
        and _are_in(request.standby_tasks, assigned.standby)
        and _are_in(request.warmup_tasks, assigned.warmup)
    )
    if received != member.previous_epoch or not is_subset:
        raise FencedMemberEpoch(
            f"The streams group member has a smaller member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )


def _are_in(owned: list[StreamsGroupHeartbeatRequest.TaskIds] | None, assigned: Mapping[str, Any]) -> bool:
    return owned is not None and all(
        each.subtopology_id in assigned and all(index in assigned[each.subtopology_id] for index in each.partitions)
        for each in owned
    )
