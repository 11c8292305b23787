"""How share groups deliver records again: batches that stay together, portions, and sessions that start and end."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import InvalidRecordState
from ottla.wire.messages import DeleteRecordsRequest
from support.batches import batch
from support.interop.sharing import ACCEPT, REJECT, RELEASE, Sharer, sent, taken
from support.wire import Wire

MakeSharer = Callable[..., Sharer]
Place = tuple[bytes, int]


@pytest.fixture
def sharer(wire: Wire, unique: Callable[[str], str]) -> MakeSharer:
    group = unique("s")
    return lambda on=wire: Sharer(on, group)


@pytest.fixture
def fill(wire: Wire, topic: str) -> Callable[..., tuple[str, Place]]:
    """Writes batches of this many records each."""

    def write(*sizes: int) -> tuple[str, Place]:
        for size in sizes:
            assert wire.produce(topic, batch(*[b"%d" % each for each in range(size)])).error_code == 0
        return topic, (wire.topic_id(topic), 0)

    return write


def named(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    return sorted(partition.partition_index for topic in answer.responses for partition in topic.partitions)


def test_the_first_answer_names_every_partition_that_was_read(sharer: MakeSharer, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    first, second = ((wire.topic_id(topic), index) for index in range(2))
    wire.produce(topic, batch(b"a"))
    one, other = sharer(), sharer()
    one.start_at(topic, p0=0, p1=0)
    assert one.take_soon(first, second) == [(0, 0, 1)]
    assert named(other.fetch([first])) == [0], "in a new session, even without records"
    assert named(other.fetch()) == []
    assert named(other.fetch([second])) == [1], "the same for a partition that is added later"
    assert named(other.fetch([second])) == []
    other.epoch = 0
    assert named(other.fetch([first, second], most=0)) == [], "nothing was read"
    assert named(other.fetch()) == [], "this was the first answer"


def test_a_batch_survives_its_session(sharer: MakeSharer, fill: Any) -> None:
    topic, place = fill(1, 4, 1, 1)
    one, other = sharer(), sharer()
    one.start_at(topic, p0=2)
    assert one.take_soon(place, most=1, exact=True) == [(2, 2, 1)]
    one.fetch(epoch=-1)
    other.take(place, most=0)
    found = other.take_soon(most=7, exact=True)
    if found == [(3, 4, 1), (5, 6, 1)]:  # the session has ended, but its records are not released yet
        found = [*other.take_soon(), *found]
    assert found == [(2, 2, 2), (3, 4, 1), (5, 6, 1)], "3 and 4 are kept as the rest of a batch"


def test_errors_name_the_batch_until_it_is_split(sharer: MakeSharer, fill: Any) -> None:
    topic, place = fill(4, 4)
    one, other = sharer(), sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place, most=4) == [(0, 3, 1)]
    other.take(place, most=0)
    assert other.tell(place, (1, 2, [ACCEPT])) == (InvalidRecordState.code, "Member is not the owner of batch record")
    assert one.tell(place, (1, 1, [RELEASE])) == (0, "")
    assert other.tell(place, (2, 2, [ACCEPT])) == (InvalidRecordState.code, "Member is not the owner of offset")
    assert one.tell(place, (1, 1, [ACCEPT]))[1] == "The offset cannot be acknowledged. The offset is not acquired."


def test_portions_are_counted_over_a_batch(sharer: MakeSharer, fill: Any) -> None:
    topic, place = fill(9)
    one = sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place) == [(0, 8, 1)]
    for count in (1, 2):
        assert one.tell(place, (0, 0, [RELEASE])) == (0, "")
        assert one.take(wait_ms=5000) == [(0, 0, count + 1)]
    assert one.tell(place, (0, 8, [RELEASE])) == (0, "")
    # The first record was delivered three times, so half of the batch is delivered.
    assert one.take(wait_ms=5000) == [(0, 0, 4), (1, 3, 2)]
    assert one.take(wait_ms=5000) == [(4, 8, 2)]
    assert one.tell(place, (0, 8, [RELEASE])) == (0, "")
    assert one.take(wait_ms=5000) == [(0, 0, 5)], "the last time it is delivered alone"


def test_a_log_that_starts_inside_a_batch_delivers_the_whole_batch(sharer: MakeSharer, fill: Any, wire: Wire) -> None:
    topic, place = fill(4, 4, 4, 4)
    one = sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place, most=4) == [(0, 3, 1)]
    delete = DeleteRecordsRequest
    partition = delete.DeleteRecordsPartition(partition_index=0, offset=10)
    asked = delete(topics=[delete.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30000)
    assert wire.call(asked, 2).topics[0].partitions[0].error_code == 0
    assert one.take(wait_ms=5000) == [], "the new start of the log is noticed"
    found = one.fetch(wait_ms=5000)
    assert (taken(found), sent(found)) == ([(8, 15, 1)], [(8, 11), (12, 15)]), "the whole batch is delivered"
    assert one.tell(place, (0, 3, [ACCEPT]), (8, 15, [REJECT])) == (0, "")
    assert one.stands(topic) == (10, 0)
