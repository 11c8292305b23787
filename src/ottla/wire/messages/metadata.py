"""A client's first requests: versions, metadata, the cluster, coordinators."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..primitives import INT32_MIN
from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, string, struct, uuid


class ApiVersionsRequest(Message, key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """v3 client software name and version (KIP-511). A broker responds to an unknown version with a v0 body and error
    35.
    """

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersionsResponse(Message, key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """v1 throttle time; v3 features as tags (KIP-584); v4 includes supported ranges that start at 0 (KIP-1022). The
    header of this response is always v0.
    """

    class ApiVersion(Struct):
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeatureKey(Struct):
        name: str = string()
        min_version: int = int16()
        max_version: int = int16()

    class FinalizedFeatureKey(Struct):
        name: str = string()
        max_version_level: int = int16()
        min_version_level: int = int16()

    error_code: int = int16()
    api_keys: list[ApiVersion | bytes] = array(ApiVersion, ready_made=True)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


class MetadataRequest(Message, key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """v1 null means all topics (an empty list means none; in v0 an empty list means all); v4 auto-creation flag;
    v8 authorized operations (KIP-430), the cluster's until v10; v10 topic ids, v12 look-up by id (KIP-516).
    """

    class MetadataRequestTopic(Struct):
        topic_id: bytes = uuid("10+")
        name: str | None = string(nullable="10+")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponse(Message, key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """v1 rack, controller and internal flag; v2 cluster id; v3 throttle time; v5 offline replicas (KIP-112); v7
    leader epoch (KIP-320); v8 authorized operations; v10 topic id; v12 a name may be null; v13 top-level error
    (KIP-1102).
    """

    class MetadataResponseBroker(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None)

    class MetadataResponsePartition(Struct):
        error_code: int = int16()
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32("7+", default=-1)
        replica_nodes: list[int] = array(int32)
        isr_nodes: list[int] = array(int32)
        offline_replicas: list[int] = array(int32, "5+")

    class MetadataResponseTopic(Struct):
        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: bytes = uuid("10+")
        is_internal: bool = boolean("1+")
        partitions: list[MetadataResponse.MetadataResponsePartition] = array("MetadataResponsePartition")
        topic_authorized_operations: int = int32("8+", default=INT32_MIN)

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic | bytes] = array(MetadataResponseTopic, ready_made=True)
    cluster_authorized_operations: int = int32("8-10", default=INT32_MIN)
    error_code: int = int16("13+")


class DescribeTopicPartitionsRequest(Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"):
    """Pages through partitions with a cursor (KIP-966)."""

    class TopicRequest(Struct):
        name: str = string()

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponse(Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"):
    """Only this response has ELR and last known ELR."""

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int = int16()
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32(default=-1)
        replica_nodes: list[int] = array(int32)
        isr_nodes: list[int] = array(int32)
        eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
        last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
        offline_replicas: list[int] = array(int32)

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int = int16()
        name: str | None = string(nullable="0+")
        topic_id: bytes = uuid()
        is_internal: bool = boolean()
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = array(
            "DescribeTopicPartitionsResponsePartition"
        )
        topic_authorized_operations: int = int32(default=INT32_MIN)

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeClusterRequest(Message, key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    """v1 selects brokers or controllers (KIP-919); v2 fenced brokers too (KIP-1073)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterResponse(Message, key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    """v1 endpoint type; v2 fenced flag."""

    class DescribeClusterBroker(Struct):
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=INT32_MIN)


class FindCoordinatorRequest(Message, key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """v1 key type: group, transaction, share state partition; v4 several keys at once (KIP-699); v6 share groups
    (KIP-932).
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class FindCoordinatorResponse(Message, key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """v1 throttle time and error message; v4 a list of coordinators."""

    class Coordinator(Struct):
        key: str = string()
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
