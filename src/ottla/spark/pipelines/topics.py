"""The cluster that a Spark job works with: its topics, their offsets, and the group that shows the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.client.offsets import Committed

T = TypeVar("T")
TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The current state of a topic. The id changes when it is deleted and recreated."""

    name: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class BlockingClient:
    """Short calls to a cluster, each over its own connection. Can be sent to executors."""

    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    timeout_s: float = 30.0

    def call(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a call in a separate thread, because a notebook's thread already has an event loop."""

        async def main() -> T:
            async with self.client() as client:
                return await work(client)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(main())).result()

    def client(self) -> Client:
        from ottla.client import Client, Security

        try:
            security = Security.from_properties(self.properties) if self.properties else None
            return Client(self.bootstrap, security=security, retry_timeout_s=self.timeout_s)
        except ValueError as error:
            raise PipelineError(f"the connection to {self.bootstrap}: {error}") from None

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicInfo]:
        """All topics except internal ones."""

        async def ask(client: Client) -> dict[str, TopicInfo]:
            from ottla.client.routing import named

            known = (await client.metadata()).topics.values()
            return {
                topic.name: TopicInfo(topic.name, named(topic.topic_id) or "", len(topic.partitions))
                for topic in known
                if not topic.is_internal and not topic.error_code
            }

        return self.call(ask)

    def resolve(self, patterns: Sequence[str]) -> dict[str, TopicInfo]:
        """Topics by name or shell pattern; each must match something."""
        if not patterns:
            raise PipelineError("no topic is named")
        known = self.topics()
        found: dict[str, TopicInfo] = {}
        for pattern in patterns:
            hits = [pattern] if pattern in known else sorted(name for name in known if fnmatchcase(name, pattern))
            if not hits:
                what = "no topic matches" if any(char in pattern for char in "*?[") else "there is no topic"
                raise PipelineError(f"{what} '{pattern}' on {self.bootstrap}; `ottla topics list` shows what there is")
            found.update((name, known[name]) for name in hits)
        return found

    def cluster_id(self) -> str:
        async def ask(client: Client) -> str:
            return (await client.metadata([])).cluster_id or ""

        return self.call(ask)

    def ensure_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, *, at_least: int = 1
    ) -> None:
        """Create a topic unless it exists. It is an error if it has too few partitions."""

        async def ask(client: Client) -> None:
            from ottla.client.admin import NewTopic, create_topics
            from ottla.errors import KafkaError, TopicAlreadyExists

            known = (await client.metadata()).topics.get(name)
            if known is None or known.error_code:
                result = (await create_topics(client, [NewTopic(name, partitions, -1, dict(configs or {}))]))[name]
                if isinstance(result, KafkaError) and not isinstance(result, TopicAlreadyExists):
                    raise PipelineError(f"topic '{name}' cannot be created: {result.message}")
                # Apache Kafka acknowledges a topic shortly before all of its brokers know it.
                await _known_everywhere(client, name)
            elif len(known.partitions) < at_least:
                raise PipelineError(
                    f"topic '{name}' has {len(known.partitions)} partitions and {at_least} are needed; add some: "
                    f"ottla topics alter {name} -p {at_least}"
                )

        self.call(ask)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def bounds(
        self, partitions: Iterable[TopicPartition], committed: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the end of each partition. For committed reads the end is the last stable offset."""
        wanted = list(partitions)

        async def ask(client: Client) -> dict[TopicPartition, tuple[int, int]]:
            from ottla.client.offsets import bounds

            return await bounds(
                client, wanted, IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            )

        return self.call(ask)

    def at_time(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> Offsets:
        """The first offset at or after a time, or the end of the partition if all records are older."""
        wanted = list(partitions)

        async def ask(client: Client) -> Offsets:
            from ottla.client.offsets import list_offsets

            found = await list_offsets(client, dict.fromkeys(wanted, timestamp_ms))
            ends = await list_offsets(client, dict.fromkeys(wanted, OffsetTimestamp.LATEST))
            return {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp].offset for tp in wanted}

        return self.call(ask)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], texts: Mapping[TopicPartition, str] | None = None
    ) -> None:
        """Show progress to `ottla groups` and kafka-consumer-groups."""

        async def ask(client: Client) -> None:
            from ottla.client.offsets import Committed, commit

            words = texts or {}
            entries = {tp: Committed(offset, metadata=words.get(tp, "")) for tp, offset in offsets.items()}
            await commit(client, group, entries)

        self.call(ask)

    def committed(self, group: str, *, stable: bool = False) -> dict[TopicPartition, Committed]:
        """With `stable`, wait for commits of ongoing transactions."""

        async def ask(client: Client) -> dict[TopicPartition, Committed]:
            from ottla.client.offsets import committed

            return await client.retrying(lambda: committed(client, group, stable=stable))

        return self.call(ask)

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets."""
        wanted = list(partitions)

        async def ask(client: Client) -> None:
            from ottla.client.offsets import delete_offsets

            if wanted:
                await delete_offsets(client, group, wanted)

        self.call(ask)


async def _known_everywhere(client: Client, name: str) -> None:
    from ottla.errors import LeaderNotAvailable

    async def attempt() -> None:
        topic = (await client.refresh([name])).topics.get(name)
        if topic is None or topic.error_code or any(p.leader < 0 for p in topic.partitions.values()):
            raise LeaderNotAvailable(f"topic '{name}' has no leader yet")

    await client.retrying(attempt)


def partitions_of(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics.values() for index in range(topic.partitions)]


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the format of Spark and our manifests: {"topic": {"0": 23}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def flat(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(p)): int(offset) for topic, inner in offsets.items() for p, offset in inner.items()}
