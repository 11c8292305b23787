"""Transactions per second of one producer."""

from __future__ import annotations

import itertools

from ottla.bench.lines.topics import topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, Size, at_least, line
from ottla.bench.targets import Target
from ottla.metadata.topics import TRANSACTION_STATE_TOPIC

_numbers = itertools.count(1)


def placed_id(target: Target, topic_name: str, *, across: bool) -> str:
    """A new transactional id whose coordinator leads partition 0 or, with `across`, is another broker if possible."""
    with target.client() as client:
        leader = client.leaders(topic_name)[0]
        client.await_coordinator("any", "transaction")  # so that the internal topic exists
        is_alone = len(set(client.leaders(TRANSACTION_STATE_TOPIC))) == 1
        while True:
            transactional_id = f"bench-{next(_numbers)}"
            if is_alone or (client.coordinator(transactional_id, "transaction") != leader) == across:
                return transactional_id


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
