"""CreateTopics, DeleteTopics, Metadata, DescribeCluster and DescribeTopicPartitions on the wire."""

import pytest

from ottla.enums import CoordinatorType, OffsetTimestamp
from ottla.errors import (
    NONE,
    CoordinatorNotAvailable,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from ottla.wire.primitives import ZERO_UUID
from support.batches import batch
from support.requests import new_topic
from support.wire import Wire


def create(wire: Wire, *topics, version: int = 7, validate_only: bool = False):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=30000, validate_only=validate_only)
    return {topic.name: topic for topic in wire.call(request, version).topics}


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_request_creates_the_topic_for_the_next_request(version: int, wire: Wire, unique) -> None:
    name = unique("auto")
    (topic,) = wire.metadata(name, version=version, create=True).topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.partitions) == (
        UnknownTopicOrPartition.code,
        name,
        ZERO_UUID,
        [],
    )
    wire.wait_until_ready(name)
    (topic,) = wire.metadata(name, version=version, create=True).topics
    assert (topic.error_code, len(topic.partitions)) == (NONE, 1)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(version: int, wire: Wire, unique) -> None:
    name = unique("t")
    made = create(wire, new_topic(name, 3, retention_ms=1234567), version=version)[name]
    assert (made.error_code, made.error_message) == (NONE, None)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        configs = {config.name: config for config in made.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234567", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
        assert "compression.type" in configs
    if version >= 7:
        assert made.topic_id != ZERO_UUID
        wire.wait_until_ready(name, 3)
        assert wire.topic_id(name) == made.topic_id
    wire.wait_until_ready(name, 3)
    assert len(wire.metadata(name).topics[0].partitions) == 3


def test_defaults_of_the_broker(wire: Wire, unique) -> None:
    name = unique("t")
    made = create(wire, new_topic(name, -1, -1))[name]
    assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 1, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "\u00fc", "a:b", "a\nb"])
def test_bad_names(name: str, wire: Wire) -> None:
    refused = create(wire, new_topic(name))[name]
    assert refused.error_code == InvalidTopicException.code
    assert refused.error_message


def test_the_longest_name(wire: Wire, unique) -> None:
    name = unique("t").ljust(249, "x")
    assert create(wire, new_topic(name))[name].error_code == NONE


def test_names_that_collide(wire: Wire, unique) -> None:
    stem = unique("t")
    assert create(wire, new_topic(f"{stem}.a"))[f"{stem}.a"].error_code == NONE
    assert create(wire, new_topic(f"{stem}_a"))[f"{stem}_a"].error_code == InvalidTopicException.code
    # Only existing topics are checked, not two topics of the same request.
    both = create(wire, new_topic(f"{stem}.b"), new_topic(f"{stem}_b"))
    assert [topic.error_code for topic in both.values()] == [NONE, NONE]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"partitions": 0}, InvalidPartitions.code),
        ({"partitions": -5}, InvalidPartitions.code),
        ({"replication": 0}, InvalidReplicationFactor.code),
        ({"replication": 2}, InvalidReplicationFactor.code),
        ({"replication": -3}, InvalidReplicationFactor.code),
        ({"retention_ms": "soon"}, InvalidConfig.code),
        ({"cleanup_policy": "burn"}, InvalidConfig.code),
        ({"max_message_bytes": -1}, InvalidConfig.code),
        ({"segment_bytes": 1}, InvalidConfig.code),
        ({"no_such_config": 1}, InvalidConfig.code),
        ({"min_insync_replicas": 0}, InvalidConfig.code),
        ({"compression_type": "brotli"}, InvalidConfig.code),
        ({"message_timestamp_type": "Never"}, InvalidConfig.code),
    ],
    ids=str,
)
def test_bad_topics(arguments: dict, code: int, wire: Wire, unique) -> None:
    name = unique("t")
    refused = create(wire, new_topic(name, **arguments))[name]
    assert refused.error_code == code
    assert refused.error_message
    assert wire.metadata(name).topics[0].error_code == UnknownTopicOrPartition.code


def test_topics_that_exist(topic: str, wire: Wire) -> None:
    assert create(wire, new_topic(topic))[topic].error_code == TopicAlreadyExists.code
    assert create(wire, new_topic(topic), validate_only=True)[topic].error_code == TopicAlreadyExists.code


