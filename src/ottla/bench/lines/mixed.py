"""Loads that meet: a crowd of producers and consumers, and small requests beside what might hold them up."""

from __future__ import annotations

from statistics import median

from ottla.bench.lines.requests import latency_figures
from ottla.bench.lines.topics import CONFIGS, new_topic, topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Size, line, percentile, value_at_least, value_at_most
from ottla.bench.targets import Target

PAIRS = 100
SMALL_CONNECTIONS = 4


def fairness(progress: list[int]) -> float:
    """The slowest against the median."""
    return min(progress) / median(progress)


def growth(samples_mb: list[float]) -> float:
    """The last quarter against the second: the first one is the warm-up."""
    quarter = max(1, len(samples_mb) // 4)
    return median(samples_mb[-quarter:]) / median(samples_mb[quarter : 2 * quarter])


@line(
    "crowd",
    "100 producers and 100 consumers at once for two minutes",
    Figure("rate", "records/s", True),
    Figure("producers", "× of the median", True, (value_at_least(0.5),), title="the slowest producer"),
    Figure("consumers", "× of the median", True, (value_at_least(0.5),), title="the slowest consumer"),
    Figure("memory_mb", "MB", False, title="memory at the end"),
    # Less than this an allocator cannot promise; a few bytes a request kept would show as more.
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
    Figure("p50_ms", "ms", False, title="p50"),
    Figure("p99_ms", "ms", False, (value_at_most(20),), title="p99"),
    Figure("mb_s", "MB/s", True, title="the large batches"),
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


@line(
    "stopped-readers",
    "requests of one record while 50 consumers do not read what they asked for",
    Figure("idle_p99_ms", "ms", False, title="p99 before"),
    Figure("p99_ms", "ms", False, (value_at_most(20),), title="p99 meanwhile"),
    # A buffer of its own for each would be the 1 MB of an answer.
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


@line(
    "compaction",
    "produce at 400 requests/s while 1 GB is compacted",
    Figure("idle_p99_ms", "ms", False, title="p99 before"),
    Figure("p99_ms", "ms", False, title="p99 meanwhile"),
    Figure("slower", "× of before", False, (value_at_most(2),), title="p99"),
    # The map of offsets is bounded by log.cleaner.dedupe.buffer.size, 128 MiB; the rest are buffers.
    Figure("added_mb", "MB", False, (value_at_most(200),), title="memory added at the peak"),
    Figure("seconds", "s", False, title="to compact it"),
    repeats=1,
)
def compaction(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().with_settings("compaction", {"log.cleaner.backoff.ms": "100"}).start()
    try:
        small, dirty = new_topic(broker, SMALL_CONNECTIONS), "bench-dirty"
        configs = {"segment.bytes": str(size.pick(64, 1) * 2**20), "min.cleanable.dirty.ratio": "0.01"}
        with broker.client() as client:
            client.create_topics([dirty], 1, {**CONFIGS, **configs})
        limit_bytes = size.pick(1_000_000_000, 40_000_000)
        drive(broker, "fill_keyed", topic=dirty, record_bytes=1024, batch_bytes=65536, limit_bytes=limit_bytes)
        pace = {"topic": small, "connections": SMALL_CONNECTIONS, "rate": 100}
        drive(broker, "steady", **pace, limit_seconds=size.pick(2.0, 0.2))
        idle = drive(broker, "steady", **pace, limit_seconds=size.pick(8.0, 0.5))
        while_compacting = drive(
            broker,
            "compacting",
            **pace,
            dirty_topic=dirty,
            folder=str(broker.folder),
            pid=broker.process(),
            limit_seconds=120.0,
        )
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
