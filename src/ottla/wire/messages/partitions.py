"""Administration of partitions and their replicas."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class CreatePartitionsRequest(Message, key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    """Increases the number of partitions (KIP-195). v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = array(int32)

    class CreatePartitionsTopic(Struct):
        name: str = string()
        count: int = int32()
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = array(
            "CreatePartitionsAssignment", nullable="0+"
        )

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsResponse(Message, key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    """One error for each topic."""

    class CreatePartitionsTopicResult(Struct):
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class DeleteRecordsRequest(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """Moves the log start offset (KIP-107); -1 means the high watermark."""

    class DeleteRecordsPartition(Struct):
        partition_index: int = int32()
        offset: int = int64()

    class DeleteRecordsTopic(Struct):
        name: str = string()
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = array("DeleteRecordsPartition")

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsResponse(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """The low watermark of each partition."""

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = int32()
        low_watermark: int = int64()
        error_code: int = int16()

    class DeleteRecordsTopicResult(Struct):
        name: str = string()
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = array("DeleteRecordsPartitionResult")

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


class ElectLeadersRequest(Message, key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """v0 preferred elections; v1 unclean ones too (KIP-460). Null means all partitions."""

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class ElectLeadersResponse(Message, key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """v1 top-level error."""

    class PartitionResult(Struct):
        partition_id: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    class ReplicaElectionResult(Struct):
        topic: str = string()
        partition_result: list[ElectLeadersResponse.PartitionResult] = array("PartitionResult")

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class AlterPartitionReassignmentsRequest(
    Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """Null replicas cancel a reassignment (KIP-455). v1 may forbid a change of the replication factor (KIP-860)."""

    class ReassignablePartition(Struct):
        partition_index: int = int32()
        replicas: list[int] | None = array(int32, nullable="0+", default=None)

    class ReassignableTopic(Struct):
        name: str = string()
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = array("ReassignablePartition")

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class AlterPartitionReassignmentsResponse(
    Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """v1 returns whether the replication factor may change."""

    class ReassignablePartitionResponse(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    class ReassignableTopicResponse(Struct):
        name: str = string()
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = array(
            "ReassignablePartitionResponse"
        )

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsRequest(Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"):
    """Null topics mean all (KIP-455)."""

    class ListPartitionReassignmentsTopics(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class ListPartitionReassignmentsResponse(Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"):
    """Replicas, and those being added and removed."""

    class OngoingPartitionReassignment(Struct):
        partition_index: int = int32()
        replicas: list[int] = array(int32)
        adding_replicas: list[int] = array(int32)
        removing_replicas: list[int] = array(int32)

    class OngoingTopicReassignment(Struct):
        name: str = string()
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = array(
            "OngoingPartitionReassignment"
        )

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