def test_a_topic_named_twice(wire: Wire, unique) -> None:
    name = unique("t")
    answer = create(wire, new_topic(name), new_topic(name))
    assert {topic.error_code for topic in answer.values()} == {InvalidRequest.code}
    assert wire.metadata(name).topics[0].error_code == UnknownTopicOrPartition.code


def test_validate_only(wire: Wire, unique) -> None:
    name = unique("t")
    assert create(wire, new_topic(name, 2), validate_only=True)[name].error_code == NONE
    assert create(wire, new_topic(name, 0), validate_only=True)[name].error_code == InvalidPartitions.code
    assert wire.metadata(name).topics[0].error_code == UnknownTopicOrPartition.code


def assigned(name: str, assignments: dict[int, list[int]], partitions: int = -1, replication: int = -1):
    topic = new_topic(name, partitions, replication)
    topic.assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in assignments.items()
    ]
    return topic


def test_assignments(wire: Wire, unique) -> None:
    node = wire.metadata().brokers[0].node_id
    name = unique("t")
    made = create(wire, assigned(name, {0: [node], 1: [node]}))[name]
    assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 2, 1)
    for assignments, more, code in (
        ({0: [node], 2: [node]}, {}, InvalidReplicaAssignment.code),
        ({1: [node]}, {}, InvalidReplicaAssignment.code),
        ({0: [node, node]}, {}, InvalidReplicaAssignment.code),
        ({0: [node + 1000]}, {}, InvalidReplicaAssignment.code),
        ({0: []}, {}, InvalidReplicaAssignment.code),
        ({0: [node]}, {"partitions": 1}, InvalidRequest.code),
        ({0: [node]}, {"replication": 1}, InvalidRequest.code),
    ):
        other = unique("t")
        refused = create(wire, assigned(other, assignments, **more))[other]
        assert refused.error_code == code, (assignments, more, refused)


def test_other_topics_of_the_request_are_created(wire: Wire, unique) -> None:
    good, bad = unique("t"), "not good"
    answer = create(wire, new_topic(good), new_topic(bad))
    assert (answer[good].error_code, answer[bad].error_code) == (NONE, InvalidTopicException.code)


# Deleting


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_by_name(version: int, topic: str, wire: Wire, unique) -> None:
    nowhere = unique("t")
    answer = wire.call(DeleteTopicsRequest(topic_names=[topic, nowhere], timeout_ms=30000), version)
    assert {one.name: one.error_code for one in answer.responses} == {
        topic: NONE,
        nowhere: UnknownTopicOrPartition.code,
    }


def delete(wire: Wire, *topics: tuple[str | None, bytes]):
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    return wire.call(DeleteTopicsRequest(topics=states, timeout_ms=30000), 6).responses


def test_delete_by_name_or_id(make_topic, wire: Wire, unique) -> None:
    one, two, nowhere = make_topic(), make_topic(), unique("t")
    two_id = wire.topic_id(two)
    answers = delete(wire, (one, ZERO_UUID), (None, two_id), (nowhere, ZERO_UUID), (None, b"\x09" * 16))
    found = {(answer.name, answer.topic_id): answer.error_code for answer in answers}
    assert sorted(found.values()) == [NONE, NONE, UnknownTopicOrPartition.code, UnknownTopicId.code]
    assert found[two, two_id] == NONE
    assert found[nowhere, ZERO_UUID] == UnknownTopicOrPartition.code
    assert found[None, b"\x09" * 16] == UnknownTopicId.code


def test_delete_by_name_and_id_at_once(topic: str, wire: Wire) -> None:
    (answer,) = delete(wire, (topic, wire.topic_id(topic)))
    assert answer.error_code == InvalidRequest.code
    assert wire.metadata(topic).topics[0].error_code == NONE


