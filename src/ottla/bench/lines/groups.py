"""Consumer groups: joins of 1, 10 and 100 members, offset commits, and thousands of groups that do nothing."""

from __future__ import annotations

import itertools
import time
from statistics import median

from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, Run, Size, at_least, at_most, line, register, value_at_most
from ottla.bench.targets import Target

_numbers = itertools.count(1)
IDLE_GROUPS = 10_000


def coordinated_group(target: Target) -> str:
    """A group name that is new, once the broker has a coordinator for it."""
    group = f"bench-group-{next(_numbers)}"
    with target.client() as client:
        client.await_coordinator(group, "group")
    return group


def _join(members: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        rounds = size.pick(20 if members <= 10 else 3, 1)
        driven = drive(target, "join", group=coordinated_group(target), members=members, rounds=rounds)
        return {"ms": median(driven["latencies"]) * 1e3}

    return run


def _add(members: int, bar: Bar) -> None:
    title = f"subscribe to a new group, until assigned, {members} member{'s'[: members - 1]}"
    register(Line(f"join-{members}", title, (Figure("ms", "ms", False, (bar,)),), _join(members)))


_add(1, at_most(0.5))
_add(10, at_most(0.5))
_add(100, at_most(1))


def _commits(depth: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        with topic(target, 1) as name:
            group, seconds = coordinated_group(target), size.pick(3.0, 0.5)
            return per_request(drive(target, "commits", topic=name, group=group, depth=depth, limit_seconds=seconds))

    return run


register(
    Line(
        "commits-1",
        "offset commits, one under way",
        (Figure("rate", "commits/s", True), Figure("cpu_us", "CPU µs", False)),
        _commits(1),
    )
)
register(
    Line(
        "commits-5",
        "offset commits, 5 under way",
        (Figure("rate", "commits/s", True, (at_least(3),)), Figure("cpu_us", "CPU µs", False)),
        _commits(5),
    )
)


def idle_cpu_percent(target: Target, seconds: float) -> float:
    before = target.cpu_seconds()
    time.sleep(seconds)
    return (target.cpu_seconds() - before) / seconds * 100


@line(
    "idle-groups",
    "10,000 groups of one member, idle",
    Figure("before", "% CPU", False, title="before"),
    Figure("after", "% CPU", False, title="with the groups"),
    # Half a percent of one core is what the kernel's tick can tell from nothing over the time watched.
    Figure("added", "% CPU", False, (value_at_most(0.5),), title="added by them"),
    Figure("make_s", "s", False, title="to make them"),
    repeats=1,
)
def idle_groups(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    try:
        group, seconds = coordinated_group(broker), size.pick(10.0, 1.0)
        drive(broker, "idle_groups", group=group, first=0, groups=10)
        time.sleep(size.pick(3.0, 0.2))
        before = idle_cpu_percent(broker, seconds)
        made = drive(broker, "idle_groups", group=group, first=10, groups=size.pick(IDLE_GROUPS, 200))
        time.sleep(size.pick(3.0, 0.2))
        after = idle_cpu_percent(broker, seconds)
        return {"before": before, "after": after, "added": max(0.0, after - before), "make_s": made.seconds}
    finally:
        broker.stop()
