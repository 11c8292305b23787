"""Validation of StreamsGroupHeartbeat, in Kafka's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.groups.modern import JOIN_EPOCH, LEAVE_STATIC_EPOCH, is_blank
from ottla.coordinator.groups.streams.topology import ConfiguredSubtopology
from ottla.errors import InvalidRequest, StreamsInvalidTopology
from ottla.wire.messages.streams_groups import StreamsGroupHeartbeatRequest


def validate(request: StreamsGroupHeartbeatRequest) -> None:
    _refuse_unsupported(request)
    for name, text in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and is_blank(text):
            raise InvalidRequest(f"{name} can't be empty.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == JOIN_EPOCH:
        _validate_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    if any(each is not None for each in tasks) and any(each is None for each in tasks):
        raise InvalidRequest("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")


def _refuse_unsupported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse fields that the protocol has but Kafka 4.3 does not support."""
    if request.instance_id is not None:
        raise InvalidRequest("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidRequest("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidRequest("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidRequest("WarmupTasks are not supported yet.")
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise InvalidRequest("Regular expressions for source topics are not supported yet.")


def _validate_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise InvalidRequest(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequest("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise StreamsInvalidTopology(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )


def check_tasks(
    subtopologies: Mapping[str, ConfiguredSubtopology], owned: Iterable[StreamsGroupHeartbeatRequest.TaskIds] | None
) -> None:
    """Tasks that a member reports must exist."""
    for each in owned or ():
        subtopology = subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise InvalidRequest(f"Subtopology {each.subtopology_id} does not exist in the topology.")
        for index in each.partitions:
            if not 0 <= index < subtopology.task_count:
                raise InvalidRequest(
                    f"Task {index} for subtopology {each.subtopology_id} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.task_count}"
                )
