"""Share groups: records handed out one by one and acknowledged (KIP-932)."""

from __future__ import annotations

from collections.abc import Sized

from ottla.enums import ApiKey

from ..primitives import INT32_MAX, INT32_MIN
from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, string, struct, uuid
from ..schema import records as record_data


class ShareGroupHeartbeatRequest(Message, key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    """Like ConsumerGroupHeartbeat, for share groups (KIP-932). v0 was an early preview and is removed."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    """The member's epoch and, if it changed, its assignment."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = array("TopicPartitions")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)


class ShareGroupDescribeRequest(Message, key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    """Share groups and their members (KIP-932)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeResponse(Message, key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    """One entry for each requested group."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = array("TopicPartitions")

    class Member(Struct):
        member_id: str = string()
        rack_id: str | None = string(nullable="0+", default=None)
        member_epoch: int = int32()
        client_id: str = string()
        client_host: str = string()
        subscribed_topic_names: list[str] = array(string)
        assignment: ShareGroupDescribeResponse.Assignment = struct("Assignment")

    class DescribedGroup(Struct):
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[ShareGroupDescribeResponse.Member] = array("Member")
        authorized_operations: int = int32(default=INT32_MIN)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


class ShareFetchRequest(Message, key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    """Acquires records and acknowledges earlier ones in one request (KIP-932). v1 limits by records and batch size; v2
    acquire modes (KIP-1206) and lock renewal (KIP-1222).
    """

    class AcknowledgementBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        acknowledge_types: list[int] = array(int8)

    class FetchPartition(Struct):
        partition_index: int = int32()
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = array("AcknowledgementBatch")

    class FetchTopic(Struct):
        topic_id: bytes = uuid()
        partitions: list[ShareFetchRequest.FetchPartition] = array("FetchPartition")

    class ForgottenTopic(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=INT32_MAX)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class ShareFetchResponse(Message, key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    """Records and which of them are acquired; v1 the duration of the lock."""

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class AcquiredRecords(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_count: int = int16()

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        acknowledge_error_code: int = int16()
        acknowledge_error_message: str | None = string(nullable="0+", default=None)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch")
        records: Sized | None = record_data()
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = array("AcquiredRecords")

    class ShareFetchableTopicResponse(Struct):
        topic_id: bytes = uuid()
        partitions: list[ShareFetchResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


class ShareAcknowledgeRequest(Message, key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    """Acknowledges without fetching (KIP-932): 0 gap, 1 accept, 2 release, 3 reject, and from v2 4 renew
    (KIP-1222).
    """

    class AcknowledgementBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        acknowledge_types: list[int] = array(int8)

    class AcknowledgePartition(Struct):
        partition_index: int = int32()
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = array("AcknowledgementBatch")

    class AcknowledgeTopic(Struct):
        topic_id: bytes = uuid()
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = array("AcknowledgePartition")

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class ShareAcknowledgeResponse(Message, key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    """v2 the duration of the lock."""

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch")

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: bytes = uuid()
        partitions: list[ShareAcknowledgeResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


class DescribeShareGroupOffsetsRequest(Message, key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"):
    """Null topics mean all (KIP-932)."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = array(
            "DescribeShareGroupOffsetsRequestTopic", nullable="0+"
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponse(
    Message, key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    """v1 lag (KIP-1226)."""

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = int32()
        start_offset: int = int64()
        leader_epoch: int = int32()
        lag: int = int64("1+", default=-1)
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string()
        topic_id: bytes = uuid()
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = array(
            "DescribeShareGroupOffsetsResponsePartition"
        )

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = array(
            "DescribeShareGroupOffsetsResponseTopic"
        )
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


class AlterShareGroupOffsetsRequest(Message, key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    """Sets start offsets of an empty share group (KIP-932)."""

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int = int32()
        start_offset: int = int64()

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = array(
            "AlterShareGroupOffsetsRequestPartition"
        )

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponse(Message, key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    """One error for each partition."""

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string()
        topic_id: bytes = uuid()
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = array(
            "AlterShareGroupOffsetsResponsePartition"
        )

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


class DeleteShareGroupOffsetsRequest(Message, key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    """Deletes the offsets of whole topics of an empty share group (KIP-932)."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string()

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponse(Message, key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    """One error for each topic."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string()
        topic_id: bytes = uuid()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
