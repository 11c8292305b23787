"""Committed offsets of consumer groups."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetCommitRequest(Message, key=ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+"):
    """v1 generation and member, and a commit time that v2 replaces with a retention time, removed in v5; v6 leader
    epoch (KIP-320); v7 static members (KIP-345); v9 members of the new protocol (KIP-848); v10 topic ids.
    """

    class OffsetCommitRequestPartition(Struct):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32("6+", default=-1)
        commit_timestamp: int = int64("1", default=-1)
        committed_metadata: str | None = string(nullable="0+")

    class OffsetCommitRequestTopic(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = array("OffsetCommitRequestPartition")

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponse(Message, key=ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+"):
    """v3 throttle time; v9 may return STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND; v10 topic ids."""

    class OffsetCommitResponsePartition(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class OffsetCommitResponseTopic(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = array("OffsetCommitResponsePartition")

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


class OffsetFetchRequest(Message, key=ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+"):
    """v0 read from ZooKeeper; v2 null topics mean all; v7 waits for pending transactions (KIP-447); v8 several groups
    at once (KIP-709); v9 member id and epoch (KIP-848); v10 topic ids.
    """

    class OffsetFetchRequestTopic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class OffsetFetchRequestTopics(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partition_indexes: list[int] = array(int32)

    class OffsetFetchRequestGroup(Struct):
        group_id: str = string()
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = array(
            "OffsetFetchRequestTopics", nullable="0+"
        )

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponse(Message, key=ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+"):
    """v2 top-level error; v3 throttle time; v5 leader epoch (KIP-320); v8 a list of groups; v10 topic ids."""

    class OffsetFetchResponsePartition(Struct):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32("5+", default=-1)
        metadata: str | None = string(nullable="0+")
        error_code: int = int16()

    class OffsetFetchResponseTopic(Struct):
        name: str = string()
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = array("OffsetFetchResponsePartition")

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32(default=-1)
        metadata: str | None = string(nullable="0+")
        error_code: int = int16()

    class OffsetFetchResponseTopics(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = array("OffsetFetchResponsePartitions")

    class OffsetFetchResponseGroup(Struct):
        group_id: str = string()
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = array("OffsetFetchResponseTopics")
        error_code: int = int16()

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


class OffsetDeleteRequest(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    """Only for topics that no member of the group subscribes to (KIP-496). Never became flexible."""

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = int32()

    class OffsetDeleteRequestTopic(Struct):
        name: str = string()
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = array("OffsetDeleteRequestPartition")

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponse(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    """One error for the group, and one for each partition."""

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class OffsetDeleteResponseTopic(Struct):
        name: str = string()
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = array("OffsetDeleteResponsePartition")

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
