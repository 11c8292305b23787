"""The first page: what the cluster is made of, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.client import admin
from ottla.client.routing import Metadata
from ottla.console.operations import Call, operation
from ottla.console.topics import is_under_replicated


@operation("GET", "/overview")
async def overview(call: Call) -> Any:
    """Brokers, and how many topics, partitions and groups there are, with warnings."""
    client = call.source.client
    known = await client.metadata()
    groups = await admin.list_groups(client)
    topics = [topic for topic in known.topics.values() if not topic.error_code]
    partitions = [each for topic in topics for each in topic.partitions.values()]
    led = Counter(each.leader for each in partitions)
    return {
        "cluster_id": known.cluster_id,
        "controller": known.controller_id,
        "brokers": [
            {
                "broker": node.node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "leads": led.get(node.node_id, 0),
                "replicas": sum(node.node_id in each.replicas for each in partitions),
            }
            for node in sorted(known.nodes.values())
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "groups": len(groups),
        "group_kinds": dict(Counter(each.kind.lower() for each in groups)),
        "group_states": dict(Counter(each.state for each in groups)),
        "warnings": _warnings(known),
    }


def _warnings(known: Metadata) -> list[dict[str, Any]]:
    found = []
    for name, topic in sorted(known.topics.items()):
        offline = [index for index, each in topic.partitions.items() if each.leader < 0]
        behind = [index for index, each in topic.partitions.items() if each.leader >= 0 and is_under_replicated(each)]
        if offline:
            found.append({"kind": "no-leader", "topic": name, "partitions": offline})
        if behind:
            found.append({"kind": "under-replicated", "topic": name, "partitions": behind})
    return found
