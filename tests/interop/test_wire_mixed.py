"""Requests that name what is there beside what is not, or one thing twice: what is answered, and in which order."""

from collections.abc import Callable
from typing import Any

import pytest
from interop.transacting import Transacting, find_group
from interop.wire import LATEST, Wire, batch

from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID

NONE, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC, ILLEGAL_GENERATION, INVALID_TOPIC = 0, -1, 3, 22, 17
INVALID_REQUEST, WRONG_MAPPING, GROUP_NOT_FOUND, UNKNOWN_TOPIC_ID = 42, 49, 69, 100
NOBODYS_ID = b"\xee" * 16
ALL_TOPIC_OPERATIONS = 3576

Codes = list[tuple[Any, list[tuple[int, int]]]]


def codes(topics: list[Any], name: str = "name") -> Codes:
    """What was answered, in its order: (topic, [(partition, code), …])."""
    return [
        (getattr(topic, name), [(entry.partition_index, entry.error_code) for entry in topic.partitions])
        for topic in topics
    ]


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> str:
    return find_group(wire, unique("g"))


# -- offsets: what does not exist comes first, and keeps its own error whatever the coordinator says


def commit(wire: Wire, group: str, version: int, topics: list[tuple[Any, list[int]]], generation: int = -1) -> Codes:
    by_id = version >= 10
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition
    request = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id="" if generation < 0 else "member",
        retention_time_ms=-1,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="" if by_id else topic,
                topic_id=topic if by_id else ZERO_UUID,
                partitions=[partition(partition_index=index, committed_offset=1) for index in indexes],
            )
            for topic, indexes in topics
        ],
    )
    return codes(wire.call(request, version).topics, "topic_id" if by_id else "name")


@pytest.mark.parametrize("version", range(2, 11))
def test_commit(version: int, topic: str, group: str, wire: Wire, make_topic: Callable[..., str]) -> None:
    other = make_topic()
    there, also, nowhere, unknown = topic, other, "nowhere", UNKNOWN_TOPIC
    if version >= 10:
        there, also, nowhere, unknown = wire.topic_id(topic), wire.topic_id(other), NOBODYS_ID, UNKNOWN_TOPIC_ID
    asked = [(also, [0]), (there, [0, 99]), (nowhere, [0])]
    assert commit(wire, group, version, asked) == [
        (there, [(99, UNKNOWN_TOPIC), (0, NONE)]),
        (nowhere, [(0, unknown)]),
        (also, [(0, NONE)]),
    ]
    refused = GROUP_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
    assert commit(wire, group + "-absent", version, asked, generation=3) == [
        (there, [(99, UNKNOWN_TOPIC), (0, refused)]),
        (nowhere, [(0, unknown)]),
        (also, [(0, refused)]),
    ]
    # Without partitions there is nothing to say; a topic that is absent is answered once.
    assert commit(wire, group, version, [(there, []), (nowhere, [0]), (nowhere, [1])]) == [
        (nowhere, [(0, unknown), (1, unknown)])
    ]


@pytest.mark.parametrize("version", range(6))
def test_commit_in_a_transaction(
    version: int, topic: str, group: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    transaction = Transacting(wire, unique("tx")).start()
    assert transaction.add_offsets(group) == NONE
    entry = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition

    def committed(name: str) -> Codes:
        request = m.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            generation_id=-1,
            topics=[
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic_name,
                    partitions=[
                        entry(partition_index=index, committed_offset=1, committed_metadata="") for index in indexes
                    ],
                )
                for topic_name, indexes in ((topic, [0, 99]), ("nowhere", [0]))
            ],
        )
        return codes(wire.call(request, version).topics)

    unknown = ("nowhere", [(0, UNKNOWN_TOPIC)])
    assert committed(transaction.name + "-absent") == [(topic, [(99, UNKNOWN_TOPIC), (0, WRONG_MAPPING)]), unknown]
    assert committed(transaction.name) == [(topic, [(99, UNKNOWN_TOPIC), (0, NONE)]), unknown]


def test_delete_offsets(topic: str, group: str, wire: Wire, make_topic: Callable[..., str]) -> None:
    def delete(name: str, *topics: tuple[str, list[int]]) -> tuple[int, Codes]:
        entry = m.OffsetDeleteRequest.OffsetDeleteRequestPartition
        request = m.OffsetDeleteRequest(
            group_id=name,
            topics=[
                m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic_name, partitions=[entry(partition_index=index) for index in indexes]
                )
                for topic_name, indexes in topics
            ],
        )
        answer = wire.call(request, 0)
        return answer.error_code, codes(answer.topics)

    commit(wire, group, 8, [(topic, [0])])
    assert delete(group, (topic, [0, 99]), ("nowhere", [0]), ("nowhere", [1]), (make_topic(), [])) == (
        NONE,
        [(topic, [(99, UNKNOWN_TOPIC), (0, NONE)]), ("nowhere", [(0, UNKNOWN_TOPIC), (1, UNKNOWN_TOPIC)])],
    )
    # An error of the group stands for all.
    assert delete(group + "-absent", ("nowhere", [0])) == (GROUP_NOT_FOUND, [])


