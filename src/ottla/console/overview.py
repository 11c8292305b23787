"""The first page: a summary of the cluster, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.client import admin, transactions
from ottla.client.offsets import list_offsets
from ottla.client.routing import Client, Metadata
from ottla.console.operations import Call, operation
from ottla.console.reachable import if_reachable
from ottla.console.topics import is_under_replicated
from ottla.enums import OffsetTimestamp
from ottla.errors import KafkaError

HANGING_MS: Final = 60_000
"""A transaction hangs if it is open for longer than its own timeout plus this."""
_DESCRIBED_MAX: Final = 50
_PARTITIONS_MAX: Final = 20_000
"""In clusters with more partitions than this, the end offsets are not read every few seconds."""


@operation("GET", "/overview")
async def overview(call: Call) -> Any:
    """Brokers, stored data, throughput, and warnings."""
    client = call.source.client
    known = await client.metadata()
    listed = await admin.groups_by_coordinator(client, partial=True)
    groups = [each for found in listed.values() for each in found]
    topics = [topic for topic in known.topics.values() if not topic.error_code]
    partitions = [each for topic in topics for each in topic.partitions.values()]
    led = Counter(each.leader for each in partitions)
    open_transactions = await _open_transactions(client)
    await call.source.lags.look(client, listed)
    connected = await _connected(call)
    return {
        "cluster_id": known.cluster_id,
        "controller": await admin.quorum_leader(client),
        "now_ms": call.source.now_ms(),
        "brokers": [
            {
                "broker": node.node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "leads": led.get(node.node_id, 0),
                "replicas": sum(node.node_id in each.replicas for each in partitions),
                "in_sync": sum(node.node_id in each.isr for each in partitions),
                "connections": None if connected is None else connected.get(node.node_id, 0),
            }
            for node in sorted(known.nodes.values())
        ],
        "topics": sum(not topic.is_internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics if not topic.is_internal),
        "groups": len(groups),
        "group_kinds": dict(Counter(each.kind.lower() for each in groups)),
        "group_states": dict(Counter(each.state for each in groups)),
        "open_transactions": None if open_transactions is None else len(open_transactions),
        "connections": None if connected is None else sum(connected.values()),
        "bytes": sum((await admin.partition_sizes(client, partial=True)).values()),
        "end_offsets": await _end_offsets(client, known),
        "warnings": [
            *_partition_warnings(known),
            *({"kind": "lag-grows", "group": group, "lag": lag} for group, lag in sorted(call.source.lags.growing())),
            *[each async for each in _hanging(call, open_transactions or [])],
        ],
    }


async def _connected(call: Call) -> Mapping[int, int] | None:
    """How many clients are connected to each broker; None if only the brokers' own processes know."""
    if call.source.workers is not None:
        found = await call.source.workers.all("GET", "/connections", {})
        return Counter(each["broker"] for answer in found for each in answer)
    if call.source.inside is None:
        return None
    return {broker: len(server.connections) for broker, server in call.source.inside.servers().items()}


async def _open_transactions(client: Client) -> list[transactions.TransactionListing] | None:
    """None if the cluster does not report them."""
    try:
        return await transactions.list_transactions(client, transactions.ONGOING_STATES, partial=True)
    except KafkaError:
        return None


async def _end_offsets(client: Client, known: Metadata) -> int | None:
    """The sum over all user partitions. The page computes the records per second from its growth."""
    wanted = [
        (name, index)
        for name, topic in known.topics.items()
        if not topic.is_internal and not topic.error_code
        for index, each in topic.partitions.items()
        if each.leader >= 0
    ]
    if len(wanted) > _PARTITIONS_MAX:
        return None
    found = await if_reachable(lambda: list_offsets(client, dict.fromkeys(wanted, int(OffsetTimestamp.LATEST))))
    return sum(each.offset for each in found.values()) if len(found) == len(wanted) else None


def _partition_warnings(known: Metadata) -> Iterator[dict[str, Any]]:
    for name, topic in sorted(known.topics.items()):
        offline = [index for index, each in topic.partitions.items() if each.leader < 0]
        behind = [index for index, each in topic.partitions.items() if each.leader >= 0 and is_under_replicated(each)]
        if offline:
            yield {"kind": "no-leader", "topic": name, "partitions": offline}
        if behind:
            yield {"kind": "under-replicated", "topic": name, "partitions": behind}


async def _hanging(call: Call, listed: list[transactions.TransactionListing]) -> Any:
    for each in listed[:_DESCRIBED_MAX]:
        try:
            found = await transactions.describe_transaction(call.source.client, each.transactional_id)
        except KafkaError:
            continue
        age_ms = call.source.now_ms() - found.start_ms
        if found.start_ms >= 0 and age_ms > found.timeout_ms + HANGING_MS:
            yield {"kind": "hanging-transaction", "transactional_id": found.transactional_id, "age_ms": age_ms}
