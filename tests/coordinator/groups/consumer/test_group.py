"""KIP-848 as Apache Kafka 4.3.1 implements it: the answers in the tables come from a real broker."""

from typing import Any

import pytest

from ottla.coordinator.groups import requests
from ottla.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from ottla.wire.messages import ConsumerGroupHeartbeatResponse


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("", 0, {"topics": ["t"]}, InvalidRequest.code),
        ("", 1, {"topics": ["t"], "version": 0}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "group_id": ""}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "group_id": " "}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "instance_id": ""}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "rack_id": ""}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "rebalance_timeout_ms": -1}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "topic_partitions": None}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "owned": {"t": [0]}}, InvalidRequest.code),
        ("m", 0, {}, InvalidRequest.code),
        ("m", -2, {}, InvalidRequest.code),
        ("m", -3, {}, InvalidRequest.code),
        ("m", 0, {"topics": ["t"], "server_assignor": "foo"}, UnsupportedAssignor.code),
        ("m", 0, {"regex": "("}, InvalidRegularExpression.code),
        ("m", 5, {}, GroupIdNotFound.code),
        ("m", -1, {}, GroupIdNotFound.code),
    ],
)
def test_refused_heartbeats_change_nothing(world: Any, member_id: str, epoch: int, fields: Any, code: int) -> None:
    world.topic("t")
    assert world.consumer(member_id, epoch, **fields) == code
    assert not world.writer.batches


def test_a_member_without_subscriptions_has_epoch_1(world: Any) -> None:
    answer = world.consumer("me", 0, topics=[])
    assert (answer.member_epoch, world.assignment(answer)) == (1, {})
    assert world.group("n").state_name == "Stable"


def test_version_0_makes_the_member_id(world: Any) -> None:
    world.topic("t")
    answer = world.consumer("", 0, topics=["t"], version=0)
    assert len(answer.member_id) == 22
    assert answer.member_epoch == 2


def test_a_partition_moves_after_its_owner_revoked_it(world: Any) -> None:
    world.topic("t")
    told: Any = lambda answer: (answer.member_epoch, world.assignment(answer))  # noqa: E731
    assert told(world.consumer("m1", 0, topics=["t"])) == (2, {"t": [0, 1, 2]})
    assert told(world.consumer("m1", 2)) == (2, None)
    assert told(world.consumer("m2", 0, topics=["t"])) == (3, {})
    assert told(world.consumer("m1", 2)) == (2, {"t": [0, 1]})
    assert world.group("n").state_name == "Reconciling"
    assert told(world.consumer("m1", 2, owned={"t": [0, 1, 2]})) == (2, None)
    assert told(world.consumer("m1", 2, owned={"t": [0, 1]})) == (3, None)
    assert told(world.consumer("m2", 3, owned={})) == (3, {"t": [2]})
    assert told(world.consumer("m1", 3, owned={"t": [0, 1]}, topics=["t"], rebalance_timeout_ms=30_000)) == (
        3,
        {"t": [0, 1]},
    )
    assert world.group("n").state_name == "Stable"


