"""A list of everything is in the order of hash maps, which depends on the names and their number."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import ConfigResourceType, ElectionType, QuotaMatchType
from ottla.errors import NONE, GroupIdNotFound, InvalidRequest, UnknownTopicId, UnknownTopicOrPartition
from ottla.metadata.java_hash_order import java_names
from ottla.metadata.topics import java_hash
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.interop.transacting import Transacting, describe, find_group
from support.requests import new_topic
from support.wire import TIMEOUT_S, Wire

TOPIC_KEYS = """
    compression.type remote.log.delete.on.disable leader.replication.throttled.replicas remote.storage.enable
    min.insync.replicas segment.jitter.ms remote.log.copy.disable local.retention.ms cleanup.policy flush.ms
    follower.replication.throttled.replicas compression.lz4.level segment.bytes retention.ms compression.gzip.level
    flush.messages compression.zstd.level max.compaction.lag.ms file.delete.delay.ms max.message.bytes
    min.compaction.lag.ms message.timestamp.type local.retention.bytes preallocate index.interval.bytes
    min.cleanable.dirty.ratio unclean.leader.election.enable retention.bytes delete.retention.ms
    message.timestamp.after.max.ms message.timestamp.before.max.ms segment.ms segment.index.bytes
"""
GROUP_KEYS = """
    consumer.session.timeout.ms consumer.assignment.interval.ms share.auto.offset.reset share.renew.acknowledge.enable
    streams.initial.rebalance.delay.ms share.session.timeout.ms streams.assignment.interval.ms
    share.heartbeat.interval.ms streams.heartbeat.interval.ms share.delivery.count.limit
    consumer.heartbeat.interval.ms share.record.lock.duration.ms share.assignment.interval.ms share.isolation.level
    streams.session.timeout.ms share.partition.max.record.locks streams.num.standby.replicas
"""
SUPPORTED = """
    group.version kraft.version metadata.version share.version streams.version transaction.version
    eligible.leader.replicas.version
"""
FINALIZED = """
    group.version streams.version transaction.version eligible.leader.replicas.version share.version metadata.version
"""
BROKER_KEYS = """
    log.cleaner.min.compaction.lag.ms offsets.topic.num.partitions sasl.oauthbearer.jwks.endpoint.refresh.ms
    remote.log.metadata.manager.listener.name log.flush.interval.messages controller.socket.timeout.ms
    group.consumer.max.session.timeout.ms num.recovery.threads.per.data.dir metadata.log.segment.bytes
    fetch.purgatory.purge.interval.requests group.streams.num.standby.replicas group.share.record.lock.duration.ms
    message.max.bytes remote.log.manager.fetch.max.bytes.per.second group.share.session.timeout.ms
