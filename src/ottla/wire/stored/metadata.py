"""Records of `__cluster_metadata`, in the order of their keys."""

from __future__ import annotations

from ..schema import Message, Struct, array, boolean, float64, int8, int16, int32, int64, octets, string, uint16, uuid


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    """v1 in controlled shutdown; v2 migration flag; v3 log dirs (KIP-858); v4 cordoned ones (KIP-1066)."""

    class BrokerEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class BrokerFeature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    """A broker is removed."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    """A topic is created."""

    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    """A partition is created. v1 directories (KIP-858); v2 eligible leader replicas (KIP-966)."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    """A config is set, or removed by a null value. Types: 2 topic, 4 broker, 16 client metrics, 32 group."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    """The changes of a partition. All fields except the ids are tagged. v1 directories (KIP-858); v2 eligible leader
    replicas (KIP-966).
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    """Replaced by BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    """Replaced by BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    """A topic is deleted."""

    topic_id: bytes = uuid()


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    """A delegation token is created or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    """A SCRAM credential is set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = octets()
    stored_key: bytes = octets()
    server_key: bytes = octets()
    iterations: int = int32()


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    """A feature's finalized level."""

    name: str = string()
    feature_level: int = int16()


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    """A quota is set or removed."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    """The next free producer id."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    """v1 in controlled shutdown; v2 log dirs (KIP-858); v3 cordoned ones (KIP-1066)."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    """An ACL is added."""

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    """An ACL is removed, by its id."""

    id: bytes = uuid()


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    """Keeps the high watermark of an idle metadata log moving (KIP-835)."""


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper; a fresh cluster writes 0."""

    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    """A SCRAM credential is removed."""

    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    """The records up to the end or abort apply together (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    """The records since the begin apply."""


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    """The records since the begin do not apply."""

    reason: str | None = string(nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    """A delegation token is removed, by its HMAC."""

    token_id: str = string()


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    """A controller's endpoints and features (KIP-919)."""

    class ControllerEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class ControllerFeature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    """Eligible leader replicas are cleared, for one topic or for all (KIP-966)."""

    topic_name: str = string()
