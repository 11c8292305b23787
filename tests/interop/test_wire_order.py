"""Answers whose order comes from a hash map: it depends on the names, no matter whether they exist."""

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.enums import OffsetTimestamp, ScramMechanism
from ottla.errors import InvalidRequest, UnknownTopicOrPartition
from ottla.wire import messages as m
from support.wire import Wire

NAMES = [f"absent-{index * 7919 % 1000}" for index in range(15)]
PARTITIONS = [3, 0, 2, 1, 17]

# The positions in NAMES of the topics of an answer
IN_JAVA = [1, 2, 13, 0, 11, 3, 6, 14, 4, 7, 12, 5, 8, 9, 10]
IN_SCALA = [10, 12, 7, 4, 11, 9, 5, 13, 1, 3, 14, 6, 8, 0, 2]
# Grouped by partitions first, so two names that share a slot are in another order
PARTITIONS_IN_JAVA = [1, 2, 13, 0, 11, 3, 14, 6, 4, 7, 12, 5, 8, 9, 10]
FIRST_IN_JAVA = [[3, 2, 1, 0, 17], [3, 2, 1, 0, 17], [0, 17, 3, 2, 1]]


def places(names: Iterable[str]) -> list[int]:
    return [NAMES.index(name) for name in names]


def test_metadata(wire: Wire) -> None:
    assert places(topic.name for topic in wire.metadata(*NAMES).topics) == IN_SCALA
    # Up to four are in the order of the request.
    assert places(topic.name for topic in wire.metadata(*NAMES[:4]).topics) == [0, 1, 2, 3]
    assert places(topic.name for topic in wire.metadata(*NAMES[:5]).topics) == [p for p in IN_SCALA if p < 5]


def list_offsets(wire: Wire, names: list[str]) -> list[Any]:
    entry, place = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition
    partitions = [place(partition_index=index, timestamp=OffsetTimestamp.LATEST) for index in PARTITIONS]
    request = m.ListOffsetsRequest(replica_id=-1, topics=[entry(name=name, partitions=partitions) for name in names])
    return [(topic.name, topic.partitions) for topic in wire.call(request, 7).topics]


def delete_records(wire: Wire, names: list[str]) -> list[Any]:
    entry, place = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest.DeleteRecordsPartition
    partitions = [place(partition_index=index, offset=0) for index in PARTITIONS]
    request = m.DeleteRecordsRequest(
        topics=[entry(name=name, partitions=partitions) for name in names], timeout_ms=30000
    )
    return [(topic.name, topic.partitions) for topic in wire.call(request, 2).topics]


def move_replicas(wire: Wire, names: list[str]) -> list[Any]:
    entry = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    folder = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path="/nowhere", topics=[entry(name=name, partitions=PARTITIONS) for name in names]
    )
    found = wire.call(m.AlterReplicaLogDirsRequest(dirs=[folder]), 2).results
    return [(topic.topic_name, topic.partitions) for topic in found]


@pytest.mark.parametrize(
    ("ask", "first"),
    [
        (list_offsets, [[0, 17, 1, 2, 3], [1, 17, 0, 3, 2], [2, 3, 0, 1, 17]]),
        (delete_records, [[0, 3, 2, 1, 17], [3, 17, 1, 2, 0], [0, 2, 1, 17, 3]]),
        (move_replicas, [[0, 17, 1, 2, 3], [1, 17, 0, 3, 2], [2, 3, 0, 1, 17]]),
    ],
)
def test_by_topics_and_partitions(ask: Any, first: list[list[int]], wire: Wire) -> None:
    found = ask(wire, NAMES)
    assert places(name for name, _ in found) == IN_SCALA
    assert [[entry.partition_index for entry in partitions] for _, partitions in found[:3]] == first
    assert places(name for name, _ in ask(wire, NAMES[:3])) == [p for p in IN_SCALA if p < 3]


@pytest.mark.parametrize("version", [3, 4])
def test_partitions_that_cannot_join_a_transaction(version: int, wire: Wire) -> None:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [topic(name=name, partitions=PARTITIONS) for name in NAMES]
    if version < 4:
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        found = wire.call(request, version).results_by_topic_v3_and_below
    else:
        one = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id="nobody", producer_id=1, producer_epoch=0, topics=topics
        )
        found = wire.call(m.AddPartitionsToTxnRequest(transactions=[one]), version).results_by_transaction[0]
        found = found.topic_results
    assert places(each.name for each in found) == PARTITIONS_IN_JAVA
    assert [[entry.partition_index for entry in each.results_by_partition] for each in found[:3]] == FIRST_IN_JAVA


def test_markers(wire: Wire) -> None:
    marker, topic = m.WriteTxnMarkersRequest.WritableTxnMarker, m.WriteTxnMarkersRequest.WritableTxnMarkerTopic
    markers = [
        marker(
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            transaction_result=False,
            topics=[topic(name=name, partition_indexes=PARTITIONS) for name in NAMES],
        )
        for producer_id in (33, 1 << 40, 5)
    ]
    found = wire.call(m.WriteTxnMarkersRequest(markers=markers), 1).markers
    assert [each.producer_id for each in found] == [1 << 40, 33, 5]
    for each in found:
        assert places(topic.name for topic in each.topics) == PARTITIONS_IN_JAVA
        assert [[entry.partition_index for entry in topic.partitions] for topic in each.topics[:3]] == FIRST_IN_JAVA


def test_more_partitions(wire: Wire) -> None:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic
    asked = [topic(name=name, count=3, assignments=None) for name in (*NAMES, NAMES[3], NAMES[9])]
    found = wire.call(m.CreatePartitionsRequest(topics=asked, timeout_ms=30000), 3).results
    # Duplicates are refused first.
    assert [(NAMES.index(each.name), each.error_code) for each in found] == [
        (9, InvalidRequest.code),
        (3, InvalidRequest.code),
        *((place, UnknownTopicOrPartition.code) for place in IN_JAVA if place not in (3, 9)),
    ]


def test_users(wire: Wire) -> None:
    entry = m.DescribeUserScramCredentialsRequest.UserName
    request = m.DescribeUserScramCredentialsRequest(users=[entry(name=name) for name in NAMES])
    assert places(each.user for each in wire.call(request, 0).results) == IN_JAVA
    removal = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    altered = m.AlterUserScramCredentialsRequest(
        deletions=[removal(name=name, mechanism=ScramMechanism.SCRAM_SHA_256) for name in NAMES]
    )
    assert places(each.user for each in wire.call(altered, 0).results) == IN_JAVA


def test_unknown_state_filters(wire: Wire) -> None:
    states = [*NAMES, "Ongoing", *NAMES[:3]]
    found = wire.call(m.ListTransactionsRequest(state_filters=states, producer_id_filters=[-7]), 2)
    assert places(found.unknown_state_filters) == IN_SCALA
