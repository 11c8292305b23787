"""Small requests: how many a second on one connection, what one costs the broker, and how long a message takes."""

from __future__ import annotations

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


def _add(depth: int, rate: Bar) -> None:
    figures = (Figure("rate", "requests/s", True, (rate,)), Figure("cpu_us", "CPU µs", False, (at_most(0.35),)))
    register(Line(f"requests-{depth}", f"produce requests of one record, {depth} under way", figures, _requests(depth)))


_add(1, at_least(1.5))
_add(5, at_least(3))


def latency_figures(latencies: list[float]) -> dict[str, float]:
    return {"p50_ms": percentile(latencies, 50) * 1e3, "p99_ms": percentile(latencies, 99) * 1e3}


@line(
    "latency",
    "produce to consume at 200 messages/s",
    Figure("p50_ms", "ms", False, (at_most(0.7),), title="p50"),
    Figure("p99_ms", "ms", False, (at_most(1),), title="p99"),
)
def latency(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1) as name:
        driven = drive(target, "latency", topic=name, rate=200, limit_seconds=size.pick(5.0, 0.5))
        return latency_figures(driven["latencies"])
