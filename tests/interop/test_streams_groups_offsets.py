"""Offsets of streams groups, and how these differ from groups of other kinds."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import (
    NONE,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.wire import messages as m
from ottla.wire.primitives import ZERO_UUID
from support.interop import streams
from support.interop.streams import Member, described, ids, tasks
from support.streams import subtopology, topology
from support.waiting import wait_for
from support.wire import Wire


@pytest.fixture
def group(wire: Wire, unique: Callable[[str], str]) -> str:
    name = unique("app")
    streams.find_coordinator(wire, name)
    streams.configure(wire, name, streams.NO_WAITING)
    return name


@pytest.fixture
def topic(wire: Wire, unique: Callable[[str], str]) -> str:
    name = unique("in")
    assert wire.create_topic_result(name, 3).error_code == NONE
    wait_for(lambda: len(wire.metadata(name).topics[0].partitions) == 3)
    return name


@pytest.fixture
def member(wire: Wire, group: str, topic: str) -> Member:
    """The only member of its group."""
    one = Member(wire, group, topology(subtopology("0", topic)))
    one.follow(lambda: one.active == {"0": [0, 1, 2]})
    return one


def commit(
    wire: Wire, group: str, topic: str, member_id: str = "", epoch: int = -1, partition: int = 0, version: int = 9
) -> int:
    request = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=wire.topic_id(topic) if version >= 10 else ZERO_UUID,
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=5, committed_metadata=""
                    )
                ],
            )
        ],
    )
    code: int = wire.call(request, version).topics[0].partitions[0].error_code
    return code


def fetch(wire: Wire, group: str, topic: str, member_id: str | None = None, epoch: int = -1) -> tuple[int, int | None]:
    """The group's error and the first partition's offset."""
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        topics=[m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    found = wire.call(m.OffsetFetchRequest(groups=[asked]), 9).groups[0]
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else None


def test_members_commit_and_fetch_with_their_epoch(wire: Wire, group: str, topic: str, member: Member) -> None:
    who = member.member_id
    for version in (9, 10):
        assert commit(wire, group, topic, who, member.epoch, version=version) == NONE
    assert commit(wire, group, topic, who, member.epoch, version=8) == UnsupportedVersion.code
    assert commit(wire, group, topic, who, member.epoch + 1) == StaleMemberEpoch.code
    assert commit(wire, group, topic, "nobody", member.epoch) == UnknownMemberId.code
    assert commit(wire, group, topic) == UnknownMemberId.code  # without membership, while there are members
    assert fetch(wire, group, topic) == (NONE, 5)
    assert fetch(wire, group, topic, who, member.epoch) == (NONE, 5)
    assert fetch(wire, group, topic, who, member.epoch + 1) == (StaleMemberEpoch.code, None)
    assert fetch(wire, group, topic, who, member.epoch - 1) == (StaleMemberEpoch.code, None)
    assert fetch(wire, group, topic, "nobody", member.epoch) == (UnknownMemberId.code, None)
    assert fetch(wire, group, topic, None, member.epoch) == (UnknownServerError.code, None)


def test_late_commits_of_tasks_that_a_member_kept(
    wire: Wire, group: str, topic: str, member: Member, unique: Callable[[str], str]
) -> None:
    since = member.epoch
    member.beat(rack_id="elsewhere")
    assert member.epoch == since + 1
    assert commit(wire, group, topic, member.member_id, since) == NONE
    assert commit(wire, group, topic, member.member_id, since - 1) == StaleMemberEpoch.code
    other = unique("other")
    assert wire.create_topic_result(other, 1).error_code == NONE
    wait_for(lambda: wire.metadata(other).topics[0].error_code == NONE)
    assert commit(wire, group, other, member.member_id, since) == StaleMemberEpoch.code
    assert commit(wire, group, other, member.member_id, member.epoch) == NONE


def transactional(wire: Wire, group: str, topic: str, member_id: str, epoch: int) -> int:
    producer = wire.call(m.InitProducerIdRequest(transactional_id=group, transaction_timeout_ms=60000), 4)
    if producer.error_code:
        return -100
    added = m.AddOffsetsToTxnRequest(
        transactional_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )
    if wire.call(added, 3).error_code:
        return -100
    request = m.TxnOffsetCommitRequest(
        transactional_id=group,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=epoch,
        member_id=member_id,
        topics=[
            m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata=""
                    )
                ],
            )
        ],
    )
    code: int = wire.call(request, 3).topics[0].partitions[0].error_code
    return code


def test_transactional_commits(wire: Wire, group: str, topic: str, member: Member) -> None:
    wait_for(
        lambda: (
            wire.call(m.FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=[group]), 4)
            .coordinators[0]
            .error_code
            == NONE
        )
    )

    def settled(member_id: str, epoch: int) -> int:
        """Waits until the previous transaction has ended."""
        found: list[int] = []
        wait_for(lambda: found.append(transactional(wire, group, topic, member_id, epoch)) or found[-1] != -100)
        return found[-1]

    assert settled(member.member_id, member.epoch) == NONE
    assert settled("", -1) == NONE
    assert settled(member.member_id, member.epoch + 1) == IllegalGeneration.code
    assert settled("nobody", member.epoch) == UnknownMemberId.code


def test_offsets_of_topics_in_use_stay(wire: Wire, group: str, topic: str, member: Member) -> None:
    assert commit(wire, group, topic, member.member_id, member.epoch) == NONE

    def delete() -> int:
        request = m.OffsetDeleteRequest(
            group_id=group,
            topics=[
                m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic, partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        )
        answer = wire.call(request, 0)
        assert answer.error_code == NONE
        code: int = answer.topics[0].partitions[0].error_code
        return code

    assert delete() == GroupSubscribedToTopic.code
    member.leave()
    assert commit(wire, group, topic) == NONE  # without members every client may
    assert delete() == NONE
    assert fetch(wire, group, topic) == (NONE, -1)


# -- other kinds of groups


def join_classic(wire: Wire, group: str, member_id: str = "") -> Any:
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30000,
        rebalance_timeout_ms=30000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return wire.call(request, 9)


def consumer_beat(wire: Wire, group: str, topic: str, epoch: int = 0, member_id: str = "c1") -> Any:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60000,
        subscribed_topic_names=[topic],
        topic_partitions=[] if epoch == 0 else None,
    )
    return wire.call(request, 1)


def test_a_streams_group_refuses_classic_and_consumer_members(
    wire: Wire, group: str, topic: str, member: Member
) -> None:
    joined = join_classic(wire, group)
    assert (joined.error_code, joined.member_id) == (InconsistentGroupProtocol.code, "")
    found = consumer_beat(wire, group, topic)
    assert (found.error_code, found.error_message) == (GroupIdNotFound.code, f"Group {group} is not a consumer group.")
    assert consumer_beat(wire, group, topic, 4).error_code == GroupIdNotFound.code
    beat = m.HeartbeatRequest(group_id=group, generation_id=1, member_id=member.member_id)
    assert wire.call(beat, 4).error_code == UnknownMemberId.code
    sync = m.SyncGroupRequest(
        group_id=group, generation_id=1, member_id=member.member_id, protocol_type="consumer", protocol_name="range"
    )
    assert wire.call(sync, 5).error_code == UnknownMemberId.code
    leaving = m.LeaveGroupRequest(
        group_id=group, members=[m.LeaveGroupRequest.MemberIdentity(member_id=member.member_id)]
    )
    left = wire.call(leaving, 5)
    assert {left.error_code, *(each.error_code for each in left.members)} - {NONE} == {UnknownMemberId.code}
    classic = wire.call(m.DescribeGroupsRequest(groups=[group]), 6).groups[0]
    assert (classic.error_code, classic.error_message) == (
        GroupIdNotFound.code,
        f"Group {group} is not a classic group.",
    )
    consumer = wire.call(m.ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]
    assert (consumer.error_code, consumer.error_message) == (
        GroupIdNotFound.code,
        f"Group {group} is not a consumer group.",
    )
    assert member.own().error_code == NONE


def test_other_groups_refuse_streams_members(wire: Wire, group: str, topic: str) -> None:
    wrong = (GroupIdNotFound.code, f"Group {group} is not a streams group.")
    member = Member(wire, group, topology(subtopology("0", topic)))
    assert consumer_beat(wire, group, topic).error_code == NONE
    for epoch in (0, 3, -1):
        answer = member.send(member_epoch=epoch)
        assert (answer.error_code, answer.error_message) == wrong
    found = described(wire, group)
    assert (found.error_code, found.error_message) == wrong
    assert consumer_beat(wire, group, topic, -1).error_code == NONE
    answer = member.send()  # not even when it is empty
    assert (answer.error_code, answer.error_message) == wrong


def test_a_classic_group_with_members_refuses_streams_members(wire: Wire, group: str, topic: str) -> None:
    joined = join_classic(wire, group)
    joined = join_classic(wire, group, joined.member_id)
    assert joined.error_code == NONE
    answer = Member(wire, group, topology(subtopology("0", topic))).send()
    assert (answer.error_code, answer.error_message) == (GroupIdNotFound.code, f"Group {group} is not a streams group.")


def test_an_empty_classic_group_becomes_a_streams_group(wire: Wire, group: str, topic: str) -> None:
    assert commit(wire, group, topic) == NONE  # creates a group without members
    member = Member(wire, group, topology(subtopology("0", topic)))
    member.follow(lambda: member.active == {"0": [0, 1, 2]})
    assert described(wire, group).group_state == "Stable"
    assert fetch(wire, group, topic) == (NONE, 5)


def test_an_empty_streams_group_becomes_a_classic_group(wire: Wire, group: str, topic: str, member: Member) -> None:
    assert commit(wire, group, topic, member.member_id, member.epoch) == NONE
    member.leave()
    joined = join_classic(wire, group)
    joined = join_classic(wire, group, joined.member_id)
    assert joined.error_code == NONE
    found = wire.call(m.DescribeGroupsRequest(groups=[group]), 5).groups[0]
    assert (found.error_code, [each.member_id for each in found.members]) == (NONE, [joined.member_id])
    assert described(wire, group).error_code == GroupIdNotFound.code
    assert fetch(wire, group, topic) == (NONE, 5)


def test_an_empty_streams_group_is_no_consumer_group(wire: Wire, group: str, topic: str, member: Member) -> None:
    member.leave()
    found = consumer_beat(wire, group, topic)
    assert (found.error_code, found.error_message) == (GroupIdNotFound.code, f"Group {group} is not a consumer group.")


def test_deleting_a_group_deletes_its_offsets(wire: Wire, group: str, topic: str, member: Member) -> None:
    assert commit(wire, group, topic, member.member_id, member.epoch) == NONE
    member.leave()
    assert wire.call(m.DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == NONE
    assert fetch(wire, group, topic) == (NONE, -1)


def test_new_partitions_of_a_topic_add_tasks(wire: Wire, group: str, topic: str, member: Member) -> None:
    grown = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=5, assignments=None)],
        timeout_ms=30000,
        validate_only=False,
    )
    assert wire.call(grown, 3).results[0].error_code == NONE
    member.follow(lambda: member.active == {"0": [0, 1, 2, 3, 4]})


def test_a_deleted_source_topic_stops_the_application(wire: Wire, group: str, topic: str, member: Member) -> None:
    deletion = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name=topic, topic_id=ZERO_UUID)], timeout_ms=30000
    )
    assert wire.call(deletion, 6).responses[0].error_code == NONE
    missing = [(1, f"Source topics {topic} are missing.")]

    def is_told() -> bool:
        answer = member.own()
        return [(each.status_code, each.status_detail) for each in answer.status] == missing

    wait_for(is_told)
    wait_for(lambda: member.own() and member.active == {})
    assert described(wire, group).group_state == "NotReady"
    assert tasks(member.send(active_tasks=ids({}), standby_tasks=[], warmup_tasks=[]).active_tasks) is None