"""


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (ConfigResourceType.TOPIC, TOPIC_KEYS),
        (ConfigResourceType.GROUP, GROUP_KEYS),
        (ConfigResourceType.BROKER, BROKER_KEYS),
    ],
)
def test_configs(kind: int, keys: str, topic: str, wire: Wire) -> None:
    name = {
        ConfigResourceType.TOPIC: topic,
        ConfigResourceType.GROUP: "group",
        ConfigResourceType.BROKER: str(wire.metadata().brokers[0].node_id),
    }[kind]
    asked = sorted(keys.split()) if kind == ConfigResourceType.BROKER else None  # a broker may have additional keys
    entry = m.DescribeConfigsRequest.DescribeConfigsResource
    resource = entry(resource_type=kind, resource_name=name, configuration_keys=asked)
    found = wire.call(m.DescribeConfigsRequest(resources=[resource]), 4).results[0]
    assert [config.name for config in found.configs] == keys.split()


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9, 10])
def test_partitions_of_all_offsets(version: int, wire: Wire, unique: Callable[[str], str]) -> None:
    topic, group = wire.create_topic(unique("t"), 7), find_group(wire, unique("g"))

    def commit(*indexes: int) -> None:
        entry = m.OffsetCommitRequest.OffsetCommitRequestPartition
        partitions = [entry(partition_index=index, committed_offset=1) for index in indexes]
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        answer = wire.call(request, 8).topics[0]
        assert [partition.error_code for partition in answer.partitions] == [NONE] * len(indexes)

    def fetched() -> list[int]:
        if version < 8:
            answer = wire.call(m.OffsetFetchRequest(group_id=group, topics=None), version)
        else:
            one = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            answer = wire.call(m.OffsetFetchRequest(groups=[one]), version).groups[0]
        return [partition.partition_index for partition in answer.topics[0].partitions]

    commit(0, 1)
    assert fetched() == [0, 1]
    commit(2)
    assert fetched() == [2, 0, 1]
    commit(4, 3)
    assert fetched() == [2, 0, 4, 1, 3]
    commit(1)  # A repeated insertion makes the map larger too.
    assert fetched() == [0, 2, 4, 1, 3]
    commit(6, 5)
    assert fetched() == [5, 0, 2, 4, 1, 6, 3]


def test_unknown_ids_come_last(topic: str, wire: Wire, unique: Callable[[str], str]) -> None:
    group, entry = find_group(wire, unique("g")), m.OffsetFetchRequest.OffsetFetchRequestTopics
    known, unknown = wire.topic_id(topic), b"\xee" * 16
    topics = [entry(topic_id=topic_id, partition_indexes=[0]) for topic_id in (unknown, known, ZERO_UUID)]
    one = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
    found = wire.call(m.OffsetFetchRequest(groups=[one]), 10).groups[0].topics
    assert [(each.topic_id, each.partitions[0].error_code) for each in found] == [
        (known, NONE),
        (unknown, UnknownTopicId.code),
        (ZERO_UUID, UnknownTopicId.code),
    ]


def test_partitions_of_a_transaction(wire: Wire, unique: Callable[[str], str]) -> None:
    topic = wire.create_topic(unique("t"), 6)
    transaction = Transacting(wire, unique("tx")).start()
    transaction.add((topic, [5, 1, 0, 4, 2, 3]))

    def bucket(index: int) -> int:
        hashed = 31 * (31 + index) + java_hash(topic) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & 15

    (found,) = describe(wire, transaction.name).topics
    assert [bucket(index) for index in found.partitions] == sorted(bucket(index) for index in range(6))


def test_an_assignor_with_half_of_the_votes(topic: str, wire: Wire, unique: Callable[[str], str]) -> None:
    def described(*assignors: str) -> list[str]:
        group, names = find_group(wire, unique("g")), []
        for number, assignor in enumerate(assignors):
            beat = m.ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=f"member-{number}",
                member_epoch=0,
                rebalance_timeout_ms=5000,
                subscribed_topic_names=[topic],
                server_assignor=assignor,
                topic_partitions=[],
            )
            assert wire.call(beat, 1).error_code == NONE
            names.append(wire.call(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0].assignor_name)
        return names

    assert described("range", "uniform", "range") == ["range", "uniform", "range"]
    assert described("uniform", "range") == ["uniform", "uniform"]


def test_altered_offsets_of_a_share_group(wire: Wire, unique: Callable[[str], str]) -> None:
    topic = wire.create_topic(unique("t"), 4)
    request = m.AlterShareGroupOffsetsRequest

    def alter(group: str, *topics: tuple[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
        entries = [
            request.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    request.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=3)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ]
        answer = wire.call(request(group_id=group, topics=entries), 0)
        assert answer.error_code == NONE
        found = [
            (each.topic_name, [(p.partition_index, p.error_code) for p in each.partitions]) for each in answer.responses
        ]
        assert len(dict(found)) == len(found)
        assert [name for name, _ in found] == sorted(dict(found), key=lambda name: name == topic)  # unknown ones first
        return dict(found)

    def code(group: str) -> int:
        found: int = wire.call(m.ShareGroupDescribeRequest(group_ids=[group]), 1).groups[0].error_code
        return found

    first, second, third = (find_group(wire, unique("g")) for _ in range(3))
    # A topic that occurs twice is answered once.
    assert alter(first, (topic, [3, 1]), ("nowhere", [0]), ("no other", []), (topic, [2, 99])) == {
        "nowhere": [(0, UnknownTopicOrPartition.code)],
        topic: [(3, NONE), (1, NONE), (2, NONE), (99, UnknownTopicOrPartition.code)],
    }
    # An existing topic creates the group, even without partitions.
    assert alter(second, (topic, [99])) == {topic: [(99, UnknownTopicOrPartition.code)]}
    assert alter(third, ("nowhere", [0])) == {"nowhere": [(0, UnknownTopicOrPartition.code)]}
    assert [code(group) for group in (first, second, third)] == [NONE, NONE, GroupIdNotFound.code]


def test_names_of_new_topics_that_come_twice(wire: Wire, unique: Callable[[str], str]) -> None:
    names = [unique(f"t{number}") for number in range(20)]
    asked = ["__cluster_metadata", *names, *names[::-1], names[3], single := unique("single")]
    request = m.CreateTopicsRequest(topics=[new_topic(name) for name in asked], timeout_ms=30000, validate_only=True)
    found = [(each.name, each.error_code, each.error_message) for each in wire.call(request, 5).topics]
    prohibited = "Creation of internal topic __cluster_metadata is prohibited."
    assert found == [
        (single, NONE, None),
        *((name, InvalidRequest.code, "Duplicate topic name.") for name in java_names(names[::-1])),
        ("__cluster_metadata", InvalidRequest.code, prohibited),
    ]


def test_groups(topic: str, wire: Wire, unique: Callable[[str], str]) -> None:
    """In the order of their partitions of the offsets topic."""
    names = [f"listed-{number}" for number in range(8)]
    for name in names:
        find_group(wire, name)
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = m.OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        assert wire.call(request, 8).topics[0].partitions[0].error_code == NONE
    listed = [group.group_id for group in wire.call(m.ListGroupsRequest(), 5).groups if group.group_id in names]
    assert listed == [f"listed-{number}" for number in [4, 0, 7, 3, 6, 2, 5, 1]]


def test_features(wire: Wire) -> None:
    request = m.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    found = wire.call(request, 4)
    assert [feature.name for feature in found.supported_features] == SUPPORTED.split()
    assert [feature.name for feature in found.finalized_features] == FINALIZED.split()


def test_elections(wire: Wire, unique: Callable[[str], str]) -> None:
    """The slots of the map are the first bits of a product: here each name has its own slot, of eight."""
    names: dict[int, str] = {}
    while len(names) < 8:
        name = unique("t")
        names.setdefault((java_hash(name) * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 61, name)
    for name in names.values():
        wire.create_topic(name)
    request = m.ElectLeadersRequest(election_type=ElectionType.PREFERRED, topic_partitions=None, timeout_ms=30000)
    elected = [result.topic for result in wire.call(request, 2).replica_election_results]
    assert [name for name in elected if name in names.values()] == [names[slot] for slot in range(8)]
    # The list of resources with configs is sorted by the hashes themselves.
    listed = wire.call(m.ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC]), 1).config_resources
    found = [resource.resource_name for resource in listed if resource.resource_name in names.values()]
    assert found == sorted(names.values(), key=java_hash)


def quota(user: str, *keys: str) -> Any:
    entry = m.AlterClientQuotasRequest.EntityData
    operation = m.AlterClientQuotasRequest.OpData
    return m.AlterClientQuotasRequest.EntryData(
        entity=[entry(entity_type="user", entity_name=user), entry(entity_type="client-id", entity_name=None)],
        ops=[operation(key=key, value=1e9) for key in keys],
    )


def test_quotas(wire: Wire, unique: Callable[[str], str]) -> None:
    names = [f"absent-{index * 7919 % 1000}" for index in range(15)]
    request = m.AlterClientQuotasRequest(entries=[quota(name, "nothing") for name in names], validate_only=True)
    found = wire.call(request, 1).entries
    assert [[part.entity_type for part in entry.entity] for entry in found] == [["client-id", "user"]] * 15
    assert {entry.error_code for entry in found} == {InvalidRequest.code}
    order = [names.index(entry.entity[1].entity_name) for entry in found]
    assert order == [10, 2, 13, 5, 8, 0, 3, 12, 6, 14, 11, 9, 1, 4, 7]


def test_keys_of_a_quota(wire: Wire, unique: Callable[[str], str]) -> None:
    user = unique("u")
    component = m.DescribeClientQuotasRequest.ComponentData(
        entity_type="user", match_type=QuotaMatchType.EXACT, match=user
    )

    def set_and_described(*keys: str) -> list[str]:
        wire.call(m.AlterClientQuotasRequest(entries=[quota(user, *keys)]), 1)
        deadline = time.monotonic() + TIMEOUT_S
        while True:  # Apache Kafka's broker knows a moment later.
            entries = wire.call(m.DescribeClientQuotasRequest(components=[component]), 1).entries
            found = [value.key for entry in entries for value in entry.values]
            if set(keys) <= set(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.01)

    try:
        assert set_and_described("producer_byte_rate", "request_percentage") == [
            "request_percentage",
            "producer_byte_rate",
        ]
        assert set_and_described("controller_mutation_rate", "consumer_byte_rate") == [
            "producer_byte_rate",
            "consumer_byte_rate",
            "controller_mutation_rate",
            "request_percentage",
        ]
    finally:
        removal = quota(
            user, "producer_byte_rate", "request_percentage", "controller_mutation_rate", "consumer_byte_rate"
        )
        for operation in removal.ops:
            operation.remove = True
        wire.call(m.AlterClientQuotasRequest(entries=[removal]), 1)
