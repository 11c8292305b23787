"""The protocol of KIP-848, `group.protocol=consumer`: in the clients that support it, and on the wire."""

import time
import uuid

import pytest

from ottla.errors import (
    NONE,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidRegularExpression,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownServerError,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    OffsetFetchRequest,
)
from support.batches import batch
from support.interop.drivers import Driver, clients
from support.interop.groups import Group
from support.wire import Wire

SPEAKERS = clients("consumer_protocol")


def fill(wire: Wire, topic: str, partitions: int, each: int) -> set[bytes]:
    values = set()
    for partition in range(partitions):
        mine = [b"%d-%d" % (partition, i) for i in range(each)]
        assert wire.produce(topic, batch(*mine), partition).error_code == 0
        values |= set(mine)
    return values


@pytest.mark.parametrize("driver", SPEAKERS, indirect=True)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(driver: Driver, assignor: str, make_topic, wire: Wire, unique, spawn) -> None:
    topic = make_topic(4)
    values = fill(wire, topic, 4, 3)
    group = Group(unique("g"), [topic], 4, protocol="consumer", remote_assignor=assignor)
    first = group.join(driver)
    group.settle()
    second = group.join(spawn(driver.client))
    group.settle()
    assert sorted(len(owned) for owned in group.assignments.values()) == [2, 2]
    group.read(12)
    assert {record.value for record in group.records} == values
    found = driver.call("group_describe", group=group.name)
    assert (found["state"].lower(), found["type"].lower(), found["protocol"]) == ("stable", "consumer", assignor)
    owned = {tuple(map(tuple, member["assignment"])) for member in found["members"]}
    assert owned == {tuple(sorted(places)) for places in group.assignments.values()}
    group.leave(second)
    group.settle()
    assert group.assignments[first] == group.everything
    group.leave(first)


@pytest.mark.parametrize("driver", SPEAKERS, indirect=True)
def test_a_member_continues_at_the_committed_offset(driver: Driver, topic: str, wire: Wire, unique) -> None:
    fill(wire, topic, 1, 5)
    group = Group(unique("g"), [topic], 1, protocol="consumer")
    first = group.join(driver)
    group.read(5)
    driver.call("consumer_commit", id=first)
    group.leave(first)
    group.records.clear()
    wire.produce(topic, batch(b"new"))
    second = group.join(driver)
    group.read(1)
    assert [record.value for record in group.records] == [b"new"]
    group.leave(second)


@pytest.mark.parametrize("driver", [param for param in SPEAKERS if param.id == "java"], indirect=True)
def test_the_broker_resolves_a_subscribed_regex(driver: Driver, wire: Wire, unique) -> None:
    stem = unique("t")
    for suffix in ("a", "b", "other"):
        wire.create_topic(f"{stem}.{suffix}")
    group = Group(unique("g"), [f"{stem}.a", f"{stem}.b"], 1, protocol="consumer")
    member = group.join(driver, pattern=f"{stem}\\.[ab]")
    group.settle()
    assert group.assignments[member] == group.everything
    group.leave(member)


@pytest.mark.parametrize("driver", SPEAKERS, indirect=True)
def test_a_classic_group_is_upgraded_and_back(driver: Driver, make_topic, wire: Wire, unique, spawn) -> None:
    topic = make_topic(4)
    group = Group(unique("g"), [topic], 4)
    old = group.join(driver, protocol="classic", assignors=["cooperative-sticky"], heartbeat_interval_ms=500)
    group.settle()
    new = group.join(spawn(driver.client), protocol="consumer")
    group.settle()
    assert driver.call("group_describe", group=group.name)["type"].lower() == "consumer"
    values = fill(wire, topic, 4, 2)
    group.read(8)
    assert {record.value for record in group.records} == values
    group.leave(new)
    group.settle()
    assert group.assignments[old] == group.everything
    assert driver.call("group_describe", group=group.name)["type"].lower() == "classic"
    group.leave(old)


# On the wire


@pytest.fixture
def group(wire: Wire, unique) -> str:
    name = unique("g")
    for _ in range(5000):
        if wire.call(FindCoordinatorRequest(coordinator_keys=[name]), 4).coordinators[0].error_code == NONE:
            return name
    raise AssertionError("no coordinator")


def beat(wire: Wire, group: str, member: str, epoch: int, version: int = 1, **more):
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
    return wire.call(request, version)


def hello(wire: Wire, group: str, member: str, topics: list[str] | None, **more):
    return beat(
        wire, group, member, 0, rebalance_timeout_ms=30000, subscribed_topic_names=topics, topic_partitions=[], **more
    )


def hello_assigned(wire: Wire, group: str, member: str, topics: list[str], **more):
    """Joins and returns the answer that assigns partitions. Kafka's coordinator may learn about a topic a little
    later."""
    answer = hello(wire, group, member, topics, **more)
    deadline = time.monotonic() + 90
    while answer.error_code == NONE and not (answer.assignment and answer.assignment.topic_partitions):
        assert time.monotonic() < deadline, answer
        answer = beat(wire, group, member, answer.member_epoch, **more)
    return answer


