"""Online upgrade and downgrade between the protocols, as in Apache Kafka 4.3.1."""

from typing import Any

import pytest

from ottla.coordinator.groups import requests
from ottla.errors import (
    GroupIdNotFound,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)


def classic_consumer(world: Any, **options: Any) -> str:
    """A stable classic group `g` of one consumer that owns all of `t`."""
    protocols = (("range", world.subscription("t")),)
    member_id, joined = world.new_member(protocols=protocols, **options)
    assignment = world.consumer_assignment(t=[0, 1, 2])
    assert world.sync(member_id, joined.generation_id, {member_id: assignment}).assignment == assignment
    return str(member_id)


def rejoin(world: Any, member_id: str, owned: list[int]) -> Any:
    return world.join(member_id=member_id, protocols=(("range", world.subscription("t", owned={"t": owned})),))


def test_a_group_is_upgraded_and_downgraded(world: Any, persisted_state: Any) -> None:
    world.topic("t")
    old = classic_consumer(world)
    joined = world.consumer("new", 0, topics=["t"], group_id="g")
    assert (joined.member_epoch, world.assignment(joined)) == (2, {})
    assert world.group().type_name == "consumer"
    assert world.heartbeat(old, 1) == RebalanceInProgress.code
    assert world.sync(old, 1) == RebalanceInProgress.code
    assert rejoin(world, old, [0, 1, 2]).generation_id == 1
    assert world.sync(old, 1).assignment == world.consumer_assignment(t=[0, 1])
    assert world.heartbeat(old, 1) == RebalanceInProgress.code
    assert rejoin(world, old, [0, 1]).generation_id == 2
    assert world.sync(old, 2).assignment == world.consumer_assignment(t=[0, 1])
    assert world.heartbeat(old, 2) == 0
    assert world.assignment(world.consumer("new", 2, owned={}, group_id="g")) == {"t": [2]}
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    assert world.consumer("new", -1, group_id="g").member_epoch == -1
    group = world.group()
    assert (group.type_name, group.state_name) == ("classic", "PreparingRebalance")
    assert world.heartbeat(old, 2) == RebalanceInProgress.code
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    assert rejoin(world, old, [0, 1]).generation_id == 3


def test_offsets_survive_both_ways(world: Any) -> None:
    world.topic("t")
    old = classic_consumer(world)
    world.commit({("t", 0): 5}, member_id=old, epoch=1)
    world.consumer("new", 0, topics=["t"], group_id="g")
    assert world.offset("t", 0).committed_offset == 5
    world.consumer("new", -1, group_id="g")
    assert world.offset("t", 0).committed_offset == 5


def test_an_empty_group_just_changes_its_type(world: Any, persisted_state: Any) -> None:
    world.topic("t")
    old = classic_consumer(world)
    world.leave(old)
    assert world.consumer("new", 0, topics=["t"], group_id="g").member_epoch == 2
    world.consumer("new", -1, group_id="g")
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    assert world.join().error_code == MemberIdRequired.code
    assert world.group().type_name == "classic"
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_migration_policy_decides(make_world: Any, policy: str, up: bool, down: bool) -> None:
    world = make_world()
    world.topic("t")
    classic_consumer(world)
    world.settings.consumer_migration_policy = policy
    answer = world.consumer("new", 0, topics=["t"], group_id="g")
    assert (answer == GroupIdNotFound.code) is not up
    world.settings.consumer_migration_policy = "bidirectional"
    world.consumer("new", 0, topics=["t"], group_id="g")
    world.settings.consumer_migration_policy = policy
    world.consumer("new", -1, group_id="g")
    assert world.group().type_name == ("classic" if down else "consumer")


def test_groups_of_other_kinds_are_not_upgraded(world: Any) -> None:
    world.topic("t")
    answer = world.join("connect", protocol_type="connect", version=3)
    assert answer.error_code == 0
    assert world.consumer("new", 0, topics=["t"], group_id="connect") == GroupIdNotFound.code
    world.stable(1, "odd")  # its metadata is not in the format of consumers
    assert world.consumer("new", 0, topics=["t"], group_id="odd") == GroupIdNotFound.code
    assert world.group("odd").state_name == "Stable"


def test_members_that_wait_in_the_classic_group_must_rejoin(world: Any) -> None:
    world.topic("t")
    old = classic_consumer(world)
    other_id, waiting = world.new_member(protocols=(("range", world.subscription("t")),))
    assert not waiting.done
    world.consumer("new", 0, topics=["t"], group_id="g")
    assert (waiting.value.error_code, waiting.value.member_id) == (RebalanceInProgress.code, other_id)
    assert {old, other_id, "new"} == set(world.group().members)


def test_classic_requests_to_a_consumer_group_are_answered(world: Any) -> None:
    world.topic("t")
    world.consumer("new", 0, topics=["t"], group_id="g")
    protocols = (("range", world.subscription("t")),)
    assert world.join(protocols=protocols).error_code == MemberIdRequired.code
    assert world.join(protocol_type="connect").error_code == InconsistentGroupProtocol.code
    assert world.join(protocols=()).error_code == InconsistentGroupProtocol.code
    assert world.join(protocols=(("range", b"?"),), version=3).error_code == UnknownServerError.code
    assert world.heartbeat("new", 2) == UnknownMemberId.code
    assert world.sync("new", 2) == UnknownMemberId.code
    assert world.leave("stranger").members[0].error_code == UnknownMemberId.code
    joined = world.join(protocols=protocols, version=3)
    assert (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader) == (0, 3, "range", "")
    assert world.leave(joined.member_id).members[0].error_code == 0
    assert set(world.group().members) == {"new"}
    assert requests.describe_groups(world.coordinator, ["g"], 6)[0].error_code == GroupIdNotFound.code
    # Tools remove members of either protocol this way.
    assert world.leave("new", "stranger").members[0].error_code == 0
    assert not world.group().members


def test_a_classic_member_must_rejoin_and_sync_in_time(world: Any) -> None:
    world.topic("t")
    old = classic_consumer(world, session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    world.consumer("new", 0, topics=["t"], group_id="g", rebalance_timeout_ms=200_000)
    assert world.heartbeat(old, 1) == RebalanceInProgress.code
    world.clock.advance(19_000)
    assert old in world.group().members
    world.consumer("new", 2, group_id="g")
    world.clock.advance(1_001)
    assert old not in world.group().members


def test_a_static_classic_member_replaces_the_last_new_one(world: Any, persisted_state: Any) -> None:
    """The static member returns to the old protocol, and the group follows without a rebalance."""
    world.topic("t")
    world.consumer("new", 0, topics=["t"], group_id="g", instance_id="i")
    joined = world.join(instance_id="i", protocols=(("range", world.subscription("t")),))
    assert joined.error_code == 0
    group = world.group()
    assert (group.type_name, group.state_name) == ("classic", "Stable")
    answer = world.sync(joined.member_id, joined.generation_id, instance_id="i")
    assert answer.assignment == world.consumer_assignment(t=[0, 1, 2])
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
