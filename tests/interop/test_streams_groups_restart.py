"""Streams groups survive a restart: members continue with their epochs and tasks."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from support.interop.streams import Member, configure, described, find_coordinator
from support.streams import info, subtopology, topology
from support.wire import Wire

GROUP = "app"
SETTINGS = {
    "streams.initial.rebalance.delay.ms": "0",
    "streams.assignment.interval.ms": "0",
    "streams.num.standby.replicas": "1",
}


def tasks_of(found: Any) -> dict[str, tuple[list[int], list[int]]]:
    """Active and standby tasks by member."""

    def indexes(tasks: Any) -> list[int]:
        return sorted(index for each in tasks for index in each.partitions)

    return {
        member.member_id: (indexes(member.assignment.active_tasks), indexes(member.assignment.standby_tasks))
        for member in found.members
    }


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_group_continues_after_a_restart(start_broker: Callable[..., Any], how: int) -> None:
    broker = start_broker()
    shape = topology(subtopology("0", "in", state_changelog_topics=[info("app-store-changelog")]))
    with Wire(broker.address) as wire:
        wire.create_topic("in", 4)
        find_coordinator(wire, GROUP)
        configure(wire, GROUP, SETTINGS)
        one, other = Member(wire, GROUP, shape, process="p1"), Member(wire, GROUP, shape, process="p2")
        one.beat()
        other.beat()

        def is_shared() -> bool:
            other.own()
            return [len(each.active.get("0", ())) for each in (one, other)] == [2, 2] and all(
                len(each.standby.get("0", ())) == 2 for each in (one, other)
            )

        one.follow(is_shared)
        before = described(wire, GROUP)
        broker.stop(how)
    again = start_broker(data=broker.data)
    with Wire(again.address) as wire:
        find_coordinator(wire, GROUP)
        after = described(wire, GROUP)
        assert (after.group_state, after.group_epoch) == (before.group_state, before.group_epoch)
        assert tasks_of(after) == tasks_of(before)
        for member in (one, other):
            member.wire = wire
            epoch, active = member.epoch, member.active
            member.own()
            assert (member.epoch, member.active) == (epoch, active), "no task moves"
        # The tasks of one member move to the other, which has standby copies.
        other.leave()
        one.follow(lambda: one.active == {"0": [0, 1, 2, 3]})
