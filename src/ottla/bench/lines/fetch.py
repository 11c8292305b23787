"""Fetch throughput from the page cache, the cost of read_committed, and look-ups in small and large logs."""

from __future__ import annotations

from statistics import median

from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import new_topic, per_gb, topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, NotServed, Run, Size, at_least, at_most, line, register, value_at_most
from ottla.bench.targets import Target

PARTITIONS = 4
SHAPE = {"record_bytes": 1024, "batch_bytes": 65536, "codec": "none"}
FILL_SECONDS = 120.0


def filled_topic(target: Target, size: Size) -> str:
    """A topic with half a gigabyte in four partitions, produced once per broker."""
    if "fetch-topic" not in target.state:
        name = new_topic(target, PARTITIONS, "bench-fetch")
        limit_bytes = size.pick(512_000_000, 32_000_000)
        drive(
            target,
            "produce",
            topic=name,
            connections=PARTITIONS,
            limit_bytes=limit_bytes,
            limit_seconds=FILL_SECONDS,
            **SHAPE,
        )
        target.state["fetch-topic"] = name
    return str(target.state["fetch-topic"])


def _fetch(consumers: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        return per_gb(
            drive(
                target,
                "fetch",
                topic=filled_topic(target, size),
                connections=consumers,
                limit_bytes=size.pick(4_000_000_000, 64_000_000),
                limit_seconds=size.pick(4.0, 1.0),
                **SHAPE,
            )
        )

    return run


def _add(consumers: int, speed: Bar) -> None:
    figures = (Figure("mb_s", "MB/s", True, (speed,)), Figure("cpu_gb", "CPU s/GB", False, (at_most(0.6),)))
    title = f"fetch from the page cache, {consumers} consumer{'s'[: consumers - 1]}"
    register(Line(f"fetch-{consumers}", title, figures, _fetch(consumers)))


_add(1, at_least(1.5))
_add(4, at_least(0.9))


@line(
    "fetch-committed",
    "read_committed over a log with 10 % aborted transactions",
    Figure("mb_s", "MB/s", True, title="read_committed"),
    Figure("against_uncommitted", "× read_uncommitted", True, title="the same log"),
)
def fetch_committed(target: Target, size: Size) -> dict[str, float]:
    if "aborted-topic" not in target.state:
        name = new_topic(target, 1, "bench-aborted")
        drive(
            target,
            "transactions",
            topic=name,
            transactional_id=f"{name}-fill",
            record_bytes=1024,
            records=63,
            limit=size.pick(2000, 50),
            limit_seconds=FILL_SECONDS,
            abort_every=10,
        )
        target.state["aborted-topic"] = name
    speeds = {}
    for level in (0, 1):
        driven = drive(
            target, "walk", topic=target.state["aborted-topic"], isolation_level=level, rounds=size.pick(5, 1)
        )
        speeds[level] = driven["bytes"] / 1e6 / driven.seconds
        if level == 1 and not driven["aborted"]:
            raise NotServed("Fetch: aborted transactions")
    return {"mb_s": speeds[1], "against_uncommitted": speeds[1] / speeds[0]}


@line(
    "lookup",
    "a fetch at a random offset of a 16 MB and of a 1 GB log",
    Figure("small_us", "µs", False, title="16 MB"),
    Figure("large_us", "µs", False, title="1 GB"),
    Figure("growth", "× of 16 MB", False, (value_at_most(1.2),), title="1 GB"),
)
def lookup(target: Target, size: Size) -> dict[str, float]:
    shape = {"record_bytes": 1024, "batch_bytes": 16384, "codec": "none", "connections": 1}
    figures = {}
    for key, limit_bytes in (("small_us", 16_000_000), ("large_us", size.pick(1_000_000_000, 32_000_000))):
        with topic(target, 1) as name:
            drive(target, "produce", topic=name, limit_bytes=limit_bytes, limit_seconds=FILL_SECONDS, **shape)
            driven = drive(target, "lookup", topic=name, requests=size.pick(5000, 300))
            figures[key] = median(driven["latencies"]) * 1e6
    return {**figures, "growth": figures["large_us"] / figures["small_us"]}


@line(
    "lookup-time",
    "the offset of a random time in a 16 MB and in a 1 GB log",
    Figure("small_us", "µs", False, title="16 MB"),
    Figure("large_us", "µs", False, title="1 GB"),
    Figure("growth", "× of 16 MB", False, (value_at_most(1.2),), title="1 GB"),
    Figure("cpu_growth", "× CPU per request", False, (value_at_most(1.2),), title="1 GB against 16 MB"),
)
def lookup_time(target: Target, size: Size) -> dict[str, float]:
    shape = {"record_bytes": 1024, "batch_bytes": 16384}
    figures, costs_us = {}, []
    for key, limit_bytes in (("small_us", 16_000_000), ("large_us", size.pick(1_000_000_000, 32_000_000))):
        with topic(target, 1) as name:
            filled = drive(target, "fill_stamped", topic=name, limit_bytes=limit_bytes, **shape)
            asked = {"batches": filled["batches"], "first_ms": filled["first_ms"], **shape}
            driven = drive(target, "lookup_time", topic=name, requests=size.pick(10_000, 300), **asked)
            figures[key] = median(driven["latencies"]) * 1e6
            costs_us.append(per_request(driven).get("cpu_us", 0.0))
    figures["growth"] = figures["large_us"] / figures["small_us"]
    if all(costs_us):
        figures["cpu_growth"] = costs_us[1] / costs_us[0]
    return figures
