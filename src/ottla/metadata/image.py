"""The cluster's metadata, built from its records: topics, partitions, configs, brokers, features.

`MetadataImage.replay` is the only place where this state changes. So a running broker and a restarted one have the same
image, and so does Apache Kafka when it opens the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.enums import ConfigResourceType
from ottla.metadata.java_hash_order import scala_map
from ottla.metadata.topics import java_hash
from ottla.wire.schema import Message
from ottla.wire.stored import control
from ottla.wire.stored import metadata as stored

CLUSTER_NAME = "kafka-cluster"
"""The name of the cluster as an ACL resource."""

NO_LEADER = -1
MIGRATING, UNASSIGNED = bytes(16), bytes(15) + b"\1"
"""Placeholders for a folder's id: in metadata from before KIP-858, and until the broker has reported the folder."""
KRAFT_VERSION = "kraft.version"


@dataclass(slots=True)
class PartitionState:
    """The state of one partition."""

    topic_id: bytes
    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = 0
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    directories: list[bytes] = field(default_factory=list)
    eligible_leader_replicas: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TopicState:
    """A topic with its partitions."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState] = field(default_factory=dict)
    answers: dict[Any, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Encoded Metadata responses, cached by the server; cleared with any change of a partition."""


@dataclass(slots=True)
class EndPoint:
    """The address of one of a broker's listeners."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(slots=True)
class BrokerState:
    """A registered broker and its state."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: list[EndPoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: list[bytes]
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The supported levels, lowest and highest."""


@dataclass(slots=True)
class ControllerState:
    """The registration of a controller (KIP-919)."""

    controller_id: int
    incarnation_id: bytes
    endpoints: list[EndPoint]
    features: dict[str, tuple[int, int]]


class ScramCredential(NamedTuple):
    """The stored credential of a user for one mechanism (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(NamedTuple):
    """A token with the rights of its owner (KIP-48); its HMAC is computed from the id and the broker's secret."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class Acl(NamedTuple):
    """One access control entry, with the numbers of the wire format."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name), sorted by type. Without a name it is the default for all entities without their
own quota."""


class MetadataImage:
    """The state of the metadata after the last record of the log."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self._in_hash_order: list[TopicState] | None = None
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.controllers: dict[int, ControllerState] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.credentials: dict[tuple[str, int], ScramCredential] = {}
        """By user and mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512)."""
        self.acls: dict[bytes, Acl] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.removed_topics: dict[bytes, TopicState] = {}
        """Topics that were just removed. The code that cleans up after them removes them from this list."""
        self.next_producer_id = 0
        self.version = 0
        """Counts the changes, so that data derived from the image can be cached."""
        self.brokers_version = 0
        """Counts changes of the live brokers, which affect every topic (offline replicas)."""
        self._replays: dict[type[Message], Callable[[Any, int], None]] = {
            stored.TopicRecord: self._topic,
            stored.RemoveTopicRecord: self._remove_topic,
            stored.PartitionRecord: self._partition,
            stored.PartitionChangeRecord: self._partition_change,
            stored.ClearElrRecord: self._clear_eligible_leaders,
            stored.ConfigRecord: self._config,
            stored.FeatureLevelRecord: self._feature_level,
            stored.RegisterBrokerRecord: self._register_broker,
            stored.UnregisterBrokerRecord: self._unregister_broker,
            stored.FenceBrokerRecord: self._fence_broker,
            stored.UnfenceBrokerRecord: self._unfence_broker,
            stored.BrokerRegistrationChangeRecord: self._broker_change,
            stored.ProducerIdsRecord: self._producer_ids,
            stored.ClientQuotaRecord: self._client_quota,
            stored.UserScramCredentialRecord: self._credential,
            stored.RemoveUserScramCredentialRecord: self._remove_credential,
            stored.AccessControlEntryRecord: self._acl,
            stored.RemoveAccessControlEntryRecord: self._remove_acl,
            stored.DelegationTokenRecord: self._delegation_token,
            stored.RemoveDelegationTokenRecord: self._remove_delegation_token,
            stored.RegisterControllerRecord: self._register_controller,
            control.KRaftVersionRecord: self._kraft_version,
        }

    def clear(self) -> None:
        """Empty the image for another replay. Versions keep increasing, which invalidates all cached data."""
        version, brokers_version = self.version + 1, self.brokers_version + 1
        MetadataImage.__init__(self)
        self.version, self.brokers_version = version, brokers_version

    def replay(self, record: Message, offset: int) -> None:
        """Apply one record; kinds that the image does not store (no-ops) change nothing."""
        apply = self._replays.get(type(record))
        if apply is not None:
            apply(record, offset)
            self.version += 1

    def topic_configs(self, name: str) -> dict[str, str]:
        """The overrides of a topic; an empty dict if there are none."""
        return self.configs.get((ConfigResourceType.TOPIC, name), {})

    def all_topics(self) -> list[TopicState]:
        """All topics in Kafka's order: by the hashes of their names."""
        if self._in_hash_order is None:
            self._in_hash_order = [self.topics[name] for name in scala_map(self.topics, java_hash)]
        return self._in_hash_order

    def broker_configs(self, broker_id: int) -> tuple[dict[str, str], dict[str, str]]:
        """The dynamic settings of all brokers, and those of one."""
        return self.configs.get((ConfigResourceType.BROKER, ""), {}), self.configs.get(
            (ConfigResourceType.BROKER, str(broker_id)), {}
        )

    def partitions(self) -> Iterable[tuple[TopicState, PartitionState]]:
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                yield topic, partition

    def live_brokers(self) -> list[BrokerState]:
        """The brokers that serve clients now, by id."""
        return sorted((b for b in self.brokers.values() if not b.fenced), key=lambda broker: broker.broker_id)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead: it is not fenced, and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def may_lead(self, partition: PartitionState, broker_id: int) -> bool:
        """Whether a broker may lead a partition: it is active, and the folder of its replica has not failed."""
        return self.is_active(broker_id) and self.has_online_folder(partition, broker_id)

    def has_online_folder(self, partition: PartitionState, broker_id: int) -> bool:
        """Whether the broker has registered the replica's folder (KIP-858). An unknown folder may be any of them."""
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.log_dirs or broker_id not in partition.replicas:
            return True
        place = partition.replicas.index(broker_id)
        directory = partition.directories[place] if place < len(partition.directories) else MIGRATING
        return directory in (UNASSIGNED, MIGRATING) or directory in broker.log_dirs

    def folder_for_new(self, broker_id: int) -> bytes:
        """The id of the folder of a new replica: if the broker has several, it chooses one and reports it later."""
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.log_dirs:
            return MIGRATING
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED

    # -- one method per kind of record -------------------------------------------------------------------------

    def _topic(self, record: stored.TopicRecord, offset: int) -> None:
        topic = TopicState(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        self._in_hash_order = None

    def _remove_topic(self, record: stored.RemoveTopicRecord, offset: int) -> None:
        self._in_hash_order = None
        topic = self.removed_topics[record.topic_id] = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self.configs.pop((ConfigResourceType.TOPIC, topic.name), None)

    def _partition(self, record: stored.PartitionRecord, offset: int) -> None:
        topic = self.topics_by_id[record.topic_id]
        topic.answers.clear()
        topic.partitions[record.partition_id] = PartitionState(
            topic_id=record.topic_id,
            index=record.partition_id,
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            directories=record.directories,
            eligible_leader_replicas=record.eligible_leader_replicas or [],
            last_known_elr=record.last_known_elr or [],
        )

    def _partition_change(self, record: stored.PartitionChangeRecord, offset: int) -> None:
        topic = self.topics_by_id[record.topic_id]
        topic.answers.clear()
        partition = topic.partitions[record.partition_id]
        if record.isr is not None:
            partition.isr = record.isr
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.removing_replicas is not None:
            partition.removing_replicas = record.removing_replicas
        if record.adding_replicas is not None:
            partition.adding_replicas = record.adding_replicas
        if record.directories is not None:
            partition.directories = record.directories
        if record.eligible_leader_replicas is not None:
            partition.eligible_leader_replicas = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            partition.last_known_elr = record.last_known_elr
        if record.leader_recovery_state != -1:
            partition.leader_recovery_state = record.leader_recovery_state
        # -2 means "no change"; any leader in the record, even the same one, starts a new leader epoch.
        if record.leader != -2:
            partition.leader = record.leader
            partition.leader_epoch += 1
        partition.partition_epoch += 1

    def _clear_eligible_leaders(self, record: stored.ClearElrRecord, offset: int) -> None:
        topics = [self.topics[record.topic_name]] if record.topic_name else self.topics.values()
        for topic in topics:
            topic.answers.clear()
            for partition in topic.partitions.values():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    partition.eligible_leader_replicas, partition.last_known_elr = [], []
                    partition.partition_epoch += 1

    def _config(self, record: stored.ConfigRecord, offset: int) -> None:
        resource = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(resource, {})
        if record.value is None:
            values.pop(record.name, None)
            if not values:
                del self.configs[resource]
        else:
            values[record.name] = record.value

    def _feature_level(self, record: stored.FeatureLevelRecord, offset: int) -> None:
        if record.feature_level == 0 and record.name != "metadata.version":
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _kraft_version(self, record: control.KRaftVersionRecord, offset: int) -> None:
        """Not stored here: the quorum writes this record itself, as a control record."""
        self.features[KRAFT_VERSION] = record.k_raft_version

    def _register_broker(self, record: stored.RegisterBrokerRecord, offset: int) -> None:
        self.brokers_version += 1
        self.brokers[record.broker_id] = BrokerState(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=[EndPoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points],
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=record.log_dirs,
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        )

    def _register_controller(self, record: stored.RegisterControllerRecord, offset: int) -> None:
        self.controllers[record.controller_id] = ControllerState(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=[EndPoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points],
            features={f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        )

    def _unregister_broker(self, record: stored.UnregisterBrokerRecord, offset: int) -> None:
        self.brokers_version += 1
        self.brokers.pop(record.broker_id, None)

    def _fence_broker(self, record: stored.FenceBrokerRecord, offset: int) -> None:
        self.brokers_version += 1
        self.brokers[record.id].fenced = True

    def _unfence_broker(self, record: stored.UnfenceBrokerRecord, offset: int) -> None:
        self.brokers_version += 1
        self.brokers[record.id].fenced = False

    def _broker_change(self, record: stored.BrokerRegistrationChangeRecord, offset: int) -> None:
        self.brokers_version += 1
        broker = self.brokers[record.broker_id]
        if record.fenced != 0:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown != 0:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs

    def _producer_ids(self, record: stored.ProducerIdsRecord, offset: int) -> None:
        self.next_producer_id = record.next_producer_id

    def _client_quota(self, record: stored.ClientQuotaRecord, offset: int) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
            if not values:
                del self.quotas[entity]
        else:
            values[record.key] = record.value

    def _credential(self, record: stored.UserScramCredentialRecord, offset: int) -> None:
        self.credentials[record.name, record.mechanism] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _remove_credential(self, record: stored.RemoveUserScramCredentialRecord, offset: int) -> None:
        self.credentials.pop((record.name, record.mechanism), None)

    def _acl(self, record: stored.AccessControlEntryRecord, offset: int) -> None:
        self.acls[record.id] = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def _remove_acl(self, record: stored.RemoveAccessControlEntryRecord, offset: int) -> None:
        self.acls.pop(record.id, None)

    def _delegation_token(self, record: stored.DelegationTokenRecord, offset: int) -> None:
        self.delegation_tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def _remove_delegation_token(self, record: stored.RemoveDelegationTokenRecord, offset: int) -> None:
        self.delegation_tokens.pop(record.token_id, None)
