"""Operations on topics: the list, one topic, and changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ottla.client import admin
from ottla.client.offsets import bounds, committed_of_groups
from ottla.client.routing import Client, Partition, Topic, TopicPartition
from ottla.console.operations import BadRequest, Call, Parameter, given_configs, operation, raise_error
from ottla.console.reachable import if_reachable
from ottla.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.errors import KafkaError

_CONFIGS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}

_GROUPS_AT_ONCE: Final = 100
"""Groups per offset request; other clients are served between two requests."""


@operation(
    "GET",
    "/topics",
    query=(Parameter("offsets", "boolean", default=False, help="with the sums of start and end offsets"),),
)
async def list_topics(call: Call) -> Any:
    """All topics, with their partitions, replicas, size and problems."""
    client = call.source.client
    known = await client.metadata()
    sizes = await admin.partition_sizes(client, partial=True)
    topics = [topic for _, topic in sorted(known.topics.items()) if not topic.error_code]
    led = [(topic.name, index) for topic in topics for index, each in topic.partitions.items() if each.leader >= 0]
    ends = await if_reachable(lambda: bounds(client, led)) if call.query["offsets"] else {}
    return [_listed(topic, sizes, ends) for topic in topics]


def _listed(
    topic: Topic, sizes: dict[TopicPartition, int], ends: Mapping[TopicPartition, tuple[int, int]]
) -> dict[str, Any]:
    partitions = topic.partitions.values()
    known_sizes = [sizes[topic.name, index] for index in topic.partitions if (topic.name, index) in sizes]
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "bytes": sum(known_sizes) if known_sizes or not topic.partitions else None,
        "start_offsets": sum(ends[tp][0] for tp in own) if (own := _known(topic, ends)) is not None else None,
        "end_offsets": sum(ends[tp][1] for tp in own) if own is not None else None,
        "under_replicated": sum(is_under_replicated(each) for each in partitions),
        "offline": sum(each.leader < 0 for each in partitions),
    }


def _known(topic: Topic, ends: Mapping[TopicPartition, tuple[int, int]]) -> list[TopicPartition] | None:
    """The partitions whose offsets are known; None without any."""
    return [(topic.name, index) for index in topic.partitions if (topic.name, index) in ends] or None


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


@operation("GET", "/topics/{topic}")
async def describe_topic(call: Call) -> Any:
    """One topic: each partition with its leader, replicas, offsets and size, and the settings."""
    client = call.source.client
    name = call.path["topic"]
    topic = await client.topic(name)
    led = [(name, index) for index, each in topic.partitions.items() if each.leader >= 0]
    ends = await if_reachable(lambda: bounds(client, led))
    sizes = await admin.partition_sizes(client, partial=True)
    return {
        "name": name,
        "internal": topic.is_internal,
        "bootstrap": next((f"{node.host}:{node.port}" for node in sorted(client.known.nodes.values())), None),
        "partitions": [
            {
                "partition": index,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": list(each.isr),
                "offline": list(each.offline),
                "start_offset": ends[name, index][0] if (name, index) in ends else None,
                "end_offset": ends[name, index][1] if (name, index) in ends else None,
                "bytes": sizes.get((name, index)),
            }
            for index, each in topic.partitions.items()
        ],
        "configs": await _configs(client, name),
    }


async def _configs(client: Client, name: str) -> list[dict[str, Any]]:
    found = (await admin.describe_configs(client, ConfigResourceType.TOPIC, [name], explain=True))[name]
    if isinstance(found, KafkaError):
        raise found
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": admin.CONFIG_SOURCES.get(entry.source, "unknown"),
            "default": entry.source != ConfigSource.DYNAMIC_TOPIC_CONFIG,
            "documentation": entry.documentation,
        }
        for entry in sorted(found)
    ]


@operation(
    "POST",
    "/topics",
    body={
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "partitions": {"type": "integer", "minimum": 1},
            "replication_factor": {"type": "integer", "minimum": 1},
            "configs": _CONFIGS,
        },
    },
)
async def create_topic(call: Call) -> Any:
    """Create a topic; missing values get the broker's defaults."""
    new = admin.NewTopic(
        call.text("name"),
        _count(call, "partitions"),
        _count(call, "replication_factor"),
        {name: value for name, value in given_configs(call).items() if value is not None},
    )
    raise_error((await admin.create_topics(call.source.client, [new]))[new.name])
    return {"name": new.name}


def _count(call: Call, name: str) -> int:
    """A count in the body, or -1, which means Kafka's default."""
    count = call.number(name, -1)
    if not -1 <= count < 1 << 31 or count == 0:
        raise BadRequest(f"{name}={count} is not a number from 1 on")
    return count


@operation(
    "PATCH",
    "/topics/{topic}",
    body={"type": "object", "properties": {"partitions": {"type": "integer", "minimum": 1}, "configs": _CONFIGS}},
)
async def change_topic(call: Call) -> Any:
    """Add partitions, or set settings (null resets a setting to its default)."""
    client = call.source.client
    name = call.path["topic"]
    await client.topic(name)
    if "partitions" in call.body:
        raise_error((await admin.create_partitions(client, {name: _count(call, "partitions")}))[name])
    changes = [
        (key, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for key, value in given_configs(call).items()
    ]
    if changes:
        await admin.alter_configs(client, ConfigResourceType.TOPIC, name, changes)
    return {"name": name}


@operation("GET", "/topics/{topic}/groups")
async def topic_groups(call: Call) -> Any:
    """The groups that have committed offsets in a topic, with their lag in it."""
    client = call.source.client
    topic = await client.topic(call.path["topic"])
    led = [(topic.name, index) for index, each in topic.partitions.items() if each.leader >= 0]
    ends = await bounds(client, led)
    found = []
    for node_id, groups in (await admin.groups_by_coordinator(client, partial=True)).items():
        for at in range(0, len(groups), _GROUPS_AT_ONCE):
            share = {each.group: each for each in groups[at : at + _GROUPS_AT_ONCE] if each.kind.lower() != "share"}
            committed = await committed_of_groups(client, node_id, share, {topic.name: list(topic.partitions)})
            found += [
                {
                    "group": group,
                    "kind": share[group].kind.lower(),
                    "state": share[group].state,
                    "partitions": len(offsets),
                    "lag": sum(max(0, ends[tp][1] - offset) for tp, offset in offsets.items() if tp in ends),
                }
                for group, offsets in committed.items()
                if offsets
            ]
            await asyncio.sleep(0)
    return sorted(found, key=lambda each: each["group"])


@operation("DELETE", "/topics/{topic}")
async def delete_topic(call: Call) -> Any:
    """Delete a topic and all of its records."""
    name = call.path["topic"]
    await call.source.client.topic(name)
    raise_error((await admin.delete_topics(call.source.client, [name])).get(name))
    return {"name": name}


@operation("POST", "/topics/{topic}/empty", body={"type": "object"})
async def empty_topic(call: Call) -> Any:
    """Delete all records of a topic, and keep the topic and its offsets."""
    client = call.source.client
    name = call.path["topic"]
    topic = await client.topic(name)
    ends = await bounds(client, [(name, index) for index in topic.partitions])
    starts = await admin.delete_records(client, {tp: end for tp, (_, end) in ends.items()})
    return {"start_offsets": {str(index): start for (_, index), start in sorted(starts.items())}}
