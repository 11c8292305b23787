"""Fetches from many leaders at once, and filters records for read_committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.connection import ClientError, ConnectionLost
from ottla.client.offsets import grouped, list_offsets
from ottla.client.routing import FIRST_BACKOFF_S, LAST_BACKOFF_S, Client, TopicPartition
from ottla.enums import ControlRecordType, IsolationLevel, OffsetTimestamp
from ottla.errors import KafkaError, OffsetOutOfRange, error_for
from ottla.records.batch import Batch
from ottla.records.legacy import LegacyBatch, any_batches
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

FETCH_BYTES: Final = 16 << 20
PARTITION_BYTES: Final = 1 << 20
MAX_WAIT_MS: Final = 500

AnyBatch: TypeAlias = Batch | LegacyBatch


class Fetched(NamedTuple):
    """The result of one fetch for a partition."""

    tp: TopicPartition
    batches: Sequence[AnyBatch]
    aborted: Sequence[tuple[int, int]]
    high_watermark: int
    log_start_offset: int


def visible(batches: Iterable[AnyBatch], aborted: Iterable[tuple[int, int]]) -> Iterator[AnyBatch]:
    """The data batches, without markers and without aborted transactions (producer id, first offset)."""
    upcoming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    active: set[int] = set()
    for batch in batches:
        while upcoming and upcoming[-1][1] <= batch.last_offset:
            active.add(upcoming.pop()[0])
        if isinstance(batch, Batch) and batch.is_control:
            if batch.producer_id in active and batch.record_count and batch.control_type() == ControlRecordType.ABORT:
                active.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in active:
            continue
        yield batch


class Fetcher:
    """Keeps one fetch in flight per leader. `positions` may change between polls; `paused` ones are not fetched."""

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        *,
        isolation: int = IsolationLevel.READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
        partition_bytes: int = PARTITION_BYTES,
        on_gap: Callable[[TopicPartition, int, int], None] | None = None,
    ) -> None:
        self._client = client
        self.positions = dict(positions)
        self.paused: set[TopicPartition] = set()
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        self._partition_bytes = partition_bytes
        self._on_gap = on_gap
        self._tasks: dict[int, asyncio.Task[tuple[dict[TopicPartition, int], FetchResponse]]] = {}
        self._stale: set[str] = {topic for topic, _ in positions}
        self._backoff_s = FIRST_BACKOFF_S
        self._deadline: float | None = None

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def poll(self) -> list[Fetched]:
        """Wait for an answer from any leader. Empty if no records arrived in time, or if there is nothing to fetch."""
        try:
            if self._stale:
                await self._client.refresh(self._stale)
                self._stale = set()
            self._start_fetches()
        except (KafkaError, ConnectionLost) as error:
            await self._wait_or_raise(error)
            return []
        if not self._tasks:
            return []
        done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        found: list[Fetched] = []
        for node_id in [node for node, task in self._tasks.items() if task in done]:
            task = self._tasks.pop(node_id)
            try:
                asked, response = task.result()
                if response.error_code:
                    raise error_for(response.error_code)
                found += await self._take(asked, response)
            except (KafkaError, ConnectionLost) as error:
                self._stale |= {topic for topic, _ in self.positions}
                await self._wait_or_raise(error)
        if found:
            self._backoff_s, self._deadline = FIRST_BACKOFF_S, None
        return found

    async def _wait_or_raise(self, error: KafkaError | ConnectionLost) -> None:
        """Back off after a temporary failure, or raise it if it has lasted too long."""
        loop = asyncio.get_running_loop()
        if isinstance(error, KafkaError) and not error.retriable:
            raise error
        if self._deadline is None:
            self._deadline = loop.time() + self._client.retry_timeout_s
        if loop.time() > self._deadline:
            raise error
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, LAST_BACKOFF_S)

    def _start_fetches(self) -> None:
        shares: dict[int, dict[TopicPartition, int]] = {}
        for tp, position in self.positions.items():
            if tp not in self.paused:
                shares.setdefault(self._client.leader_of(tp), {})[tp] = position
        for node_id, share in shares.items():
            if node_id not in self._tasks:
                self._tasks[node_id] = asyncio.create_task(self._fetch(node_id, share))

    async def _fetch(
        self, node_id: int, share: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], FetchResponse]:
        entry = FetchRequest.FetchPartition
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        entry(
                            partition=index,
                            fetch_offset=share[topic, index],
                            partition_max_bytes=self._partition_bytes,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(share).items()
            ],
        )
        return share, await self._client.ask(request, node_id)

    async def _take(self, asked: Mapping[TopicPartition, int], response: FetchResponse) -> list[Fetched]:
        found = []
        failure: KafkaError | None = None
        for topic in response.responses:
            for data in topic.partitions:
                tp = (topic.topic, data.partition_index)
                if tp in self.paused or self.positions.get(tp) != asked.get(tp):
                    continue  # changed while the fetch was in flight
                if data.error_code == OffsetOutOfRange.code:
                    await self._out_of_range(tp)
                elif data.error_code:
                    error = error_for(data.error_code)
                    failure = type(error)(f"{tp[0]}-{tp[1]}: {error.message}")
                else:
                    found.append(self._fetched(tp, data))
        if failure is not None:
            self._stale |= {topic for topic, _ in asked}
            if not found or not failure.retriable:
                raise failure
        return [one for one in found if one.batches]

    def _fetched(self, tp: TopicPartition, data: Any) -> Fetched:
        position = self.positions[tp]
        batches: list[AnyBatch] = []
        for batch in any_batches(data.records or b""):
            if not batch.crc_ok():
                raise ClientError(
                    f"{tp[0]}-{tp[1]}: the batch at offset {batch.base_offset} is damaged (its CRC is wrong); "
                    f"to continue after it, add --from {batch.last_offset + 1}"
                )
            if batch.last_offset >= position:
                batches.append(batch)
        if batches:
            self.positions[tp] = batches[-1].next_offset
        aborted = [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()]
        return Fetched(tp, batches, aborted, data.high_watermark, data.log_start_offset)

    async def _out_of_range(self, tp: TopicPartition) -> None:
        """Skip records that retention removed; a position beyond the end is an error."""
        position = self.positions[tp]
        start = (await list_offsets(self._client, {tp: OffsetTimestamp.EARLIEST}))[tp].offset
        if position >= start:
            end = (await list_offsets(self._client, {tp: OffsetTimestamp.LATEST}))[tp].offset
            raise OffsetOutOfRange(f"{tp[0]}-{tp[1]}: offset {position} is not within {start} to {end}")
        self.positions[tp] = start
        if self._on_gap is not None:
            self._on_gap(tp, position, start)
