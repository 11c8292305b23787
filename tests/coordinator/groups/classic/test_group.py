"""Classic groups beyond the state table: barriers, timeouts, static members, protocol votes, limits, failures."""

from typing import Any
from uuid import UUID

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups import requests
from ottla.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    NotCoordinator,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
)


def value(answer: Any) -> Any:
    return answer.value if isinstance(answer, Reply) else answer


def test_members_join_sync_and_leave(world: Any, persisted_state: Any) -> None:
    """Join, sync, leave: the generations and the records, as in golden/classic-group.log."""
    member_id, joined = world.new_member()
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, member_id, "range")
    assert [member.member_id for member in joined.members] == [member_id]
    assert world.sync(member_id, 1, {member_id: b"all"}).assignment == b"all"
    assert world.leave(member_id).members[0].error_code == 0
    group = world.group()
    assert (group.state_name, group.generation, group.leader, group.protocol) == ("Empty", 2, None, None)
    assert len(world.writer.batches) == 3
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"group_id": ""}, InvalidGroupId.code),
        ({"session_timeout_ms": 9}, InvalidSessionTimeout.code),
        ({"session_timeout_ms": 1_800_001}, InvalidSessionTimeout.code),
        ({"member_id": "stranger"}, UnknownMemberId.code),
        ({"protocols": ()}, InconsistentGroupProtocol.code),
        ({"protocol_type": ""}, InconsistentGroupProtocol.code),
    ],
)
def test_invalid_joins_are_refused(world: Any, options: Any, code: int) -> None:
    answer = world.join(**options)
    assert (answer.error_code, answer.generation_id, answer.protocol_name, answer.leader) == (code, -1, None, "")
    assert world.join(**options, version=6).protocol_name == ""


def test_version_0_uses_its_session_timeout_as_rebalance_timeout(world: Any) -> None:
    answer = world.join(version=0, rebalance_timeout_ms=-1, session_timeout_ms=7000)
    assert world.group().members[answer.member_id].rebalance_timeout_ms == 7000


def test_member_ids_contain_the_client_or_the_instance(world: Any) -> None:
    del world.shard.new_member_id
    world.restart()
    world.shard.new_member_id = lambda prefix: f"{prefix}-uuid"
    assert world.join(client_id="app").member_id == "app-uuid"
    assert world.join("other", instance_id="inst").member_id == "inst-uuid"


def test_the_same_seed_gives_the_same_member_ids(make_world: Any) -> None:
    def ids() -> tuple[str, str]:
        world = make_world()
        world.topic("t")
        shard = world.coordinator.lead(0, world.writer, [])  # without the numbered ids of the tests
        return shard.new_member_id("app"), world.consumer("", 0, topics=["t"], version=0).member_id

    classic, consumer = ids()
    assert (classic, consumer) == ids()
    assert UUID(classic.removeprefix("app-")).version == 4
    assert len(consumer) == 22


def test_a_member_id_that_is_not_used_is_forgotten(world: Any) -> None:
    asked = world.join(session_timeout_ms=5000)
    world.clock.advance(5001)
    assert not world.group().pending_joins
    assert world.join(member_id=asked.member_id).error_code == UnknownMemberId.code


def test_the_first_rebalance_waits_for_more_members(make_world: Any) -> None:
    world = make_world(initial_rebalance_delay_ms=3000)
    first = world.join(version=3)
    world.clock.advance(2900)
    second = world.join(version=3)
    world.clock.advance(200)
    assert not first.done  # a new member extends the delay
    world.clock.advance(3000)
    assert (first.value.generation_id, second.value.generation_id) == (1, 1)
    assert len(first.value.members) == 2
    assert second.value.members == []


def test_the_initial_delay_ends_with_the_rebalance_timeout(make_world: Any) -> None:
    world = make_world(initial_rebalance_delay_ms=3000)
    first = world.join(version=3, rebalance_timeout_ms=7000)
    for _ in range(6):
        world.clock.advance(1000)
        assert not first.done
        world.join(version=3, rebalance_timeout_ms=7000)
    world.clock.advance(1000)
    assert len(first.value.members) == 7


