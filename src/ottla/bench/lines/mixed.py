"""Mixed loads: many producers and consumers at once, and small requests during work that might delay them."""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import Any

from ottla.bench.lines.requests import latency_figures
from ottla.bench.lines.topics import CONFIGS, new_topic, topic
from ottla.bench.load import Driven, drive
from ottla.bench.model import (
    Figure,
    NotServed,
    Size,
    at_least,
    at_most,
    line,
    percentile,
    value_at_least,
    value_at_most,
)
from ottla.bench.targets import Spawned, Target

PAIRS = 100
SMALL_CONNECTIONS = 4
FEW_KEYS = 32_768
MANY_KEYS = 500_000


def fairness(progress: list[int]) -> float:
    """The slowest, relative to the median."""
    return min(progress) / median(progress)


def growth(samples_mb: list[float]) -> float:
    """The last quarter relative to the second, because the first is the warm-up."""
    quarter = max(1, len(samples_mb) // 4)
    return median(samples_mb[-quarter:]) / median(samples_mb[quarter : 2 * quarter])


@line(
    "crowd",
    "100 producers and 100 consumers at once for two minutes",
    Figure("rate", "records/s", True),
    Figure("producers", "× of the median", True, (value_at_least(0.5),), title="the slowest producer"),
    Figure("consumers", "× of the median", True, (value_at_least(0.5),), title="the slowest consumer"),
    Figure("memory_mb", "MB", False, title="memory at the end"),
    # An allocator cannot guarantee less; a leak of a few bytes per request would show as more.
    Figure("growth", "× of memory", False, (value_at_most(1.1),), title="growth after the warm-up"),
    repeats=1,
)
def crowd(target: Target, size: Size) -> dict[str, float]:
    broker, pairs = target.fresh().start(), size.pick(PAIRS, 10)
    try:
        driven = drive(
            broker,
            "crowd",
            topic=new_topic(broker, pairs),
            pairs=pairs,
            pid=broker.process(),
            record_bytes=1024,
            batch_bytes=2 * 1024 + 64,
            limit_seconds=size.pick(120.0, 2.0),
            limit_bytes=size.pick(12_000_000_000, 100_000_000),
        )
    finally:
        broker.stop()
    figures = {
        "rate": driven["records"] / driven.seconds,
        "producers": fairness(driven["produced"]),
        "consumers": fairness(driven["consumed"]),
    }
    samples_mb = driven["memory_mb"]
    if len(samples_mb) >= 4:
        figures |= {"memory_mb": samples_mb[-1], "growth": growth(samples_mb)}
    return figures


@line(
    "small-beside-large",
    "requests of one record while another connection sends 512 KB batches",
    Figure("p50_ms", "ms", False, (at_most(1),), title="p50"),
    Figure("p99_ms", "ms", False, (at_most(1), value_at_most(20)), title="p99"),
    Figure("mb_s", "MB/s", True, (at_least(1.5),), title="the large batches"),
)
def small_beside_large(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1 + SMALL_CONNECTIONS) as name:
        driven = drive(
            target,
            "beside",
            topic=name,
            connections=SMALL_CONNECTIONS,
            rate=100,
            batch_bytes=512 * 1024,
            limit_bytes=size.pick(8_000_000_000, 200_000_000),
            limit_seconds=size.pick(4.0, 0.5),
        )
    return {**latency_figures(driven["latencies"]), "mb_s": driven["bytes"] / 1e6 / driven.seconds}


LONG_KINDS = {
    "recompress": "batches of 1 MB are compressed with another codec",
    "old-fetch": "8 MB are converted for an old consumer",
    "times": "a time is looked up in 500 partitions",
    "metadata": "all of 10,000 partitions are described",
}


@line(
    "longest-wait",
    "the longest wait of a small request while",
    *(Figure(kind.replace("-", "_") + "_ms", "ms", False, title=title) for kind, title in LONG_KINDS.items()),
    repeats=1,
)
def longest_wait(target: Target, size: Size) -> dict[str, float]:
    partitions = size.pick(500, 20)
    with target.client() as client, topic(target, partitions, compression_type="lz4") as name:
        others = [f"{name}-{number}" for number in range(size.pick(19, 1))]
        for other in others:
            client.create_topics([other], partitions, CONFIGS)
        options = {"topic": name, "partitions": partitions, "batch_bytes": size.pick(1_000_000, 100_000)}
        figures = {}
        for kind in LONG_KINDS:
            with suppress(NotServed):
                driven = drive(target, "probing", kind=kind, limit_seconds=size.pick(3.0, 0.2), **options)
                figures[kind.replace("-", "_") + "_ms"] = max(driven["waits"]) * 1e3
        client.delete_topics(others)
    return figures


@line(
    "stopped-readers",
    "requests of one record while 50 consumers do not read what they asked for",
    Figure("idle_p99_ms", "ms", False, title="p99 before"),
    Figure("p99_ms", "ms", False, (value_at_most(20),), title="p99 meanwhile"),
    # With a separate buffer for each answer, this would be 1 MB per consumer.
    Figure("added_mb", "MB", False, (value_at_most(10),), title="memory added"),
)
def stopped_readers(target: Target, size: Size) -> dict[str, float]:
    limit_seconds = size.pick(4.0, 0.5)
    with topic(target, 1 + SMALL_CONNECTIONS) as name:
        pace = {"topic": name, "connections": SMALL_CONNECTIONS, "rate": 100, "limit_seconds": limit_seconds}
        idle = drive(target, "steady", **pace)
        driven = drive(target, "deaf", **pace, consumers=size.pick(50, 5), requests=200, pid=target.process())
    figures = latency_figures(driven["latencies"])
    return {
        "idle_p99_ms": percentile(idle["latencies"], 99) * 1e3,
        "p99_ms": figures["p99_ms"],
        "added_mb": driven["added_mb"],
    }


def dirty_topic(broker: Spawned, size: Size, codec: str, keys: int) -> str:
    """1 GB of 1 KB records, before compression, in a topic that is not compacted yet."""
    name = f"bench-dirty-{codec}-{keys}"
    configs = {"segment.bytes": str(size.pick(64, 1) * 2**20), "min.cleanable.dirty.ratio": "0.01"}
    with broker.client() as client:
        client.create_topics([name], 1, {**CONFIGS, **configs})
    options = {"record_bytes": 1024, "batch_bytes": 65536, "limit_bytes": size.pick(1_000_000_000, 40_000_000)}
    drive(broker, "fill_keyed", topic=name, codec=codec, keys=keys, **options)
    return name


def compacted(broker: Spawned, dirty: str, pace: dict[str, Any]) -> Driven:
    """Compact a topic while small requests arrive at a steady rate."""
    watched = {"dirty_topic": dirty, "folder": str(broker.folder), "pid": broker.process(), "limit_seconds": 120.0}
    return drive(broker, "compacting", **pace, **watched)


@line(
    "compaction",
    "produce at 400 requests/s while 1 GB is compacted",
    Figure("idle_p99_ms", "ms", False, title="p99 before"),
    Figure("p99_ms", "ms", False, title="p99 meanwhile"),
    Figure("slower", "× of before", False, (value_at_most(1.5),), title="p99"),
    Figure("added_mb", "MB", False, (value_at_most(100),), title="memory added at the peak"),
    Figure("seconds", "s", False, (at_most(1),), title="to compact it"),
    repeats=1,
)
def compaction(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().with_settings("compaction", {"log.cleaner.backoff.ms": "100"}).start()
    try:
        pace = {"topic": new_topic(broker, SMALL_CONNECTIONS), "connections": SMALL_CONNECTIONS, "rate": 100}
        dirty = dirty_topic(broker, size, "none", FEW_KEYS)
        drive(broker, "steady", **pace, limit_seconds=size.pick(2.0, 0.2))
        idle = drive(broker, "steady", **pace, limit_seconds=size.pick(8.0, 0.5))
        while_compacting = compacted(broker, dirty, pace)
    finally:
        broker.stop()
    before, meanwhile = (percentile(each["latencies"], 99) * 1e3 for each in (idle, while_compacting))
    return {
        "idle_p99_ms": before,
        "p99_ms": meanwhile,
        "slower": meanwhile / before,
        "added_mb": while_compacting["added_mb"],
        "seconds": while_compacting.seconds,
    }


COMPACTED = [(codec, keys) for codec in ("none", "lz4", "zstd") for keys in (FEW_KEYS, MANY_KEYS)]


@line(
    "compaction-kinds",
    "1 GB of 1 KB records is compacted",
    *(
        figure
        for codec, keys in COMPACTED
        for figure in (
            Figure(f"{codec}_{keys}_s", "s", False, (at_most(1),), title=f"{codec}, {keys:,} keys"),
            Figure(f"{codec}_{keys}_cpu", "CPU s", False, title=f"{codec}, {keys:,} keys"),
        )
    ),
    Figure("added_mb", "MB", False, (value_at_most(100),), title="memory added at the peak"),
    repeats=1,
)
def compaction_kinds(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().with_settings("compaction", {"log.cleaner.backoff.ms": "100"}).start()
    figures, added_mb = {}, [0.0]
    try:
        pace = {"topic": new_topic(broker, 1), "connections": 1, "rate": 10}
        for codec, keys in COMPACTED:
            driven = compacted(broker, dirty_topic(broker, size, codec, keys), pace)
            figures[f"{codec}_{keys}_s"] = driven.seconds
            if driven.broker_cpu_seconds is not None:
                figures[f"{codec}_{keys}_cpu"] = driven.broker_cpu_seconds
            added_mb.append(driven["added_mb"])
    finally:
        broker.stop()
    return {**figures, "added_mb": max(added_mb)}
