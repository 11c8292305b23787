"""Which of two errors of a request is answered: Kafka's order of checks."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import (
    NONE,
    FencedInstanceId,
    InconsistentGroupProtocol,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopicException,
    LogDirNotFound,
    RequestTimedOut,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.wire import messages as m
from support.batches import batch
from support.interop.transacting import find_group, mark
from support.requests import new_topic
from support.wire import Wire

NO_OPERATION = 9
NO_TYPE = 7


# -- a time-out of zero: the broker refuses duplicates, everything else needs the controller


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_creating_topics_with_a_timeout_of_zero_or_less(
    timeout_ms: int, wire: Wire, unique: Callable[[str], str]
) -> None:
    def create(*names: str) -> list[tuple[str, int]]:
        request = m.CreateTopicsRequest(topics=[new_topic(name) for name in names], timeout_ms=timeout_ms)
        return [(topic.name, topic.error_code) for topic in wire.call(request, 7).topics]

    name, other = unique("t"), unique("u")
    assert create(name, name) == [(name, InvalidRequest.code)]
    assert create(name, name, other) == [
        (name, RequestTimedOut.code),
        (name, RequestTimedOut.code),
        (other, RequestTimedOut.code),
    ]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_deleting_topics_with_a_timeout_of_zero_or_less(timeout_ms: int, topic: str, wire: Wire) -> None:
    def delete(*names: str) -> list[tuple[str, int]]:
        request = m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        return sorted((each.name, each.error_code) for each in wire.call(request, 5).responses)

    assert delete(topic, topic) == [(topic, InvalidRequest.code)]
    assert delete("absent", topic, topic) == [
        ("absent", RequestTimedOut.code),
        (topic, RequestTimedOut.code),
        (topic, RequestTimedOut.code),
    ]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_adding_partitions_with_a_timeout_of_zero_or_less(timeout_ms: int, topic: str, wire: Wire) -> None:
    def grow(*names: str) -> list[int]:
        entry = m.CreatePartitionsRequest.CreatePartitionsTopic
        topics = [entry(name=name, count=2, assignments=None) for name in names]
        found = wire.call(m.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms), 3).results
        return [each.error_code for each in found]

    assert grow(topic, topic) == [InvalidRequest.code]
    assert grow(topic, topic, "absent") == [RequestTimedOut.code] * 3


@pytest.mark.parametrize(
    ("kind", "timeout_ms", "partitions", "code"),
    [
        (0, 0, [], NONE),
        (9, 0, [], NONE),
        (9, 30000, [], NONE),
        (9, 0, [0], RequestTimedOut.code),
        (0, -1, [0], RequestTimedOut.code),
        (9, 30000, [0], InvalidRequest.code),
    ],
)
def test_elections(kind: int, timeout_ms: int, partitions: list[int], code: int, topic: str, wire: Wire) -> None:
    places = [m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=partitions)] if partitions else []
    request = m.ElectLeadersRequest(election_type=kind, timeout_ms=timeout_ms, topic_partitions=places)
    assert wire.call(request, 2).error_code == code


@pytest.mark.parametrize(("timeout_ms", "places", "echoed"), [(30000, 0, False), (30000, 1, True), (0, 1, False)])
def test_reassignments_echo_what_they_did(timeout_ms: int, places: int, echoed: bool, topic: str, wire: Wire) -> None:
    entry = m.AlterPartitionReassignmentsRequest.ReassignableTopic
    place = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
    request = m.AlterPartitionReassignmentsRequest(
        topics=[entry(name=topic, partitions=[place])] * places,
        timeout_ms=timeout_ms,
        allow_replication_factor_change=False,
    )
    assert wire.call(request, 1).allow_replication_factor_change is not echoed


# -- settings


def alter(wire: Wire, *resources: tuple[int, str, list[tuple[str, int, str | None]]]) -> list[int]:
    resource, config = (
        m.IncrementalAlterConfigsRequest.AlterConfigsResource,
        m.IncrementalAlterConfigsRequest.AlterableConfig,
    )
    request = m.IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    config(name=key, config_operation=operation, value=value) for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=True,
    )
    return [each.error_code for each in wire.call(request, 1).responses]


def test_an_unknown_config_operation(topic: str, wire: Wire, make_topic: Callable[..., str]) -> None:
    other = make_topic()
    bad: Any = (ConfigResourceType.TOPIC, other, [("retention.ms", NO_OPERATION, "5")])
    fine = ("retention.ms", AlterConfigOp.SET, "5")
    assert alter(wire, bad, (ConfigResourceType.TOPIC, topic, [fine])) == [
        UnknownServerError.code,
        UnknownServerError.code,
    ]
    # Entries that the broker itself refuses keep their error.
    assert alter(wire, bad, bad) == [InvalidRequest.code, InvalidRequest.code]
    assert alter(wire, bad, (ConfigResourceType.TOPIC, topic, [fine, fine])) == [
        UnknownServerError.code,
        InvalidRequest.code,
    ]
    assert alter(wire, bad, (ConfigResourceType.TOPIC, topic, [("retention.ms", AlterConfigOp.SET, None)])) == [
        UnknownServerError.code,
        InvalidRequest.code,
    ]
    assert alter(wire, (NO_TYPE, topic, [("retention.ms", NO_OPERATION, "5")])) == [InvalidRequest.code]


# -- offsets and markers


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        (1, [UnsupportedVersion.code] * 5),
        (7, [UnknownTopicOrPartition.code, *[UnsupportedVersion.code] * 4]),
        (9, [*[UnknownTopicOrPartition.code] * 3, *[UnsupportedVersion.code] * 2]),
        (11, [*[UnknownTopicOrPartition.code] * 4, UnsupportedVersion.code]),
    ],
)
def test_special_timestamps_that_a_version_does_not_know(version: int, codes: list[int], wire: Wire) -> None:
    found = [wire.list_offsets("absent", time, version=version).error_code for time in (-3, -4, -5, -6, -7)]
    assert found == codes


def test_a_marker_without_producer_or_partitions(topic: str, wire: Wire) -> None:
    for nobody in ((-1, 0), (5, -1)):
        assert mark(wire, nobody, True, topic, 7) == [UnknownTopicOrPartition.code]
        assert mark(wire, nobody, True, topic, 0, 7) == [UnknownServerError.code] * 2


# -- internal topics


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("acks", [-1, 1])
def test_clients_do_not_write_into_internal_topics(
    version: int, acks: int, wire: Wire, connect: Callable[..., Wire], unique: Callable[[str], str]
) -> None:
    find_group(wire, unique("g"))
    records = batch(b"v", key=b"k")
    refused = wire.produce("__consumer_offsets", records, 0, version, acks)
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (InvalidTopicException.code, -1, -1)
    assert wire.produce("__consumer_offsets", b"", 0, version, acks).error_code == InvalidRecord.code
    assert wire.produce("__consumer_offsets", records, 999, version, acks).error_code == UnknownTopicOrPartition.code
    assert wire.produce("__consumer_offsets", records, 0, version, acks=7).error_code == InvalidRequiredAcks.code
    # For a client that claims to be the admin client, the record itself is checked.
    keyless = connect(client_id="__admin_client").produce("__consumer_offsets", batch(b"v"), 0, version, acks)
    assert keyless.error_code == InvalidRecord.code


def test_a_topic_whose_name_is_too_long_to_be_moved(wire: Wire) -> None:
    entry = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    names = ["x" * 213, "x" * 214]
    folder = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path="/nowhere", topics=[entry(name=name, partitions=[0]) for name in names]
    )
    found = wire.call(m.AlterReplicaLogDirsRequest(dirs=[folder]), 2).results
    codes = {topic.topic_name: topic.partitions[0].error_code for topic in found}
    assert [codes[name] for name in names] == [LogDirNotFound.code, InvalidTopicException.code]


# -- a classic consumer that cannot join a group of the new protocol gets no member id

SUBSCRIPTION = b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("member", "instance", "kind", "metadata", "code"),
    [
        (MEMBER, None, "other", SUBSCRIPTION, InconsistentGroupProtocol.code),
        ("nobody", None, "consumer", b"?", UnknownServerError.code),
        (MEMBER, "i1", "consumer", b"", UnknownServerError.code),
        (MEMBER, "i9", "consumer", b"", UnknownMemberId.code),
        ("nobody", "i1", "consumer", b"?", FencedInstanceId.code),
        ("nobody", "i1", "consumer", SUBSCRIPTION, FencedInstanceId.code),
    ],
)
@pytest.mark.parametrize("version", [5, 7, 9])
def test_classic_joins_of_consumer_groups(
    version: int,
    member: str,
    instance: str | None,
    kind: str,
    metadata: bytes,
    code: int,
    topic: str,
    wire: Wire,
    unique: Callable[[str], str],
) -> None:
    group = find_group(wire, unique("g"))
    heartbeat = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=MEMBER,
        instance_id="i1",
        member_epoch=0,
        rebalance_timeout_ms=60000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert wire.call(heartbeat, 1).error_code == NONE
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10000,
        rebalance_timeout_ms=10000,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="x", metadata=metadata)],
    )
    answer = wire.call(request, version)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (code, "", -1)


@pytest.mark.parametrize("acks", [-1, 7])
def test_a_topic_without_partitions_is_not_answered(acks: int, topic: str, wire: Wire) -> None:
    entry, data = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
    nothing = [entry(name=name, partition_data=[]) for name in (topic, "absent")]
    request = m.ProduceRequest(acks=acks, timeout_ms=30000, topic_data=nothing)
    assert wire.call(request, 9).responses == []
    something = entry(name=topic, partition_data=[data(index=0, records=batch(b"x"))])
    request = m.ProduceRequest(acks=acks, timeout_ms=30000, topic_data=[nothing[1], something])
    assert [each.name for each in wire.call(request, 9).responses] == [topic]
