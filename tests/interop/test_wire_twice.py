"""Duplicates in a request, and pages of topics whose cursor does not exist."""

from collections.abc import Callable

import pytest

from ottla.enums import OffsetTimestamp
from ottla.errors import (
    NONE,
    CorruptMessage,
    DuplicateResource,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.wire import messages as m
from support.batches import batch
from support.interop.transacting import find_group
from support.wire import Wire

INT32_MAX = (1 << 31) - 1
SHA_256, SHA_512 = 1, 2


# -- offsets


def test_offsets_of_a_topic_that_is_named_twice(
    make_topic: Callable[..., str], wire: Wire, unique: Callable[[str], str]
) -> None:
    topic, other, group = make_topic(2), make_topic(), find_group(wire, unique("g"))
    entry, place = m.OffsetCommitRequest.OffsetCommitRequestTopic, m.OffsetCommitRequest.OffsetCommitRequestPartition
    commit = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[entry(name=topic, partitions=[place(partition_index=0, committed_offset=1)])],
    )
    assert wire.call(commit, 8).topics[0].partitions[0].error_code == NONE

    def delete(*wanted: tuple[str, list[int]]) -> list[tuple[str, list[tuple[int, int]]]]:
        kind = m.OffsetDeleteRequest
        topics = [
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in wanted
        ]
        answer = wire.call(kind(group_id=group, topics=topics), 0)
        assert answer.error_code == NONE
        return [
            (each.name, [(one.partition_index, one.error_code) for one in each.partitions]) for each in answer.topics
        ]

    # Kafka merges the entries of a topic only if something does not exist.
    assert delete((topic, [0]), (other, [0]), (topic, [1])) == [
        (topic, [(0, NONE)]),
        (other, [(0, NONE)]),
        (topic, [(1, NONE)]),
    ]
    assert delete((topic, [0]), (other, [7]), (topic, [1])) == [
        (other, [(7, UnknownTopicOrPartition.code)]),
        (topic, [(0, NONE), (1, NONE)]),
    ]


# -- passwords


@pytest.mark.parametrize(
    ("passwords", "code"),
    [
        ([b""], UnknownServerError.code),
        ([b"", b""], DuplicateResource.code),
        ([b"", b"x"], DuplicateResource.code),
        ([b"x", b""], DuplicateResource.code),
        ([b"", b"", b""], DuplicateResource.code),
    ],
)
def test_a_user_twice_with_an_empty_password(
    passwords: list[bytes], code: int, wire: Wire, unique: Callable[[str], str]
) -> None:
    user = unique("u")
    new = [
        m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=SHA_256, iterations=4096, salt=b"salt", salted_password=password
        )
        for password in passwords
    ]
    new[-1].mechanism = SHA_512
    (found,) = wire.call(m.AlterUserScramCredentialsRequest(deletions=[], upsertions=new), 0).results
    assert (found.user, found.error_code) == (user, code)


# -- pages of topics