@pytest.mark.parametrize("version", range(3))
def test_delete_a_group_twice(version: int, group: str, wire: Wire) -> None:
    found = wire.call(m.DeleteGroupsRequest(groups_names=[group, group]), version).results
    assert [(result.group_id, result.error_code) for result in found] == [(group, GROUP_NOT_FOUND)]


def test_groups_are_answered_by_their_partitions(wire: Wire) -> None:
    """In the order of a hash map, which the names decide: the same on every broker with 50 partitions of offsets."""
    names = [f"g{index}" for index in range(15)]
    order = [6, 7, 4, 5, 2, 3, 0, 1, 8, 9, 10, 13, 14, 11, 12]
    described = wire.call(m.DescribeGroupsRequest(groups=names), 5).groups
    assert [each.group_id for each in described] == [f"g{index}" for index in order]
    described = wire.call(m.ConsumerGroupDescribeRequest(group_ids=[*names[:3], ""]), 1).groups
    assert [each.group_id for each in described] == ["", "g2", "g0", "g1"]
    deleted = wire.call(m.DeleteGroupsRequest(groups_names=names[:3]), 2).results
    assert [each.group_id for each in deleted] == ["g2", "g0", "g1"]


# -- topics


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_names_what_is_there_first(version: int, topic: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic
    request = m.MetadataRequest(
        topics=[entry(name=name) for name in ("no name!", "nowhere", topic, topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    found = wire.call(request, version).topics
    assert [(each.name, each.error_code) for each in found] == [
        (topic, NONE),
        ("no name!", INVALID_TOPIC),
        ("nowhere", UNKNOWN_TOPIC),
    ]
    if version >= 8:
        assert [each.topic_authorized_operations for each in found] == [ALL_TOPIC_OPERATIONS] * 3


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_ids_takes_no_names(version: int, topic: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic
    wanted = [entry(name=None, topic_id=wire.topic_id(topic)), entry(name=None, topic_id=NOBODYS_ID), entry(name=topic)]
    found = wire.call(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version).topics
    assert [(each.name, each.error_code) for each in found] == [(None, UNKNOWN_TOPIC_ID), (topic, NONE)]
    wanted = [entry(name=None, topic_id=NOBODYS_ID), entry(name=topic)]
    found = wire.call(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version).topics
    assert [(each.name, each.error_code) for each in found] == [(None, UNKNOWN_TOPIC_ID)]


# -- records


@pytest.mark.parametrize("version", range(3))
def test_delete_records_of_one_partition_twice(version: int, topic: str, wire: Wire) -> None:
    wire.produce(topic, batch(b"a", b"b", b"c"))
    entry, place = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest.DeleteRecordsPartition
    request = m.DeleteRecordsRequest(
        topics=[
            entry(name=topic, partitions=[place(partition_index=0, offset=1)]),
            entry(name="empty", partitions=[]),
            entry(name=topic, partitions=[place(partition_index=0, offset=2)]),
        ],
        timeout_ms=30000,
    )
    (found,) = wire.call(request, version).topics
    assert found.name == topic
    assert [(each.partition_index, each.error_code, each.low_watermark) for each in found.partitions] == [(0, NONE, 2)]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_of_one_partition_twice(version: int, topic: str, wire: Wire) -> None:
    entry, place = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition
    latest = place(partition_index=0, timestamp=LATEST)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            entry(name=topic, partitions=[latest]),
            entry(name="empty", partitions=[]),
            entry(name=topic, partitions=[latest]),
        ],
    )
    assert codes(wire.call(request, version).topics) == [(topic, [(0, INVALID_REQUEST)])]


@pytest.mark.parametrize("version", range(2, 12))
def test_list_offsets_in_no_known_isolation(version: int, topic: str, wire: Wire) -> None:
    entry, place = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition
    request = m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=2,
        topics=[entry(name=topic, partitions=[place(partition_index=0, timestamp=LATEST)])],
    )
    (found,) = wire.call(request, version).topics
    assert [(each.error_code, each.offset) for each in found.partitions] == [(UNKNOWN_SERVER_ERROR, -1)]


# -- transactions


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_as_they_are_named(
    version: int, topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    transaction = Transacting(wire, unique("tx")).start()
    entry = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [entry(name=topic, partitions=[0, 0]), entry(name=topic, partitions=[])]
    who = {
        "transactional_id": transaction.name,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
    }
    if version < 4:
        old = {f"v3_and_below_{name}": value for name, value in who.items()}
        request = m.AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics)
        found = wire.call(request, version).results_by_topic_v3_and_below
    else:
        one = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(topics=topics, **who)
        (answer,) = wire.call(m.AddPartitionsToTxnRequest(transactions=[one]), version).results_by_transaction
        found = answer.topic_results
    assert [
        (each.name, [(place.partition_index, place.partition_error_code) for place in each.results_by_partition])
        for each in found
    ] == [(topic, [(0, NONE), (0, NONE)]), (topic, [])]
