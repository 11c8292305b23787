"""Brokers that keep their records in memory: Ottla with `--ephemeral` against kfake, a new process for each run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.bench import pages, proc
from ottla.bench.lines.fetch import SHAPE
from ottla.bench.lines.topics import CONFIGS, new_topic, per_gb
from ottla.bench.load import Driven, drive
from ottla.bench.model import Bar, Figure, Line, NotMeasurable, Run, Size, at_least, line, register, value_at_most
from ottla.bench.targets import KafkaMaker, OttlaMaker, Spawned, Target

LIMIT_BYTES = 640_000_000
AS_KFAKE = at_least(1, "kfake")


@contextmanager
def broker_in_memory(target: Target) -> Iterator[Spawned]:
    maker = target.fresh()
    if isinstance(maker, KafkaMaker):
        raise NotMeasurable("keeps its records on disk")
    broker = (maker.in_memory() if isinstance(maker, OttlaMaker) else maker).start()
    try:
        yield broker
    finally:
        broker.stop()


def _produce(broker: Target, name: str, connections: int, batch_kb: int, codec: str, limit_bytes: int) -> Driven:
    return drive(
        broker,
        "produce",
        topic=name,
        connections=connections,
        record_bytes=1024,
        batch_bytes=batch_kb * 1024,
        codec=codec,
        limit_bytes=limit_bytes,
        limit_seconds=30.0,
    )


def _produced(batch_kb: int, codec: str, connections: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        limit_bytes = size.pick(LIMIT_BYTES, 32_000_000)
        with broker_in_memory(target) as broker:
            _produce(broker, new_topic(broker, connections), connections, batch_kb, codec, limit_bytes // 20)
            name = new_topic(broker, connections)
            pages.touch(limit_bytes)
            return per_gb(_produce(broker, name, connections, batch_kb, codec, limit_bytes))

    return run


def _fetched(consumers: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        with broker_in_memory(target) as broker:
            name = new_topic(broker, consumers)
            _produce(broker, name, consumers, 64, "none", size.pick(LIMIT_BYTES // 2, 32_000_000))
            limits = {"limit_bytes": size.pick(4_000_000_000, 64_000_000), "limit_seconds": size.pick(3.0, 1.0)}
            return per_gb(drive(broker, "fetch", topic=name, connections=consumers, **SHAPE, **limits))

    return run


def _add(name: str, title: str, run: Run, speed: Bar) -> None:
    figures = (Figure("mb_s", "MB/s", True, (speed,)), Figure("cpu_gb", "CPU s/GB", False))
    register(Line(f"memory-{name}", f"in memory: {title}", figures, run))


_add("produce-64k-4", "produce, 64 KB batches, 4 connections", _produced(64, "none", 4), AS_KFAKE)
_add("produce-512k-1", "produce, 512 KB batches, 1 connection", _produced(512, "none", 1), AS_KFAKE)
_add("produce-lz4-4", "produce, 64 KB batches, lz4, 4 connections", _produced(64, "lz4", 4), AS_KFAKE)
_add("fetch-1", "fetch, 1 consumer", _fetched(1), AS_KFAKE)
_add("fetch-4", "fetch, 4 consumers", _fetched(4), AS_KFAKE)


@line(
    "memory-kept",
    "in memory: 1 GB produced, then deleted",
    Figure("stored", "× of what is stored", False, (value_at_most(1.3),), title="memory"),
    Figure("deleted", "× of before", False, (value_at_most(1.2),), title="memory once the topic is deleted"),
    repeats=1,
)
def memory_kept(target: Target, size: Size) -> dict[str, float]:
    with broker_in_memory(target) as broker:
        name, limit_bytes = new_topic(broker, 4), size.pick(1_000_000_000, 64_000_000)
        with broker.client() as client:
            client.create_topics(["warm-up"], 4, CONFIGS)
            _produce(broker, "warm-up", 4, 64, "none", limit_bytes // 20)
            client.delete_topics(["warm-up"])
        time.sleep(1.0)
        before_mb = _held_mb(broker)
        driven = _produce(broker, name, 4, 64, "none", limit_bytes)
        stored_mb = _held_mb(broker) - before_mb
        with broker.client() as client:
            client.delete_topics([name])
        time.sleep(1.0)
        return {"stored": stored_mb / (driven["bytes"] / 1e6), "deleted": _held_mb(broker) / before_mb}


def _held_mb(broker: Target) -> float:
    """Resident memory, plus files in memory that the process does not map."""
    return broker.resident_mb() + proc.memory_files_mb(broker.process())