@pytest.mark.parametrize(
    ("limit", "cursor", "pages", "following"),
    [
        (0, None, [[0]], (0, 1)),
        (-5, 1, [[1]], (0, 2)),
        (4, 3, [[], [0, 1]], None),
        (1, 100, [[], [0]], (1, 1)),
        (1, INT32_MAX - 1, [[], [0]], (1, 1)),
        # A sum that needs more than 32 bits.
        (1, INT32_MAX, [[]], (0, -INT32_MAX - 1)),
        (2, INT32_MAX, [[]], (0, -INT32_MAX)),
    ],
)
def test_pages_of_topics(
    limit: int,
    cursor: int | None,
    pages: list[list[int]],
    following: tuple[int, int] | None,
    wire: Wire,
    unique: Callable[[str], str],
) -> None:
    name = unique("t")
    topics = [wire.create_topic(f"{name}-a", 3), wire.create_topic(f"{name}-b", 2)]
    kind = m.DescribeTopicPartitionsRequest
    request = kind(
        topics=[kind.TopicRequest(name=topic) for topic in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else kind.Cursor(topic_name=topics[0], partition_index=cursor),
    )
    answer = wire.call(request, 0)
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == list(
        zip(topics, pages, strict=False)
    )
    found = answer.next_cursor
    assert (None if found is None else (topics.index(found.topic_name), found.partition_index)) == following


# -- records: for an existing partition, Kafka first checks that they are one batch


def _old() -> bytes:
    """A batch that claims an older format."""
    records = batch(b"x")
    records[16] = 1
    return bytes(records)


ONE, TWO = bytes(batch(b"x")), bytes(batch(b"x") + batch(b"y"))
WRONG_CRC = ONE[:-1] + bytes([ONE[-1] ^ 1])
MISSHAPEN = {"two": TWO, "none": b"", "old": _old(), "cut": ONE[:-1]}


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("shape", MISSHAPEN)
def test_records_are_checked_before_acks_and_internal_topics(
    shape: str, version: int, topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    find_group(wire, unique("g"))
    records = MISSHAPEN[shape]
    assert wire.produce(topic, records, 0, version, acks=2).error_code == InvalidRecord.code
    assert wire.produce(topic, records, 9, version, acks=2).error_code == UnknownTopicOrPartition.code
    assert wire.produce(topic, WRONG_CRC, 0, version, acks=2).error_code == InvalidRequiredAcks.code
    for acks in (-1, 2):
        assert wire.produce("__consumer_offsets", records, 0, version, acks).error_code == InvalidRecord.code
    assert wire.produce("__consumer_offsets", WRONG_CRC, 0, version).error_code == InvalidTopicException.code


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize(
    ("sent", "acks", "code", "appended"),
    [
        ([ONE, ONE], -1, NONE, 1),
        ([ONE, WRONG_CRC], -1, CorruptMessage.code, 0),
        ([ONE, TWO], -1, InvalidRecord.code, 1),
        ([TWO, ONE], -1, InvalidRecord.code, 1),
        ([ONE, TWO, WRONG_CRC], -1, InvalidRecord.code, 0),
        ([b"", ONE, ONE[:-1]], 1, InvalidRecord.code, 1),
        ([TWO, TWO], -1, InvalidRecord.code, 0),
        ([ONE, TWO], 2, InvalidRecord.code, 0),
    ],
)
def test_records_of_a_partition_that_comes_twice(
    sent: list[bytes], acks: int, code: int, appended: int, version: int, topic: str, wire: Wire
) -> None:
    entry, data = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
    first, *rest = [data(index=0, records=records) for records in sent]
    for topics in ([[first, *rest]], [[first], rest]):
        before = wire.list_offsets(topic, OffsetTimestamp.LATEST).offset
        request = m.ProduceRequest(
            acks=acks, timeout_ms=30000, topic_data=[entry(name=topic, partition_data=each) for each in topics]
        )
        (answer,) = wire.call(request, version).responses
        assert [(each.index, each.error_code) for each in answer.partition_responses] == [(0, code)]
        assert wire.list_offsets(topic, OffsetTimestamp.LATEST).offset == before + appended


@pytest.mark.parametrize("version", [3, 9, 12])
def test_an_error_of_the_request_names_each_partition_once(version: int, wire: Wire) -> None:
    """In the order of a hash map; the existence of the topics is not checked."""
    no_batch = ONE[:8] + b"\0\0\0\1" + ONE[12:]
    entry, data = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
    wanted = [("first", [3, 0]), ("second", [1]), ("first", [0, 7, 20]), ("third", [])]
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=30000,
        topic_data=[
            entry(name=name, partition_data=[data(index=index, records=no_batch) for index in indexes])
            for name, indexes in wanted
        ],
    )
    answer = wire.call(request, version)
    assert {each.error_code for topic in answer.responses for each in topic.partition_responses} == {
        CorruptMessage.code
    }
    assert [(topic.name, [each.index for each in topic.partition_responses]) for topic in answer.responses] == [
        ("first", [20, 3, 7, 0]),
        ("second", [1]),
    ]
