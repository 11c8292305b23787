"""Starts with a lot to recover: a log that was not flushed, and very many partitions."""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import median

from ottla.bench.client import METADATA_VERSION, frame, receive_frame, retried
from ottla.bench.lines.topics import CONFIGS, new_topic
from ottla.bench.load import drive
from ottla.bench.model import Bar, Figure, Line, NotMeasurable, Run, Size, at_most, line, register
from ottla.bench.targets import Spawned, Target
from ottla.wire.messages import MetadataRequest

PARTITIONS = 4
PER_TOPIC = 500


@line(
    "recovery",
    "start after SIGKILL with 2 GB in four partitions",
    Figure("s", "s", False, (at_most(1),), title="until all records are there"),
    repeats=1,
)
def recovery(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    try:
        name = new_topic(broker, PARTITIONS)
        drive(
            broker,
            "produce",
            topic=name,
            connections=PARTITIONS,
            record_bytes=1024,
            batch_bytes=65536,
            codec="none",
            limit_bytes=size.pick(2_000_000_000, 32_000_000),
            limit_seconds=120.0,
        )
        with broker.client() as client:
            stored = client.end_offsets(name, PARTITIONS)
        broker, seconds = _killed_and_started(broker, name)
        with broker.client() as client:
            if client.end_offsets(name, PARTITIONS) != stored:
                raise RuntimeError("records are missing after the start")
    finally:
        broker.stop()
    return {"s": seconds}


def _killed_and_started(broker: Spawned, name: str) -> tuple[Spawned, float]:
    """Kill the broker and start one on the same folder; returns it and the seconds until it serves partition 0."""
    broker.kill()
    started = time.perf_counter()
    again = broker.fresh().launch(broker.folder, broker.address[1])
    try:
        again.await_ready()
        with again.client() as client:
            found = client.call(MetadataRequest(topics=None), METADATA_VERSION).topics
            if name not in [each.name for each in found]:
                raise NotMeasurable("does not keep its records")
            client.await_leaders([name])
            retried(lambda: client.end_offsets(name, 1))  # Kafka announces leaders before they serve requests
    except BaseException:
        again.stop()
        raise
    return again, time.perf_counter() - started


def _many(topics: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        broker = target.fresh().start()
        try:
            names = [f"many-{number}" for number in range(size.pick(topics, 2))]
            with broker.client() as client:
                started = time.perf_counter()
                for name in names:
                    client.create_topics([name], size.pick(PER_TOPIC, 80), CONFIGS)
                create_s = time.perf_counter() - started
            figures = {"create_s": create_s, "metadata_ms": _metadata_ms(broker, size.pick(20, 2))}
            figures["memory_mb"] = broker.resident_mb()
            with suppress(NotMeasurable):  # a broker in memory has lost its data; the other figures are still valid
                broker, figures["restart_s"] = _killed_and_started(broker, names[0])
        finally:
            broker.stop()
        return figures

    return run


def _metadata_ms(broker: Target, rounds: int) -> float:
    times = []
    with broker.client() as client:
        request = frame(MetadataRequest(topics=None), METADATA_VERSION)
        for _ in range(rounds):
            started = time.perf_counter()
            client.sock.sendall(request)
            receive_frame(client.sock)
            times.append(time.perf_counter() - started)
    return median(times) * 1e3


def _add(name: str, topics: int, bars: tuple[Bar, ...], *, reference: bool = True) -> None:
    figures = (
        Figure("create_s", "s", False, bars, title="create"),
        Figure("metadata_ms", "ms", False, bars, title="Metadata of all"),
        Figure("memory_mb", "MB", False, bars, title="resident memory"),
        Figure("restart_s", "s", False, bars, title="start after SIGKILL"),
    )
    register(Line(name, f"{topics} topics × {PER_TOPIC} partitions", figures, _many(topics), 1, reference))


_add("partitions-10k", 20, (at_most(1),))
_add("partitions-100k", 200, (), reference=False)
