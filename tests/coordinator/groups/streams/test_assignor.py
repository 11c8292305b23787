"""The sticky assignor of streams groups."""

import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.groups.streams.assignor import MemberSpec, SubtopologySpec, assign
from ottla.coordinator.groups.streams.tasks import NO_TARGET, Target


def members(previous: dict[str, Target] | None = None, **processes: str) -> dict[str, MemberSpec]:
    return {name: MemberSpec(process, (previous or {}).get(name, NO_TARGET)) for name, process in processes.items()}


def topology(**subtopologies: int) -> dict[str, SubtopologySpec]:
    """Names in capitals have state."""
    return {name: SubtopologySpec(count, name.isupper()) for name, count in subtopologies.items()}


def count(target: Target, role: str = "active") -> int:
    return sum(map(len, getattr(target, role).values()))


def test_the_only_member_gets_everything() -> None:
    assert assign(members(m="p"), topology(a=2, B=3), 0) == {"m": Target({"a": {0, 1}, "B": {0, 1, 2}})}
    assert assign({}, topology(a=2), 0) == {}


def test_processes_are_balanced_before_members() -> None:
    found = assign(members(m1="p", m2="p", m3="p", m4="q"), topology(a=8), 0)
    assert count(found["m4"]) == 2
    assert sorted(count(target) for target in found.values()) == [2, 2, 2, 2]


def test_tasks_stay_where_they_are() -> None:
    before = assign(members(m1="p", m2="q"), topology(a=6), 0)
    assert assign(members(before, m1="p", m2="q"), topology(a=6), 0) == before
    joined = assign(members(before, m1="p", m2="q", m3="r"), topology(a=6), 0)
    assert [count(target) for target in joined.values()] == [2, 2, 2]
    assert joined["m1"].active["a"] < before["m1"].active["a"]
    assert joined["m2"].active["a"] < before["m2"].active["a"]


def test_a_standby_becomes_active() -> None:
    before = assign(members(m1="p", m2="q", m3="r"), topology(A=3), 1)
    copies = before["m2"].standby["A"] | before["m3"].standby["A"]
    after = assign(members(before, m2="q", m3="r"), topology(A=3), 1)
    (lost,) = before["m1"].active["A"]
    assert lost in copies
    heir = next(name for name in ("m2", "m3") if lost in before[name].standby.get("A", ()))
    assert lost in after[heir].active["A"]


def test_standby_copies_are_in_other_processes(caplog: pytest.LogCaptureFixture) -> None:
    found = assign(members(m1="p", m2="q", m3="r"), topology(A=6, b=3), 2)
    for name, target in found.items():
        assert not target.active.get("A", frozenset()) & target.standby["A"], name
        assert "b" not in target.standby
    everywhere = Counter(index for target in found.values() for index in target.standby["A"])
    assert everywhere == dict.fromkeys(range(6), 2)
    assert not caplog.records


def test_standby_copies_that_no_process_can_hold_are_not_assigned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = assign(members(m1="p", m2="p"), topology(A=4), 1)
    assert [count(target, "standby") for target in found.values()] == [0, 0]
    assert "4 tasks have fewer than 1 standby copies" in caplog.text


PROCESSES = st.dictionaries(st.sampled_from([f"m{i}" for i in range(6)]), st.sampled_from("pqr"), min_size=1)
SHAPES = st.dictionaries(st.sampled_from(["a", "b", "C", "D"]), st.integers(1, 7), min_size=1)


@settings(max_examples=60, deadline=None)
@given(before=PROCESSES, after=PROCESSES, shape=SHAPES, replicas=st.integers(0, 2))
def test_every_task_has_one_owner(
    before: dict[str, str], after: dict[str, str], shape: dict[str, int], replicas: int
) -> None:
    previous = assign(members(None, **before), topology(**shape), replicas)
    found = assign(members(previous, **after), topology(**shape), replicas)
    tasks = {(name, index) for name, size in shape.items() for index in range(size)}
    homes = [(name, index) for target in found.values() for name, indexes in target.active.items() for index in indexes]
    assert sorted(homes) == sorted(tasks)
    assert found.keys() == after.keys()
    for task in tasks:
        processes = [
            after[member]
            for member, target in found.items()
            for role in (target.active, target.standby)
            if task[1] in role.get(task[0], ())
        ]
        assert len(processes) == len(set(processes)), "two copies in one process"
        wanted = 1 + (replicas if task[0].isupper() else 0)
        assert len(processes) == min(wanted, len(set(after.values())))
