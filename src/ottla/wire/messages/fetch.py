"""Fetch, ListOffsets and OffsetForLeaderEpoch: reading a partition."""

from __future__ import annotations

from collections.abc import Sized

from ottla.enums import ApiKey

from ..primitives import INT32_MAX, INT64_MAX
from ..schema import Message, Struct, array, int8, int16, int32, int64, string, struct, uuid
from ..schema import records as record_data


class FetchRequest(Message, key=ApiKey.FETCH, versions="0-18", flexible="12+"):
    """v3 limits the whole response (KIP-74); v4 isolation level; v5 log start offset; v7 sessions (KIP-227); v9 leader
    epoch (KIP-320); v11 rack (KIP-392); v12 is flexible, adds last fetched epoch (KIP-595); v13 topic ids (KIP-516);
    v15 moves the replica's id and epoch into a tag (KIP-903); v17 directory id (KIP-853); v18 high watermark of the
    replica (KIP-1166).
    """

    class ReplicaState(Struct):
        replica_id: int = int32(default=-1)
        replica_epoch: int = int64(default=-1)

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)
        fetch_offset: int = int64()
        last_fetched_epoch: int = int32("12+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        partition_max_bytes: int = int32()
        replica_directory_id: bytes = uuid("17+", tag=0)
        high_watermark: int = int64("18+", default=INT64_MAX, tag=1)

    class FetchTopic(Struct):
        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[FetchRequest.FetchPartition] = array("FetchPartition")

    class ForgottenTopic(Struct):
        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[int] = array(int32)

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=INT32_MAX)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class FetchResponse(Message, key=ApiKey.FETCH, versions="0-18", flexible="12+"):
    """v0–1 carry magic 0, v2–3 at most magic 1, v4 record batches with the last stable offset and aborted
    transactions (KIP-98); v7 top-level error and session; v11 preferred read replica; v12 diverging epoch,
    leader hint, snapshot id as tags; v13 topic ids; v16 node endpoints (KIP-951).
    """

    class EpochEndOffset(Struct):
        epoch: int = int32(default=-1)
        end_offset: int = int64(default=-1)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)

    class SnapshotId(Struct):
        end_offset: int = int64(default=-1)
        epoch: int = int32(default=-1)

    class AbortedTransaction(Struct):
        producer_id: int = int64()
        first_offset: int = int64()

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        high_watermark: int = int64()
        last_stable_offset: int = int64("4+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        diverging_epoch: FetchResponse.EpochEndOffset | None = struct("EpochEndOffset", "12+", tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch | None = struct("LeaderIdAndEpoch", "12+", tag=1)
        snapshot_id: FetchResponse.SnapshotId | None = struct("SnapshotId", "12+", tag=2)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = array(
            "AbortedTransaction", "4+", nullable="4+"
        )
        preferred_read_replica: int = int32("11+", default=-1)
        records: Sized | None = record_data(nullable="0+")

    class FetchableTopicResponse(Struct):
        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[FetchResponse.PartitionData] = array("PartitionData")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


class ListOffsetsRequest(Message, key=ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+"):
    """v0 requests several offsets before a time; v1 the one at it (KIP-79); v2 isolation level (KIP-98); v4 leader
    epoch (KIP-320); v7 max timestamp (KIP-734); v8 earliest local (KIP-405); v9 latest tiered (KIP-1005); v10 a timeout
    for remote look-ups (KIP-1075); v11 earliest pending upload (KIP-1023).
    """

    class ListOffsetsPartition(Struct):
        partition_index: int = int32()
        current_leader_epoch: int = int32("4+", default=-1)
        timestamp: int = int64()
        max_num_offsets: int = int32("0", default=1)

    class ListOffsetsTopic(Struct):
        name: str = string()
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = array("ListOffsetsPartition")

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


class ListOffsetsResponse(Message, key=ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+"):
    """v0 has a list of offsets, v1 one offset with its timestamp; v2 throttle time; v4 leader epoch."""

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        old_style_offsets: list[int] = array(int64, "0")
        timestamp: int = int64("1+", default=-1)
        offset: int = int64("1+", default=-1)
        leader_epoch: int = int32("4+", default=-1)

    class ListOffsetsTopicResponse(Struct):
        name: str = string()
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = array("ListOffsetsPartitionResponse")

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


class OffsetForLeaderEpochRequest(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    """v2 checks the current leader epoch (KIP-320); v3 replica id, -2 for a debugging consumer, -1 for a client."""

    class OffsetForLeaderPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("2+", default=-1)
        leader_epoch: int = int32()

    class OffsetForLeaderTopic(Struct):
        topic: str = string()
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = array("OffsetForLeaderPartition")

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class OffsetForLeaderEpochResponse(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    """v1 leader epoch with the end offset (KIP-279); v2 throttle time."""

    class EpochEndOffset(Struct):
        error_code: int = int16()
        partition: int = int32()
        leader_epoch: int = int32("1+", default=-1)
        end_offset: int = int64(default=-1)

    class OffsetForLeaderTopicResult(Struct):
        topic: str = string()
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = array("EpochEndOffset")

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