def test_a_recreated_topic_has_another_id(make_topic, wire: Wire) -> None:
    topic = make_topic()
    wire.produce(topic, batch(b"x"))
    first = wire.topic_id(topic)
    assert delete(wire, (topic, ZERO_UUID))[0].error_code == NONE
    for _ in range(1000):
        if create(wire, new_topic(topic))[topic].error_code == NONE:
            break
    wire.wait_until_ready(topic)
    assert wire.topic_id(topic) != first
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_one_topic(version: int, make_topic, wire: Wire, broker) -> None:
    topic = make_topic(2)
    found = wire.metadata(topic, version=version, create=version < 4)
    assert [(b.host, b.port, b.rack) for b in found.brokers] == [(broker.host, broker.port, None)]
    node = found.brokers[0].node_id
    if version >= 1:
        assert found.controller_id == node
    if version >= 2:
        assert len(found.cluster_id) == 22
    (only,) = found.topics
    assert (only.error_code, only.name, only.is_internal) == (NONE, topic, False)
    for index, partition in enumerate(sorted(only.partitions, key=lambda p: p.partition_index)):
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (NONE, index, node)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([node], [node], [])
        if version >= 7:
            assert partition.leader_epoch == 0


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_metadata_of_all_and_of_none(version: int, topic: str, wire: Wire) -> None:
    every = wire.call(MetadataRequest(topics=[] if version == 0 else None), version)
    assert topic in {one.name for one in every.topics}
    if version >= 1:
        assert wire.call(MetadataRequest(topics=[]), version).topics == []


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id(version: int, topic: str, wire: Wire) -> None:
    topic_id = wire.topic_id(topic)
    wanted = [MetadataRequest.MetadataRequestTopic(topic_id=one, name=None) for one in (topic_id, b"\x08" * 16)]
    found = {one.topic_id: one for one in wire.call(MetadataRequest(topics=wanted), version).topics}
    assert (found[topic_id].error_code, found[topic_id].name) == (NONE, topic)
    assert (found[b"\x08" * 16].error_code, found[b"\x08" * 16].name) == (UnknownTopicId.code, None)


def test_unknown_topics_and_creation(wire: Wire, unique) -> None:
    name = unique("t")
    for _ in range(2):
        assert wire.metadata(name, create=False).topics[0].error_code == UnknownTopicOrPartition.code
    # Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION while it creates the topic, which then exists soon or immediately.
    assert wire.metadata(name, create=True).topics[0].error_code in (
        NONE,
        UnknownTopicOrPartition.code,
        LeaderNotAvailable.code,
    )
    wire.wait_until_ready(name)
    found = wire.metadata(name, create=False).topics[0]
    assert (found.error_code, len(found.partitions)) == (NONE, 1)


@pytest.mark.parametrize("name", ["no good", ".", "x" * 250])
def test_metadata_of_bad_names(name: str, wire: Wire) -> None:
    for create_it in (True, False):
        assert wire.metadata(name, create=create_it).topics[0].error_code == InvalidTopicException.code


def test_an_old_metadata_request_creates_the_topic(wire: Wire, unique) -> None:
    name = unique("t")
    wire.metadata(name, version=0)
    wire.wait_until_ready(name)


# The cluster


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(version: int, wire: Wire, broker) -> None:
    found = wire.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    expected = wire.metadata()
    assert (found.error_code, found.cluster_id) == (NONE, expected.cluster_id)
    assert [(b.broker_id, b.host, b.port) for b in found.brokers] == [
        (expected.brokers[0].node_id, broker.host, broker.port)
    ]
    assert found.controller_id == expected.brokers[0].node_id
    assert found.cluster_authorized_operations > 0


def test_authorized_operations_are_returned_on_request(topic: str, wire: Wire) -> None:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    silent = wire.call(MetadataRequest(topics=wanted), 12).topics[0]
    assert silent.topic_authorized_operations == -(2**31)
    asked = wire.call(MetadataRequest(topics=wanted, include_topic_authorized_operations=True), 12).topics[0]
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    assert asked.topic_authorized_operations == sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))


def test_describe_topic_partitions_pages(make_topic, wire: Wire, unique) -> None:
    topic, nowhere = make_topic(5), unique("t")
    names = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in (topic, nowhere)]
    cursor, seen = None, []
    while True:
        found = wire.call(DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2, cursor=cursor), 0)
        for one in found.topics:
            if one.name == nowhere:
                assert one.error_code == UnknownTopicOrPartition.code
            else:
                seen += [partition.partition_index for partition in one.partitions]
        if found.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=found.next_cursor.topic_name, partition_index=found.next_cursor.partition_index
        )
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(version: int, wire: Wire, broker, unique) -> None:
    group = unique("g")
    for _ in range(1000):
        found = wire.call(
            FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP, coordinator_keys=[group]), version
        )
        if version >= 4:
            found = found.coordinators[0]
            assert found.key == group
        if found.error_code != CoordinatorNotAvailable.code:  # the offsets topic is being created
            break
    assert (found.error_code, found.host, found.port) == (NONE, broker.host, broker.port)
