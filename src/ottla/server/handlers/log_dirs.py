"""DescribeLogDirs and AlterReplicaLogDirs."""

from __future__ import annotations

import os

from ottla.cluster.hash_order import java_concurrent_map, partition_hash, scala_groups, scala_tree
from ottla.cluster.topics import CLUSTER_METADATA_TOPIC, java_hash
from ottla.errors import (
    NONE,
    InvalidTopicException,
    KafkaError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.log.files import PosixDisk
from ottla.server.api import RequestContext, handles
from ottla.server.broker import Broker
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

_UNKNOWN_BYTES = -1
_MOVED_NAME_MAX = 255 - len("-.-future") - 32
"""Of name and index: while a replica is on the move its folder is `name-index.` and 32 digits and `-future`."""


@handles(DescribeLogDirsRequest)
def describe_log_dirs(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """v0–v5 (KIP-113). v3 error for the whole; v4 bytes of the volume (KIP-827); v5 cordoned folders (KIP-1066).

    There is one data folder. A log that nobody used since the start is measured by its files, not opened.
    """
    broker = ctx.broker
    held = [key for key in broker.logs.partitions() if key[0] != CLUSTER_METADATA_TOPIC]
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_topic: dict[str, list[Partition]] = {}
    for topic, index in java_concurrent_map(held, partition_hash):
        if wanted is None or (topic, index) in wanted:
            partition = Partition(partition_index=index, partition_size=_size_bytes(broker, topic, index), offset_lag=0)
            by_topic.setdefault(topic, []).append(partition)
    path = log_dir(broker)
    total_bytes, usable_bytes = _space(broker)
    cordoned = broker.config["cordoned.log.dirs"]
    result = DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=NONE,
        log_dir=path,
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=by_topic[name])
            for name in scala_tree(dict.fromkeys(name for name, _ in held), java_hash)
            if name in by_topic
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=bool(cordoned) and (cordoned == ("*",) or path in map(os.path.abspath, cordoned)),
    )
    return DescribeLogDirsResponse(results=[result])


def log_dir(broker: Broker) -> str:
    """The absolute path of the data folder; for a broker in memory the path that it would have."""
    disk = broker.disk
    return disk.root if isinstance(disk, PosixDisk) else os.path.abspath(broker.config.log_dirs[0])


def _size_bytes(broker: Broker, topic: str, index: int) -> int:
    partition = broker.replicas.get(topic, index)
    if partition is not None:
        return partition.log.size_bytes
    files = broker.disk.scan(f"{topic}-{index}")
    return sum(size for name, size in files.items() if name.endswith(".log"))


def _space(broker: Broker) -> tuple[int, int]:
    if not isinstance(broker.disk, PosixDisk):
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    volume = os.statvfs(broker.disk.root)
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


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


@handles(AlterReplicaLogDirsRequest, on_error=_alter_error)
def alter_replica_log_dirs(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """v0–v2 (KIP-113): moves replicas between data folders. With one folder they are all where they can be."""
    broker = ctx.broker
    own = log_dir(broker)
    by_topic: dict[str, dict[int, MovedPartition]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            known = broker.metadata.topics.get(topic.name)
            for index in topic.partitions:
                if len(topic.name) + len(str(index)) > _MOVED_NAME_MAX:
                    code = InvalidTopicException.code
                elif folder.path != own:
                    code = LogDirNotFound.code
                elif known is None or index not in known.partitions:
                    code = UnknownTopicOrPartition.code
                elif broker.node_id not in known.partitions[index].replicas:
                    code = ReplicaNotAvailable.code
                else:
                    code = NONE
                # Of a partition that is to go to two folders the last counts.
                by_topic.setdefault(topic.name, {})[index] = MovedPartition(partition_index=index, error_code=code)
    return AlterReplicaLogDirsResponse(
        results=[MovedTopic(topic_name=name, partitions=partitions) for name, partitions in scala_groups(by_topic)]
    )
