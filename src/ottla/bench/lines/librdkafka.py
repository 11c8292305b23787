"""Lines with librdkafka. The client does most of the work here, so the bar is only to be no slower, within noise."""

from __future__ import annotations

from ottla.bench import pages
from ottla.bench.lines.requests import latency_figures
from ottla.bench.lines.topics import new_topic, per_gb, topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Size, at_least, at_most, line
from ottla.bench.targets import Target

PARTITIONS = 4
NOT_BEHIND = at_least(0.95)
NOT_SLOWER = at_most(1.05)
CPU = Figure("cpu_gb", "CPU s/GB", False)


def _bytes(record_bytes: int, size: Size) -> int:
    return size.pick(400_000 * record_bytes, 20_000 * record_bytes)


def _produce(target: Target, size: Size, record_bytes: int) -> dict[str, float]:
    with topic(target, PARTITIONS) as name:
        options = {"topic": name, "partitions": PARTITIONS, "record_bytes": record_bytes}
        pages.touch(_bytes(record_bytes, size))
        return per_gb(drive(target, "rdkafka_produce", limit_bytes=_bytes(record_bytes, size), **options))


@line("rdkafka-produce-1k", "librdkafka produces 1 KB records", Figure("mb_s", "MB/s", True, (NOT_BEHIND,)), CPU)
def rdkafka_produce_1k(target: Target, size: Size) -> dict[str, float]:
    return _produce(target, size, 1024)


@line("rdkafka-produce-100", "librdkafka produces 100 B records", Figure("mb_s", "MB/s", True, (NOT_BEHIND,)), CPU)
def rdkafka_produce_100(target: Target, size: Size) -> dict[str, float]:
    return _produce(target, size, 100)


@line("rdkafka-consume", "librdkafka consumes 1 KB records", Figure("mb_s", "MB/s", True, (NOT_BEHIND,)), CPU)
def rdkafka_consume(target: Target, size: Size) -> dict[str, float]:
    options = {"partitions": PARTITIONS, "record_bytes": 1024, "limit_bytes": _bytes(1024, size)}
    if "rdkafka-topic" not in target.state:
        name = new_topic(target, PARTITIONS, "bench-rdkafka")
        drive(target, "rdkafka_produce", topic=name, **options)
        target.state["rdkafka-topic"] = name
    return per_gb(drive(target, "rdkafka_consume", topic=target.state["rdkafka-topic"], **options))


@line(
    "rdkafka-latency",
    "librdkafka, produce to consume at 200 messages/s",
    Figure("p50_ms", "ms", False, (NOT_SLOWER,), title="p50"),
    Figure("p99_ms", "ms", False, (NOT_SLOWER,), title="p99"),
)
def rdkafka_latency(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1) as name:
        driven = drive(target, "rdkafka_latency", topic=name, rate=200, limit_seconds=size.pick(5.0, 0.5))
        return latency_figures(driven["latencies"])
