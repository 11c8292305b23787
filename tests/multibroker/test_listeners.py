"""A broker that does not have a client's listener. Kafka 4.3.1 gives the same answers in this setup."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.enums import CoordinatorType
from ottla.errors import NONE, CoordinatorNotAvailable, LeaderNotAvailable, ListenerNotFound
from ottla.wire.messages import DescribeClusterRequest, DescribeTopicPartitionsRequest, FindCoordinatorRequest
from support.wire import Wire

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENT://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT",
    "offsets.topic.num.partitions": 4,
}


@pytest.fixture
def cluster() -> Iterator[ottla.Cluster]:
    """Broker 2 has no listener CLIENT."""
    other = {2: {"listeners": "PLAINTEXT://127.0.0.1:0"}}
    with ottla.Cluster(3, settings=SETTINGS, broker_settings=other) as cluster:
        cluster.create_topic("t", assignments=[[1, 2], [2, 1], [2, 3]])
        cluster.wait_in_sync()
        yield cluster


@pytest.fixture
def wire(cluster: ottla.Cluster) -> Iterator[Wire]:
    host, _, port = cluster.broker(1).bootstrap_for("CLIENT").rpartition(":")
    with Wire((host, int(port))) as wire:
        yield wire


@pytest.mark.parametrize("version", [1, 5, 6, 12, 13])
def test_metadata(wire: Wire, version: int) -> None:
    answer = wire.metadata("t", version=version)
    assert sorted(broker.node_id for broker in answer.brokers) == [1, 3]
    (topic,) = answer.topics
    refused = ListenerNotFound.code if version >= 6 else LeaderNotAvailable.code
    assert topic.error_code == NONE
    assert [(part.error_code, part.leader_id) for part in topic.partitions] == [(NONE, 1), (refused, -1), (refused, -1)]
    assert [part.replica_nodes for part in topic.partitions] == [part.isr_nodes for part in topic.partitions]
    if version >= 5:
        assert [part.offline_replicas for part in topic.partitions] == [[2]] * 3


def test_partitions_and_the_cluster_are_described(wire: Wire) -> None:
    wanted = DescribeTopicPartitionsRequest.TopicRequest(name="t")
    (topic,) = wire.call(DescribeTopicPartitionsRequest(topics=[wanted], response_partition_limit=9), 0).topics
    assert [(part.error_code, part.leader_id, part.offline_replicas) for part in topic.partitions] == [
        (NONE, 1, [2]),
        (NONE, -1, [2]),
        (NONE, -1, [2]),
    ]
    described = wire.call(DescribeClusterRequest(endpoint_type=1), 1)
    assert sorted(broker.broker_id for broker in described.brokers) == [1, 3]


def test_a_coordinator_that_the_client_cannot_reach(cluster: ottla.Cluster, wire: Wire) -> None:
    groups = [f"g{number}" for number in range(20)]
    request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=groups)
    wire.call(request, 4)  # creates the internal topic
    cluster.wait_in_sync()
    there = {group: cluster.coordinator(group) for group in groups}
    assert set(there.values()) == {1, 2, 3}
    found = {one.key: (one.error_code, one.error_message, one.node_id) for one in wire.call(request, 4).coordinators}
    unreachable = CoordinatorNotAvailable.code, "", -1
    assert found == {group: unreachable if node == 2 else (NONE, "", node) for group, node in there.items()}
    group = next(group for group in groups if there[group] == 2)
    one = wire.call(FindCoordinatorRequest(key_type=CoordinatorType.GROUP, key=group), 3)
    assert (one.error_code, one.error_message, one.node_id) == (
        CoordinatorNotAvailable.code,
        "The coordinator is not available.",
        -1,
    )
