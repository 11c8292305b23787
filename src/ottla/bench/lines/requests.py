"""Small requests: the rate on one connection, the CPU time of one request, and the latency of a message."""

from __future__ import annotations

from statistics import median

from ottla.bench.lines.topics import topic
from ottla.bench.load import Driven, drive
from ottla.bench.model import Bar, Figure, Line, Run, Size, at_least, at_most, line, percentile, register
from ottla.bench.targets import Target


def per_request(driven: Driven) -> dict[str, float]:
    figures = {"rate": driven["requests"] / driven.seconds}
    if driven.broker_cpu_seconds is not None:
        figures["cpu_us"] = driven.broker_cpu_seconds / driven["requests"] * 1e6
    return figures


def _requests(depth: int) -> Run:
    def run(target: Target, size: Size) -> dict[str, float]:
        with topic(target, 1) as name:
            seconds = size.pick(3.0, 0.5)
            return per_request(
                drive(target, "requests", topic=name, record_bytes=100, depth=depth, limit_seconds=seconds)
            )

    return run


def _add(depth: int, rate: Bar, *cpu: Bar) -> None:
    figures = (Figure("rate", "requests/s", True, (rate,)), Figure("cpu_us", "CPU µs", False, cpu))
    register(Line(f"requests-{depth}", f"produce requests of one record, {depth} under way", figures, _requests(depth)))


# With one in flight there is no bar for CPU: two processes that wake each other cost more than the request itself.
_add(1, at_least(1.5))
_add(5, at_least(3), at_most(0.35))


def latency_figures(latencies: list[float]) -> dict[str, float]:
    return {"p50_ms": percentile(latencies, 50) * 1e3, "p99_ms": percentile(latencies, 99) * 1e3}


@line(
    "latency",
    "produce to consume at 200 messages/s",
    Figure("p50_ms", "ms", False, (at_most(0.7), at_most(1, "kfake")), title="p50"),
    Figure("p99_ms", "ms", False, (at_most(1),), title="p99"),
)
def latency(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1) as name:
        driven = drive(target, "latency", topic=name, rate=200, limit_seconds=size.pick(5.0, 0.5))
        return latency_figures(driven["latencies"])


@line(
    "waking",
    "100 consumers wait on one partition for one record",
    Figure("first_ms", "ms", False, title="the first has it, p50"),
    Figure("last_ms", "ms", False, (at_most(1),), title="the last has it, p50"),
    Figure("worst_ms", "ms", False, title="the last has it, at worst"),
)
def waking(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1) as name:
        driven = drive(target, "waking", topic=name, consumers=size.pick(100, 5), rounds=size.pick(40, 2))
    first, last = driven["first"], driven["last"]
    return {"first_ms": median(first) * 1e3, "last_ms": median(last) * 1e3, "worst_ms": max(last) * 1e3}
