"""Produces whole batches with sequence numbers, and collects records into batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.client.connection import ClientError, ConnectionLost
from ottla.client.routing import Client, TopicPartition
from ottla.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    MessageTooLarge,
    UnsupportedVersion,
    error_for,
)
from ottla.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_ID,
    Batch,
    Record,
    build_batch,
    set_producer,
)
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.messages.transactions import InitProducerIdRequest

DEFAULT_BATCH_BYTES: Final = 256 * 1024
"""Well below the 1 MiB that brokers accept by default; larger batches would not be faster."""
RECORD_OVERHEAD: Final = 24


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, unsigned, with the seed of Kafka's partitioner."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        part = (part ^ part >> 24) * multiplier & mask
        value = (value * multiplier & mask) ^ part
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15


def partition_for(key: bytes, count: int) -> int:
    """The partition that the Java client chooses for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % count


class Producer:
    """Appends whole batches, one at a time per partition; a batch that is sent again is written once (KIP-98)."""

    def __init__(self, client: Client, *, acks: int = -1, idempotent: bool = True, timeout_ms: int = 30_000) -> None:
        self._client = client
        self._acks = acks
        self._idempotent = idempotent and acks == -1
        self._timeout_ms = timeout_ms
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._starting: asyncio.Lock = asyncio.Lock()

    async def _start(self) -> None:
        async with self._starting:
            if not self._idempotent or self._producer_id >= 0:
                return

            async def attempt() -> None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self._client.ask(request)
                if response.error_code:
                    raise error_for(response.error_code)
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

            try:
                await self._client.retrying(attempt)
            except UnsupportedVersion:
                self._idempotent = False  # a cluster older than 0.11

    async def append(self, tp: TopicPartition, batch: bytearray) -> int:
        """Write one batch. Returns its base offset, or -1 if the broker does not report it (acks=0, or a duplicate)."""
        if self._idempotent and self._producer_id < 0:
            await self._start()
        count = Batch(batch).record_count
        if self._idempotent:
            sequence = self._sequences.get(tp, 0)
            set_producer(batch, self._producer_id, self._producer_epoch, sequence)
        offset = await self._client.retrying(lambda: self._attempt(tp, batch))
        if self._idempotent:
            self._sequences[tp] = (self._sequences.get(tp, 0) + count) & MAX_SEQUENCE
        return offset

    async def _attempt(self, tp: TopicPartition, batch: bytearray) -> int:
        client = self._client
        if tp[0] not in client.known.topics:
            await client.refresh([tp[0]])
        try:
            node_id = client.leader_of(tp)
            partition = ProduceRequest.PartitionProduceData(index=tp[1], records=batch)
            topic = ProduceRequest.TopicProduceData(name=tp[0], partition_data=[partition])
            request = ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=[topic])
            if self._acks == 0:
                connection = await client.connection(node_id)
                connection.send(request, connection.version_for(ProduceRequest), answered=False)
                await connection.drain()
                return -1
            response: ProduceResponse = await client.ask(request, node_id)
        except (KafkaError, ConnectionLost):
            client.forget_topic(tp[0])
            raise
        result = response.responses[0].partition_responses[0]
        if result.error_code == DuplicateSequenceNumber.code:
            return -1
        if result.error_code:
            if error_for(result.error_code).retriable:
                client.forget_topic(tp[0])
            raise _failure(tp, result)
        return result.base_offset


def _failure(tp: TopicPartition, result: ProduceResponse.PartitionProduceResponse) -> KafkaError:
    error = error_for(result.error_code, result.error_message or None)
    details = "".join(
        f"; record {bad.batch_index} of the batch: {bad.batch_index_error_message}"
        for bad in result.record_errors[:1]
        if bad.batch_index_error_message and bad.batch_index_error_message != result.error_message
    )
    return type(error)(f"{tp[0]}-{tp[1]}: {error.message}{details}")


class Gatherer:
    """Collects records into batches; one batch of a partition is in flight while the next one fills."""

    def __init__(
        self,
        producer: Producer,
        *,
        codec: int = 0,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        on_sent: Callable[[TopicPartition, int, int], None] | None = None,
    ) -> None:
        self._producer = producer
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._on_sent = on_sent
        self._records: dict[TopicPartition, list[Record]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._sending: dict[TopicPartition, asyncio.Task[None]] = {}

    async def add(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += 2 * len(name) + len(content or b"") + 4
        if self._bytes.get(tp, 0) + size > self._batch_bytes and self._records.get(tp):
            await self._submit(tp)
        records = self._records.setdefault(tp, [])
        records.append(Record(len(records), timestamp_ms, key, value, headers))
        self._bytes[tp] = self._bytes.get(tp, 0) + size

    async def _submit(self, tp: TopicPartition) -> None:
        before = self._sending.pop(tp, None)
        if before is not None:
            await before
        records = self._records.pop(tp, None)
        self._bytes.pop(tp, None)
        if records:
            self._sending[tp] = asyncio.create_task(self._send(tp, records))

    async def _send(self, tp: TopicPartition, records: list[Record]) -> None:
        batch = build_batch(records, codec=self._codec)
        try:
            offset = await self._producer.append(tp, batch)
        except MessageTooLarge as error:
            if len(records) > 1:
                raise ClientError(f"{error.message} Make batches smaller with --batch-bytes.") from None
            raise
        if self._on_sent is not None:
            self._on_sent(tp, len(records), offset if offset < 0 else offset + len(records) - 1)

    async def flush(self) -> None:
        """Send all waiting records, and wait until they are acknowledged."""
        for tp in list(self._records):
            await self._submit(tp)
        while self._sending:
            tasks = list(self._sending.values())
            self._sending.clear()
            await asyncio.gather(*tasks)

    async def abandon(self) -> None:
        """Cancel the batches in flight after an error."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._sending.clear()