def test_wrong_epochs_are_fenced(world: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    assert world.consumer("mX", 1) == UnknownMemberId.code
    assert world.consumer("m1", 9) == FencedMemberEpoch.code
    assert world.consumer("m1", 1) == FencedMemberEpoch.code
    assert world.consumer("mX", -1) == UnknownMemberId.code


def test_a_heartbeat_can_be_repeated_after_a_lost_answer(world: Any) -> None:
    """The previous epoch is accepted from a member that owns nothing beyond its assignment."""
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    world.consumer("m2", 0, topics=["t"])
    world.consumer("m1", 2)
    world.consumer("m1", 2, owned={"t": [0, 1]})
    assert world.consumer("m1", 2, owned={"t": [0]}).member_epoch == 3
    assert world.consumer("m1", 2, owned={"t": [2]}) == FencedMemberEpoch.code
    assert world.consumer("m1", 2) == FencedMemberEpoch.code


def test_unsubscribed_topics_are_revoked_before_the_next_target(make_world: Any) -> None:
    world = make_world(consumer_assignment_interval_ms=1000)
    world.topic("t")
    world.topic("u", 2)
    world.consumer("m1", 0, topics=["t"])
    answer = world.consumer("m1", 2, topics=["u"])
    assert (answer.member_epoch, world.assignment(answer)) == (2, {})
    assert world.group("n").state_name == "Assigning"
    world.clock.advance(1000)
    answer = world.consumer("m1", 2, owned={})
    assert (answer.member_epoch, world.assignment(answer)) == (3, {"u": [0, 1]})


def test_targets_are_not_computed_more_often_than_the_interval(make_world: Any) -> None:
    world = make_world(consumer_assignment_interval_ms=1000)
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    assert world.consumer("m2", 0, topics=["t"]).member_epoch == 2
    world.clock.advance(999)
    assert world.consumer("m2", 2, owned={}).member_epoch == 2
    world.clock.advance(1)
    assert world.consumer("m2", 2, owned={}).member_epoch == 3


def test_a_static_member_keeps_its_partitions(world: Any, persisted_state: Any) -> None:
    world.topic("t")
    assert world.consumer("a1", 0, topics=["t"], instance_id="i").member_epoch == 2
    assert world.consumer("a2", 0, topics=["t"], instance_id="i") == UnreleasedInstanceId.code
    assert world.consumer("a2", 2, instance_id="i") == FencedInstanceId.code
    assert world.consumer("a2", 2, instance_id="j") == UnknownMemberId.code
    away = world.consumer("a1", -2, instance_id="i")
    assert (away.member_epoch, away.heartbeat_interval_ms) == (-2, 0)
    back = world.consumer("a2", 0, topics=["t"], instance_id="i")
    assert (back.member_epoch, world.assignment(back)) == (2, {"t": [0, 1, 2]})
    assert world.consumer("a1", -1, instance_id="i") == FencedInstanceId.code
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    assert world.consumer("a2", -1, instance_id="i").member_epoch == -1
    assert world.group("n").state_name == "Empty"


def test_a_static_member_that_stays_away_is_removed(world: Any) -> None:
    world.topic("t")
    world.consumer("a1", 0, topics=["t"], instance_id="i")
    world.consumer("a1", -2, instance_id="i")
    world.clock.advance(45_001)
    assert world.group("n").is_empty


def test_a_silent_member_is_removed_after_its_session(world: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    world.clock.advance(44_000)
    world.consumer("m1", 2)
    world.clock.advance(44_000)
    assert "m1" in world.group("n").members
    world.clock.advance(1_001)
    assert world.group("n").is_empty
    assert world.group("n").epoch == 3


def test_the_groups_own_session_timeout_has_priority(world: Any) -> None:
    world.topic("t")
    world.image.group_configs["n", "consumer.session.timeout.ms"] = 50_000
    world.image.group_configs["n", "consumer.heartbeat.interval.ms"] = 7000
    assert world.consumer("m1", 0, topics=["t"]).heartbeat_interval_ms == 7000
    world.clock.advance(49_000)
    assert not world.group("n").is_empty
    world.clock.advance(1_001)
    assert world.group("n").is_empty


def test_a_member_that_does_not_revoke_in_time_is_removed(world: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"], rebalance_timeout_ms=20_000)
    world.consumer("m2", 0, topics=["t"])
    world.consumer("m1", 2)
    world.clock.advance(10_000)
    world.consumer("m1", 2)
    world.consumer("m2", 3)
    world.clock.advance(10_001)
    assert set(world.group("n").members) == {"m2"}
    answer = world.consumer("m2", 3, owned={"t": []})
    assert world.assignment(answer) == {"t": [0, 1, 2]}


def test_new_partitions_reach_the_group(world: Any) -> None:
    world.topic("t", 1)
    world.consumer("m1", 0, topics=["t"])
    world.grow("t", 3)
    answer = world.consumer("m1", 2, owned={"t": [0]})
    assert (answer.member_epoch, world.assignment(answer)) == (3, {"t": [0, 1, 2]})


def test_created_and_deleted_topics_reach_the_group(world: Any) -> None:
    answer = world.consumer("m1", 0, topics=["t"])
    assert (answer.member_epoch, world.assignment(answer)) == (2, {})
    world.topic("t", 2)
    answer = world.consumer("m1", 2)
    assert (answer.member_epoch, world.assignment(answer)) == (3, {"t": [0, 1]})
    world.delete_topic("t")
    answer = world.consumer("m1", 3, owned={})
    assert (answer.member_epoch, world.assignment(answer)) == (4, {})


def test_regular_expressions_are_resolved_off_the_request(world: Any, persisted_state: Any) -> None:
    world.topic("foo", 2)
    world.topic("bar", 2)
    answer = world.consumer("m1", 0, regex="fo.*")
    assert world.assignment(answer) == {}
    world.clock.advance(1)
    answer = world.consumer("m1", answer.member_epoch)
    assert world.assignment(answer) == {"foo": [0, 1]}
    world.topic("food", 1)
    answer = world.consumer("m1", answer.member_epoch)
    assert world.assignment(answer) is None  # not earlier than 10 s after the last refresh
    world.clock.advance(10_001)
    world.consumer("m1", answer.member_epoch)
    world.clock.advance(1)
    answer = world.consumer("m1", answer.member_epoch)
    assert world.assignment(answer) == {"foo": [0, 1], "food": [0]}
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    world.consumer("m1", -1)
    assert world.group("n").regexes == {}


def test_regular_expressions_match_what_the_member_may_see(world: Any) -> None:
    for name in ("foo", "food", "fool"):
        world.topic(name, 1)
    world.consumer("m1", 0, regex="fo.*", may_see=lambda topic: topic != "food")
    world.clock.advance(1)
    answer = world.consumer("m1", 1, may_see=lambda topic: topic == "food")
    assert world.assignment(answer) == {"foo": [0], "fool": [0]}
    # The next refresh uses the rights of the member that triggers it.
    world.topic("foot", 1)
    world.clock.advance(10_001)
    world.consumer("m1", answer.member_epoch, may_see=lambda topic: topic != "foo")
    world.clock.advance(1)
    answer = world.consumer("m1", answer.member_epoch)
    assert world.assignment(answer) == {"fool": [0]}  # "foo" has to be revoked first
    assert world.group("n").regexes["fo.*"].topics == {"fool", "food", "foot"}


def test_a_full_group_refuses_new_members(make_world: Any) -> None:
    world = make_world(consumer_max_size=1)
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    assert world.consumer("m2", 0, topics=["t"]) == GroupMaxSizeReached.code
    assert isinstance(world.consumer("m1", 0, topics=["t"]), ConsumerGroupHeartbeatResponse)


def test_a_restart_restores_the_whole_group(world: Any, persisted_state: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    world.consumer("m2", 0, topics=["t"])
    world.consumer("m1", 2)
    before = persisted_state(world.shard)
    world.restart()
    assert persisted_state(world.shard) == before
    assert world.consumer("m1", 2, owned={"t": [0, 1]}).member_epoch == 3
    world.clock.advance(45_001)
    assert world.group("n").is_empty


@pytest.mark.parametrize(
    ("epoch", "partition", "code"),
    [
        (4, 0, 0),
        (3, 2, 0),
        (3, 0, StaleMemberEpoch.code),
        (1, 2, StaleMemberEpoch.code),
        (99, 2, StaleMemberEpoch.code),
        (3, 99, UnknownTopicOrPartition.code),
    ],
)
def test_an_older_epoch_may_commit_for_partitions_held_since_then(
    world: Any, epoch: int, partition: int, code: int
) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    world.consumer("m2", 0, topics=["t"])
    world.consumer("m1", 2)
    world.consumer("m1", 2, owned={"t": [0, 1]})
    world.consumer("m2", 3, owned={})
    world.consumer("m1", -1)
    world.consumer("m2", 3, owned={"t": [2]})
    assert world.commit({("t", partition): 1}, group_id="n", member_id="m2", epoch=epoch) == {("t", partition): code}


def test_commits_to_a_live_group_need_a_known_member(world: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    assert world.commit({("t", 0): 1}, group_id="n") == {("t", 0): 25}
    assert world.commit({("t", 0): 1}, group_id="n", member_id="mX", epoch=2) == {("t", 0): 25}
    assert world.commit({("t", 0): 1}, group_id="n", member_id="m1", epoch=2, version=8) == {("t", 0): 35}
    assert world.commit({("t", 0): 1}, group_id="n", member_id="m1", epoch=2, version=10) == {("t", 0): 0}


def test_describe(world: Any) -> None:
    world.topic("t")
    world.consumer("m1", 0, topics=["t"])
    unnamed, found, absent = requests.describe_consumer_groups(world.coordinator, ["n", "nope", ""])
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    (member,) = found.members
    assert (member.member_id, member.client_host, member.member_type) == ("m1", "/127.0.0.1", 1)
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1, 2])]
    assert (absent.error_code, absent.error_message) == (GroupIdNotFound.code, "Group nope not found.")
    assert (unnamed.error_code, unnamed.error_message) == (InvalidGroupId.code, None)
