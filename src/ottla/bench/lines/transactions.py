"""Transactions a second, one producer."""

from __future__ import annotations

import itertools

from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Size, at_least, line
from ottla.bench.targets import Target

_numbers = itertools.count(1)


@line(
    "transactions",
    "transactions of one record, one producer",
    Figure("rate", "transactions/s", True, (at_least(1),)),
    Figure("cpu_us", "CPU µs", False),
)
def transactions(target: Target, size: Size) -> dict[str, float]:
    with topic(target, 1) as name:
        driven = drive(
            target,
            "transactions",
            topic=name,
            transactional_id=f"bench-{next(_numbers)}",
            record_bytes=100,
            records=1,
            limit=10**9,
            limit_seconds=size.pick(3.0, 0.5),
            abort_every=0,
        )
    figures = {"rate": driven["transactions"] / driven.seconds}
    if driven.broker_cpu_seconds is not None:
        figures["cpu_us"] = driven.broker_cpu_seconds / driven["transactions"] * 1e6
    return figures
