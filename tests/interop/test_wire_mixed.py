"""Requests for existing and missing things, or for one thing twice: the answers and their order."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import (
    NONE,
    CorruptMessage,
    FetchSessionIdNotFound,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopicException,
    OffsetOutOfRange,
    TransactionAbortable,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.batches import batch
from support.interop.transacting import Transacting, find_group
from support.wire import Wire

NOBODYS_ID = b"\xee" * 16
ALL_TOPIC_OPERATIONS = 3576

Codes = list[tuple[Any, list[tuple[int, int]]]]


def codes(topics: list[Any], name: str = "name") -> Codes:
    """The answer in its order: (topic, [(partition, code), …])."""
    return [
        (getattr(topic, name), [(entry.partition_index, entry.error_code) for entry in topic.partitions])
        for topic in topics
    ]


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> str:
    return find_group(wire, unique("g"))


# -- offsets: missing topics are first, and keep their own error with any error of the coordinator


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
    there, also, nowhere, unknown = topic, other, "nowhere", UnknownTopicOrPartition.code
    if version >= 10:
        there, also, nowhere, unknown = wire.topic_id(topic), wire.topic_id(other), NOBODYS_ID, UnknownTopicId.code
    asked = [(also, [0]), (there, [0, 99]), (nowhere, [0])]
    assert commit(wire, group, version, asked) == [
        (there, [(99, UnknownTopicOrPartition.code), (0, NONE)]),
        (nowhere, [(0, unknown)]),
        (also, [(0, NONE)]),
    ]
    refused = GroupIdNotFound.code if version >= 9 else IllegalGeneration.code
    assert commit(wire, group + "-absent", version, asked, generation=3) == [
        (there, [(99, UnknownTopicOrPartition.code), (0, refused)]),
        (nowhere, [(0, unknown)]),
        (also, [(0, refused)]),
    ]
    # A topic without partitions is not answered; a missing topic is answered once.
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

    unknown = ("nowhere", [(0, UnknownTopicOrPartition.code)])
    assert committed(transaction.name + "-absent") == [
        (topic, [(99, UnknownTopicOrPartition.code), (0, InvalidProducerIdMapping.code)]),
        unknown,
    ]
    assert committed(transaction.name) == [(topic, [(99, UnknownTopicOrPartition.code), (0, NONE)]), unknown]


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
        [
            (topic, [(99, UnknownTopicOrPartition.code), (0, NONE)]),
            ("nowhere", [(0, UnknownTopicOrPartition.code), (1, UnknownTopicOrPartition.code)]),
        ],
    )
    # An error of the group applies to all.
    assert delete(group + "-absent", ("nowhere", [0])) == (GroupIdNotFound.code, [])


@pytest.mark.parametrize("version", range(3))
def test_delete_a_group_twice(version: int, group: str, wire: Wire) -> None:
    found = wire.call(m.DeleteGroupsRequest(groups_names=[group, group]), version).results
    assert [(result.group_id, result.error_code) for result in found] == [(group, GroupIdNotFound.code)]


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
def test_metadata_lists_existing_topics_first(version: int, topic: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic
    request = m.MetadataRequest(
        topics=[entry(name=name) for name in ("no name!", "nowhere", topic, topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    found = wire.call(request, version).topics
    assert [(each.name, each.error_code) for each in found] == [
        (topic, NONE),
        ("no name!", InvalidTopicException.code),
        ("nowhere", UnknownTopicOrPartition.code),
    ]
    if version >= 8:
        assert [each.topic_authorized_operations for each in found] == [ALL_TOPIC_OPERATIONS] * 3


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_ids_ignores_names(version: int, topic: str, wire: Wire) -> None:
    entry = m.MetadataRequest.MetadataRequestTopic
    wanted = [entry(name=None, topic_id=wire.topic_id(topic)), entry(name=None, topic_id=NOBODYS_ID), entry(name=topic)]
    found = wire.call(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version).topics
    assert [(each.name, each.error_code) for each in found] == [(None, UnknownTopicId.code), (topic, NONE)]
    wanted = [entry(name=None, topic_id=NOBODYS_ID), entry(name=topic)]
    found = wire.call(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), version).topics
    assert [(each.name, each.error_code) for each in found] == [(None, UnknownTopicId.code)]


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
    latest = place(partition_index=0, timestamp=OffsetTimestamp.LATEST)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            entry(name=topic, partitions=[latest]),
            entry(name="empty", partitions=[]),
            entry(name=topic, partitions=[latest]),
        ],
    )
    assert codes(wire.call(request, version).topics) == [(topic, [(0, InvalidRequest.code)])]


@pytest.mark.parametrize("version", range(2, 12))
def test_list_offsets_with_an_unknown_isolation_level(version: int, topic: str, wire: Wire) -> None:
    entry, place = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition
    request = m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=2,
        topics=[entry(name=topic, partitions=[place(partition_index=0, timestamp=OffsetTimestamp.LATEST)])],
    )
    (found,) = wire.call(request, version).topics
    assert [(each.error_code, each.offset) for each in found.partitions] == [(UnknownServerError.code, -1)]


# -- transactions


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_created_in_the_order_of_the_request(
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


# -- records: partitions that were read or appended to are first, then missing ones


def fetched(answer: Any) -> list[tuple[int, int, list[Any] | None]]:
    """(partition, code, aborted transactions) in the order of the answer."""
    return [
        (entry.partition_index, entry.error_code, entry.aborted_transactions)
        for topic in answer.responses
        for entry in topic.partitions
    ]


@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_fetch(version: int, topic: str, wire: Wire, make_topic: Callable[..., str]) -> None:
    other = make_topic()
    request = wire.fetch_request([(topic, 99, 0), (topic, 0, 0), (other, 0, 0)], version)
    expected = [(0, NONE, None), (0, NONE, None), (99, UnknownTopicOrPartition.code, [])]
    if version >= 13:
        nobodys = m.FetchRequest.FetchTopic(topic_id=NOBODYS_ID, partitions=request.topics[1].partitions)
        request.topics.insert(0, nobodys)
        expected.insert(2, (0, UnknownTopicId.code, []))
    assert fetched(wire.call(request, version)) == expected


@pytest.mark.parametrize("version", [6, 7, 12, 13, 18])
def test_fetch_with_an_unknown_isolation_level(version: int, topic: str, wire: Wire) -> None:
    answer = wire.call(wire.fetch_request([(topic, 0, 0)], version, isolation_level=2), version)
    assert answer.error_code == (UnknownServerError.code if version >= 7 else NONE)
    assert fetched(answer) == ([(0, UnknownServerError.code, [])] if version < 13 else [])


@pytest.mark.parametrize("isolation", [2, -1])
@pytest.mark.parametrize("version", [6, 7, 12])
def test_an_unknown_isolation_level_fails_only_partitions_that_are_read(
    version: int, isolation: int, topic: str, wire: Wire
) -> None:
    def ask(*places: tuple[str, int, int], session: tuple[int, int] = (0, -1)) -> tuple[int, int, list[Any]]:
        request = wire.fetch_request(places, version, isolation_level=isolation, session=session)
        answer = wire.call(request, version)
        return answer.error_code, answer.session_id, fetched(answer)

    refused = UnknownServerError.code if version >= 7 else NONE
    assert ask() == (NONE, 0, [])
    assert ask((topic, 9, 0), ("absent", 0, 0)) == (
        NONE,
        0,
        [(9, UnknownTopicOrPartition.code, []), (0, UnknownTopicOrPartition.code, [])],
    )
    both = [(9, UnknownServerError.code, []), (0, UnknownServerError.code, [])]
    assert ask((topic, 9, 0), (topic, 0, 0)) == (refused, 0, both)
    if version >= 7:
        assert ask((topic, 0, 0), session=(77, 3)) == (FetchSessionIdNotFound.code, 0, [])
        assert ask((topic, 0, 0), session=(0, 0)) == (refused, 0, both[1:])


def test_fetch_with_negative_limits(topic: str, wire: Wire) -> None:
    assert wire.fetch(topic, 0, version=12, partition_max_bytes=-1).error_code == NONE
    wire.produce(topic, batch(b"x"))
    assert wire.fetch(topic, 0, version=12, partition_max_bytes=-1).error_code == UnknownServerError.code
    assert wire.fetch(topic, 0, version=12, max_bytes=-1).error_code == UnknownServerError.code
    for outside in (-1, 2):
        assert wire.fetch(topic, outside, version=12, partition_max_bytes=-1).error_code == OffsetOutOfRange.code
    assert wire.fetch(topic, 1, version=12, partition_max_bytes=-1).error_code == NONE
    assert wire.fetch(topic, 0, version=12, current_leader_epoch=-2).error_code == NONE


def test_an_empty_fetch_session(wire: Wire) -> None:
    assert wire.call(wire.fetch_request([], 12, session=(0, 0)), 12).session_id != 0


def produced(wire: Wire, version: int, parts: list[tuple[Any, int, Any]], acks: int = -1) -> list[Any]:
    by_id = version >= 13
    data = m.ProduceRequest.PartitionProduceData
    request = m.ProduceRequest(
        acks=acks,
        timeout_ms=30000,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name="" if by_id else name,
                topic_id=name if by_id else ZERO_UUID,
                partition_data=[data(index=index, records=records)],
            )
            for name, index, records in parts
        ],
    )
    return [
        (topic.topic_id if by_id else topic.name, entry.index, entry.error_code, entry.log_start_offset)
        for topic in wire.call(request, version).responses
        for entry in topic.partition_responses
    ]


@pytest.mark.parametrize("version", [9, 13])
def test_produce(version: int, topic: str, wire: Wire) -> None:
    there, nowhere, unknown = topic, "nowhere", UnknownTopicOrPartition.code
    if version >= 13:
        there, nowhere, unknown = wire.topic_id(topic), NOBODYS_ID, UnknownTopicId.code
    asked = [(nowhere, 0, batch(b"x")), (there, 0, batch(b"x"))]
    assert produced(wire, version, asked) == [(there, 0, NONE, 0), (nowhere, 0, unknown, -1)]
    asked = [(nowhere, 0, batch(b"x")), (there, 0, batch(b"x"))]
    assert produced(wire, version, asked, acks=7) == [
        (there, 0, InvalidRequiredAcks.code, -1),
        (nowhere, 0, unknown, -1),
    ]
    # A duplicate is written once.
    assert produced(wire, version, [(there, 0, batch(b"x")), (there, 0, batch(b"x"))]) == [(there, 0, NONE, 0)]
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 2


@pytest.mark.parametrize("records", [b"", b"\1" * 11, batch(b"x") + batch(b"x")], ids=["nothing", "a bit", "two"])
def test_records_that_are_not_exactly_one_batch(topic: str, wire: Wire, records: bytes) -> None:
    assert produced(wire, 9, [(topic, 0, records)]) == [(topic, 0, InvalidRecord.code, -1)]


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (16, b"\7", "Invalid magic found in record: 7"),
        (8, b"\0\0\0\1", "Record size 1 is less than the minimum record overhead (14)"),
    ],
)
def test_records_that_are_not_a_batch_fail_the_request(
    wire: Wire, make_topic: Callable[..., str], position: int, value: bytes, message: str
) -> None:
    topic = make_topic(2)
    bad = batch(b"x")
    bad[position : position + len(value)] = value
    data = m.ProduceRequest.PartitionProduceData
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=topic, partition_data=[data(index=0, records=batch(b"x")), data(index=1, records=bad)]
            )
        ],
    )
    answer = wire.call(request, 9)
    assert [
        (entry.error_code, entry.error_message, entry.log_start_offset)
        for entry in answer.responses[0].partition_responses
    ] == [(CorruptMessage.code, message, -1)] * 2
    assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == 0


@pytest.mark.parametrize("records", [0, 1])
def test_a_negative_leader_epoch(topic: str, wire: Wire, records: int) -> None:
    for _ in range(records):
        wire.produce(topic, batch(b"x"))
    partition = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    request = m.OffsetForLeaderEpochRequest(
        replica_id=-2,
        topics=[
            m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic, partitions=[partition(partition=0, leader_epoch=epoch) for epoch in (-1, -5)]
            )
        ],
    )
    asked = [
        (entry.error_code, entry.leader_epoch, entry.end_offset) for entry in wire.call(request, 4).topics[0].partitions
    ]
    assert asked in ([(NONE, -1, -1), (NONE, -5, 0)], [(NONE, -5, 0)])


@pytest.mark.parametrize("version", [4, 5])
def test_a_duplicate_transaction_in_one_request(
    version: int, wire: Wire, make_topic: Callable[..., str], unique: Any
) -> None:
    """The partitions to add are taken from the last entry with this id, and the answer from the first."""
    topic, other = make_topic(3), make_topic()
    transaction = Transacting(wire, unique("tx")).start()
    entry, named = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, m.AddPartitionsToTxnRequest

    def ask(verify_only: bool, *topics: tuple[str, list[int]]) -> list[Any]:
        entries = [
            entry(
                transactional_id=transaction.name,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                verify_only=verify_only,
                topics=[named.AddPartitionsToTxnTopic(name=name, partitions=indexes)],
            )
            for name, indexes in topics
        ]
        answer = wire.call(m.AddPartitionsToTxnRequest(transactions=entries), version)
        return [
            [
                (each.name, [(part.partition_index, part.partition_error_code) for part in each.results_by_partition])
                for each in result.topic_results
            ]
            for result in answer.results_by_transaction
        ]

    assert ask(False, (topic, [0]), (topic, [1, 2])) == [[(topic, [(0, NONE)])]] * 2
    assert ask(True, (topic, [1]), (topic, [0])) == [[(topic, [(0, TransactionAbortable.code)])]] * 2
    assert ask(True, (topic, [0]), (topic, [1])) == [[(topic, [(1, NONE)])]] * 2
    assert ask(False, (topic, [0]), (topic, [99])) == [[(topic, [(99, UnknownTopicOrPartition.code)])]] * 2
    assert ask(False, (topic, [99]), (other, [0])) == [[(topic, [(99, NONE)])]] * 2