def test_a_member_that_does_not_rejoin_in_time_is_removed(world: Any) -> None:
    a, b = world.stable(2, rebalance_timeout_ms=5000)
    answer = world.join(member_id=a, rebalance_timeout_ms=5000)
    assert world.heartbeat(b, 2) == RebalanceInProgress.code
    world.clock.advance(5001)
    assert answer.value.generation_id == 3
    assert set(world.group().members) == {a}


def test_a_member_that_does_not_sync_in_time_is_removed(world: Any) -> None:
    a, b = world.stable(2, rebalance_timeout_ms=5000)
    answer = world.join(member_id=a, rebalance_timeout_ms=5000)
    world.join(member_id=b, rebalance_timeout_ms=5000)
    generation = answer.value.generation_id
    world.sync(a, generation, {a: b"A"})
    world.clock.advance(5001)
    group = world.group()
    assert (set(group.members), group.state_name) == ({a}, "PreparingRebalance")
    assert world.heartbeat(a, generation) == RebalanceInProgress.code


def test_a_heartbeat_and_a_commit_keep_a_member_alive(world: Any) -> None:
    (a,) = world.stable()
    world.topic("t")
    for _ in range(3):
        world.clock.advance(9000)
        assert world.heartbeat(a, 1) == 0
        world.clock.advance(9000)
        assert world.commit({("t", 0): 1}, member_id=a, epoch=1) == {("t", 0): 0}
    world.clock.advance(10_001)
    assert world.group().is_empty


def test_a_dead_leader_is_replaced(world: Any) -> None:
    a, b = world.stable(2)
    world.clock.advance(9000)
    world.heartbeat(b, 2)
    world.clock.advance(2000)
    assert world.group().leader == b
    assert world.heartbeat(b, 2) == RebalanceInProgress.code
    answer = world.join(member_id=b)
    assert (answer.generation_id, answer.leader) == (3, b)
    assert a not in world.group().members


def test_members_vote_for_the_protocol(world: Any) -> None:
    """Only protocols that all members support are candidates; each member votes for its favourite among them."""
    options = [(("x", b""), ("a", b"1"), ("b", b"2")), (("b", b"3"), ("a", b"4")), (("b", b"5"), ("a", b"6"))]
    ids = [world.new_member(protocols=protocols)[0] for protocols in options[:1]]
    for protocols in options[1:]:
        member_id, _ = world.new_member(protocols=protocols)
        ids.append(member_id)
    for member_id, protocols in zip(ids, options, strict=True):
        answer = world.join(member_id=member_id, protocols=protocols)
    leader = value(world.join(member_id=ids[0], protocols=options[0]))
    assert answer is not None
    assert leader.protocol_name == "b"
    assert sorted(member.metadata for member in leader.members) == [b"2", b"3", b"5"]
    assert world.join(protocols=(("x", b""),)).error_code == InconsistentGroupProtocol.code


def test_a_full_group(make_world: Any) -> None:
    world = make_world(max_size=1)
    (a,) = world.stable()
    assert world.join().error_code == GroupMaxSizeReached.code
    assert not isinstance(world.join(member_id=a), Reply)


def test_a_static_member_comes_back_without_a_rebalance(world: Any, persisted_state: Any) -> None:
    first = world.join(instance_id="i")
    world.sync(first.member_id, 1, {first.member_id: b"all"}, instance_id="i")
    again = world.join(instance_id="i")
    assert again.member_id != first.member_id
    assert (again.generation_id, again.leader, again.skip_assignment) == (1, again.member_id, True)
    assert len(again.members) == 1
    assert world.heartbeat(first.member_id, 1, instance_id="i") == FencedInstanceId.code
    assert world.sync(first.member_id, 1, instance_id="i") == FencedInstanceId.code
    assert world.join(member_id=first.member_id, instance_id="i").error_code == FencedInstanceId.code
    assert world.sync(again.member_id, 1, instance_id="i").assignment == b"all"
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    old = world.join(instance_id="i", version=8)
    assert (old.leader, old.skip_assignment, old.members) == (again.member_id, False, [])


