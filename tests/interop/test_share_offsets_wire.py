"""Offsets of share groups in odd requests: duplicates, impossible values, and the order of the answers."""

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from ottla.errors import NONE, UnknownServerError, UnknownTopicOrPartition
from ottla.metadata.java_hash_order import java_computed_map, uuid_hash
from ottla.metadata.topics import internal_partition
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID, uuid_to_base64
from support.interop.sharing import DEADLINE_S, Sharer
from support.interop.transacting import find_group
from support.waiting import wait_for
from support.wire import Wire

UNEXPECTED = "The server experienced an unexpected error when processing the request."
Asked = Sequence[tuple[str, list[int]]]


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> str:
    return find_group(wire, unique("s"))


@pytest.fixture
def make_topic(make_topic: Callable[..., str], group: str, wire: Wire) -> Callable[..., str]:
    """Topics that the coordinator of the group knows. On Apache Kafka it learns about them after their leaders, and
    separately for each partition of the offsets topic."""
    same_partition = (f"{group}-{number}" for number in count())
    probe = next(each for each in same_partition if offsets_partition(each) == offsets_partition(group))

    def knows(topic: str) -> bool:
        altered = Sharer(wire, probe).alter(**{topic: {0: 0}})
        (described,) = describe(wire, probe, [(topic, [0])]).topics
        return not (
            altered.error_code or altered.responses[0].partitions[0].error_code or described.partitions[0].error_code
        )

    def make(partitions: int = 1) -> str:
        topic = make_topic(partitions)
        wait_for(lambda: knows(topic), f"the group coordinator to know {topic}")
        return topic

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


def offsets_partition(group: str) -> int:
    return internal_partition(group, 50)


def describe(wire: Wire, group: str, topics: Asked | None) -> Any:
    request = m.DescribeShareGroupOffsetsRequest
    entry, topic = request.DescribeShareGroupOffsetsRequestGroup, request.DescribeShareGroupOffsetsRequestTopic
    entries = None if topics is None else [topic(topic_name=name, partitions=each) for name, each in topics]
    return wire.call(request(groups=[entry(group_id=group, topics=entries)]), 1).groups[0]


def shape(found: Any) -> list[tuple[str, list[int]]]:
    assert found.error_code == NONE, found
    return [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in found.topics]


def hashed(wire: Wire, topics: list[str], calls: int) -> list[str]:
    """Topics in the order of a hash map of their ids, after `calls` insertions of each."""
    ids = {wire.topic_id(name): name for name in topics}
    return [ids[each] for each in java_computed_map([each for each in ids for _ in range(calls)], uuid_hash)]


@pytest.mark.parametrize("indexes", [[], [-1], [0, -7]])
@pytest.mark.parametrize("beside", [[], [("nowhere", [0])]])
def test_an_impossible_partition_fails_the_whole_group(
    indexes: list[int], beside: list[tuple[str, list[int]]], group: str, topic: str, wire: Wire
) -> None:
    found = describe(wire, group, [*beside, (topic, indexes)])
    assert (found.error_code, found.error_message, found.topics) == (UnknownServerError.code, UNEXPECTED, [])


def test_offsets_of_the_empty_group_id(topic: str, wire: Wire) -> None:
    found = describe(wire, "", [("nowhere", [0]), (topic, [0])])
    assert (found.error_code, found.error_message, found.topics) == (UnknownServerError.code, UNEXPECTED, [])
    assert shape(describe(wire, "", [("nowhere", [3, -1]), ("elsewhere", [])])) == [
        ("nowhere", [3, -1]),
        ("elsewhere", []),
    ]
    assert shape(describe(wire, "", None)) == []


def test_offsets_come_by_topic_id_with_unknown_topics_last(group: str, make_topic: Any, wire: Wire) -> None:
    topics = [make_topic(3) for _ in range(7)]
    found = describe(wire, group, [("nowhere", [1, 0]), *((each, [2, 0, 1]) for each in topics), ("nowhere", [1])])
    there = [(each, [0, 1, 2]) for each in hashed(wire, topics, 3)]
    assert shape(found) == [*there, ("nowhere", [1, 0]), ("nowhere", [1])]


def test_a_duplicate_partition_is_answered_once(group: str, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    assert shape(describe(wire, group, [(topic, [1, 1]), (topic, [0, 1])])) == [(topic, [0, 1])]


def test_a_negative_partition_fails_the_whole_alteration(group: str, make_topic: Any, wire: Wire) -> None:
    topic, other = make_topic(1), make_topic(1)
    sharer = Sharer(wire, group)
    answer = sharer.alter(**{topic: {0: 5}, "nowhere": {-1: 5}, other: {-2: 5, 0: 5}})
    place = f"{group} {uuid_to_base64(wire.topic_id(other))} -2"
    message = f"Initialize share group parameters has invalid partitionId - {place}"
    assert (answer.error_code, answer.error_message, answer.responses) == (UnknownServerError.code, message, [])
    assert shape(sharer.offsets()) == []
    assert sharer.stands(topic)[0] == -1
    (found,) = wire.call(m.ShareGroupDescribeRequest(group_ids=[group]), 1).groups
    assert (found.error_code, found.group_state) == (NONE, "Empty")  # the group was created nevertheless


def test_offsets_are_deleted_once_and_by_topic_id(group: str, make_topic: Any, wire: Wire) -> None:
    topics = [make_topic(2) for _ in range(7)]
    sharer = Sharer(wire, group)
    deadline = time.monotonic() + DEADLINE_S
    while sharer.alter(**{each: {0: 1} for each in topics}).error_code:
        assert time.monotonic() < deadline
    untouched = make_topic(1)
    found = sharer.forget("nowhere", *topics, untouched, topics[0], "elsewhere")
    assert [(each.topic_name, each.error_code) for each in found.responses] == [
        *((each, NONE) for each in hashed(wire, topics, 2)),
        ("nowhere", UnknownTopicOrPartition.code),
        (untouched, UnknownTopicOrPartition.code),
        ("elsewhere", UnknownTopicOrPartition.code),
    ]
    assert {each.topic_id for each in found.responses[7:]} == {ZERO_UUID}
