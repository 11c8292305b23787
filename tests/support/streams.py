"""Heartbeats of Kafka Streams applications: topologies, and the first heartbeat of a member."""

import asyncio
from typing import Any

from ottla.client import Client
from ottla.wire.messages import StreamsGroupHeartbeatRequest as Beat


def info(name: str, partitions: int = 0, factor: int = 0, **configs: str) -> Any:
    """A repartition or changelog topic; config names with underscores for dots."""
    pairs = [Beat.KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return Beat.TopicInfo(name=name, partitions=partitions, replication_factor=factor, topic_configs=pairs)


def subtopology(name: str, *sources: str, **more: Any) -> Any:
    fields = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **more,
    }
    return Beat.Subtopology(subtopology_id=name, source_topics=list(sources), **fields)


def together(sources: list[int], repartition: list[int] | None = None) -> Any:
    return Beat.CopartitionGroup(
        source_topics=sources, source_topic_regex=[], repartition_source_topics=repartition or []
    )


def topology(*subtopologies: Any, epoch: int = 0) -> Any:
    return Beat.Topology(epoch=epoch, subtopologies=list(subtopologies))


def joining(group: str, source: str, changelog: str | None = None, factor: int = 0, member: str = "m") -> Beat:
    """The first heartbeat of an application that reads one topic, optionally with a changelog topic."""
    stores = [info(changelog, factor=factor)] if changelog else []
    return Beat(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=topology(subtopology("0", source, state_changelog_topics=stores)),
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def beat(bootstrap: str, group: str, topic: str, epoch: int) -> Any:
    """Send a heartbeat of the only member of a group that reads one topic: the first with epoch 0, the last with -1."""
    request = joining(group, topic) if epoch == 0 else Beat(group_id=group, member_id="m", member_epoch=epoch)

    async def main() -> Any:
        async with Client(bootstrap) as client:
            return await client.retrying(lambda: client.ask_coordinator(group, request))

    return asyncio.run(main())
