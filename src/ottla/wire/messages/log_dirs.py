"""Data folders and the replicas in them."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int16, int32, int64, string


class AlterReplicaLogDirsRequest(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    """Moves replicas between the folders of one broker (KIP-113)."""

    class AlterReplicaLogDirTopic(Struct):
        name: str = string()
        partitions: list[int] = array(int32)

    class AlterReplicaLogDir(Struct):
        path: str = string()
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = array("AlterReplicaLogDirTopic")

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirsResponse(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    """One error for each partition."""

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = string()
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = array(
            "AlterReplicaLogDirPartitionResult"
        )

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


class DescribeLogDirsRequest(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"):
    """Null topics mean all (KIP-113)."""

    class DescribableLogDirTopic(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsResponse(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"):
    """v3 top-level error; v4 total and usable bytes of the volume (KIP-827); v5 cordoned folders (KIP-1066)."""

    class DescribeLogDirsPartition(Struct):
        partition_index: int = int32()
        partition_size: int = int64()
        offset_lag: int = int64()
        is_future_key: bool = boolean()

    class DescribeLogDirsTopic(Struct):
        name: str = string()
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = array("DescribeLogDirsPartition")

    class DescribeLogDirsResult(Struct):
        error_code: int = int16()
        log_dir: str = string()
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = array("DescribeLogDirsTopic")
        total_bytes: int = int64("4+", default=-1)
        usable_bytes: int = int64("4+", default=-1)
        is_cordoned: bool = boolean("5+")

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
