"""Every (state, input) pair of the classic group: the answer, and the state after it."""

from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups.classic.group import TRANSITIONS, ClassicGroup, State
from ottla.errors import (
    NONE,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)

STATES = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]

WAITS = "waits"

# input -> (answer, state after) for each of STATES. The group has members a (leader) and b, except Empty.
TABLE: dict[str, list[tuple[Any, str]]] = {
    "join unknown": [
        (MemberIdRequired.code, "Empty"),
        (MemberIdRequired.code, "PreparingRebalance"),
        (MemberIdRequired.code, "CompletingRebalance"),
        (MemberIdRequired.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join unknown v3": [
        (NONE, "CompletingRebalance"),
        (WAITS, "PreparingRebalance"),
        (WAITS, "PreparingRebalance"),
        (WAITS, "PreparingRebalance"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join foreign id": [
        (UnknownMemberId.code, "Empty"),
        (UnknownMemberId.code, "PreparingRebalance"),
        (UnknownMemberId.code, "CompletingRebalance"),
        (UnknownMemberId.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join leader": [
        (UnknownMemberId.code, "Empty"),
        (WAITS, "PreparingRebalance"),
        (NONE, "CompletingRebalance"),
        (WAITS, "PreparingRebalance"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join follower": [
        (UnknownMemberId.code, "Empty"),
        (NONE, "CompletingRebalance"),
        (NONE, "CompletingRebalance"),
        (NONE, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join follower changed": [
        (UnknownMemberId.code, "Empty"),
        (NONE, "CompletingRebalance"),
        (WAITS, "PreparingRebalance"),
        (WAITS, "PreparingRebalance"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "join other type": [
        (MemberIdRequired.code, "Empty"),
        (InconsistentGroupProtocol.code, "PreparingRebalance"),
        (InconsistentGroupProtocol.code, "CompletingRebalance"),
        (InconsistentGroupProtocol.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "sync leader": [
        (UnknownMemberId.code, "Empty"),
        (RebalanceInProgress.code, "PreparingRebalance"),
        (NONE, "Stable"),
        (NONE, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "sync follower": [
        (UnknownMemberId.code, "Empty"),
        (RebalanceInProgress.code, "PreparingRebalance"),
        (WAITS, "CompletingRebalance"),
        (NONE, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "sync old generation": [
        (UnknownMemberId.code, "Empty"),
        (IllegalGeneration.code, "PreparingRebalance"),
        (IllegalGeneration.code, "CompletingRebalance"),
        (IllegalGeneration.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "sync foreign id": [
        (UnknownMemberId.code, "Empty"),
        (UnknownMemberId.code, "PreparingRebalance"),
        (UnknownMemberId.code, "CompletingRebalance"),
        (UnknownMemberId.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "sync other protocol": [
        (UnknownMemberId.code, "Empty"),
        (InconsistentGroupProtocol.code, "PreparingRebalance"),
        (InconsistentGroupProtocol.code, "CompletingRebalance"),
        (InconsistentGroupProtocol.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "heartbeat": [
        (UnknownMemberId.code, "Empty"),
        (RebalanceInProgress.code, "PreparingRebalance"),
        (NONE, "CompletingRebalance"),
        (NONE, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "heartbeat old generation": [
        (UnknownMemberId.code, "Empty"),
        (IllegalGeneration.code, "PreparingRebalance"),
        (IllegalGeneration.code, "CompletingRebalance"),
        (IllegalGeneration.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "heartbeat foreign id": [
        (UnknownMemberId.code, "Empty"),
        (UnknownMemberId.code, "PreparingRebalance"),
        (UnknownMemberId.code, "CompletingRebalance"),
        (UnknownMemberId.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    # In PreparingRebalance a has joined again and b has not.
    "leave follower": [
        (UnknownMemberId.code, "Empty"),
        (NONE, "CompletingRebalance"),
        (NONE, "PreparingRebalance"),
        (NONE, "PreparingRebalance"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "leave foreign id": [
        (UnknownMemberId.code, "Empty"),
        (UnknownMemberId.code, "PreparingRebalance"),
        (UnknownMemberId.code, "CompletingRebalance"),
        (UnknownMemberId.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "leave everybody": [
        (UnknownMemberId.code, "Empty"),
        (NONE, "Empty"),
        (NONE, "Empty"),
        (NONE, "Empty"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "commit as member": [
        (UnknownMemberId.code, "Empty"),
        (NONE, "PreparingRebalance"),
        (RebalanceInProgress.code, "CompletingRebalance"),
        (NONE, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "commit old generation": [
        (UnknownMemberId.code, "Empty"),
        (IllegalGeneration.code, "PreparingRebalance"),
        (IllegalGeneration.code, "CompletingRebalance"),
        (IllegalGeneration.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "commit without membership": [
        (NONE, "Empty"),
        (UnknownMemberId.code, "PreparingRebalance"),
        (UnknownMemberId.code, "CompletingRebalance"),
        (UnknownMemberId.code, "Stable"),
        (CoordinatorNotAvailable.code, "Dead"),
    ],
    "delete": [
        (NONE, "gone"),
        (NonEmptyGroup.code, "PreparingRebalance"),
        (NonEmptyGroup.code, "CompletingRebalance"),
        (NonEmptyGroup.code, "Stable"),
        (GroupIdNotFound.code, "Dead"),
    ],
    # All members are silent for longer than a session. In PreparingRebalance, a waits for the join, so only b is
    # removed.
    "silence": [
        (None, "Empty"),
        (None, "CompletingRebalance"),
        (None, "Empty"),
        (None, "Empty"),
        (None, "Dead"),
    ],
}


def bring_to(world: Any, state: str) -> tuple[str, str, int]:
    """Brings a group to this state. Returns its members and generation."""
    a, b = world.stable(2)
    group = world.group()
    if state == "Empty":
        world.leave(a, b)
    elif state == "PreparingRebalance":
        world.join(member_id=a)
    elif state == "CompletingRebalance":
        world.join(member_id=a)
        world.join(member_id=b)
    elif state == "Dead":
        group.cancel_timers()
        group.move_to(State.DEAD, world.clock.now_ms())
    assert group.state_name == state
    return a, b, group.generation


def send(world: Any, name: str, a: str, b: str, generation: int) -> Any:
    from ottla.coordinator.groups import requests

    world.topic("t")
    act: dict[str, Any] = {
        "join unknown": lambda: world.join(),
        "join unknown v3": lambda: world.join(version=3),
        "join foreign id": lambda: world.join(member_id="stranger"),
        "join leader": lambda: world.join(member_id=a),
        "join follower": lambda: world.join(member_id=b),
        "join follower changed": lambda: world.join(member_id=b, protocols=(("range", b"other"),)),
        "join other type": lambda: world.join(protocol_type="connect"),
        "sync leader": lambda: world.sync(a, generation, {a: b"A", b: b"B"}),
        "sync follower": lambda: world.sync(b, generation),
        "sync old generation": lambda: world.sync(a, generation - 1),
        "sync foreign id": lambda: world.sync("stranger", generation),
        "sync other protocol": lambda: world.sync(a, generation, protocol_name="sticky"),
        "heartbeat": lambda: world.heartbeat(b, generation),
        "heartbeat old generation": lambda: world.heartbeat(b, generation - 1),
        "heartbeat foreign id": lambda: world.heartbeat("stranger", generation),
        "leave follower": lambda: world.leave(b),
        "leave foreign id": lambda: world.leave("stranger"),
        "leave everybody": lambda: world.leave(a, b),
        "commit as member": lambda: world.commit({("t", 0): 1}, member_id=b, epoch=generation)["t", 0],
        "commit old generation": lambda: world.commit({("t", 0): 1}, member_id=b, epoch=generation - 1)["t", 0],
        "commit without membership": lambda: world.commit({("t", 0): 1})["t", 0],
        "delete": lambda: requests.delete_groups(world.coordinator, ["g"])[0].error_code,
        "silence": lambda: world.clock.advance(11_000),
    }
    answer = act[name]()
    if answer is None or isinstance(answer, int):
        return answer
    if isinstance(answer, Reply):
        return answer.value.error_code if answer.done else WAITS
    return answer.members[0].error_code if name.startswith("leave") else answer.error_code


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", TABLE)
def test_every_state_answers_every_request(world: Any, persisted_state: Any, name: str, state: str) -> None:
    answer, after = TABLE[name][STATES.index(state)]
    members = bring_to(world, state)
    assert send(world, name, *members) == answer
    group = world.shard.groups.get("g")
    assert ("gone" if group is None else group.state_name) == after
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


@pytest.mark.parametrize("target", list(State))
@pytest.mark.parametrize("source", list(State))
def test_only_transitions_of_the_table_are_possible(source: State, target: State) -> None:
    group = ClassicGroup("g", 0, source)
    if target in TRANSITIONS[source]:
        group.move_to(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(AssertionError):
            group.move_to(target, 5)