def new_id() -> str:
    return uuid.uuid4().hex


def test_join_get_everything_and_leave(group: str, make_topic, wire: Wire) -> None:
    topic, me = make_topic(3), new_id()
    joined = hello_assigned(wire, group, me, [topic])
    assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (NONE, me, 5000)
    assert joined.member_epoch >= 1
    (only,) = joined.assignment.topic_partitions
    assert (only.topic_id, sorted(only.partitions)) == (wire.topic_id(topic), [0, 1, 2])
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=only.topic_id, partitions=[0, 1, 2])]
    quiet = beat(wire, group, me, joined.member_epoch, topic_partitions=owned)
    assert (quiet.error_code, quiet.assignment) == (NONE, None)
    left = beat(wire, group, me, -1)
    assert (left.error_code, left.member_epoch) == (NONE, -1)
    assert beat(wire, group, me, joined.member_epoch).error_code == UnknownMemberId.code


def test_a_second_member_waits_until_the_first_revoked(group: str, make_topic, wire: Wire, connect) -> None:
    topic, one, two = make_topic(2), new_id(), new_id()
    first = hello_assigned(wire, group, one, [topic])
    topic_id = wire.topic_id(topic)

    def owned(*partitions: int):
        return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(partitions))]

    second = hello(wire, group, two, [topic])
    assert second.error_code == NONE
    assert second.assignment is None or second.assignment.topic_partitions == []
    # The first has to revoke one, and the second gets it only after that.
    # A new target assignment may be a few heartbeats away.
    told = first
    while told is first or told.assignment is None:
        told = beat(wire, group, one, told.member_epoch, topic_partitions=owned(0, 1))
    (kept,) = told.assignment.topic_partitions
    assert len(kept.partitions) == 1
    waiting = beat(wire, group, two, second.member_epoch)
    assert waiting.assignment is None or waiting.assignment.topic_partitions == []
    done = beat(wire, group, one, told.member_epoch, topic_partitions=owned(*kept.partitions))
    assert done.error_code == NONE
    given = waiting
    while given.assignment is None or not given.assignment.topic_partitions:
        given = beat(wire, group, two, given.member_epoch)
    (mine,) = given.assignment.topic_partitions
    assert set(mine.partitions) | set(kept.partitions) == {0, 1}


def test_heartbeats_that_are_refused(group: str, topic: str, wire: Wire) -> None:
    me = new_id()
    assert beat(wire, group, me, 5).error_code in (UnknownMemberId.code, GroupIdNotFound.code)
    assert hello(wire, "", me, [topic]).error_code == InvalidRequest.code
    assert hello(wire, group, "", [topic]).error_code == InvalidRequest.code
    assert hello(wire, group, me, None).error_code == InvalidRequest.code
    assert hello(wire, group, me, [topic], server_assignor="magic").error_code == UnsupportedAssignor.code
    assert hello(wire, group, me, None, subscribed_topic_regex="[broken").error_code == InvalidRegularExpression.code
    joined = hello(wire, group, me, [topic])
    assert joined.error_code == NONE
    assert beat(wire, group, me, joined.member_epoch + 5).error_code == FencedMemberEpoch.code
    assert beat(wire, group, new_id(), joined.member_epoch).error_code == UnknownMemberId.code


def test_version_0_hands_out_the_member_id(group: str, topic: str, wire: Wire) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=30000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    joined = wire.call(request, 0)
    assert joined.error_code == NONE
    assert joined.member_id


