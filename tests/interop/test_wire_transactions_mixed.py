"""Transactions among other things that happened: markers by hand, both protocols in turn, and what was tried before."""

from collections.abc import Callable
from typing import Any

import pytest
from interop.transacting import Transacting, find_group, mark, until
from interop.wire import Wire

NONE, OUT_OF_ORDER, STALE_EPOCH, WRONG_MAPPING, CONCURRENT, FENCED, ABORTABLE = 0, 45, 47, 49, 51, 90, 120
KIP890, FIRST = 12, 11
Begin = Callable[..., Transacting]


@pytest.fixture
def begin(wire: Wire, unique: Callable[[str], str]) -> Begin:
    """A transactional id with an identity, ready to begin."""
    return lambda **more: Transacting(wire, unique("tx"), **more).start()


# -- ends that do not come to an end


@pytest.fixture(params=[(5, True), (5, False), (3, True), (3, False)], ids=lambda each: f"v{each[0]}-{each[1]}")
def hanging(request: Any, begin: Begin, make_topic: Callable[..., str], wire: Wire) -> tuple[Transacting, str]:
    """An end whose marker one of three partitions refuses, because a later coordinator seems to have been there."""
    version, commit = request.param
    one, topic = begin(), make_topic(partitions=3)
    assert mark(wire, (one.producer_id, one.epoch), False, topic, 0, coordinator_epoch=7) == [NONE]
    assert set(one.add((topic, [0, 1, 2])).values()) == {NONE}
    assert one.end(commit, version).error_code == NONE
    one.epoch += 1 if version >= 5 else 0
    # Apache Kafka writes the markers after its answer.
    until(lambda: Missing(one.describe(), [0]))
    return one, topic


class Missing:
    """Looks like an answer: busy while other partitions than these have no marker yet."""

    def __init__(self, described: Any, partitions: list[int]) -> None:
        left = [index for entry in described.topics for index in entry.partitions]
        self.error_code = NONE if left == partitions else CONCURRENT


def test_only_partitions_without_a_marker_are_shown(hanging: tuple[Transacting, str]) -> None:
    one, topic = hanging
    found = one.describe()
    assert found.transaction_state.startswith("Prepare")
    assert found.producer_epoch == one.epoch
    assert [(entry.topic, list(entry.partitions)) for entry in found.topics] == [(topic, [0])]


@pytest.mark.parametrize(
    ("id_offset", "epoch_offset", "verified", "old_end"),
    [
        (0, 0, CONCURRENT, CONCURRENT),
        (0, 1, FENCED, FENCED),
        (1 << 40, 0, WRONG_MAPPING, WRONG_MAPPING),
    ],
    ids=["its producer", "a newer epoch", "another producer"],
)
def test_a_transaction_whose_markers_are_missing_refuses_all(
    id_offset: int, epoch_offset: int, verified: int, old_end: int, hanging: tuple[Transacting, str], wire: Wire
) -> None:
    """Who asks is told to come again before it is looked at who asks; except by the end of the first protocol."""
    one, topic = hanging
    who = {"producer_id": one.producer_id + id_offset, "producer_epoch": one.epoch + epoch_offset}
    group = find_group(wire, one.name)
    for version in (3, 4):
        assert one.add((topic, [1]), version=version, **who) == {(topic, 1): CONCURRENT}
    assert one.add((topic, [1]), version=4, verify_only=True, **who) == {(topic, 1): verified}
    assert one.add_offsets(group, **who) == CONCURRENT
    assert one.commit_offsets(group, topic, {0: 1}, version=5, **who) == {0: CONCURRENT}
    assert one.init(who["producer_id"], who["producer_epoch"]).error_code == CONCURRENT
    for commit in (True, False):
        assert one.end(commit, 5, **who).error_code == CONCURRENT
        assert one.end(commit, 3, **who).error_code == old_end
    assert one.produce(topic, b"x", partition=1, version=KIP890, **who).error_code == CONCURRENT


# -- sequences


@pytest.mark.parametrize(
    ("first", "then", "code"),
    [(FIRST, KIP890, NONE), (FIRST, FIRST, NONE), (KIP890, KIP890, OUT_OF_ORDER), (KIP890, FIRST, OUT_OF_ORDER)],
)
def test_the_first_attempt_decides_whether_a_sequence_may_begin_anywhere(
    first: int, then: int, code: int, begin: Begin, topic: str
) -> None:
    """The partition does not know the producer. What it was to write first was refused, yet how it came counts."""
    one = begin()
    refused = one.produce(topic, b"x", sequence=1, version=first, producer_id=one.producer_id, transactional_id="none")
    assert refused.error_code == WRONG_MAPPING
    assert one.add((topic, [0])) == {(topic, 0): NONE}
    assert one.produce(topic, b"x", sequence=1, version=then).error_code == code
