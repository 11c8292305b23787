"""Requests to workers that are not the controller, over raw connections to each worker's own port."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NotLeaderOrFollower,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ottla.records.batch import Record, build_batch
from ottla.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    UnregisterBrokerRequest,
)


@pytest.fixture
def wires(serving: Any) -> dict[int, Any]:
    return {node_id: serving.wire(port) for node_id, port in serving.ports().items()}


def create(wire: Any, name: str, partitions: int = 3, factor: int = 1, assignments: Any = ()) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignments)
        ],
    )
    (result,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    return result


def produce_code(wire: Any, topic: str, index: int) -> int:
    batch = build_batch([Record(0, 0, None, b"v")])
    data = ProduceRequest.PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    return int(wire.call(request, 9).responses[0].partition_responses[0].error_code)


def test_a_topic_is_ready_everywhere_when_its_creation_is_answered(serving: Any, wires: dict[int, Any]) -> None:
    for round_number in range(5):
        for asked, wire in wires.items():
            name = f"topic-{round_number}-{asked}"
            assert create(wire, name, 6).error_code == 0
            for told in wires.values():
                (topic,) = serving.metadata(name, wire=told).topics
                for partition in topic.partitions:
                    for node_id, there in wires.items():
                        expected = 0 if node_id == partition.leader_id else NotLeaderOrFollower.code
                        assert produce_code(there, name, partition.partition_index) == expected
            assert create(wires[asked % 3 + 1], name).error_code == TopicAlreadyExists.code


def test_a_topic_recreated_at_another_worker_is_new(wires: dict[int, Any]) -> None:
    for number in range(12):
        leader, asked = number % 3 + 1, wires[number // 3 % 3 + 1]
        assert create(asked, "again", assignments=[[leader]]).error_code == 0
        assert produce_code(wires[leader], "again", 0) == 0
        deleted = wires[number % 2 + 1].call(DeleteTopicsRequest(topic_names=["again"], timeout_ms=10_000), 5)
        assert deleted.responses[0].error_code == 0


def test_a_metadata_request_to_any_worker_creates_topics(serving: Any, wires: dict[int, Any]) -> None:
    for asked, wire in wires.items():
        wanted = [MetadataRequest.MetadataRequestTopic(name=f"auto-{asked}")]
        first, topic = (
            wire.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12).topics[0] for _ in range(2)
        )
        assert (first.error_code, topic.error_code) == (
            UnknownTopicOrPartition.code,
            0,
        )  # as with Kafka, the next request creates it
        for partition in topic.partitions:
            assert produce_code(wires[partition.leader_id], f"auto-{asked}", partition.partition_index) == 0


def test_more_partitions_are_spread_and_ready(serving: Any, wires: dict[int, Any]) -> None:
    assert create(wires[2], "grows", 1).error_code == 0
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="grows", count=7, assignments=None)
    (result,) = wires[3].call(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3).results
    assert result.error_code == 0
    leaders = serving.leaders("grows")
    assert len(leaders) == 7 and set(leaders.values()) == {1, 2, 3}
    assert [produce_code(wires[leader], "grows", index) for index, leader in leaders.items()] == [0] * 7


def test_one_folder_is_one_replica(wires: dict[int, Any]) -> None:
    assert create(wires[1], "two", factor=2).error_code == InvalidReplicationFactor.code
    assert create(wires[2], "two", assignments=[[1, 2]]).error_code == InvalidReplicaAssignment.code


def test_partitions_stay_where_they_are(wires: dict[int, Any]) -> None:
    create(wires[1], "stays", assignments=[[1], [2]])
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(
        name="stays",
        partitions=[partition(partition_index=0, replicas=[3]), partition(partition_index=1, replicas=[2])],
    )
    answer = wires[2].call(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000), 0)
    codes = {p.partition_index: p.error_code for t in answer.responses for p in t.partitions}
    assert codes == {0: InvalidReplicaAssignment.code, 1: 0}


def test_workers_that_run_stay_registered(wires: dict[int, Any]) -> None:
    for broker_id in (1, 2, 3):
        assert wires[2].call(UnregisterBrokerRequest(broker_id=broker_id), 0).error_code == InvalidRequest.code


def alter(wire: Any, *changes: tuple[int, str, str, str]) -> list[int]:
    resource, config = (
        IncrementalAlterConfigsRequest.AlterConfigsResource,
        IncrementalAlterConfigsRequest.AlterableConfig,
    )
    resources = [
        resource(
            resource_type=kind,
            resource_name=name,
            configs=[config(name=key, config_operation=AlterConfigOp.SET, value=value)],
        )
        for kind, name, key, value in changes
    ]
    answer = wire.call(IncrementalAlterConfigsRequest(resources=resources), 1)
    return sorted(result.error_code for result in answer.responses)


def described(wire: Any, kind: int, name: str, key: str) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=[key])]
    )
    (result,) = wire.call(request, 4).results
    assert result.error_code == 0, result
    return str(result.configs[0].value)


def test_configs_set_at_one_worker_hold_at_all(wires: dict[int, Any]) -> None:
    create(wires[1], "configured")
    assert alter(wires[2], (ConfigResourceType.TOPIC, "configured", "retention.ms", "1234567")) == [0]
    assert {described(wire, ConfigResourceType.TOPIC, "configured", "retention.ms") for wire in wires.values()} == {
        "1234567"
    }
    assert alter(wires[3], (ConfigResourceType.BROKER, "", "message.max.bytes", "2000000")) == [0]
    for node_id, wire in wires.items():
        assert described(wire, ConfigResourceType.BROKER, str(node_id), "message.max.bytes") == "2000000"


def test_a_brokers_own_settings_and_log_levels_are_its_own(wires: dict[int, Any]) -> None:
    changes = (
        (ConfigResourceType.BROKER, "3", "log.cleaner.threads", "2"),
        (ConfigResourceType.BROKER_LOGGER, "3", "root", "WARN"),
    )
    assert alter(wires[3], *changes) == [0, 0]
    assert described(wires[3], ConfigResourceType.BROKER, "3", "log.cleaner.threads") == "2"
    assert described(wires[2], ConfigResourceType.BROKER, "2", "log.cleaner.threads") == "1"
    assert described(wires[3], ConfigResourceType.BROKER_LOGGER, "3", "root") == "WARN"
    assert described(wires[2], ConfigResourceType.BROKER_LOGGER, "2", "root") != "WARN"


def test_producer_ids_are_never_repeated(wires: dict[int, Any]) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    given = [wire.call(request, 4) for _ in range(1100) for wire in wires.values()]
    assert {answer.error_code for answer in given} == {0}
    assert len({answer.producer_id for answer in given}) == 3300


def test_the_controller_is_the_first_worker(serving: Any, wires: dict[int, Any]) -> None:
    quorum = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
            )
        ]
    )
    for wire in wires.values():
        assert wire.call(quorum, 0).topics[0].partitions[0].leader_id == 1
        assert serving.metadata(wire=wire).controller_id == 1


def test_each_worker_shows_the_logs_that_it_keeps(wires: dict[int, Any]) -> None:
    create(wires[1], "kept", assignments=[[1], [2], [3], [2]])
    shown = {}
    for node_id, wire in wires.items():
        (folder,) = wire.call(DescribeLogDirsRequest(topics=None), 4).results
        shown[node_id] = sorted(p.partition_index for t in folder.topics if t.name == "kept" for p in t.partitions)
    assert shown == {1: [0], 2: [1, 3], 3: [2]}
