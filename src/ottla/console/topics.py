"""Operations on topics: the list, one topic, and changes."""

from __future__ import annotations

from typing import Any, Final

from ottla.client import admin
from ottla.client.offsets import bounds
from ottla.client.routing import Client, Partition, Topic
from ottla.console.operations import BadRequest, Call, operation
from ottla.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.errors import KafkaError

_CONFIGS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}


@operation("GET", "/topics")
async def list_topics(call: Call) -> Any:
    """All topics, with their partitions, replicas, size and what is wrong with them."""
    client = call.source.client
    known = await client.metadata()
    sizes = await admin.partition_sizes(client)
    return [_listed(topic, sizes) for _, topic in sorted(known.topics.items()) if not topic.error_code]


def _listed(topic: Topic, sizes: dict[tuple[str, int], int]) -> dict[str, Any]:
    partitions = topic.partitions.values()
    known_sizes = [sizes[topic.name, index] for index in topic.partitions if (topic.name, index) in sizes]
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "bytes": sum(known_sizes) if known_sizes or not topic.partitions else None,
        "under_replicated": sum(is_under_replicated(each) for each in partitions),
        "offline": sum(each.leader < 0 for each in partitions),
    }


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


@operation("GET", "/topics/{topic}")
async def describe_topic(call: Call) -> Any:
    """One topic: each partition with its leader, replicas, offsets and size, and the settings."""
    client = call.source.client
    name = call.path["topic"]
    topic = await client.topic(name)
    led = [(name, index) for index, each in topic.partitions.items() if each.leader >= 0]
    ends = await bounds(client, led)
    sizes = await admin.partition_sizes(client)
    return {
        "name": name,
        "internal": topic.is_internal,
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
    """Create a topic; what is left out takes the broker's default."""
    new = admin.NewTopic(
        call.text("name"),
        _count(call, "partitions"),
        _count(call, "replication_factor"),
        {name: value for name, value in _given_configs(call).items() if value is not None},
    )
    _check((await admin.create_topics(call.source.client, [new]))[new.name])
    return {"name": new.name}


def _count(call: Call, name: str) -> int:
    """A count in the body; -1, Kafka's word for the default, if it is not there."""
    count = call.number(name, -1)
    if not -1 <= count < 1 << 31 or count == 0:
        raise BadRequest(f"{name}={count} is not a number from 1 on")
    return count


def _given_configs(call: Call) -> dict[str, str | None]:
    given = call.body.get("configs", {})
    if not isinstance(given, dict) or not all(value is None or isinstance(value, str) for value in given.values()):
        raise BadRequest("'configs' must be an object with texts, or null for the default")
    return given


def _check(result: Any) -> None:
    if isinstance(result, KafkaError):
        raise result


@operation(
    "PATCH",
    "/topics/{topic}",
    body={"type": "object", "properties": {"partitions": {"type": "integer", "minimum": 1}, "configs": _CONFIGS}},
)
async def change_topic(call: Call) -> Any:
    """Add partitions, or set settings (null takes a setting back to its default)."""
    client = call.source.client
    name = call.path["topic"]
    await client.topic(name)
    if "partitions" in call.body:
        _check((await admin.create_partitions(client, {name: _count(call, "partitions")}))[name])
    changes = [
        (key, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for key, value in _given_configs(call).items()
    ]
    if changes:
        await admin.alter_configs(client, ConfigResourceType.TOPIC, name, changes)
    return {"name": name}


@operation("DELETE", "/topics/{topic}")
async def delete_topic(call: Call) -> Any:
    """Delete a topic and all of its records."""
    name = call.path["topic"]
    await call.source.client.topic(name)
    _check((await admin.delete_topics(call.source.client, [name])).get(name))
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
