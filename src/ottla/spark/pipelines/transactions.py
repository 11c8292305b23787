"""Appending to one partition in transactions, each of which also commits the position in its source atomically.

The transactional id belongs to the partition. The next task that opens it (a repeated task, a run after a crash) fences
the previous writer and ends its open transaction, and only then reads its position. So two writers never append a
record twice or out of order, even if other programs write to the partition. The requests are those of Kafka
2.5 to 3.9, which every later broker supports too: partitions and groups are added by name, and a transaction ends
without a new epoch.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any, Final

from ottla.client import Client
from ottla.client.connection import ConnectionLost
from ottla.client.offsets import committed
from ottla.client.producer import RECORD_OVERHEAD
from ottla.client.routing import TopicPartition
from ottla.enums import CoordinatorType
from ottla.errors import ConcurrentTransactions, DuplicateSequenceNumber, KafkaError, error_for
from ottla.records.batch import MAX_SEQUENCE, Record, build_batch
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

TIMEOUT_MS: Final = 60_000
"""How long readers of committed records wait for an open transaction after a crash, unless a new run starts earlier."""
BATCH_BYTES: Final = 256 * 1024
TRANSACTION_BYTES: Final = 8 << 20
"""Small enough that readers see the records soon, large enough that the transaction's own requests cost little."""
_SHORT_WAITS, _SHORT_WAIT_S = 20, 0.005
_NEWEST: Final = {"init": 4, "partitions": 3, "produce": 11, "offsets": 3, "commit": 3, "end": 3}


@dataclass(frozen=True, slots=True)
class Reached:
    """The position in a source: the next offset to read, and how many records were read so far."""

    offset: int = 0
    records: int = 0

    def text(self) -> str:
        return json.dumps({"next": self.offset, "records": self.records})

    @classmethod
    def of(cls, text: str) -> Reached:
        """Parse the metadata of a committed offset. Text of another program means no progress."""
        try:
            found = json.loads(text)
            return cls(int(found["next"]), int(found["records"]))
        except (ValueError, KeyError, TypeError):
            return cls()


class Appender:
    """One partition. It cannot be used after a failure: open another."""

    def __init__(self, client: Client, tp: TopicPartition, name: str, group: str, codec: int) -> None:
        self._client = client
        self._tp = tp
        self._name = name
        self._group = group
        self._codec = codec
        self._producer = (-1, -1)
        self._sequence = 0
        self._end = 0
        self._waiting: list[Record] = []
        self._waiting_bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._bytes = 0
        self._began: float | None = None
        self.reached = Reached()

    async def open(self) -> Reached:
        """Fence the previous writer, and return its progress."""
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._ask(request, "init")
        self._producer = (answer.producer_id, answer.producer_epoch)

        async def look() -> Reached:
            found = await committed(self._client, self._group, [self._tp], stable=True)
            return Reached.of(found[self._tp].metadata) if self._tp in found else Reached()

        self.reached = await self._client.retrying(look)
        return self.reached

    @property
    def open_s(self) -> float:
        """Seconds since the first record of the transaction was added."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    async def add(self, source_offset: int, record: Record) -> None:
        """Append a record. It is committed by `commit`, or earlier if the transaction gets large."""
        if self._began is None:
            await self._begin()
        size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        size += sum(2 * len(name) + len(content or b"") + 4 for name, content in record.headers)
        if self._waiting and self._waiting_bytes + size > BATCH_BYTES:
            await self._submit()
        self._waiting.append(record._replace(offset=len(self._waiting)))
        self._waiting_bytes += size
        self._bytes += size
        self.reached = Reached(source_offset + 1, self.reached.records + 1)
        if self._bytes >= TRANSACTION_BYTES:
            await self.commit()

    async def commit(self) -> None:
        """End the transaction: the records and the progress become visible together."""
        if self._began is None:
            return
        await self._submit()
        await self._sent()
        await self._commit_progress()
        producer_id, epoch = self._producer
        end = EndTxnRequest(transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        await self._ask(end, "end")
        self._began = None
        self._bytes = 0

    async def abandon(self) -> None:
        """Clean up after a failure. The next writer that opens the id aborts the transaction."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    # --- the requests of a transaction -------------------------------------------------------------------------------

    async def _begin(self) -> None:
        producer_id, epoch = self._producer
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._tp[0], partitions=[self._tp[1]])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        await self._ask(request, "partitions")
        self._began = time.monotonic()

    async def _commit_progress(self) -> None:
        producer_id, epoch = self._producer
        add = AddOffsetsToTxnRequest(
            transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, group_id=self._group
        )
        await self._ask(add, "offsets")
        entry = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=self._tp[1],
            # After the marker that ends the transaction, so that tools show no lag.
            committed_offset=self._end + 1,
            committed_metadata=self.reached.text(),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self._tp[0], partitions=[entry])],
        )

        async def attempt() -> None:
            response = await self._client.ask_coordinator(self._group, request, highest=_NEWEST["commit"])
            _check(response.topics[0].partitions[0].error_code)

        await self._client.retrying(attempt)

    async def _ask(self, request: Any, kind: str) -> Any:
        async def attempt() -> Any:
            answer = await self._client.ask_coordinator(
                self._name, request, highest=_NEWEST[kind], kind=CoordinatorType.TRANSACTION
            )
            if kind == "partitions":
                _check(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            else:
                _check(answer.error_code)
            return answer

        # The markers of the previous transaction are written in the background, usually within milliseconds.
        for _ in range(_SHORT_WAITS):
            try:
                return await attempt()
            except ConcurrentTransactions:
                await asyncio.sleep(_SHORT_WAIT_S)
        return await self._client.retrying(attempt)

    # --- batches -----------------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        """One batch is in flight while the next one is collected."""
        await self._sent()
        records, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if records:
            self._sending = asyncio.create_task(self._send(records))

    async def _sent(self) -> None:
        before, self._sending = self._sending, None
        if before is not None:
            await before

    async def _send(self, records: list[Record]) -> None:
        batch = build_batch(records, 0, self._codec, *self._producer, self._sequence, transactional=True)
        self._sequence = (self._sequence + len(records)) & MAX_SEQUENCE
        offset = await self._client.retrying(lambda: self._produce(batch))
        if offset >= 0:
            self._end = offset + len(records)

    async def _produce(self, batch: bytearray) -> int:
        client, (topic, index) = self._client, self._tp
        try:
            if topic not in client.known.topics:
                await client.refresh([topic])
            data = ProduceRequest.PartitionProduceData(index=index, records=batch)
            request = ProduceRequest(
                transactional_id=self._name,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
            )
            response = await client.ask(request, client.leader_of(self._tp), highest=_NEWEST["produce"])
            result = response.responses[0].partition_responses[0]
            if result.error_code == DuplicateSequenceNumber.code:
                return -1
            if result.error_code:
                error = error_for(result.error_code)
                raise type(error)(f"{topic}-{index}: {result.error_message or error.message}")
        except (KafkaError, ConnectionLost):
            client.forget_topic(topic)
            raise
        return int(result.base_offset)


def _check(code: int) -> None:
    if code:
        raise error_for(code)
