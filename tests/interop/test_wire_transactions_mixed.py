"""Transactions after unusual events: markers written directly, both protocols in turn, and earlier failed requests."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import (
    NONE,
    ConcurrentTransactions,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    OffsetMetadataTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.metadata.topics import internal_partition
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    TxnOffsetCommitRequest,
)
from support.interop.transacting import NOT_YET, Transacting, find_group, mark
from support.waiting import ask_until_ready
from support.wire import Wire

KIP890, FIRST = 12, 11
Begin = Callable[..., Transacting]


@pytest.fixture
def begin(wire: Wire, unique: Callable[[str], str]) -> Begin:
    """A transactional id with a producer id and epoch, ready to begin."""
    return lambda **more: Transacting(wire, unique("tx"), **more).start()


# -- ends that are never completed


@pytest.fixture(params=[(5, True), (5, False), (3, True), (3, False)], ids=lambda each: f"v{each[0]}-{each[1]}")
def hanging(request: Any, begin: Begin, make_topic: Callable[..., str], wire: Wire) -> tuple[Transacting, str]:
    """An end whose marker one of three partitions refuses, because it has seen a later coordinator epoch."""
    version, commit = request.param
    one, topic = begin(), make_topic(partitions=3)
    assert mark(wire, (one.producer_id, one.epoch), False, topic, 0, coordinator_epoch=7) == [NONE]
    assert set(one.add((topic, [0, 1, 2])).values()) == {NONE}
    assert one.end(commit, version).error_code == NONE
    one.epoch += 1 if version >= 5 else 0
    # Apache Kafka writes the markers after its answer.
    ask_until_ready(lambda: Missing(one.describe(), [0]), NOT_YET)
    return one, topic


class Missing:
    """Looks like an answer: busy while partitions other than these have no marker yet."""

    def __init__(self, described: Any, partitions: list[int]) -> None:
        left = [index for entry in described.topics for index in entry.partitions]
        self.error_code = NONE if left == partitions else ConcurrentTransactions.code


def test_only_partitions_without_a_marker_are_shown(hanging: tuple[Transacting, str]) -> None:
    one, topic = hanging
    found = one.describe()
    assert found.transaction_state.startswith("Prepare")
    assert found.producer_epoch == one.epoch
    assert [(entry.topic, list(entry.partitions)) for entry in found.topics] == [(topic, [0])]


@pytest.mark.parametrize(
    ("id_offset", "epoch_offset", "verified", "old_end"),
    [
        (0, 0, ConcurrentTransactions.code, ConcurrentTransactions.code),
        (0, 1, ProducerFenced.code, ProducerFenced.code),
        (1 << 40, 0, InvalidProducerIdMapping.code, InvalidProducerIdMapping.code),
    ],
    ids=["its producer", "a newer epoch", "another producer"],
)
def test_a_transaction_without_all_its_markers_refuses_every_request(
    id_offset: int, epoch_offset: int, verified: int, old_end: int, hanging: tuple[Transacting, str], wire: Wire
) -> None:
    """The answer is a retriable error before the producer is checked, except for EndTxn of the first protocol."""
    one, topic = hanging
    who = {"producer_id": one.producer_id + id_offset, "producer_epoch": one.epoch + epoch_offset}
    group = find_group(wire, one.name)
    for version in (3, 4):
        assert one.add((topic, [1]), version=version, **who) == {(topic, 1): ConcurrentTransactions.code}
    assert one.add((topic, [1]), version=4, verify_only=True, **who) == {(topic, 1): verified}
    assert one.add_offsets(group, **who) == ConcurrentTransactions.code
    assert one.commit_offsets(group, topic, {0: 1}, version=5, **who) == {0: ConcurrentTransactions.code}
    assert one.init(who["producer_id"], who["producer_epoch"]).error_code == ConcurrentTransactions.code
    for commit in (True, False):
        assert one.end(commit, 5, **who).error_code == ConcurrentTransactions.code
        assert one.end(commit, 3, **who).error_code == old_end
    assert one.produce(topic, b"x", partition=1, version=KIP890, **who).error_code == ConcurrentTransactions.code


# -- epochs


def test_the_last_epoch(begin: Begin, topic: str, wire: Wire) -> None:
    one = begin()
    last, many = 32766, 64
    request = InitProducerIdRequest(
        transactional_id=one.name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    while one.epoch < last - 1:
        count = min(many, last - 1 - one.epoch)
        for _ in range(count):
            wire.send(request, 5)
        made = [wire.receive() for _ in range(count)]
        assert {each.error_code for each in made} == {NONE}
        one.epoch = made[-1].producer_epoch
    old = one.producer_id
    assert one.init(old, last - 1).producer_epoch == last
    # The first answer may have been lost. A repeated request gets it again, with every epoch except this.
    assert one.init(old, last - 1).error_code == UnknownServerError.code
    one.epoch = last
    assert one.produce(topic, b"x").error_code == NONE
    # The fence ends the last epoch, which brings a new producer id; the answer is the next epoch of that.
    again = ask_until_ready(one.init, NOT_YET)
    assert (again.error_code, again.producer_id == old, again.producer_epoch) == (NONE, False, 1)
    assert one.end(True, 5).error_code == InvalidProducerIdMapping.code


# -- sequences


@pytest.mark.parametrize(
    ("first", "then", "code"),
    [
        (FIRST, KIP890, NONE),
        (FIRST, FIRST, NONE),
        (KIP890, KIP890, OutOfOrderSequenceNumber.code),
        (KIP890, FIRST, OutOfOrderSequenceNumber.code),
    ],
)
def test_the_first_attempt_decides_whether_a_sequence_may_start_above_0(
    first: int, then: int, code: int, begin: Begin, topic: str
) -> None:
    """The partition does not know the producer. Its first write was refused, but still decides what is allowed
    later."""
    one = begin()
    refused = one.produce(topic, b"x", sequence=1, version=first, producer_id=one.producer_id, transactional_id="none")
    assert refused.error_code == InvalidProducerIdMapping.code
    assert one.add((topic, [0])) == {(topic, 0): NONE}
    assert one.produce(topic, b"x", sequence=1, version=then).error_code == code


# -- offsets


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_an_old_epoch_are_refused_before_the_transaction_is_checked(
    version: int, begin: Begin, topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    one, group = begin(), find_group(wire, unique("g"))
    assert one.commit_offsets(group, topic, {0: 1}) == {0: NONE}
    over = one.epoch
    one.finish(True)
    for name, epoch, code in (
        (one.name, over, InvalidProducerEpoch.code),
        (unique("nobody"), over, InvalidProducerEpoch.code),
        (unique("nobody"), one.epoch + 1, InvalidProducerIdMapping.code),
    ):
        who = {"transactional_id": name, "producer_epoch": epoch}
        assert one.commit_offsets(group, topic, {0: 1}, version=version, **who) == {0: code}


def commit(
    wire: Wire,
    group: str,
    topic: str,
    metadata: str,
    one: Transacting | None = None,
    generation: int = -1,
    member: str = "",
) -> int:
    """Commit an offset of partition 0, within a transaction or without one."""
    if one is None:
        kind: Any = OffsetCommitRequest
        request = kind(group_id=group, generation_id_or_member_epoch=generation, member_id=member)
        place, entry, version = kind.OffsetCommitRequestPartition, kind.OffsetCommitRequestTopic, 8
    else:
        kind = TxnOffsetCommitRequest
        request = kind(group_id=group, generation_id=generation, member_id=member, transactional_id=one.name)
        request.producer_id, request.producer_epoch = one.producer_id, one.epoch
        place, entry, version = kind.TxnOffsetCommitRequestPartition, kind.TxnOffsetCommitRequestTopic, 5
    offset = place(partition_index=0, committed_offset=1, committed_metadata=metadata)
    request.topics = [entry(name=topic, partitions=[offset])]
    code: int = wire.call(request, version).topics[0].partitions[0].error_code
    return code


def shown(wire: Wire, group: str) -> tuple[bool, int]:
    """Whether the group is listed, and the error of its description."""
    listed = any(each.group_id == group for each in wire.call(ListGroupsRequest(), 5).groups)
    return listed, wire.call(DescribeGroupsRequest(groups=[group]), 6).groups[0].error_code


@pytest.mark.parametrize("transactional", [True, False])
def test_a_group_whose_first_offsets_are_refused_is_listed_after_its_next_write(
    transactional: bool, begin: Begin, topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    one, group = begin(), find_group(wire, unique("g"))
    assert commit(wire, group, topic, "x" * 5000, one if transactional else None) == OffsetMetadataTooLarge.code
    assert shown(wire, group) == (False, GroupIdNotFound.code)
    # A group that does not exist has no generations at all.
    assert commit(wire, group, topic, "", one, generation=3) == UnknownMemberId.code
    assert shown(wire, group) == (False, GroupIdNotFound.code)
    neighbours = (f"{group}-{number}" for number in range(10_000))
    beside = next(name for name in neighbours if internal_partition(name, 50) == internal_partition(group, 50))
    assert commit(wire, beside, topic, "") == NONE
    assert shown(wire, group) == (True, NONE)
    for code in (NONE, GroupIdNotFound.code):
        assert wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == code


def test_too_large_metadata_is_refused_before_the_member_epoch_is_checked(
    begin: Begin, topic: str, wire: Wire, unique: Callable[[str], str]
) -> None:
    one, group = begin(), find_group(wire, unique("g"))
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["of another topic"],
        topic_partitions=[],
    )
    joined = wire.call(beat, 1)
    assert joined.error_code == NONE
    old = {"generation": joined.member_epoch - 1, "member": "m"}
    assert commit(wire, group, topic, "", one, **old) == IllegalGeneration.code
    assert commit(wire, group, topic, "x" * 5000, one, **old) == OffsetMetadataTooLarge.code
    assert commit(wire, group, topic, "", one, joined.member_epoch, "m") == NONE
