"""Consumer groups: joins of 1, 10 and 100 members, offset commits, idle groups, and loading offsets."""

from __future__ import annotations

import itertools
import time
from statistics import median

from ottla.bench.client import raise_for
from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import new_topic, topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, Run, Size, at_least, at_most, line, register, value_at_most
from ottla.bench.targets import Target
from ottla.errors import error_for
from ottla.wire.messages import ApiVersionsRequest, OffsetFetchRequest

_numbers = itertools.count(1)
IDLE_GROUPS = 10_000


def coordinated_group(target: Target) -> str:
    """A new group name, returned once the broker has a coordinator for it."""
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


def _member_cost_us(target: Target, size: Size, kind: str, members: int) -> float:
    """The broker's CPU time for one request of one member, with five in flight."""
    with topic(target, 1) as name:
        options = {"topic": name, "group": coordinated_group(target), "kind": kind, "members": members}
        return per_request(drive(target, "member_requests", limit_seconds=size.pick(2.0, 0.3), **options))["cpu_us"]


def _add_of_member(kind: str, title: str) -> None:
    def run(target: Target, size: Size) -> dict[str, float]:
        few_us, many_us = (_member_cost_us(target, size, kind, members) for members in size.pick((10, 100), (2, 20)))
        return {"few_us": few_us, "many_us": many_us, "growth": many_us / few_us}

    figures = (
        Figure("few_us", "CPU µs", False, title="10 members"),
        Figure("many_us", "CPU µs", False, title="100 members"),
        Figure("growth", "× CPU per request", False, (value_at_most(1.2),), title="100 against 10"),
    )
    register(Line(f"members-{kind}", title, figures, run))


_add_of_member("heartbeat", "heartbeats of one member of a group")
_add_of_member("commit", "offset commits of one member of a group")


def _commit_cost_us(target: Target, size: Size) -> float:
    options = {"group": coordinated_group(target), "depth": 5, "limit_seconds": size.pick(2.0, 0.3)}
    with topic(target, 1) as name:
        return per_request(drive(target, "commits", topic=name, **options))["cpu_us"]


def idle_cpu_percent(target: Target, seconds: float) -> float:
    before = target.cpu_seconds()
    time.sleep(seconds)
    return (target.cpu_seconds() - before) / seconds * 100


@line(
    "idle-groups",
    "10,000 groups of one member, idle",
    Figure("before", "% CPU", False, title="before"),
    Figure("after", "% CPU", False, title="with the groups"),
    # Half a percent of one core is the smallest amount that the kernel's tick can show over the measured time.
    Figure("added", "% CPU", False, (value_at_most(0.5),), title="added by them"),
    Figure("make_s", "s", False, title="to make them"),
    Figure("growth", "× CPU per commit", False, (value_at_most(1.2),), title="10,000 groups against 10"),
    repeats=1,
)
def idle_groups(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    try:
        group, seconds = coordinated_group(broker), size.pick(10.0, 1.0)
        drive(broker, "idle_groups", group=group, first=0, groups=10)
        _commit_cost_us(broker, size)
        few_us = _commit_cost_us(broker, size)
        time.sleep(size.pick(3.0, 0.2))
        before = idle_cpu_percent(broker, seconds)
        made = drive(broker, "idle_groups", group=group, first=10, groups=size.pick(IDLE_GROUPS, 200))
        time.sleep(size.pick(3.0, 0.2))
        after = idle_cpu_percent(broker, seconds)
        return {
            "before": before,
            "after": after,
            "added": max(0.0, after - before),
            "make_s": made.seconds,
            "growth": _commit_cost_us(broker, size) / few_us,
        }
    finally:
        broker.stop()


LOADED_OFFSETS = 500_000
OFFSETS_PER_COMMIT = 100
OFFSET_FETCH_VERSION = 8


@line(
    "load-offsets",
    "start of the process with 500,000 committed offsets",
    Figure("load_s", "s", False, title="until they can be fetched"),
    Figure("stall_ms", "ms", False, (value_at_most(50),), title="longest wait of another request meanwhile"),
    repeats=1,
)
def load_offsets(target: Target, size: Size) -> dict[str, float]:
    maker = target.fresh()
    folder, port = maker.prepare()
    broker = maker.launch(folder, port)
    try:
        broker.await_ready()
        group, name = coordinated_group(broker), new_topic(broker, OFFSETS_PER_COMMIT)
        commits = size.pick(LOADED_OFFSETS, 5000) // OFFSETS_PER_COMMIT
        drive(broker, "many_offsets", topic=name, group=group, partitions=OFFSETS_PER_COMMIT, commits=commits)
        broker.end()
        started = time.perf_counter()
        broker = maker.launch(folder, port)
        broker.await_ready()
        latencies = _requests_until_loaded(broker, group, name)
        return {"load_s": time.perf_counter() - started, "stall_ms": max(latencies) * 1e3}
    finally:
        broker.stop()


def _requests_until_loaded(broker: Target, group: str, topic_name: str) -> list[float]:
    """The durations of small requests, one at a time, until the group's offsets could be fetched."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic_name, partition_indexes=[0])
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[wanted])
    latencies: list[float] = []
    with broker.client() as other, broker.client() as client:
        while True:
            sent = time.perf_counter()
            other.call(ApiVersionsRequest(), 0)
            latencies.append(time.perf_counter() - sent)
            (found,) = client.call(OffsetFetchRequest(groups=[asked]), OFFSET_FETCH_VERSION).groups
            if not found.error_code and found.topics[0].partitions[0].committed_offset >= 0:
                return latencies
            if found.error_code and not error_for(found.error_code).retriable:
                raise_for(found.error_code)
            time.sleep(0.001)
