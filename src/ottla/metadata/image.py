"""The cluster's metadata as a fold over its records: topics, partitions, configs, brokers, features.

`MetadataImage.replay` is the only place where this state changes. A live broker and a restarted one therefore hold the
same image, and so does an Apache Kafka that is given the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.enums import ConfigResourceType
from ottla.metadata.java_hash_order import scala_map
from ottla.metadata.topics import java_hash
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored

CLUSTER_NAME = "kafka-cluster"
"""What the cluster is called where access to it is spoken of."""

NO_LEADER = -1


@dataclass(slots=True)
class PartitionState:
    """One partition as the controller sees it."""

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
    """Encoded Metadata answers, kept by the server; thrown away with any change of a partition."""


@dataclass(slots=True)
class EndPoint:
    """Where a broker can be reached through one of its listeners."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(slots=True)
class BrokerState:
    """A broker as it registered, and what became of it."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: list[EndPoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: list[bytes]


class ScramCredential(NamedTuple):
    """What the server keeps of a user's password for one mechanism (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(NamedTuple):
    """A token that stands for its owner (KIP-48); its HMAC is made from the id and the broker's secret."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class Acl(NamedTuple):
    """One access control entry, in the numbers of the wire."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) by type; no name stands for everybody without a quota of their own."""


class MetadataImage:
    """Everything that the metadata log says, after its last record."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[bytes, TopicState] = {}
        self._in_hash_order: list[TopicState] | None = None
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.credentials: dict[tuple[str, int], ScramCredential] = {}
        """By user and mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512)."""
        self.acls: dict[bytes, Acl] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.removed_topics: dict[bytes, TopicState] = {}
        """Topics just removed. The code that cleans up after them takes them out."""
        self.next_producer_id = 0
        self.version = 0
        self.brokers_version = 0
        """Counts the comings and goings of brokers, which show in every topic (offline replicas)."""
        """Counts the changes, so that what is derived from the image can be cached."""
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
        }

    def replay(self, record: Message, offset: int) -> None:
        """Apply one record; kinds that this image does not keep (no-ops, controllers) change nothing."""
        apply = self._replays.get(type(record))
        if apply is not None:
            apply(record, offset)
            self.version += 1

    def topic_configs(self, name: str) -> dict[str, str]:
        """The overrides of a topic; an empty dict where there are none."""
        return self.configs.get((ConfigResourceType.TOPIC, name), {})

    def all_topics(self) -> list[TopicState]:
        """As Kafka lists them: by their names' hashes."""
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
        """Whether a broker may lead: it is there, and not on its way out."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    # -- one method a kind of record ---------------------------------------------------------------------------

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
        # -2 stands for "no change"; naming a leader, even the same one, starts a new leader epoch.
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
