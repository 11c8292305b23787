"""What a ConsumerGroupHeartbeat must contain. As in Kafka, it is checked before the group's coordinator is found."""

from __future__ import annotations

from collections.abc import Collection

from ottla.coordinator.groups.modern import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, is_blank
from ottla.errors import InvalidRequest, UnsupportedAssignor
from ottla.wire.messages import ConsumerGroupHeartbeatRequest


def validate(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]) -> None:
    # Before v1 the broker generates the id of a joining member; other requests need one, unless the epoch is wrong.
    needs_id = version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH
    if needs_id and is_blank(request.member_id):
        raise InvalidRequest("MemberId can't be empty.")
    if is_blank(request.group_id):
        raise InvalidRequest("GroupId can't be empty.")
    if request.instance_id is not None and is_blank(request.instance_id):
        raise InvalidRequest("InstanceId can't be empty.")
    if request.rack_id is not None and is_blank(request.rack_id):
        raise InvalidRequest("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )
