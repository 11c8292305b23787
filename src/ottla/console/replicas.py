"""The current replicas: the log end offset and the high watermark of each, and which are in sync."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.console.operations import Call, NotFound, Parameter, operation
from ottla.console.worker_views import replicas as merged_replicas

if TYPE_CHECKING:
    from ottla.server.broker import Broker

PARTITIONS_MAX: Final = 200
"""The maximum number of partitions in one answer."""


@operation(
    "GET",
    "/replicas",
    query=(Parameter("topic"), Parameter("partition", "integer", minimum=0, maximum=(1 << 31) - 1)),
    gather=merged_replicas,
)
async def list_replicas(call: Call) -> Any:
    """Partitions with each of their replicas: where its log ends, its high watermark, and whether it is in sync."""
    servers = call.source.need_inside().servers()
    known = await call.source.client.metadata(None if call.query["topic"] is None else [call.query["topic"]])
    if call.query["topic"] is not None:
        await call.source.client.topic(call.query["topic"])
    wanted = call.query["partition"]
    partitions = [
        (name, index, each)
        for name, topic in sorted(known.topics.items())
        if call.query["topic"] in (None, name) and not topic.error_code
        if call.query["topic"] is not None or not topic.is_internal
        for index, each in topic.partitions.items()
        if wanted in (None, index)
    ]
    if wanted is not None and not partitions:
        raise NotFound(f"there is no partition {wanted}")
    return {
        "brokers": sorted(known.nodes),
        "running": sorted(servers),
        "left_out": max(0, len(partitions) - PARTITIONS_MAX),
        "partitions": [
            {
                "topic": name,
                "partition": index,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "in_sync": list(each.isr),
                "replicas": [_replica(servers.get(broker), broker, name, index) for broker in each.replicas],
            }
            for name, index, each in islice(partitions, PARTITIONS_MAX)
        ],
    }


def _replica(server: Broker | None, broker: int, topic: str, index: int) -> dict[str, Any]:
    replica = None if server is None else server.replicas.get(topic, index)
    if replica is None:
        return {"broker": broker, "running": server is not None, "end_offset": None, "high_watermark": None}
    log = replica.log
    return {
        "broker": broker,
        "running": True,
        "start_offset": log.log_start_offset,
        "end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
    }
