"""Batches that are small on the wire and large when decompressed: reading them does not delay other clients."""

import asyncio
import threading
from typing import Any

import pytest

from ottla.enums import OffsetTimestamp
from ottla.records import validation
from ottla.records.batch import Batch, Record, pack_batch
from ottla.records.compression import GZIP, compress
from ottla.records.legacy import any_batches
from ottla.records.record import encode_record
from ottla.replication import partition
from ottla.wire.messages.fetch import FetchRequest, ListOffsetsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.topics import DeleteTopicsRequest

NOW = 1_700_000_000_000
COUNT = 800


def bomb(max_timestamp: int = NOW, count: int = COUNT) -> bytearray:
    """16 MB of records in 20 KB, all with the same timestamp."""
    record = Record(0, 0, b"k", bytes(20_000))
    return pack_batch(
        compress(GZIP, b"".join(encode_record(record, index, 0) for index in range(count))),
        count,
        base_offset=0,
        leader_epoch=0,
        attributes=GZIP,
        last_offset_delta=count - 1,
        base_timestamp=NOW - 5,
        max_timestamp=max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def produce(*batches: bytearray, topic: str = "t") -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(index=index, records=memoryview(batch))
        for index, batch in enumerate(batches)
    ]
    return ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    )


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])]
    )


def fetch(partitions: int = 1) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 25, topics=[FetchRequest.FetchTopic(topic="t", partitions=wanted)]
    )


@pytest.mark.parametrize(
    ("request_", "version"),
    [(list_offsets(NOW - 3), 5), (list_offsets(OffsetTimestamp.MAX_TIMESTAMP), 7), (fetch(), 2)],
    ids=["ListOffsets by time", "ListOffsets for the largest", "Fetch v2"],
)
def test_others_are_served_while_a_large_batch_is_read(run: Any, run_broker: Any, request_: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            slow, quick = await running.connect(), await running.connect()
            await quick.create_topic("t")
            answer = await quick.call(produce(bomb()), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            slow_call = asyncio.create_task(slow.call(request_, version))
            await running.settle()
            for _ in range(3):
                await quick.call(MetadataRequest(topics=[]), 9)
            assert not slow_call.done()
            answer = await slow_call
            if isinstance(request_, FetchRequest):
                records = answer.responses[0].partitions[0].records
                assert [each.last_offset for each in any_batches(bytes(records))] == [COUNT - 1]
            else:
                # No record has the timestamp that the header claims.
                assert answer.topics[0].partitions[0].offset == -1

    run(main())


def test_a_batch_that_takes_long_to_check_is_checked_in_a_thread(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inconsistent header forces a check of each record."""
    threads: list[threading.Thread] = []

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return validation.validate(*args)

    monkeypatch.setattr(partition, "validate", noted)

    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", partitions=3)
            small = bomb(max_timestamp=NOW - 6, count=2)
            answer = await client.call(produce(bomb(max_timestamp=NOW - 6), small, bomb(max_timestamp=NOW - 6)), 9)
            partitions = answer.responses[0].partition_responses
            assert [(each.error_code, each.base_offset) for each in partitions] == [(0, 0)] * 3
            assert [each is threading.main_thread() for each in threads] == [False, True, False]
            # The stored batch equals the sent one, with the correct maximum.
            records = await client.call(fetch(3), 11)
            stored = [Batch(bytes(each.records)) for each in records.responses[0].partitions]
            assert [(batch.max_timestamp, batch.record_count) for batch in stored] == [
                (NOW - 5, COUNT),
                (NOW - 5, 2),
                (NOW - 5, COUNT),
            ]

    run(main())


def test_a_topic_deleted_while_its_records_are_checked_is_not_written_to(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking, go_on = threading.Event(), threading.Event()

    def held(*args: Any) -> Any:
        checking.set()
        assert go_on.wait(10)
        return validation.validate(*args)

    monkeypatch.setattr(partition, "validate", held)

    async def main() -> None:
        async with run_broker() as running:
            client, admin = await running.connect(), await running.connect()
            await client.create_topic("t")
            client.send(produce(bomb(max_timestamp=NOW - 6)), 9)
            while not checking.is_set():
                await running.settle()
            await admin.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            go_on.set()
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].error_code in (3, 6)

    run(main())
