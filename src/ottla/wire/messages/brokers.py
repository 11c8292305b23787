"""Requests between brokers and the active controller."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, octets, string, uint16, uuid


class AlterPartitionRequest(Message, key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    """A leader changes its ISR (KIP-497). v2 by topic id (KIP-841); v3 with broker epochs (KIP-903)."""

    class BrokerState(Struct):
        broker_id: int = int32()
        broker_epoch: int = int64(default=-1)

    class PartitionData(Struct):
        partition_index: int = int32()
        leader_epoch: int = int32()
        new_isr: list[int] = array(int32, "0-2")
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = array("BrokerState", "3+")
        leader_recovery_state: int = int8()
        partition_epoch: int = int32()

    class TopicData(Struct):
        topic_id: bytes = uuid()
        partitions: list[AlterPartitionRequest.PartitionData] = array("PartitionData")

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class AlterPartitionResponse(Message, key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    """The partition's state after the change."""

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()
        isr: list[int] = array(int32)
        leader_recovery_state: int = int8()
        partition_epoch: int = int32()

    class TopicData(Struct):
        topic_id: bytes = uuid()
        partitions: list[AlterPartitionResponse.PartitionData] = array("PartitionData")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)


class EnvelopeRequest(Message, key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    """A request forwarded to the controller, with the principal that sent it (KIP-590)."""

    request_data: bytes = octets()
    request_principal: bytes | None = octets(nullable="0+")
    client_host_address: bytes = octets()


class EnvelopeResponse(Message, key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    """The response to the request inside."""

    response_data: bytes | None = octets(nullable="0+", default=None)
    error_code: int = int16()


class BrokerRegistrationRequest(Message, key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+"):
    """v1 marked ZooKeeper migration; v2 log dirs (KIP-858); v3 the previous epoch (KIP-966); v4 supported features
    that start at 0.
    """

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class Feature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


class BrokerRegistrationResponse(Message, key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+"):
    """The broker's new epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)


class BrokerHeartbeatRequest(Message, key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    """v1 offline log dirs (KIP-858); v2 cordoned ones (KIP-1066)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    """Whether the broker caught up, is fenced, and should shut down."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()


class AllocateProducerIdsRequest(Message, key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """A broker requests a block of producer ids (KIP-730)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Message, key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """The first id of the block and its length."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


class ControllerRegistrationRequest(Message, key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+"):
    """A controller reports its endpoints and features (KIP-919)."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class Feature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Message, key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+"):
    """An error and its message."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AssignReplicasToDirsRequest(Message, key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    """A broker reports the folder of each replica (KIP-858)."""

    class PartitionData(Struct):
        partition_index: int = int32()

    class TopicData(Struct):
        topic_id: bytes = uuid()
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = array("PartitionData")

    class DirectoryData(Struct):
        id: bytes = uuid()
        topics: list[AssignReplicasToDirsRequest.TopicData] = array("TopicData")

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class AssignReplicasToDirsResponse(Message, key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    """One error for each partition."""

    class PartitionData(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class TopicData(Struct):
        topic_id: bytes = uuid()
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = array("PartitionData")

    class DirectoryData(Struct):
        id: bytes = uuid()
        topics: list[AssignReplicasToDirsResponse.TopicData] = array("TopicData")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryData] = array(DirectoryData)


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """The principal inside an Envelope."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
