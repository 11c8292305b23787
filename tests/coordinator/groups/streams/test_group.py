"""Streams groups over a log in memory: time-outs, delays, and what a new coordinator finds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups import description as describe
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.streams.description import describe as describe_streams
from ottla.coordinator.groups.streams.group import MemberState, StreamsGroup
from ottla.coordinator.runtime.interfaces import Client
from ottla.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    UnknownMemberId,
    UnknownServerError,
)
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat

WorldMaker = Callable[..., Any]
PROMPT = {"streams_initial_rebalance_delay_ms": 0, "streams_assignment_interval_ms": 0}


def shape(*sources: str, changelogs: tuple[str, ...] = (), epoch: int = 0) -> Any:
    one = Beat.Subtopology(
        subtopology_id="0",
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[
            Beat.TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[]) for name in changelogs
        ],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return Beat.Topology(epoch=epoch, subtopologies=[one])


def tasks(found: Any) -> set[int] | None:
    return None if found is None else {index for each in found for index in each.partitions}


class Member:
    """A member of group "s", as a client would be."""

    def __init__(self, world: Any, name: str, topology: Any = None, process: str | None = None) -> None:
        self.world = world
        self.name = name
        self.topology = topology or shape("t")
        self.process = process or f"process of {name}"
        self.epoch = 0
        self.active: set[int] = set()
        self.standby: set[int] = set()

    def send(self, **fields: Any) -> Any:
        basics: dict[str, Any] = {"group_id": "s", "member_id": self.name, "member_epoch": self.epoch}
        if fields.get("member_epoch", self.epoch) == 0:
            basics |= {"rebalance_timeout_ms": 30_000, "topology": self.topology, "process_id": self.process}
            basics |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        request = Beat(**{**basics, "endpoint_information_epoch": 0, **fields})
        shard = self.world.shard
        return shard.run(shard.streams.heartbeat(request, Client("c", "/127.0.0.1", 0)))

    def beat(self, **fields: Any) -> Any:
        answer = self.send(**fields)
        response = answer.response
        self.epoch = response.member_epoch
        if response.active_tasks is not None:
            self.active, self.standby = tasks(response.active_tasks) or set(), tasks(response.standby_tasks) or set()
        return response

    def own(self) -> Any:
        def ids(indexes: set[int]) -> list[Any]:
            return [Beat.TaskIds(subtopology_id="0", partitions=sorted(indexes))] if indexes else []

        return self.beat(active_tasks=ids(self.active), standby_tasks=ids(self.standby), warmup_tasks=[])


def statuses(response: Any) -> list[int]:
    return [each.status_code for each in response.status]


@pytest.fixture
def world(make_world: WorldMaker) -> Any:
    world = make_world(**PROMPT)
    world.topic("t", 4)
    return world


def state(world: Any) -> str:
    return str(world.group("s").state_name)


# -- time


def test_a_silent_member_is_removed(world: Any) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.beat(), second.beat(), first.own(), first.own(), second.own()
    assert (len(first.active), len(second.active)) == (2, 2)
    world.clock.advance(30_000)
    first.own()
    world.clock.advance(20_000)
    assert set(world.group("s").members) == {"a"}
    first.own()
    assert first.active == {0, 1, 2, 3}
    with pytest.raises(UnknownMemberId):
        second.own()


def test_a_member_that_does_not_release_tasks_in_time_is_removed(world: Any) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.beat(), second.beat()
    first.beat()  # has to release tasks, and never reports that it did
    assert world.group("s").members["a"].state is MemberState.UNREVOKED_TASKS
    for _ in range(3):
        world.clock.advance(10_000)
        if "a" in world.group("s").members:
            first.beat()
        second.own()
    world.clock.advance(100)
    assert set(world.group("s").members) == {"b"}
    second.own()
    assert second.active == {0, 1, 2, 3}


def test_releasing_tasks_cancels_the_rebalance_timeout(world: Any) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.beat(), second.beat(), first.beat(), first.own()
    for _ in range(10):
        world.clock.advance(10_000)
        first.own(), second.own()
    assert state(world) == "Stable"


def test_the_first_assignment_is_made_after_the_delay(make_world: WorldMaker) -> None:
    world = make_world(streams_initial_rebalance_delay_ms=3000, streams_assignment_interval_ms=0)
    world.topic("t", 4)
    first, second = Member(world, "a"), Member(world, "b")
    assert statuses(first.beat()) == [5]
    world.clock.advance(1000)
    assert statuses(second.beat()) == [5]
    assert (first.active, second.active, first.epoch, state(world)) == (set(), set(), 1, "Assigning")
    world.clock.advance(2000)
    group = world.group("s")
    assert group.target_epoch == group.epoch
    assert statuses(first.own()) == []
    second.own()
    assert (len(first.active), len(second.active)) == (2, 2)


def test_a_group_that_is_empty_after_the_delay_waits_again(make_world: WorldMaker) -> None:
    world = make_world(streams_initial_rebalance_delay_ms=3000)
    world.topic("t", 4)
    member = Member(world, "a")
    member.beat(), member.beat(member_epoch=-1)
    world.clock.advance(3000)
    assert world.group("s").target_epoch == 1
    member.epoch = 0
    assert statuses(member.beat()) == [5]  # the delay starts again, for new members


def test_assignments_wait_for_the_assignment_interval(make_world: WorldMaker) -> None:
    world = make_world(streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=1000)
    world.topic("t", 4)
    first, second = Member(world, "a"), Member(world, "b")
    first.beat()
    assert first.active == {0, 1, 2, 3}
    assert statuses(second.beat()) == [5]
    world.clock.advance(1000)
    assert statuses(second.own()) == []
    first.own(), first.own(), second.own()
    assert (len(first.active), len(second.active)) == (2, 2)


def test_a_groups_own_configs_have_priority(world: Any) -> None:
    world.image.group_configs["s", "streams.session.timeout.ms"] = 60_000
    world.image.group_configs["s", "streams.heartbeat.interval.ms"] = 7000
    member = Member(world, "a")
    assert member.beat().heartbeat_interval_ms == 7000
    world.clock.advance(59_000)
    assert not world.group("s").is_empty
    world.clock.advance(2000)
    assert world.group("s").is_empty


# -- limits and failures


def test_a_full_group(make_world: WorldMaker) -> None:
    world = make_world(**PROMPT, streams_max_size=1)
    world.topic("t", 4)
    first = Member(world, "a")
    first.beat()
    with pytest.raises(GroupMaxSizeReached) as caught:
        Member(world, "b").send()
    assert caught.value.message == "The streams group has reached its maximum capacity of 1 members."
    with pytest.raises(GroupMaxSizeReached):
        first.send(member_epoch=0)  # Kafka does not check which member it is
    first.own()


def test_a_failed_write_changes_nothing(world: Any) -> None:
    member = Member(world, "a")
    world.writer.fail_with = CoordinatorNotAvailable()
    with pytest.raises(CoordinatorNotAvailable):
        member.send()
    assert "s" not in world.shard.groups
    world.writer.fail_with = None
    member.beat()
    world.grow("t", 6)
    world.writer.fail_with = CoordinatorNotAvailable()
    with pytest.raises(CoordinatorNotAvailable):
        member.own()
    world.writer.fail_with = None
    member.own()
    assert member.active == {0, 1, 2, 3, 4, 5}


def test_members_with_an_unknown_state_rejoin(world: Any) -> None:
    member = Member(world, "a")
    member.beat()
    group = world.group("s")
    group.put_member(replace(group.members["a"], state=MemberState.UNKNOWN))
    with pytest.raises(KafkaError, match="unknown state"):
        member.own()
    answer = member.send(active_tasks=[], standby_tasks=[], warmup_tasks=[]).response
    assert answer.member_epoch == group.target_epoch
    assert state(world) == "Stable"


@pytest.mark.parametrize("epoch", [-1, 5])
def test_a_topology_with_a_negative_epoch_or_duplicate_names_is_refused(world: Any, epoch: int) -> None:
    broken = shape("t", epoch=epoch)
    if epoch > 0:
        broken.subtopologies *= 2
    with pytest.raises(UnknownServerError):
        Member(world, "a", broken).send()


# -- internal topics


def test_each_missing_internal_topic_is_reported_once(world: Any) -> None:
    member = Member(world, "a", shape("t", changelogs=("s-one", "s-two")))
    answer = member.send()
    assert set(answer.missing) == {"s-one", "s-two"}
    assert {topic.partitions for topic in answer.missing.values()} == {4}
    assert (statuses(answer.response), state(world)) == ([3], "NotReady")
    world.topic("s-one", 4)
    member.epoch = answer.response.member_epoch
    again = member.send()
    assert set(again.missing) == {"s-two"}
    world.topic("s-two", 4)
    member.own()
    assert (member.active, state(world)) == ({0, 1, 2, 3}, "Stable")


def test_a_process_holds_one_copy_of_a_task(world: Any) -> None:
    world.image.group_configs["s", "streams.num.standby.replicas"] = 1
    topology = shape("t", changelogs=("s-store",))
    world.topic("s-store", 4)
    first, second = Member(world, "a", topology, "p"), Member(world, "b", topology, "q")
    first.beat(), second.beat()
    for _ in range(4):
        first.own(), second.own()
    assert first.active == second.standby
    assert second.active == first.standby
    second.beat(member_epoch=-1)
    first.own()  # its standby tasks have to be revoked before it gets them as active ones
    assert first.standby == set()
    for _ in range(2):
        first.own()
    assert first.active == {0, 1, 2, 3}


# -- the log


def seen(world: Any, shard: Any) -> tuple[Any, ...]:
    group = shard.groups["s"]
    return (
        group.epoch,
        group.target_epoch,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.last_configs,
        group.members,
        group.target,
        group.active_owner,
        group.standby_owners,
        group.topology.stored,
        group.state_name,
    )


def test_a_new_coordinator_restores_the_whole_group(world: Any) -> None:
    world.image.group_configs["s", "streams.num.standby.replicas"] = 1
    topology = shape("t", changelogs=("s-store",))
    world.topic("s-store", 4)
    first, second, third = (Member(world, name, topology) for name in "abc")
    first.beat(client_tags=[Beat.KeyValue(key="k", value="v")], user_endpoint=Beat.Endpoint(host="h", port=65535))
    steps = [second.beat, first.own, third.beat, first.own, second.own, first.own, third.own, second.own]
    for step in steps:
        step()
        assert seen(world, world.fresh()) == seen(world, world.shard)
    world.restart()
    described = {member.member_id: member for member in describe_streams(world.shard, "s").members}
    assert described["a"].user_endpoint.port == 65535
    for _ in range(5):
        first.own(), second.own(), third.own()
    assert state(world) == "Stable"
    assert sorted(first.active | second.active | third.active) == [0, 1, 2, 3]


def test_a_new_coordinator_restarts_the_sessions(world: Any) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.beat(), second.beat(), first.beat()
    world.clock.advance(20_000)
    world.restart()
    assert world.group("s").members["a"].state is MemberState.UNREVOKED_TASKS
    world.clock.advance(29_000)
    assert set(world.group("s").members) == {"a", "b"}
    world.clock.advance(2000)  # the first member should have released it by now
    assert set(world.group("s").members) == {"b"}
    world.clock.advance(20_000)
    assert world.group("s").is_empty


def test_a_deleted_group_leaves_nothing(world: Any) -> None:
    member = Member(world, "a")
    member.beat()
    assert world.commit({("t", 0): 7}, group_id="s", member_id="a", epoch=member.epoch) == {("t", 0): 0}
    member.beat(member_epoch=-1)
    world.shard.run(describe.delete_group(world.shard, "s"))
    assert world.shard.groups == {}
    assert world.fresh().groups == {}
    with pytest.raises(GroupIdNotFound):
        describe_streams(world.shard, "s")


def test_an_empty_group_lives_as_long_as_its_offsets(world: Any) -> None:
    day_ms = 24 * 3600 * 1000
    world.image.group_configs["s", "streams.session.timeout.ms"] = 30 * day_ms
    member = Member(world, "a")
    member.beat()
    world.commit({("t", 0): 7}, group_id="s", member_id="a", epoch=member.epoch)
    world.clock.advance(8 * day_ms)
    world.shard.expire()
    assert world.offset("t", 0, group_id="s").committed_offset == 7  # in use: no matter how old
    member.beat(member_epoch=-1)
    world.shard.expire()
    assert "s" not in world.shard.groups  # its commit is older than a week
    assert world.fresh().groups == {}


def test_an_empty_group_without_offsets_is_removed(world: Any) -> None:
    member = Member(world, "a")
    member.beat(), member.beat(member_epoch=-1)
    assert state(world) == "Empty"
    world.shard.expire()
    assert "s" not in world.shard.groups
    assert world.fresh().groups == {}


def test_reads_wait_for_the_followers(world: Any) -> None:
    first = Member(world, "a")
    first.beat()
    world.writer.hold = True
    second = Member(world, "b")
    pending = second.send()
    assert isinstance(pending, Reply)
    assert not pending.done
    assert [each.member_id for each in describe_streams(world.shard, "s").members] == ["a"]
    world.writer.release()
    assert pending.value.response.member_epoch == 3
    assert sorted(each.member_id for each in describe_streams(world.shard, "s").members) == ["a", "b"]


def test_offsets_turn_an_empty_streams_group_into_a_classic_one(world: Any) -> None:
    member = Member(world, "a")
    member.beat()
    world.commit({("t", 0): 7}, group_id="s", member_id="a", epoch=member.epoch)
    member.beat(member_epoch=-1)
    asked = world.join("s")
    joined = world.join("s", asked.member_id)
    assert isinstance(joined, Reply) or joined.error_code == 0
    assert world.group("s").type_name == "classic"
    assert world.offset("t", 0, group_id="s").committed_offset == 7
    assert world.fresh().groups["s"].type_name == "classic"


def test_streams_groups_are_listed(world: Any) -> None:
    Member(world, "a", shape("nowhere")).beat()
    (listed,) = requests.list_groups(world.coordinator, ["not_ready"], ["STREAMS"]).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("s", "streams", "NotReady")
    assert requests.list_groups(world.coordinator, ["NotReady"]).groups == []


def test_changed_topics_update_the_groups_that_read_them(world: Any) -> None:
    member = Member(world, "a")
    member.beat(), member.own()
    group = world.group("s")
    assert isinstance(group, StreamsGroup)
    assert not group.needs_refresh
    world.topic("unrelated", 1)
    assert not group.needs_refresh
    world.grow("t", 5)
    assert group.needs_refresh
    member.own()
    assert member.active == {0, 1, 2, 3, 4}