def test_a_static_member_that_is_away(group: str, topic: str, wire: Wire) -> None:
    me = new_id()
    joined = hello_assigned(wire, group, me, [topic], instance_id="one")
    assert joined.error_code == NONE
    assert hello(wire, group, new_id(), [topic], instance_id="one").error_code == UnreleasedInstanceId.code
    away = beat(wire, group, me, -2, instance_id="one")
    assert (away.error_code, away.member_epoch) == (NONE, -2)
    back = hello_assigned(wire, group, new_id(), [topic], instance_id="one")
    assert back.error_code == NONE
    assert back.assignment.topic_partitions
    assert beat(wire, group, me, joined.member_epoch, instance_id="one").error_code in (
        FencedInstanceId.code,
        UnknownMemberId.code,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_describe(version: int, group: str, make_topic, wire: Wire) -> None:
    def described():
        return wire.call(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups[0]

    assert described().error_code == GroupIdNotFound.code
    topic, me = make_topic(2), new_id()
    joined = hello_assigned(wire, group, me, [topic])
    found = described()
    assert (found.error_code, found.group_id, found.assignor_name) == (NONE, group, "uniform")
    assert found.group_epoch >= joined.member_epoch
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (me, "wire", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.member_epoch) == ([topic], joined.member_epoch)
    (target,) = member.target_assignment.topic_partitions
    assert (target.topic_name, sorted(target.partitions)) == (topic, [0, 1])


def test_leave_group_removes_a_member_of_the_new_protocol(group: str, topic: str, wire: Wire) -> None:
    member = new_id()
    assert hello(wire, group, member, [topic]).error_code == NONE
    identity = LeaveGroupRequest.MemberIdentity
    request = LeaveGroupRequest(group_id=group, members=[identity(member_id=member), identity(member_id="stranger")])
    left = wire.call(request, 5).members
    assert [(one.member_id, one.error_code) for one in left] == [(member, NONE), ("stranger", UnknownMemberId.code)]
    found = beat(wire, group, member, 1)
    assert (found.error_code, found.error_message) == (
        UnknownMemberId.code,
        f"Member {member} is not a member of group {group}.",
    )


def test_leave_group_removes_static_members_by_instance_id(group: str, topic: str, wire: Wire) -> None:
    """The answer repeats them as requested, without a member id, because the Java client matches them by this."""
    assert hello(wire, group, new_id(), [topic], instance_id="one").error_code == NONE
    identity = LeaveGroupRequest.MemberIdentity
    asked = [identity(group_instance_id="one"), identity(group_instance_id="nobody")]
    left = wire.call(LeaveGroupRequest(group_id=group, members=asked), 5).members
    found = [(one.member_id, one.group_instance_id, one.error_code) for one in left]
    assert found == [("", "one", NONE), ("", "nobody", UnknownMemberId.code)]
    assert hello(wire, group, new_id(), [topic], instance_id="one").error_code == NONE


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": " \t"}, InvalidRequest.code, "MemberId can't be empty."),
        ({"member_id": "\0"}, InvalidRequest.code, "MemberId can't be empty."),
        ({"member_id": " ", "group_id": " "}, InvalidRequest.code, "MemberId can't be empty."),
        ({"member_id": "\xa0"}, GroupIdNotFound.code, "Consumer group {} not found."),
        ({"rack_id": "\x1f"}, InvalidRequest.code, "RackId can't be empty."),
        ({"rack_id": "\xa0"}, GroupIdNotFound.code, "Consumer group {} not found."),
        ({"instance_id": " "}, InvalidRequest.code, "InstanceId can't be empty."),
        ({"instance_id": "\u3000"}, GroupIdNotFound.code, "Consumer group {} not found."),
    ],
)
def test_an_id_that_java_trims_to_nothing_is_blank(
    fields: dict[str, str], code: int, message: str, group: str, wire: Wire
) -> None:
    """Control characters are trimmed, and spaces outside ASCII are not."""
    asked = ConsumerGroupHeartbeatRequest(**{"group_id": group, "member_id": "m", "member_epoch": 4, **fields})
    found = wire.call(asked, 1)
    assert (found.error_code, found.error_message) == (code, message.format(group))


@pytest.mark.parametrize(
    ("epoch", "message"),
    [
        (1, "MemberId can't be empty."),
        (-1, "MemberId can't be empty."),
        (-2, "InstanceId can't be null."),
        (-3, "MemberEpoch is invalid."),
    ],
)
def test_a_member_without_an_id_can_only_join(epoch: int, message: str, group: str, wire: Wire) -> None:
    """In v0 the broker makes the id."""
    found = beat(wire, group, "", epoch, version=0)
    assert (found.error_code, found.error_message) == (InvalidRequest.code, message)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[", "missing closing ]"),
        ("(", "missing closing )"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        ("\\8", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
    ],
)
def test_an_invalid_regex_is_refused_with_its_reason(pattern: str, reason: str, group: str, wire: Wire) -> None:
    found = hello(wire, group, new_id(), None, subscribed_topic_regex=pattern)
    assert (found.error_code, found.error_message) == (
        InvalidRegularExpression.code,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )


@pytest.mark.parametrize("version", [9, 10])
def test_offset_fetches_with_a_wrong_member_epoch(version: int, group: str, topic: str, wire: Wire) -> None:
    member = new_id()
    epoch = hello_assigned(wire, group, member, [topic]).member_epoch

    def fetched(member_id: str | None, member_epoch: int) -> int:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, member_id=member_id, member_epoch=member_epoch, topics=None
        )
        (answer,) = wire.call(OffsetFetchRequest(groups=[asked]), version).groups
        code: int = answer.error_code
        return code

    assert [fetched(None, each) for each in (-2, -1, 0, epoch)] == [NONE, NONE] + [UnknownServerError.code] * 2
    assert [fetched("", each) for each in (-1, 0, epoch)] == [UnknownMemberId.code] * 3
    assert [fetched(member, each) for each in (-1, epoch, epoch + 1)] == [
        StaleMemberEpoch.code,
        NONE,
        StaleMemberEpoch.code,
    ]
