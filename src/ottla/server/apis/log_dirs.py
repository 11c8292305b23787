"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

from collections.abc import Container

from ottla.enums import AclOperation, AnsweredBy
from ottla.errors import (
    NONE,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import java_concurrent_map, partition_hash, scala_groups, scala_tree
from ottla.metadata.topics import java_hash
from ottla.server.api import OnCluster, RequestContext, handles
from ottla.server.log_dirs import DataFolder, data_folders, is_cordoned
from ottla.server.services import Services
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

_MOVED_NAME_MAX = 255 - len("-.-future") - 32
"""The longest name and index: during a move, a replica's folder is `name-index.`, 32 digits and `-future`."""


@handles(
    DescribeLogDirsRequest,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """v0–v5 (KIP-113). v3 an error for the whole request; v4 bytes of the volume (KIP-827); v5 cordoned folders
    (KIP-1066).

    A log that has not been used since the start is measured by its files, not opened.
    """
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_described(ctx.services, folder, wanted) for folder in data_folders(ctx.services)]
    )


def _described(
    services: Services, folder: DataFolder, wanted: Container[tuple[str, int]] | None
) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    by_topic: dict[str, list[Partition]] = {}
    for topic, index in java_concurrent_map(folder.held, partition_hash):
        if wanted is None or (topic, index) in wanted:
            partition = Partition(
                partition_index=index, partition_size=_size_bytes(services, topic, index), offset_lag=0
            )
            by_topic.setdefault(topic, []).append(partition)
    for topic, index in java_concurrent_map(folder.arriving, partition_hash):
        if wanted is None or (topic, index) in wanted:
            size_bytes, lag = folder.arriving[topic, index]
            partition = Partition(partition_index=index, partition_size=size_bytes, offset_lag=lag, is_future_key=True)
            by_topic.setdefault(topic, []).append(partition)
    if folder.is_offline:
        return DescribeLogDirsResponse.DescribeLogDirsResult(
            error_code=KafkaStorageError.code,
            log_dir=folder.path,
            total_bytes=folder.total_bytes,
            usable_bytes=folder.usable_bytes,
        )
    names = dict.fromkeys(name for name, _ in (*folder.held, *folder.arriving))
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=NONE,
        log_dir=folder.path,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=by_topic[name])
            for name in scala_tree(names, java_hash)
            if name in by_topic
        ],
        total_bytes=folder.total_bytes,
        usable_bytes=folder.usable_bytes,
        is_cordoned=is_cordoned(services.config, folder.path),
    )


def _size_bytes(services: Services, topic: str, index: int) -> int:
    partition = services.replicas.get(topic, index)
    if partition is not None:
        return partition.log.size_bytes
    try:
        files = services.logs.disk.scan(f"{topic}-{index}")
    except FileNotFoundError:
        return 0  # it was not used yet
    return sum(size for name, size in files.items() if name.endswith(".log"))


def _alter_error(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            MovedTopic(
                topic_name=topic.name,
                partitions=[MovedPartition(partition_index=index, error_code=error.code) for index in topic.partitions],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


@handles(
    AlterReplicaLogDirsRequest,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_alter_error,
)
def alter_replica_log_dirs(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """v0–v2 (KIP-113): moves replicas between data folders. With one folder there is nothing to move."""
    services = ctx.services
    folders = data_folders(services)
    own = {folder.path for folder in folders}
    failed = {folder.path for folder in folders if folder.is_offline}
    moved: dict[tuple[str, int], str] = {}
    by_topic: dict[str, dict[int, MovedPartition]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            known = services.metadata.topics.get(topic.name)
            for index in topic.partitions:
                key = topic.name, index
                if len(topic.name) + len(str(index)) > _MOVED_NAME_MAX:
                    code = InvalidTopicException.code
                elif folder.path not in own:
                    code = LogDirNotFound.code
                elif folder.path in failed or key in services.logs.offline:
                    code = KafkaStorageError.code
                elif known is None or index not in known.partitions:
                    code = UnknownTopicOrPartition.code
                elif services.node_id not in known.partitions[index].replicas or key in services.logs.left_out:
                    code = ReplicaNotAvailable.code
                else:
                    code = NONE
                    moved[key] = folder.path
                # If a partition is assigned to two folders, the last one counts.
                by_topic.setdefault(topic.name, {})[index] = MovedPartition(partition_index=index, error_code=code)
    if services.log_dirs is not None:
        for key, path in moved.items():
            services.log_dirs.move(key, path)
    return AlterReplicaLogDirsResponse(
        results=[MovedTopic(topic_name=name, partitions=partitions) for name, partitions in scala_groups(by_topic)]
    )
