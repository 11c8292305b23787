"""Share groups (KIP-932), request by request: membership, records under locks, offsets, and the stored state."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.enums import CoordinatorType
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedMemberEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NonEmptyGroup,
    ShareSessionNotFound,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DeleteShareGroupStateRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitializeShareGroupStateRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    WriteShareGroupStateRequest,
)
from support.batches import batch
from support.interop.sharing import ACCEPT, DEADLINE_S, REJECT, RELEASE, RENEW, Sharer, sent, taken
from support.interop.transacting import Transacting
from support.wire import Wire

MakeSharer = Callable[..., Sharer]


@pytest.fixture
def sharer(wire: Wire, unique: Callable[[str], str]) -> MakeSharer:
    group = unique("s")
    return lambda on=wire, name=None, of=group: Sharer(on, of, name)


@pytest.fixture
def filled(wire: Wire, topic: str) -> tuple[str, tuple[bytes, int]]:
    """A topic with five batches of four records, and its only partition."""
    for number in range(5):
        assert wire.produce(topic, batch(*[b"%d-%d" % (number, each) for each in range(4)])).error_code == 0
    return topic, (wire.topic_id(topic), 0)


# Membership


@pytest.mark.parametrize(
    ("member", "epoch", "fields", "code", "message"),
    [
        ("", 0, {}, InvalidRequest.code, ""),
        (" ", 0, {}, InvalidRequest.code, "MemberId can't be empty."),
        ("\0", 3, {}, InvalidRequest.code, "MemberId can't be empty."),
        ("\xa0", 3, {}, GroupIdNotFound.code, "Share group {} not found."),
        ("m", 3, {"rack": "\xa0"}, GroupIdNotFound.code, "Share group {} not found."),
        ("a" * 37, 3, {}, InvalidRequest.code, ""),
        ("a" * 36, 3, {}, GroupIdNotFound.code, "Share group {} not found."),
        ("m", 0, {"topics": None}, InvalidRequest.code, "SubscribedTopicNames must be set in first request."),
        ("m", 0, {"topics": []}, InvalidRequest.code, "SubscribedTopicNames must be set in first request."),
        ("m", -2, {}, InvalidRequest.code, "MemberEpoch is invalid."),
        ("m", 0, {"rack": ""}, InvalidRequest.code, "RackId can't be empty."),
        ("m", 3, {}, GroupIdNotFound.code, "Share group {} not found."),
        ("m", -1, {"topics": None}, GroupIdNotFound.code, "Group {} not found."),
    ],
)
def test_refused_heartbeats(
    sharer: MakeSharer, topic: str, member: str, epoch: int, fields: Any, code: int, message: str
) -> None:
    one = sharer()
    one.find()
    one.name = member
    answer = one.beat(epoch, **{"topics": [topic], **fields})
    assert (answer.error_code, answer.error_message or "") == (code, message.format(one.group))


def test_only_a_group_that_is_null_is_refused(topic: str, wire: Wire) -> None:
    """An empty name opens a session, although no group can have it."""

    def fetched(group: str | None, epoch: int) -> int:
        request = ShareFetchRequest(
            group_id=group, member_id="m", share_session_epoch=epoch, max_records=1, batch_size=1
        )
        code: int = wire.call(request, 1).error_code
        return code

    assert [fetched(None, 0), fetched("", 0), fetched("", 1), fetched("", -1)] == [InvalidRequest.code, 0, 0, 0]
    assert fetched("", 1) == ShareSessionNotFound.code


def test_members_join_share_and_leave(sharer: MakeSharer, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    first, second = sharer(), sharer()
    first.find()
    joined = first.beat(0, [topic])
    assert (joined.error_code, joined.member_epoch, joined.member_id) == (0, 2, first.name)
    assert (joined.heartbeat_interval_ms, joined.assignment.topic_partitions) == (5000, [])
    answer = first.join(topic)
    (places,) = answer.assignment.topic_partitions
    assert (answer.member_epoch, places.topic_id, sorted(places.partitions)) == (3, wire.topic_id(topic), [0, 1])
    assert first.beat(3).assignment is None
    assert first.beat(2).member_epoch == 3, "the answer may have been lost"
    assert first.beat(3, [topic]).assignment is not None
    assert first.beat(1).error_code == FencedMemberEpoch.code
    assert first.beat(9).error_code == FencedMemberEpoch.code
    assert second.beat(3).error_code == UnknownMemberId.code

    (found,) = wire.call(
        ShareGroupDescribeRequest(group_ids=[first.group], include_authorized_operations=True), 1
    ).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    assert (found.assignor_name, found.authorized_operations) == ("simple", 3400)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.client_host) == (first.name, 3, "/127.0.0.1")
    assert member.subscribed_topic_names == [topic]
    assert [(each.topic_name, sorted(each.partitions)) for each in member.assignment.topic_partitions] == [
        (topic, [0, 1])
    ]
    listed = wire.call(ListGroupsRequest(states_filter=["stable"], types_filter=["Share"]), 5).groups
    assert [(each.protocol_type, each.group_type) for each in listed if each.group_id == first.group] == [
        ("share", "share")
    ]

    second.join(topic)
    (refused,) = wire.call(DeleteGroupsRequest(groups_names=[first.group]), 2).results
    assert refused.error_code == NonEmptyGroup.code
    left = second.beat(-1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert second.beat(-1).error_code == UnknownMemberId.code
    first.beat(-1)
    (found,) = wire.call(ShareGroupDescribeRequest(group_ids=[first.group]), 1).groups
    assert (found.group_state, found.members) == ("Empty", [])
    codes = [wire.call(DeleteGroupsRequest(groups_names=[first.group]), 2).results[0].error_code for _ in range(2)]
    assert codes == [0, GroupIdNotFound.code]
    (found,) = wire.call(ShareGroupDescribeRequest(group_ids=[first.group]), 1).groups
    assert (found.error_code, found.error_message) == (GroupIdNotFound.code, f"Group {first.group} not found.")


def test_kinds_of_groups_do_not_mix(sharer: MakeSharer, topic: str, wire: Wire, unique: Any) -> None:
    one = sharer()
    one.find()
    one.beat(0, [topic])
    group = one.group
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    answer = wire.call(heartbeat, 1)
    assert (answer.error_code, answer.error_message) == (
        GroupIdNotFound.code,
        f"Group {group} is not a consumer group.",
    )
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10000,
        rebalance_timeout_ms=10000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    assert wire.call(join, 9).error_code == InconsistentGroupProtocol.code
    assert (
        wire.call(HeartbeatRequest(group_id=group, generation_id=1, member_id="x"), 4).error_code
        == UnknownMemberId.code
    )
    (described,) = wire.call(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (described.error_code, described.error_message) == (
        GroupIdNotFound.code,
        f"Group {group} is not a classic group.",
    )
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)

    def commit(to: str) -> int:
        request = OffsetCommitRequest(
            group_id=to,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        return int(wire.call(request, 9).topics[0].partitions[0].error_code)

    assert commit(group) == GroupIdNotFound.code
    classic = sharer(of=unique("c"))
    classic.find()
    assert commit(classic.group) == 0
    for epoch in (0, 1, -1):
        answer = classic.beat(epoch, [topic])
        assert (answer.error_code, answer.error_message) == (
            GroupIdNotFound.code,
            f"Group {classic.group} is not a share group.",
        )
    (described,) = wire.call(ShareGroupDescribeRequest(group_ids=[classic.group]), 1).groups
    assert described.error_message == f"Group {classic.group} is not a share group."


def test_a_share_coordinator_is_found(wire: Wire) -> None:
    def find(key: str) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            (found,) = wire.call(
                FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=[key]), 6
            ).coordinators
            if found.error_code not in (CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    assert find("g").error_code == InvalidRequest.code
    assert find("g:AAAAAAAAAAAAAAAAAAAAAA:0").node_id >= 0
    (topic,) = wire.metadata("__share_group_state").topics
    assert (topic.error_code, topic.is_internal) == (0, True)


# Records


def test_records_are_delivered_and_acknowledged(sharer: MakeSharer, filled: Any) -> None:
    topic, place = filled
    one, other = sharer(), sharer()
    one.start_at(topic, p0=0)
    assert one.stands(topic) == (0, 20)
    first = one.fetch([place], most=6, batch_size=3, wait_ms=5000)
    assert (taken(first), sent(first)) == ([(0, 3, 1), (4, 7, 1)], [(0, 3), (4, 7)])
    assert first.acquisition_lock_timeout_ms == 30000
    assert other.take_soon(place, most=1, exact=True) == [(8, 8, 1)]
    assert other.take(most=2, exact=True, wait_ms=5000) == [(9, 10, 1)]
    assert one.tell(place, (0, 2, [ACCEPT]), (3, 3, [REJECT])) == (0, "")
    assert one.tell(place, (0, 3, [ACCEPT])) == (0, ""), "already acknowledged"
    assert one.tell(place, (5, 5, [RELEASE])) == (0, "")
    assert one.stands(topic) == (4, 16)
    again = one.fetch(wait_ms=5000, most=1)
    assert (taken(again), sent(again)) == ([(5, 5, 2)], [(4, 7)])
    assert one.tell(place, (4, 7, [ACCEPT, ACCEPT, RELEASE, ACCEPT])) == (0, "")
    assert one.take(wait_ms=5000, most=1) == [(6, 6, 2)]
    # Acknowledgements in a fetch.
    more = one.fetch(acks={place: [(6, 6, [ACCEPT])]}, wait_ms=5000)
    assert taken(more) == [(11, 11, 1), (12, 19, 1)]
    assert other.tell(place, (11, 11, [ACCEPT]))[0] == InvalidRecordState.code
    # The end of a session releases its records.
    ended = one.fetch(epoch=-1, acks={place: [(11, 18, [ACCEPT])]})
    assert ended.error_code == 0
    assert other.take(wait_ms=5000) == [(19, 19, 2)]
    assert other.tell(place, (8, 10, [ACCEPT]), (19, 19, [ACCEPT]))[0] == 0
    assert one.stands(topic)[1] == 0


def test_sessions(sharer: MakeSharer, filled: Any) -> None:
    topic, place = filled
    one = sharer()
    one.start_at(topic, p0=0)
    assert one.fetch([place], epoch=1).error_code == ShareSessionNotFound.code
    assert one.fetch(epoch=-1).error_code == ShareSessionNotFound.code
    assert one.acknowledge({}, epoch=1).error_code == ShareSessionNotFound.code
    assert sharer(name="").fetch([place]).error_code == InvalidRequest.code
    assert one.fetch([place], {place: [(0, 0, [ACCEPT])]}).error_code == InvalidRequest.code, "nothing was acquired yet"
    assert one.take_soon(place, most=4) == [(0, 3, 1)]
    epoch = one.epoch
    for wrong in (epoch - 1, epoch + 1):
        if wrong:
            assert one.fetch(epoch=wrong).error_code == InvalidShareSessionEpoch.code
            assert one.acknowledge({}, epoch=wrong).error_code == InvalidShareSessionEpoch.code
    assert one.acknowledge({}, epoch=0).error_code == InvalidShareSessionEpoch.code
    assert one.fetch(forgotten=[place]).responses == []
    assert one.take() == []
    assert one.take(place, most=4, wait_ms=5000) == [(4, 7, 1)]
    assert one.fetch(most=0).responses == []
    one.epoch = 0
    assert one.take(place, most=4, wait_ms=5000) == [(8, 11, 1)], "a new session replaced the old one"
    answer = one.acknowledge({place: [(8, 9, [ACCEPT])]}, epoch=-1)
    assert answer.error_code == answer.responses[0].partitions[0].error_code == 0
    assert one.fetch(epoch=2).error_code == ShareSessionNotFound.code


@pytest.mark.parametrize(
    ("acks", "code", "message"),
    [
        ([(7, 4, [ACCEPT])], InvalidRequest.code, ""),
        ([(4, 5, [])], InvalidRequest.code, ""),
        ([(4, 7, [ACCEPT, ACCEPT])], InvalidRequest.code, ""),
        ([(4, 4, [7])], InvalidRequest.code, ""),
        ([(4, 4, [RENEW])], InvalidRequest.code, ""),
        ([(4, 5, [ACCEPT]), (5, 6, [ACCEPT])], InvalidRecordState.code,
         "The offset cannot be acknowledged. The offset is not acquired."),
        ([(100, 101, [ACCEPT])], InvalidRequest.code,
         "Batch record not found. The first offset in request is past acquired records."),
        ([(7, 200, [ACCEPT])], InvalidRequest.code,
         "Batch record not found. The last offset in request is past acquired records."),
    ],
)  # fmt: skip
def test_invalid_acknowledgements_are_refused(
    sharer: MakeSharer, filled: Any, acks: Any, code: int, message: str
) -> None:
    topic, place = filled
    one = sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place, most=8) == [(0, 7, 1)]
    assert one.tell(place, *acks) == (code, message)
    assert one.tell(place, (4, 7, [ACCEPT])) == (0, ""), "no part of it was applied"


def test_acknowledgements_of_unknown_partitions(sharer: MakeSharer, filled: Any) -> None:
    topic, place = filled
    one = sharer()
    one.start_at(topic, p0=0)
    one.take_soon(place, most=4)
    assert one.tell((bytes(15) + b"\1", 0), (0, 0, [ACCEPT])) == (UnknownTopicId.code, "")
    assert one.tell((place[0], 5), (0, 0, [ACCEPT])) == (UnknownTopicOrPartition.code, "")


def test_a_group_without_state_reads_nothing(sharer: MakeSharer, filled: Any) -> None:
    _, place = filled
    one = sharer()
    deadline = time.monotonic() + DEADLINE_S
    answer = one.fetch([place], wait_ms=500)
    while not any(each.error_code for topic in answer.responses for each in topic.partitions):
        assert (answer.error_code, taken(answer)) == (0, [])
        assert time.monotonic() < deadline, "no error was returned"
        answer = one.fetch(wait_ms=500)
    assert [each.error_code for each in answer.responses[0].partitions] == [UnknownServerError.code]


def test_renewed_locks(sharer: MakeSharer, filled: Any) -> None:
    topic, place = filled
    one = sharer()
    one.start_at(topic, p0=0)
    one.take_soon(place, most=4)
    nothing = {"most": 0, "batch_size": 0, "min_bytes": 0, "max_bytes": 0}
    renewed = one.fetch(acks={place: [(1, 1, [RENEW])]}, renews=True, **nothing)
    (partition,) = renewed.responses[0].partitions
    assert (partition.acknowledge_error_code, partition.error_code, taken(renewed)) == (0, 0, [])
    refused = one.fetch(acks={place: [(1, 1, [RENEW])]}, renews=True, **{**nothing, "most": 5})
    assert refused.error_code == InvalidRequest.code
    answer = one.acknowledge({place: [(2, 3, [RENEW])]}, renews=True)
    assert (answer.acquisition_lock_timeout_ms, answer.responses[0].partitions[0].error_code) == (30000, 0)
    assert one.tell(place, (0, 3, [ACCEPT])) == (0, "")


def test_records_are_archived_after_the_delivery_limit(sharer: MakeSharer, topic: str, wire: Wire) -> None:
    place = (wire.topic_id(topic), 0)
    for number in range(2):
        wire.produce(topic, batch(*[b"%d-%d" % (number, each) for each in range(8)]))
    one = sharer()
    one.start_at(topic, p0=0)
    seen = []
    given = one.take_soon(place)
    for _ in range(13):
        seen.append(given[0])
        assert one.tell(place, *[(first, last, [RELEASE]) for first, last, _ in given]) == (0, "")
        given = one.take(wait_ms=5000)
    assert seen == [
        *[(0, 15, count) for count in (1, 2, 3)],
        (0, 7, 4),
        *[(offset, offset, 5) for offset in range(8)],
        (8, 15, 4),
    ]
    assert given == [(8, 8, 5)]


def test_a_lost_connection_releases_its_records(sharer: MakeSharer, filled: Any, connect: Callable[..., Wire]) -> None:
    topic, place = filled
    lost = connect()
    one, other = sharer(lost), sharer()
    other.start_at(topic, p0=0)
    assert one.take_soon(place, most=20) == [(0, 19, 1)]
    other.take(place)
    lost.close()
    assert other.take_soon() == [(0, 19, 2)]


def test_a_fetch_waits_for_records(sharer: MakeSharer, topic: str, wire: Wire, connect: Callable[..., Wire]) -> None:
    place = (wire.topic_id(topic), 0)
    waiting = connect()
    one = sharer(waiting)
    sharer().start_at(topic, p0=0)
    one.take(place)
    waiting.send(one.fetch_request(wait_ms=60_000), 2)
    wire.produce(topic, batch(b"new"))
    assert taken(waiting.receive()) == [(0, 0, 1)]


def test_released_records_are_delivered_to_other_members(sharer: MakeSharer, filled: Any) -> None:
    topic, place = filled
    one, other = sharer(), sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place) == [(0, 19, 1)]
    other.take(place)
    assert one.tell(place, (3, 5, [RELEASE])) == (0, "")
    assert other.take_soon() == [(3, 5, 2)]


def test_the_reset_policy_decides_where_a_group_starts(
    sharer: MakeSharer, filled: Any, unique: Any, wire: Wire
) -> None:
    topic, place = filled
    late, early = sharer(of=unique("late")), sharer(of=unique("early"))
    early.configure(share_auto_offset_reset="earliest")
    for one in (late, early):
        one.join(topic)
    assert early.stands(topic) == (-1, -1)
    assert early.take_soon(place) == [(0, 19, 1)]
    late.take(place, wait_ms=500)
    wire.produce(topic, batch(b"after"))
    assert late.take_soon() == [(20, 20, 1)]
    for one in (late, early):
        one.beat(-1)


def test_only_committed_records_are_delivered(sharer: MakeSharer, topic: str, wire: Wire, unique: Any) -> None:
    place = (wire.topic_id(topic), 0)
    one = sharer()
    one.configure(share_isolation_level="read_committed")
    one.start_at(topic, p0=0)
    wire.produce(topic, batch(b"plain"))
    for commit, values in ((False, [b"x", b"y"]), (True, [b"c"])):
        transaction = Transacting(wire, unique("x")).start()
        transaction.add((topic, [0]))
        assert transaction.produce(topic, *values).error_code == 0
        transaction.finish(commit)
        transaction.settle()
    end = wire.list_offsets(topic, -1).offset
    seen: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    given = one.take_soon(place)
    while True:
        seen |= {offset for first, last, _ in given for offset in range(first, last + 1)}
        if end - 1 in seen:
            break
        assert time.monotonic() < deadline
        given = one.take(wait_ms=200)
    assert 0 in seen and not {1, 2} & seen, "aborted records are not delivered"


def test_deleted_records(sharer: MakeSharer, filled: Any, wire: Wire) -> None:
    from ottla.wire.messages import DeleteRecordsRequest as Delete

    topic, place = filled
    one = sharer()
    one.start_at(topic, p0=0)
    assert one.take_soon(place, most=4) == [(0, 3, 1)]
    partition = Delete.DeleteRecordsPartition(partition_index=0, offset=10)
    wire.call(Delete(topics=[Delete.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30000), 2)
    assert one.take_soon()[0][0] in (8, 10), "the batch that contains 10 starts at 8"
    assert one.tell(place, (0, 3, [ACCEPT])) == (0, "")


# Offsets


def test_offsets(sharer: MakeSharer, make_topic: Any, wire: Wire) -> None:
    topic = make_topic(2)
    wire.produce(topic, batch(*[b"%d" % each for each in range(12)]))
    one = sharer()
    one.start_at(topic, p0=5, p1=0)
    found = one.offsets()
    assert found.error_code == 0
    rows = {each.partition_index: (each.start_offset, each.lag) for each in found.topics[0].partitions}
    assert rows == {0: (5, 7), 1: (0, 0)}
    assert [each.lag for each in one.offsets({topic: [0]}, version=0).topics[0].partitions] == [-1]
    answer = one.alter(**{topic: {0: 7, 9: 1}, "absent": {0: 1}})
    codes = {one.topic_name: [each.error_code for each in one.partitions] for one in answer.responses}
    assert codes == {topic: [0, UnknownTopicOrPartition.code], "absent": [UnknownTopicOrPartition.code]}
    assert one.stands(topic) == (7, 5)
    one.join(topic)
    for refused in (one.alter(**{topic: {0: 1}}), one.forget(topic)):
        assert (refused.error_code, refused.error_message) == (NonEmptyGroup.code, "The group is not empty.")
    one.beat(-1)
    gone = {each.topic_name: each.error_code for each in one.forget(topic, "absent").responses}
    assert gone == {topic: 0, "absent": UnknownTopicOrPartition.code}
    assert one.offsets().topics == []
    (again,) = one.forget(topic).responses
    assert (again.error_code, again.error_message) == (
        UnknownTopicOrPartition.code,
        "There is no offset information to delete.",
    )
    nameless = sharer(of="")
    for answer in (nameless.alter(**{topic: {0: 1}}), nameless.forget(topic)):
        assert (answer.error_code, answer.error_message) == (InvalidGroupId.code, "The group id is invalid.")


# The state behind them


class State:
    """The requests of brokers to a share coordinator, for one share partition."""

    def __init__(self, wire: Wire, group: str, topic_id: bytes) -> None:
        self._wire = wire
        self._group = group
        self._topic_id = topic_id

    def _call(self, request: Any, topic: str, version: int, partition: Any) -> Any:
        data = getattr(request, topic)(topic_id=self._topic_id, partitions=[partition])
        answer = self._wire.call(request(group_id=self._group, topics=[data]), version)
        return answer.results[0].partitions[0]

    def initialize(self, epoch: int, offset: int, partition: int = 0) -> int:
        cls = InitializeShareGroupStateRequest
        one = cls.PartitionData(partition=partition, state_epoch=epoch, start_offset=offset)
        return int(self._call(cls, "InitializeStateData", 0, one).error_code)

    def read(self, leader_epoch: int, partition: int = 0) -> Any:
        cls = ReadShareGroupStateRequest
        return self._call(cls, "ReadStateData", 0, cls.PartitionData(partition=partition, leader_epoch=leader_epoch))

    def batches(self, leader_epoch: int) -> Any:
        found = self.read(leader_epoch)
        return found.start_offset, [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        ]

    def summary(self, partition: int = 0) -> Any:
        cls = ReadShareGroupStateSummaryRequest
        return self._call(cls, "ReadStateSummaryData", 1, cls.PartitionData(partition=partition, leader_epoch=0))

    def write(self, epoch: int, leader_epoch: int, offset: int, *batches: tuple[int, int, int, int]) -> Any:
        cls = WriteShareGroupStateRequest
        one = cls.PartitionData(
            partition=0,
            state_epoch=epoch,
            leader_epoch=leader_epoch,
            start_offset=offset,
            delivery_complete_count=1,
            state_batches=[
                cls.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        return self._call(cls, "WriteStateData", 1, one)

    def delete(self, partition: int = 0) -> int:
        cls = DeleteShareGroupStateRequest
        return int(self._call(cls, "DeleteStateData", 0, cls.PartitionData(partition=partition)).error_code)


def test_state_of_share_partitions(topic: str, wire: Wire, unique: Any, sharer: MakeSharer) -> None:
    sharer().start_at(topic, p0=0)  # makes the topic behind it
    state = State(wire, unique("h"), wire.topic_id(topic))
    absent = state.read(0)
    assert (absent.error_code, absent.error_message) == (
        InvalidRequest.code,
        "Read operation on uninitialized share partition not allowed.",
    )
    assert (state.summary().error_code, state.summary().start_offset) == (0, -1)
    refused = state.write(0, 0, 3, (3, 5, 2, 1))
    assert (refused.error_code, refused.error_message) == (
        InvalidRequest.code,
        "Write operation on uninitialized share partition not allowed.",
    )
    assert state.initialize(3, 10) == 0
    assert state.initialize(1, 4) == FencedStateEpoch.code
    assert state.initialize(3, 10, partition=-1) == InvalidRequest.code
    assert (state.read(2).state_epoch, state.batches(2)) == (3, (10, []))
    assert state.read(1).error_code == FencedLeaderEpoch.code
    assert state.write(3, 2, 10, (10, 14, 2, 1), (15, 19, 0, 2)).error_code == 0
    assert state.write(2, 2, 10, (10, 14, 2, 1)).error_code == FencedStateEpoch.code
    assert state.write(3, 1, 10, (10, 14, 2, 1)).error_code == FencedLeaderEpoch.code
    assert state.write(3, 2, 12, (17, 18, 4, 2)).error_code == 0
    assert state.batches(2) == (12, [(12, 14, 2, 1), (15, 16, 0, 2), (17, 18, 4, 2), (19, 19, 0, 2)])
    assert state.write(3, 2, -1, (20, 21, 0, 1)).error_code == 0
    assert state.write(3, 2, 12, (12, 16, 0, 2), (17, 25, 0, 2)).error_code == 0
    assert state.batches(2) == (12, [(12, 16, 0, 2), (17, 18, 4, 2), (19, 25, 0, 2)])
    summary = state.summary()
    assert (summary.state_epoch, summary.start_offset, summary.delivery_complete_count) == (3, 12, 1)
    assert [state.delete(), state.delete()] == [0, 0]
    assert state.read(2).error_code == InvalidRequest.code


@pytest.mark.parametrize("partition", [0, 7])
def test_state_of_partitions_that_do_not_exist(wire: Wire, topic: str, sharer: MakeSharer, partition: int) -> None:
    """Reads and writes of a leader find no state; the other requests look up the partition."""
    one = sharer()
    one.start_at(topic, p0=0)  # makes the topic behind it
    state = State(wire, one.group, wire.topic_id(topic) if partition else bytes((7,)) * 16)
    code = UnknownTopicOrPartition.code
    assert state.initialize(1, 0, partition) == code
    assert state.summary(partition).error_code == code
    assert state.delete(partition) == code
    assert state.read(0, partition).error_code == InvalidRequest.code
    assert state.initialize(1, 0, -1) == InvalidRequest.code


@pytest.mark.parametrize("kind", ["no group", "no topics", "no partitions"])
def test_a_request_about_no_state_gets_no_results(wire: Wire, topic: str, sharer: MakeSharer, kind: str) -> None:
    one = sharer()
    one.start_at(topic, p0=0)
    topic_id = wire.topic_id(topic)
    cls = DeleteShareGroupStateRequest
    some = cls.DeleteStateData(topic_id=topic_id, partitions=[cls.PartitionData(partition=0)])
    none = cls.DeleteStateData(topic_id=topic_id, partitions=[])
    topics = {"no group": [some], "no topics": [], "no partitions": [some, none]}[kind]
    assert wire.call(cls(group_id="" if kind == "no group" else one.group, topics=topics), 0).results == []


def test_an_initialization_continues_after_a_topic_without_partitions(
    wire: Wire, topic: str, sharer: MakeSharer, unique: Any
) -> None:
    sharer().start_at(topic, p0=0)
    cls = InitializeShareGroupStateRequest
    one = cls.PartitionData(partition=0, state_epoch=1, start_offset=0)
    topics = [
        cls.InitializeStateData(topic_id=bytes((7,)) * 16, partitions=[]),
        cls.InitializeStateData(topic_id=wire.topic_id(topic), partitions=[one]),
    ]
    results = wire.call(cls(group_id=unique("h"), topics=topics), 0).results
    assert [each.error_code for result in results for each in result.partitions] == [0]
