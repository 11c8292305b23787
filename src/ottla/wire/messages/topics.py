"""Administration of topics."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int8, int16, int32, string, uuid


class CreateTopicsRequest(Message, key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    """v1 validate only; v4 -1 means the broker's defaults for partitions and replicas (KIP-464); v6 may return
    THROTTLING_QUOTA_EXCEEDED (KIP-599).
    """

    class CreatableReplicaAssignment(Struct):
        partition_index: int = int32()
        broker_ids: list[int] = array(int32)

    class CreatableTopicConfig(Struct):
        name: str = string()
        value: str | None = string(nullable="0+")

    class CreatableTopic(Struct):
        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = array("CreatableReplicaAssignment")
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = array("CreatableTopicConfig")

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


class CreateTopicsResponse(Message, key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    """v1 error message; v2 throttle time; v5 the created topic, with configs (KIP-525); v7 topic id."""

    class CreatableTopicConfigs(Struct):
        name: str = string()
        value: str | None = string(nullable="0+")
        read_only: bool = boolean()
        config_source: int = int8(default=-1)
        is_sensitive: bool = boolean()

    class CreatableTopicResult(Struct):
        name: str = string()
        topic_id: bytes = uuid("7+")
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="1+")
        topic_config_error_code: int = int16("5+", tag=0)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = array(
            "CreatableTopicConfigs", "5+", nullable="5+"
        )

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicsRequest(Message, key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    """v6 by name or by id (KIP-516); before, by name only."""

    class DeleteTopicState(Struct):
        name: str | None = string(nullable="0+", default=None)
        topic_id: bytes = uuid()

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeleteTopicsResponse(Message, key=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+"):
    """v1 throttle time; v5 error message (KIP-599); v6 topic id, and a name that may be null."""

    class DeletableTopicResult(Struct):
        name: str | None = string(nullable="6+")
        topic_id: bytes = uuid("6+")
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None)

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
