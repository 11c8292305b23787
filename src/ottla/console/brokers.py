"""Brokers: their settings, their folders, and their connected clients."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client import admin
from ottla.client.routing import Client
from ottla.console.operations import Call, NotFound, given_configs, operation, raise_error
from ottla.console.worker_views import joined
from ottla.enums import AlterConfigOp, ConfigResourceType, ConfigSource
from ottla.errors import KafkaError
from ottla.wire.messages.log_dirs import DescribeLogDirsRequest

_OWN_SOURCES = frozenset(
    {
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
    }
)


async def _node(call: Call) -> str:
    """The broker in the path of a call."""
    name = call.path["broker"]
    nodes = (await call.source.client.metadata([])).nodes
    if not (name.isascii() and name.isdigit()) or int(name) not in nodes:
        raise NotFound(f"there is no broker {name!r}; the brokers are {', '.join(map(str, sorted(nodes)))}")
    return name


@operation("GET", "/brokers/{broker}")
async def describe_broker(call: Call) -> Any:
    """One broker: its address, its settings and its data folders."""
    client = call.source.client
    name = await _node(call)
    node = client.known.nodes[int(name)]
    found = (await admin.describe_configs(client, ConfigResourceType.BROKER, [name], explain=True))[name]
    raise_error(found)
    return {
        "broker": node.node_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "controller": node.node_id == await admin.quorum_leader(client),
        "configs": [
            {
                "name": entry.name,
                "value": None if entry.sensitive else entry.value,
                "sensitive": entry.sensitive,
                "read_only": entry.read_only,
                "source": admin.CONFIG_SOURCES.get(entry.source, "unknown"),
                "default": entry.source not in _OWN_SOURCES,
                "documentation": entry.documentation,
            }
            for entry in (found if isinstance(found, list) else ())
        ],
        "log_dirs": await _log_dirs(client, node.node_id),
    }


async def _log_dirs(client: Client, node_id: int) -> list[dict[str, Any]] | None:
    """None if the broker does not report them."""
    try:
        response = await client.ask(DescribeLogDirsRequest(topics=None), node_id)
    except KafkaError:
        return None
    return [
        {
            "path": result.log_dir,
            "error": None if not result.error_code else str(result.error_code),
            "partitions": sum(len(topic.partitions) for topic in result.topics),
            "bytes": sum(p.partition_size for topic in result.topics for p in topic.partitions),
            "total_bytes": result.total_bytes if result.total_bytes >= 0 else None,
            "usable_bytes": result.usable_bytes if result.usable_bytes >= 0 else None,
        }
        for result in response.results
    ]


@operation(
    "PATCH",
    "/brokers/{broker}",
    body={
        "type": "object",
        "properties": {"configs": {"type": "object", "additionalProperties": {"type": ["string", "null"]}}},
    },
)
async def change_broker(call: Call) -> Any:
    """Set settings of a broker that can change while it runs (null removes a setting)."""
    name = await _node(call)
    changes = [
        (key, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for key, value in given_configs(call).items()
    ]
    if changes:
        await admin.alter_configs(call.source.client, ConfigResourceType.BROKER, name, changes)
    return {"broker": int(name)}


@operation("GET", "/connections", gather=joined)
async def list_connections(call: Call) -> Any:
    """The clients that are connected to the brokers of this process."""
    await asyncio.sleep(0)
    return [
        {
            "broker": broker,
            "peer": connection.peer,
            "client": connection.client_id,
            "listener": connection.listener.name,
            "principal": connection.principal,
            "idle_ms": max(0, round(server.clock.monotonic_ms() - connection.last_active_ms)),
        }
        for broker, server in call.source.need_inside().servers().items()
        for connection in tuple(server.connections)
    ]
