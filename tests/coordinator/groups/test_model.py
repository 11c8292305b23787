"""Random operations on groups: after every step a replay of the log equals the live state, and the rules hold."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ottla.answers import Reply
from ottla.coordinator.groups.classic.group import TRANSITIONS, State
from ottla.errors import MemberIdRequired, UnknownMemberId

TOPICS = {"t": 3, "u": 2}
GROUPS = ("g", "h")
SLOTS = st.integers(0, 3)


class Coordinator(RuleBasedStateMachine):
    """Clients of both protocols, offsets, transactions and time, against one shard."""

    make_world: Any
    persisted: Any

    def __init__(self) -> None:
        super().__init__()
        self.world = self.make_world()
        for name, count in TOPICS.items():
            self.world.topic(name, count)
        self.classic: dict[tuple[str, int], str] = {}
        self.replies: list[Any] = []
        self.epochs: dict[tuple[str, str], int] = {}
        self.owned: dict[tuple[str, str], dict[str, list[int]]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.states: dict[str, tuple[Any, State]] = {}

    # -- classic members

    @rule(group=st.sampled_from(GROUPS), slot=SLOTS, topic=st.sampled_from(sorted(TOPICS)), old=st.booleans())
    def join(self, group: str, slot: int, topic: str, old: bool) -> None:
        member_id = self.classic.get((group, slot), "")
        protocols = (("range", self.world.subscription(topic)),)
        answer = self.world.join(group, member_id, protocols=protocols, version=3 if old else 9)
        if isinstance(answer, Reply):
            self.replies.append(answer)
            found = self.world.shard.groups[group]
            self.classic[group, slot] = next(
                (name for name, each in found.members.items() if each.join_reply is answer), member_id
            )
        elif answer.error_code in (0, MemberIdRequired.code):
            self.classic[group, slot] = answer.member_id
        elif answer.error_code == UnknownMemberId.code:
            self.classic.pop((group, slot), None)

    @rule(group=st.sampled_from(GROUPS), slot=SLOTS)
    def sync(self, group: str, slot: int) -> None:
        found = self.world.shard.groups.get(group)
        member_id = self.classic.get((group, slot), "stranger")
        generation = getattr(found, "generation", 1)
        if found is not None and found.type_name == "consumer" and member_id in found.members:
            generation = found.members[member_id].epoch
        # Assigns as a leader does: each partition has one owner, which keeps it when the group moves to the new
        # protocol.
        assignments = {
            name: self.world.consumer_assignment(t=[index] if index < TOPICS["t"] else [])
            for index, name in enumerate(getattr(found, "members", ()))
        }
        answer = self.world.sync(member_id, generation, assignments, group_id=group)
        if isinstance(answer, Reply):
            self.replies.append(answer)

    @rule(group=st.sampled_from(GROUPS), slot=SLOTS)
    def beat(self, group: str, slot: int) -> None:
        generation = getattr(self.world.shard.groups.get(group), "generation", 1)
        self.world.heartbeat(self.classic.get((group, slot), "stranger"), generation, group_id=group)

    @rule(group=st.sampled_from(GROUPS), slot=SLOTS)
    def leave(self, group: str, slot: int) -> None:
        self.world.leave(self.classic.pop((group, slot), "stranger"), group_id=group)

    # -- members of the consumer protocol

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from("abc"), topics=st.sets(st.sampled_from(sorted(TOPICS))))
    def enter(self, group: str, name: str, topics: set[str]) -> None:
        self._took(group, name, self.world.consumer(name, 0, group_id=group, topics=sorted(topics)))

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from("abc"), says=st.booleans())
    def stay(self, group: str, name: str, says: bool) -> None:
        epoch = self.epochs.get((group, name), 1)
        fields = {"owned": self.owned.get((group, name), {})} if says else {}
        self._took(group, name, self.world.consumer(name, epoch, group_id=group, **fields))

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from("abc"))
    def exit(self, group: str, name: str) -> None:
        self.world.consumer(name, -1, group_id=group)
        self.epochs.pop((group, name), None)
        self.owned.pop((group, name), None)

    def _took(self, group: str, name: str, answer: Any) -> None:
        if isinstance(answer, int):
            self.epochs.pop((group, name), None)
            self.owned.pop((group, name), None)
            return
        self.epochs[group, name] = answer.member_epoch
        assignment = self.world.assignment(answer)
        if assignment is not None:
            self.owned[group, name] = assignment

    # -- offsets

    @rule(
        group=st.sampled_from(GROUPS),
        topic=st.sampled_from(sorted(TOPICS)),
        partition=st.integers(0, 2),
        offset=st.integers(0, 99),
        slot=st.none() | SLOTS,
    )
    def commit(self, group: str, topic: str, partition: int, offset: int, slot: int | None) -> None:
        member_id = "" if slot is None else self.classic.get((group, slot), "")
        epoch = getattr(self.world.shard.groups.get(group), "generation", -1) if member_id else -1
        answer = self.world.commit({(topic, partition): offset}, group_id=group, member_id=member_id, epoch=epoch)
        if answer[topic, partition] == 0:
            self.offsets[group, topic, partition] = offset

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        from ottla.coordinator.groups import requests

        if requests.delete_groups(self.world.coordinator, [group])[0].error_code == 0:
            self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != group}

    # -- time and failure

    @rule(ms=st.sampled_from([1, 500, 9_000, 31_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    @precondition(lambda self: self.world.writer.batches)
    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.states.clear()

    # -- what must hold

    @invariant()
    def replay_equals_live(self) -> None:
        assert self.persisted(self.world.fresh()) == self.persisted(self.world.shard)

    @invariant()
    def offsets_are_the_last_committed(self) -> None:
        for (group, topic, partition), offset in self.offsets.items():
            assert self.world.offset(topic, partition, group_id=group).committed_offset == offset

    @invariant()
    def classic_groups_are_consistent(self) -> None:
        for group in self.world.shard.groups.values():
            if group.type_name != "classic":
                continue
            assert group.awaiting_join == sum(each.join_reply is not None for each in group.members.values())
            if not group.members:
                # As in Kafka, a reserved member id holds the barrier of an abandoned group for a moment.
                assert group.state is State.EMPTY or (group.state is State.PREPARING_REBALANCE and group.pending_joins)
            else:
                assert group.state is not State.EMPTY
            assert group.leader is None or group.leader in group.members
            assert group.pending_syncs <= group.members.keys()
            assert all(count >= 0 for count in group.support.values())
            known, before = self.states.get(group.group_id, (None, group.state))
            if known is group and before is not group.state:
                assert any(group.state in TRANSITIONS[state] for state in State if TRANSITIONS[state])
            self.states[group.group_id] = (group, group.state)
            for member in group.members.values():
                assert member.session is not None
                assert member.session.pending or member.awaits_answer

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        for group in self.world.shard.groups.values():
            if group.type_name != "consumer":
                continue
            seen: set[tuple[bytes, int]] = set()
            for member in group.members.values():
                for partitions in (member.assigned, member.revoking):
                    held = {(topic, index) for topic, epochs in partitions.items() for index in epochs}
                    assert not held & seen
                    seen |= held
            assert seen == {(topic, index) for topic, epochs in group._owner_epochs.items() for index in epochs}
            assert group.target_epoch <= group.epoch


@pytest.mark.parametrize("interval_ms", [0, 1000])
def test_random_operations_equal_a_replay_of_the_log(make_world: Any, persisted_state: Any, interval_ms: int) -> None:
    class Bound(Coordinator):
        @staticmethod
        def make_world() -> Any:
            return make_world(consumer_assignment_interval_ms=interval_ms)

        persisted = staticmethod(persisted_state)

    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