def test_a_static_member_with_another_protocol_rebalances(world: Any) -> None:
    first = world.join(instance_id="i")
    world.sync(first.member_id, 1, {first.member_id: b"all"}, instance_id="i")
    again = world.join(instance_id="i", protocols=(("sticky", b""), ("range", b"meta")))
    assert (again.generation_id, again.protocol_name) == (2, "sticky")


def test_a_waiting_request_of_a_replaced_static_member_is_fenced(world: Any) -> None:
    a, b = world.join(instance_id="a", version=9), None
    world.sync(a.member_id, 1, {a.member_id: b""}, instance_id="a")
    b = world.join(instance_id="b")
    world.join(member_id=a.member_id, instance_id="a")
    waiting = world.sync(b.value.member_id, 2, instance_id="b")
    assert not waiting.done
    world.join(instance_id="b")
    assert waiting.value.error_code == FencedInstanceId.code


def test_static_members_survive_a_missed_rebalance(world: Any) -> None:
    a = world.join(instance_id="a", session_timeout_ms=60_000, rebalance_timeout_ms=5000)
    world.sync(a.member_id, 1, {a.member_id: b""}, instance_id="a")
    b = world.join(version=3, session_timeout_ms=60_000, rebalance_timeout_ms=5000)
    world.clock.advance(5001)
    assert value(b).generation_id == 2
    assert a.member_id in world.group().members
    assert world.group().leader == value(b).member_id


def test_an_administrator_removes_a_static_member_by_its_instance(world: Any) -> None:
    first = world.join(instance_id="i")
    world.sync(first.member_id, 1, {first.member_id: b""}, instance_id="i")
    answer = world.leave(("", "i"), ("", "nobody"), ("stranger", None))
    assert [member.error_code for member in answer.members] == [0, UnknownMemberId.code, UnknownMemberId.code]
    assert world.group().is_empty


@pytest.mark.parametrize(("version", "expected"), [(2, (25, [])), (5, (0, [25]))])
def test_leaving_an_unknown_group_is_an_error(world: Any, version: int, expected: Any) -> None:
    answer = world.leave("stranger", group_id="nope", version=version)
    assert (answer.error_code, [member.error_code for member in answer.members]) == expected


def test_a_rebalance_tells_syncing_members_to_rejoin(world: Any) -> None:
    a, b = world.stable(2)
    world.join(member_id=a)
    world.join(member_id=b)
    waiting = world.sync(b, 3)
    world.join(version=3)
    assert waiting.value.error_code == RebalanceInProgress.code


def test_a_group_that_could_not_be_stored_rebalances(world: Any) -> None:
    member_id, joined = world.new_member()
    world.writer.fail_with = NotEnoughReplicas()
    answer = world.sync(member_id, joined.generation_id, {member_id: b"all"})
    assert answer.error_code == CoordinatorNotAvailable.code
    assert world.group().state_name == "PreparingRebalance"
    world.writer.fail_with = None
    assert value(world.join(member_id=member_id)).generation_id == 2


def test_a_static_member_that_could_not_be_stored_is_put_back(world: Any) -> None:
    first = world.join(instance_id="i")
    world.sync(first.member_id, 1, {first.member_id: b"all"}, instance_id="i")
    world.writer.fail_with = NotEnoughReplicas()
    assert world.join(instance_id="i").error_code == CoordinatorNotAvailable.code
    world.writer.fail_with = None
    assert world.heartbeat(first.member_id, 1, instance_id="i") == 0


def test_answers_wait_for_the_commit(world: Any) -> None:
    member_id, joined = world.new_member()
    world.writer.hold = True
    waiting = world.sync(member_id, joined.generation_id, {member_id: b"all"})
    assert not waiting.done
    world.writer.release()
    assert waiting.value.assignment == b"all"


def test_a_generation_begins_with_the_commit_of_its_assignments(world: Any) -> None:
    member_id, joined = world.new_member()
    world.writer.hold = True
    world.sync(member_id, joined.generation_id, {member_id: b"all"})
    assert world.group().state_name == "CompletingRebalance"
    world.writer.release()
    assert world.group().state_name == "Stable"


