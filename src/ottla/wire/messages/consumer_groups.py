"""Groups of the new consumer protocol (KIP-848)."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..primitives import INT32_MIN
from ..schema import Message, Struct, array, boolean, int8, int16, int32, string, struct, uuid


class ConsumerGroupHeartbeatRequest(Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    """The whole new consumer protocol in one request (KIP-848): join with epoch 0, leave with -1, leave as a static
    member with -2. A null field means unchanged. v1 a regular expression, and the member generates its own id
    (KIP-1082).
    """

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class ConsumerGroupHeartbeatResponse(Message, key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    """The member's epoch and, if it changed, its assignment."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = array("TopicPartitions")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)


class ConsumerGroupDescribeRequest(Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    """Groups of the new protocol (KIP-848)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeResponse(Message, key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    """v1 whether a member uses the classic protocol (KIP-1099)."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = array("TopicPartitions")

    class Member(Struct):
        member_id: str = string()
        instance_id: str | None = string(nullable="0+", default=None)
        rack_id: str | None = string(nullable="0+", default=None)
        member_epoch: int = int32()
        client_id: str = string()
        client_host: str = string()
        subscribed_topic_names: list[str] = array(string)
        subscribed_topic_regex: str | None = string(nullable="0+", default=None)
        assignment: ConsumerGroupDescribeResponse.Assignment = struct("Assignment")
        target_assignment: ConsumerGroupDescribeResponse.Assignment = struct("Assignment")
        member_type: int = int8("1+", default=-1)

    class DescribedGroup(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[ConsumerGroupDescribeResponse.Member] = array("Member")
        authorized_operations: int = int32(default=INT32_MIN)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
