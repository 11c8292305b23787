"""Records of any Kafka cluster, fetched as whole batches with Ottla's client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.client import Client, ClientError
from ottla.client.admin import partition_sizes
from ottla.client.fetcher import AnyBatch, Fetcher, visible
from ottla.client.offsets import bounds, list_offsets
from ottla.errors import KafkaError, OffsetOutOfRange
from ottla.spark.options import Connection, TopicPartition
from ottla.spark.origin import Bounds, DataLost, Lost, SourceError

FETCH_BYTES: Final = 4 << 20
STUCK_POLLS: Final = 240
"""How many half-second fetches may return no batch, although the broker reported offsets, before a task fails."""

T = TypeVar("T")


class WireOrigin:
    """Runs calls of the asynchronous client one after the other on its own event loop."""

    def __init__(self, connection: Connection, isolation: int) -> None:
        self._connection = connection
        self._isolation = isolation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._sizes: dict[TopicPartition, int] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.loop.run_until_complete(work)
        except (KafkaError, ClientError) as error:
            raise SourceError(f"{self._connection.bootstrap}: {error}") from error

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self._connection.bootstrap, security=self._connection.security())
        return self._client

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            if self._client is not None:
                self._loop.run_until_complete(self._client.close())
            self._loop.close()
        self._loop = self._client = None

    def topics(self, names: Sequence[str] | None) -> dict[str, list[int]]:
        found = self.run(self.client.metadata(names)).topics
        wanted = found.values() if names is None else [found[name] for name in names if name in found]
        return {
            topic.name: sorted(topic.partitions)
            for topic in wanted
            if not topic.error_code and (names is not None or not topic.is_internal)
        }

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        found = self.run(bounds(self.client, partitions, self._isolation))
        return {tp: Bounds(*pair) for tp, pair in found.items()}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        if not times_ms:
            return {}
        found = self.run(list_offsets(self.client, times_ms, self._isolation))
        return {tp: one.offset if one.offset >= 0 else None for tp, one in found.items()}

    def byte_size(self, tp: TopicPartition, start: int, end: int) -> int:
        """Estimated from the mean size of a partition's records, because brokers do not report the sizes of ranges."""
        if tp not in self._sizes:
            self._sizes = self.run(partition_sizes(self.client))
        limits = self.bounds([tp])[tp]
        return self._sizes.get(tp, 0) * (end - start) // max(limits.end - limits.start, 1)

    def offset_within(self, tp: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        size = self.byte_size(tp, start, end)
        if size <= max_bytes:
            return end
        return min(end, start + max(1, (end - start) * max_bytes // size))

    def read(self, tp: TopicPartition, start: int, end: int, lost: Lost) -> Iterator[Sequence[AnyBatch]]:
        gaps: list[tuple[int, int]] = []
        fetcher = Fetcher(
            self.client,
            {tp: start},
            isolation=self._isolation,
            partition_bytes=FETCH_BYTES,
            on_gap=lambda _, gone, there: gaps.append((gone, there)),
        )
        idle = 0
        try:
            while fetcher.positions[tp] < end:
                try:
                    found = self._poll(fetcher)
                except OffsetOutOfRange as error:
                    # The log ends before the planned end: the topic was recreated in between.
                    raise DataLost(f"{tp[0]}-{tp[1]}: {error.message}") from None
                for gone, there in gaps:
                    lost(gone, there)
                gaps.clear()
                idle = 0 if found else idle + 1
                if idle > STUCK_POLLS:
                    raise SourceError(f"{tp[0]}-{tp[1]}: nothing came at offset {fetcher.positions[tp]} before {end}")
                for one in found:
                    yield list(visible(one.batches, one.aborted))
        finally:
            self.run(fetcher.close())

    def _poll(self, fetcher: Fetcher) -> list[Any]:
        try:
            return self.loop.run_until_complete(fetcher.poll())
        except OffsetOutOfRange:
            raise
        except (KafkaError, ClientError) as error:
            raise SourceError(f"{self._connection.bootstrap}: {error}") from error
