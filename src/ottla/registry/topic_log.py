"""The registry's log on a Kafka cluster: one partition of a compacted topic, accessed with an ordinary client.

It therefore works with any cluster: one broker, several in a process, worker processes, or Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.client.admin import NewTopic, create_topics, describe_configs
from ottla.client.connection import ClientError
from ottla.client.fetcher import Fetcher, visible
from ottla.client.offsets import bounds
from ottla.client.producer import Producer
from ottla.client.routing import Client
from ottla.enums import ConfigResourceType
from ottla.errors import InvalidReplicationFactor, KafkaError, TopicAlreadyExists
from ottla.records.batch import build_batch
from ottla.records.record import Record as KafkaRecord

from .log import TOPIC
from .records import Record, StoredRecord

MAX_REPLICAS = 3


class TopicLog:
    """Reads and writes `_schemas`. Call `open` first; the caller owns the client."""

    def __init__(self, client: Client, now_ms: Callable[[], int], topic: str = TOPIC) -> None:
        self._client = client
        self._now_ms = now_ms
        self._partition = (topic, 0)
        self._producer = Producer(client)

    async def open(self) -> None:
        """Create the topic if it does not exist. Raises OSError if a registry cannot use the existing one."""
        topic = self._partition[0]
        try:
            nodes = (await self._client.refresh([topic])).nodes
            created = await self._create(min(MAX_REPLICAS, len(nodes)))
            if isinstance(created, InvalidReplicationFactor):
                # Workers of one broker share a log, and brokers may be down: use the cluster's default.
                created = await self._create(-1)
            if not isinstance(created, KafkaError):
                return
            if not isinstance(created, TopicAlreadyExists):
                raise created
            await self._check()
        except (KafkaError, ClientError) as error:
            raise OSError(f"the topic {topic} cannot be opened: {error}") from error

    async def _create(self, replicas: int) -> object:
        topic = self._partition[0]
        wanted = NewTopic(topic, 1, replicas, {"cleanup.policy": "compact"})
        return (await create_topics(self._client, [wanted]))[topic]

    async def _check(self) -> None:
        topic = self._partition[0]
        known = (await self._client.refresh([topic])).topics[topic]
        if len(known.partitions) != 1:
            raise OSError(f"the topic {topic} has {len(known.partitions)} partitions, and a registry needs one")
        configs = await describe_configs(self._client, ConfigResourceType.TOPIC, [topic])
        entries = configs[topic]
        if isinstance(entries, KafkaError):
            raise entries
        policy = next((entry.value for entry in entries if entry.name == "cleanup.policy"), None)
        if policy != "compact":
            raise OSError(
                f"the topic {topic} has cleanup.policy={policy}, which would delete schemas; set it to compact"
            )

    async def append(self, records: Sequence[Record]) -> list[StoredRecord]:
        now = self._now_ms()
        batch = build_batch([KafkaRecord(index, now, record.key, record.value) for index, record in enumerate(records)])
        try:
            first = await self._producer.append(self._partition, batch)
        except BaseException as error:
            # The batch may have been written. If the producer reused its sequence number, the broker would
            # mistake the next batch for a duplicate.
            self._producer = Producer(self._client)
            if isinstance(error, (KafkaError, ClientError)):
                raise OSError(str(error)) from error
            raise
        if first < 0:
            # An earlier attempt wrote the batch, but its answer was lost, so the offset is unknown.
            raise OSError("the broker did not say at which offset the records are")
        return [StoredRecord(first + index, now, *record) for index, record in enumerate(records)]

    async def read(self, offset: int) -> list[StoredRecord]:
        try:
            return await self._read(offset)
        except (KafkaError, ClientError) as error:
            raise OSError(str(error)) from error

    async def _read(self, offset: int) -> list[StoredRecord]:
        start, end = (await bounds(self._client, [self._partition]))[self._partition]
        position = max(offset, start)
        found: list[StoredRecord] = []
        fetcher = Fetcher(self._client, {self._partition: position})
        try:
            while fetcher.positions[self._partition] < end:
                for part in await fetcher.poll():
                    found += [
                        StoredRecord(record.offset, record.timestamp, record.key, record.value)
                        for batch in visible(part.batches, part.aborted)
                        for record in batch.records()
                        if position <= record.offset < end
                    ]
        finally:
            await fetcher.close()
        return found
