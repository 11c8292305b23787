"""Which partitions are in ShareFetch and ShareAcknowledge answers, and in which order, even without records to
deliver."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ottla.errors import (
    NONE,
    InvalidRequest,
    ShareSessionNotFound,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import partition_hash, scala_map, scala_set, uuid_hash
from support.batches import batch
from support.interop.sharing import RELEASE, Place, Sharer, taken
from support.wire import Wire

SETTLE_S = 0.3  # Apache Kafka may hold a partition for a moment after it has answered
GHOSTS = [bytes([number]) * 16 for number in (7, 9)]
Names = dict[bytes, str]


@pytest.fixture
def sharer(wire: Wire, unique: Callable[[str], str]) -> Sharer:
    return Sharer(wire, unique("s"))


@pytest.fixture
def fill(wire: Wire, make_topic: Any, sharer: Sharer) -> Callable[[int, int], tuple[list[Place], Names]]:
    """Topics with two records per partition, which the group reads from the start. It has already fetched from each:
    the first fetch may take Apache Kafka longer than the others."""

    def filled(topics: int, partitions: int) -> tuple[list[Place], Names]:
        names = {}
        for _ in range(topics):
            topic = make_topic(partitions)
            names[wire.topic_id(topic)] = topic
            for index in range(partitions):
                assert wire.produce(topic, batch(b"a", b"b"), index).error_code == NONE
            sharer.start_at(topic, **{f"p{index}": 0 for index in range(partitions)})
        places = [(topic_id, index) for topic_id in names for index in reversed(range(partitions))]
        for place in places:
            assert sharer.take_soon(place) == [(0, 1, 1)]
            close(sharer)
        time.sleep(SETTLE_S)
        return places, names

    return filled


def close(sharer: Sharer) -> None:
    assert sharer.fetch(epoch=-1).error_code == NONE
    sharer.epoch = 0


def in_order(places: Iterable[Place], names: Names) -> list[tuple[bytes, list[int]]]:
    def hash_of(place: Place) -> int:
        return 31 * (31 + uuid_hash(place[0])) + partition_hash((names.get(place[0], ""), place[1])) & 0xFFFFFFFF

    found: dict[bytes, list[int]] = {}
    for topic_id, index in scala_set(scala_map(places, hash_of), hash_of):
        found.setdefault(topic_id, []).append(index)
    return list(found.items())


def shape(answer: Any) -> list[tuple[bytes, list[int]]]:
    assert answer.error_code == NONE, answer
    return [(topic.topic_id, [each.partition_index for each in topic.partitions]) for topic in answer.responses]


def codes(answer: Any) -> dict[int, int]:
    assert answer.error_code == NONE, answer
    return {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}


@pytest.mark.parametrize(("topics", "partitions"), [(2, 2), (4, 3)])
def test_partitions_are_answered_in_kafkas_map_order(topics: int, partitions: int, sharer: Sharer, fill: Any) -> None:
    places, names = fill(topics, partitions)
    missing = [(places[0][0], 77), (places[-1][0], 44)]
    answer = sharer.fetch([*missing, *places])
    assert shape(answer) == in_order([*missing, *places], names)
    assert taken(answer)
    unknown = [(ghost, 3) for ghost in GHOSTS]
    told = sharer.acknowledge({place: [(0, 1, [RELEASE])] for place in [*unknown, *places]})
    assert shape(told) == in_order([*unknown, *places], names)
    found = {topic.topic_id: topic.partitions[0].error_code for topic in told.responses}
    assert [found[ghost] for ghost in GHOSTS] == [UnknownTopicId.code, UnknownTopicId.code]
    assert NONE in found.values()
    close(sharer)


@pytest.mark.parametrize("limit", ["most", "max_bytes"])
def test_a_fetch_of_no_bytes_still_reports_unknown_partitions(limit: str, sharer: Sharer, fill: Any) -> None:
    ((topic_id, index),), _ = fill(1, 1)
    answer = sharer.fetch([(topic_id, index), (topic_id, 7)], wait_ms=500, **{limit: 0})
    assert codes(answer) == {7: UnknownTopicOrPartition.code}
    close(sharer)
    answer = sharer.fetch([(topic_id, index)], wait_ms=500, **{limit: 0})
    assert codes(answer) == {}
    assert sharer.fetch([(GHOSTS[0], 0)], wait_ms=500, **{limit: 0}).error_code == UnknownServerError.code


def test_negative_bytes_fail_each_partition(sharer: Sharer, fill: Any) -> None:
    (place,), _ = fill(1, 1)
    assert codes(sharer.fetch([place], wait_ms=500, max_bytes=-1)) == {0: UnknownServerError.code}
    assert sharer.take_soon() == [(0, 1, 2)]
    close(sharer)


def test_negative_record_limits_give_no_records(sharer: Sharer, fill: Any) -> None:
    (place,), _ = fill(1, 1)
    answer = sharer.fetch([place], wait_ms=500, most=-1)
    assert (codes(answer), taken(answer)) == ({0: NONE}, [])
    assert sharer.take_soon() == [(0, 1, 2)]
    close(sharer)


def test_a_last_fetch_may_name_partitions(sharer: Sharer, fill: Any) -> None:
    (place,), _ = fill(1, 1)
    assert taken(sharer.fetch([place], wait_ms=500))
    assert codes(sharer.fetch([place, (place[0], 7), (GHOSTS[0], 0)], epoch=-1)) == {}
    assert sharer.fetch(epoch=-1).error_code == ShareSessionNotFound.code
    sharer.epoch = 0
    assert sharer.take_soon(place) == [(0, 1, 3)], "the records of the first session were released"
    close(sharer)


@pytest.mark.parametrize("limits", [{}, {"most": 0}])
def test_a_new_session_refuses_a_duplicate_partition(limits: Any, sharer: Sharer, fill: Any) -> None:
    (place,), _ = fill(1, 1)
    assert sharer.fetch([place], most=0).error_code == NONE
    request = sharer.fetch_request([place], epoch=0, **limits)
    request.topics *= 2
    assert sharer.wire.call(request, 2).error_code == UnknownServerError.code
    assert sharer.fetch(epoch=1).error_code == ShareSessionNotFound.code, "the older session has ended"
    sharer.epoch = 0
    assert sharer.take_soon(place) == [(0, 1, 2)]
    request = sharer.fetch_request([place], most=0)
    request.topics *= 2
    assert sharer.wire.call(request, 2).error_code == NONE, "it is allowed later in the session"
    close(sharer)


def test_partitions_without_acknowledgements(sharer: Sharer, fill: Any) -> None:
    ((topic_id, _), _), _ = fill(1, 2)
    held, other, missing = (topic_id, 0), (topic_id, 1), (topic_id, 7)
    assert sharer.take_soon(held) == [(0, 1, 2)]
    assert codes(sharer.acknowledge({held: [], other: []})) == {}
    assert codes(sharer.acknowledge({held: [], missing: []})) == {7: UnknownTopicOrPartition.code}
    assert codes(sharer.acknowledge({held: [(0, 0, [99])], other: []})) == {0: InvalidRequest.code}
    assert codes(sharer.acknowledge({held: [(0, 0, [RELEASE])], other: [], missing: []})) == {
        0: NONE,
        1: NONE,
        7: UnknownTopicOrPartition.code,
    }
    answer = sharer.fetch([held, other, missing], {held: [(1, 1, [RELEASE])]}, epoch=-1)
    (topic,) = answer.responses
    assert {each.partition_index: each.acknowledge_error_code for each in topic.partitions} == {
        0: NONE,
        1: NONE,
        7: UnknownTopicOrPartition.code,
    }
    assert {each.error_code for each in topic.partitions} == {NONE}


@pytest.mark.parametrize("wrong", [(5, 4, [1]), (0, 0, []), (0, 3, [1, 1]), (0, 0, [9]), (0, 0, [-1])])
def test_an_unknown_topic_comes_before_wrong_acknowledgements(
    wrong: tuple[int, int, list[int]], sharer: Sharer, fill: Any
) -> None:
    (place,), _ = fill(1, 1)
    assert sharer.take_soon(place) == [(0, 1, 2)]
    assert codes(sharer.acknowledge({(GHOSTS[0], 3): [wrong], (place[0], 7): [wrong]})) == {
        3: UnknownTopicId.code,
        7: InvalidRequest.code,
    }
    close(sharer)
