"""Transactions: which are open, what they hold back, their history, and how to abort them."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from ottla.client import transactions as admin
from ottla.client.connection import ClientError
from ottla.client.offsets import list_offsets
from ottla.client.routing import Client, TopicPartition
from ottla.console.operations import Call, NotFound, operation
from ottla.console.worker_views import histories
from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.errors import KafkaError, TransactionalIdNotFound

DESCRIBED_MAX: Final = 200
"""The maximum number of open transactions that the list describes; for others it contains only the name."""


@operation("GET", "/transactions")
async def list_transactions(call: Call) -> Any:
    """All transactional ids; for open transactions, since when and where."""
    client = call.source.client
    listed = await admin.list_transactions(client, partial=True)
    is_open = {each.transactional_id for each in listed if each.state in admin.ONGOING_STATES}
    details = {}
    for transactional_id in sorted(is_open)[:DESCRIBED_MAX]:
        try:
            details[transactional_id] = await admin.describe_transaction(client, transactional_id)
        except (KafkaError, ClientError):  # it has ended, or its coordinator is away
            continue
    return [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
            "coordinator": each.coordinator,
            "open": each.transactional_id in is_open,
            **_opened(call, details.get(each.transactional_id)),
        }
        for each in listed
    ]


def _opened(call: Call, found: admin.Transaction | None) -> dict[str, Any]:
    if found is None:
        return {"start_ms": None, "age_ms": None, "timeout_ms": None, "partitions": []}
    is_open = found.start_ms >= 0 and found.state in admin.ONGOING_STATES
    return {
        "start_ms": found.start_ms if is_open else None,
        "age_ms": max(0, call.source.now_ms() - found.start_ms) if is_open else None,
        "timeout_ms": found.timeout_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in found.partitions],
    }


@operation("GET", "/transactions/{transactional_id}")
async def describe_transaction(call: Call) -> Any:
    """One transactional id: its producer, and each partition of its transaction with the offsets that limit readers."""
    client = call.source.client
    found = await _existing(call)
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        **_opened(call, found),
        "partitions": await held_back(client, found.partitions, found.producer_id),
    }


async def _existing(call: Call) -> admin.Transaction:
    try:
        return await admin.describe_transaction(call.source.client, call.path["transactional_id"])
    except TransactionalIdNotFound:
        raise NotFound(f"there is no transactional id {call.path['transactional_id']!r}") from None


async def held_back(client: Client, partitions: Any, producer_id: int | None = None) -> list[dict[str, Any]]:
    """How far readers of committed records can read in each partition, and which producers hold them back."""
    wanted: list[TopicPartition] = sorted(partitions)
    if not wanted:
        return []
    latest = dict.fromkeys(wanted, int(OffsetTimestamp.LATEST))
    stable = await list_offsets(client, latest, IsolationLevel.READ_COMMITTED)
    ends = await list_offsets(client, latest)
    producers = await admin.describe_producers(client, wanted)
    names: dict[int, str] = {}
    with contextlib.suppress(KafkaError):  # without permission to list them, show the producer ids only
        names = {
            each.producer_id: each.transactional_id for each in await admin.list_transactions(client, partial=True)
        }
    return [
        {
            "topic": tp[0],
            "partition": tp[1],
            "last_stable_offset": stable[tp].offset,
            "high_watermark": ends[tp].offset,
            "first_offset": next(
                (each.transaction_start_offset for each in producers[tp] if each.producer_id == producer_id), None
            ),
            "open": [
                {
                    "transactional_id": names.get(each.producer_id),
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "first_offset": each.transaction_start_offset,
                    "last_ms": each.last_timestamp,
                }
                for each in sorted(producers[tp], key=lambda each: each.transaction_start_offset)
                if each.transaction_start_offset >= 0
            ],
        }
        for tp in wanted
    ]


@operation("GET", "/topics/{topic}/transactions")
async def topic_transactions(call: Call) -> Any:
    """Each partition of a topic with its last stable offset, and the open transactions that hold it back."""
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    led = [(topic.name, index) for index, each in topic.partitions.items() if each.leader >= 0]
    return await held_back(client, led)


@operation("GET", "/transaction-history")
async def transaction_history(call: Call) -> Any:
    """The last steps of the transactional ids that this process coordinates, oldest first."""
    if call.source.is_view:
        return _history(call)
    known = {each.transactional_id for each in await admin.list_transactions(call.source.client)}
    workers = call.source.workers
    found = _history(call) if workers is None else histories(await workers.all("GET", "/transaction-history", {}))
    return {**found, "events": [each for each in found["events"] if each["transactional_id"] in known]}


def _history(call: Call) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    for broker, server in call.source.need_inside().servers().items():
        coordinator = server.transactions.host.in_use
        for shard in () if coordinator is None else coordinator.shards():
            events += [
                {
                    "transactional_id": transactional_id,
                    "broker": broker,
                    "state": each.state.value,
                    "at_ms": each.update_ms,
                    "start_ms": each.start_ms if each.start_ms >= 0 else None,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "partitions": [f"{topic}-{index}" for topic, index in sorted(each.partitions)],
                }
                for transactional_id, each in shard.history
            ]
    return {"now_ms": call.source.now_ms(), "events": sorted(events, key=lambda each: each["at_ms"])}


@operation("POST", "/transactions/{transactional_id}/abort", body={"type": "object"})
async def abort_transaction(call: Call) -> Any:
    """Abort the open transaction of an id and fence its producer."""
    found = await _existing(call)
    await admin.force_terminate(call.source.client, found.transactional_id, found.timeout_ms)
    return {"transactional_id": found.transactional_id}


@operation(
    "POST",
    "/topics/{topic}/partitions/{partition:int}/abort",
    body={"type": "object", "required": ["producer_id"], "properties": {"producer_id": {"type": "integer"}}},
)
async def abort_hanging(call: Call) -> Any:
    """Write an abort marker for a transaction that hangs in a partition: no coordinator knows it."""
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    index, wanted = int(call.path["partition"]), call.number("producer_id")
    if index not in topic.partitions:
        raise NotFound(f"topic {topic.name!r} has no partition {index}")
    tp = (topic.name, index)
    producers = (await admin.describe_producers(client, [tp]))[tp]
    found = next(
        (each for each in producers if each.producer_id == wanted and each.transaction_start_offset >= 0), None
    )
    if found is None:
        raise NotFound(f"producer {wanted} has no transaction open in {topic.name}-{index}")
    await admin.write_abort_marker(client, tp, found)
    return {"topic": topic.name, "partition": index, "producer_id": wanted}
