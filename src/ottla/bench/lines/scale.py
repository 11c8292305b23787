"""Many idle connections, and many topics. Idle objects must not make requests more expensive."""

from __future__ import annotations

import time
from statistics import median

from ottla.bench.client import METADATA_VERSION, frame, receive_frame
from ottla.bench.lines.groups import idle_cpu_percent
from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import CONFIGS, topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Size, at_most, line, value_at_most
from ottla.bench.targets import Target
from ottla.wire.messages import MetadataRequest

FLAT = value_at_most(1.2)
CREATE_AT_ONCE = 100


def request_cost_us(target: Target, size: Size) -> float:
    """The broker's CPU time for one small produce request, with five in flight."""
    with topic(target, 1) as name:
        driven = drive(target, "requests", topic=name, record_bytes=100, depth=5, limit_seconds=size.pick(2.0, 0.5))
    return per_request(driven)["cpu_us"]


@line(
    "idle-connections",
    "500 idle connections",
    Figure("kb_each", "KB each", False),
    Figure("cpu", "% CPU", False, title="while idle"),
    Figure("growth", "× CPU per request", False, (FLAT,), title="500 against 50"),
    repeats=1,
)
def idle_connections(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    few, many = size.pick((50, 500), (5, 50))
    connections = []
    try:
        request_cost_us(broker, size)
        time.sleep(size.pick(1.0, 0.1))
        before_mb = broker.resident_mb()
        connections += [broker.client() for _ in range(few)]
        cost_with_few_us = request_cost_us(broker, size)
        connections += [broker.client() for _ in range(many - few)]
        time.sleep(size.pick(1.0, 0.1))
        after_mb = broker.resident_mb()
        cpu = idle_cpu_percent(broker, size.pick(5.0, 0.5))
        cost_with_many_us = request_cost_us(broker, size)
    finally:
        for connection in connections:
            connection.sock.close()
        broker.stop()
    return {
        "kb_each": max(0.0, after_mb - before_mb) * 1e3 / many,
        "cpu": cpu,
        "growth": cost_with_many_us / cost_with_few_us,
    }


@line(
    "topics",
    "1,000 topics × 3 partitions",
    Figure("create_s", "s", False, (at_most(0.2),), title="create"),
    Figure("metadata_ms", "ms", False, (at_most(1),), title="Metadata of all"),
    Figure("growth", "× CPU per request", False, (FLAT,), title="1,000 topics against 100"),
    repeats=1,
)
def topics(target: Target, size: Size) -> dict[str, float]:
    broker = target.fresh().start()
    try:
        count = size.pick(1000, 50)
        few = count // 10
        names = [f"many-{number}" for number in range(count)]
        with broker.client() as client:
            request_cost_us(broker, size)
            started = time.perf_counter()
            client.create_topics(names[:few], 3, CONFIGS)
            create_s = time.perf_counter() - started
            cost_with_few_us = request_cost_us(broker, size)
            started = time.perf_counter()
            for first in range(few, count, CREATE_AT_ONCE):
                client.create_topics(names[first : first + CREATE_AT_ONCE], 3, CONFIGS)
            create_s += time.perf_counter() - started
            cost_with_many_us = request_cost_us(broker, size)
            request = frame(MetadataRequest(topics=None), METADATA_VERSION)
            times = []
            for _ in range(size.pick(50, 5)):
                started = time.perf_counter()
                client.sock.sendall(request)
                receive_frame(client.sock)
                times.append(time.perf_counter() - started)
    finally:
        broker.stop()
    return {
        "create_s": create_s,
        "metadata_ms": median(times) * 1e3,
        "growth": cost_with_many_us / cost_with_few_us,
    }