def test_a_join_before_the_assignments_are_committed_makes_syncing_members_rejoin(world: Any) -> None:
    first = world.join(instance_id="i")
    world.writer.hold = True
    syncing = world.sync(first.member_id, 1, {first.member_id: b"all"}, instance_id="i")
    joining = world.join(instance_id="j")
    world.writer.release()
    assert syncing.value.error_code == RebalanceInProgress.code
    assert world.group().state_name == "PreparingRebalance"
    again = value(world.join(member_id=first.member_id, instance_id="i"))
    assert (again.generation_id, joining.value.generation_id) == (2, 2)


def test_a_leave_before_the_assignments_are_committed_makes_syncing_members_rejoin(world: Any) -> None:
    a, b = world.stable(2)
    world.join(member_id=a)
    world.join(member_id=b)
    world.writer.hold = True
    waiting = world.sync(a, 3, {a: b"all"})
    world.leave(b)
    world.writer.release()
    assert waiting.value.error_code == RebalanceInProgress.code
    assert value(world.join(member_id=a)).generation_id == 4


def test_assignments_that_are_not_committed_in_time_rebalance(world: Any) -> None:
    member_id, joined = world.new_member()
    world.writer.hold = True
    waiting = world.sync(member_id, joined.generation_id, {member_id: b"all"})
    world.writer.release(RequestTimedOut())
    assert waiting.value.error_code == CoordinatorNotAvailable.code
    assert world.group().state_name == "PreparingRebalance"


def test_a_restart_during_a_rebalance_refuses_waiting_requests(world: Any) -> None:
    """Members of a stable group continue as if nothing had happened; waiting requests get NOT_COORDINATOR."""
    a, b = world.stable(2)
    world.restart()
    assert (world.heartbeat(a, 2), world.heartbeat(b, 2)) == (0, 0)
    waiting = world.join(member_id=a)
    world.restart()
    assert waiting.value.error_code == NotCoordinator.code
    assert world.sync(b, 2).assignment == b.encode()
    world.clock.advance(10_001)
    assert world.group().is_empty


def test_an_oversized_group_from_the_log_rebalances(make_world: Any) -> None:
    world = make_world()
    world.stable(2)
    world.settings.max_size = 1
    world.restart()
    assert world.group().state_name == "PreparingRebalance"


def test_a_stopped_coordinator_has_no_timers(world: Any) -> None:
    leader, _ = world.stable(2)
    world.join(member_id=leader)
    world.join()
    world.consumer("m", 0, topics=[], group_id="n")
    world.coordinator.stop()
    assert len(world.timer) == 0


def test_idle_groups_have_no_timers(world: Any) -> None:
    before = len(world.timer)
    for number in range(50):
        (member_id,) = world.stable(group_id=f"g{number}")
        world.leave(member_id, group_id=f"g{number}")
    assert len(world.timer) == before


def test_list_and_describe(world: Any) -> None:
    world.topic("t")
    world.stable(1, "busy")
    world.commit({("t", 0): 1}, group_id="simple")
    world.consumer("m", 0, topics=["t"], group_id="new")
    listed = requests.list_groups(world.coordinator).groups
    assert {(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in listed} == {
        ("busy", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
        ("new", "consumer", "Stable", "consumer"),
    }
    by_state = requests.list_groups(world.coordinator, states=["sTable"]).groups
    assert {group.group_id for group in by_state} == {"busy", "new"}
    by_type = requests.list_groups(world.coordinator, types=["CLASSIC"]).groups
    assert {group.group_id for group in by_type} == {"busy", "simple"}
    assert requests.list_groups(world.coordinator, types=["bogus"]).groups == []
    busy, new, absent = requests.describe_groups(world.coordinator, ["busy", "new", "nope"], 6)
    (member,) = busy.members
    assert (busy.group_state, busy.protocol_data, member.client_host) == ("Stable", "range", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", member.member_id.encode())
    assert (new.error_code, new.error_message) == (GroupIdNotFound.code, "Group new is not a classic group.")
    assert (absent.error_code, absent.group_state) == (GroupIdNotFound.code, "Dead")
    assert requests.describe_groups(world.coordinator, ["nope"], 5)[0].error_code == 0
