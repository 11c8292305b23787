"""Produce: acknowledgements, refusals that change nothing, idempotence, and what a restart keeps."""

from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import CorruptMessage, InvalidRecord, InvalidRequiredAcks, MessageTooLarge, UnknownTopicOrPartition
from ottla.log.files import MemoryDisk, PosixDisk
from ottla.records.batch import batches
from ottla.wire.messages.fetch import ListOffsetsRequest
from ottla.wire.messages.transactions import InitProducerIdRequest
from support.batches import fixed_batch
from support.requests import produce_request

TIMESTAMP = 1_700_000_000_000


async def send(client: Any, records: Any, *, topic: str = "t", acks: int = -1, version: int = 9) -> Any:
    response = await client.call(produce_request(topic, records, acks=acks), version)
    return response.responses[0].partition_responses[0]


def test_an_append_is_acknowledged_with_its_offset(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            assert (await client.produce("t", b"a", b"b")).base_offset == 0
            third = await client.produce("t", b"c", acks=1)
            assert (third.error_code, third.base_offset, third.log_append_time_ms) == (0, 2, -1)

    run(main())


def test_acks_0_gets_no_answer_and_an_error_closes(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            client.send(produce_request("t", fixed_batch(b"a"), acks=0), 9, answered=False)
            assert (await client.produce("t", b"b")).base_offset == 1
            client.send(produce_request("missing", fixed_batch(b"a"), acks=0), 9)
            assert await client.is_closed()

    run(main())


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        pytest.param(lambda b: b.__setitem__(30, b[30] ^ 1), CorruptMessage.code, id="wrong CRC"),
        pytest.param(lambda b: b.__setitem__(16, 7), CorruptMessage.code, id="unknown magic"),
        pytest.param(lambda b: b.__setitem__(7, 5), InvalidRecord.code, id="base offset not 0"),
        pytest.param(lambda b: b.extend(fixed_batch(b"second")), InvalidRecord.code, id="two batches"),
    ],
)
def test_a_refused_batch_writes_nothing(run: Any, run_broker: Any, damage: Any, code: int) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            records = fixed_batch(b"a", b"b")
            damage(records)
            refused = await send(client, records)
            assert (refused.error_code, refused.base_offset) == (code, -1)
            assert (await client.produce("t", b"good")).base_offset == 0

    run(main())


def test_invalid_requests_get_the_matching_error(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", max_message_bytes="200")
            assert (await send(client, fixed_batch(b"a"), acks=2)).error_code == InvalidRequiredAcks.code
            assert (await send(client, fixed_batch(b"a"), topic="missing")).error_code == UnknownTopicOrPartition.code
            assert (await send(client, fixed_batch(b"x" * 300))).error_code == MessageTooLarge.code
            await client.create_topic("compacted", cleanup_policy="compact")
            keyless = await send(client, fixed_batch(b"a", b"b"), topic="compacted")
            assert keyless.error_code == InvalidRecord.code
            assert [error.batch_index for error in keyless.record_errors] == [0, 1]

    run(main())


def test_sequences_of_an_idempotent_producer_are_checked(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        # Producers expire a day after the timestamp of their last batch, so the clock must match it.
        clock = ManualClock(TIMESTAMP)
        async with run_broker(disk=disk, clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t")
            identity = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            producer_id = identity.producer_id

            async def produce(sequence: int, epoch: int = 0) -> tuple[int, int]:
                records = fixed_batch(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
                outcome = await send(client, records)
                return outcome.error_code, outcome.base_offset

            assert await produce(0) == (0, 0)
            assert await produce(1) == (0, 1)
            assert await produce(0) == (0, 0), "a repeat is answered with the first offset"
            assert await produce(3) == (45, -1), "a gap is refused"
            assert await produce(0, epoch=1) == (0, 2)
            assert await produce(2, epoch=0) == (47, -1), "an old epoch is fenced"
        async with run_broker(disk=disk, clock=clock) as running:
            client = await running.connect()
            again = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            assert again.producer_id > producer_id, "no producer id is assigned twice"
            assert await produce(0, epoch=1) == (0, 2), "the last batch is known after a restart"
            assert await produce(1, epoch=1) == (0, 3)

    run(main())


def test_log_append_time_is_written_and_returned(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", message_timestamp_type="LogAppendTime")
            outcome = await client.produce("t", b"a")
            assert outcome.log_append_time_ms > TIMESTAMP
            request = ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-3)],
                    )
                ],
            )
            found = (await client.call(request, 7)).topics[0].partitions[0]
            assert (found.offset, found.timestamp) == (0, outcome.log_append_time_ms)

    run(main())


def test_compression_type_of_a_topic_is_the_one_on_disk(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t", compression_type="gzip")
            await send(client, fixed_batch(b"a" * 100, b"b" * 100))
            stored = next(iter(running.broker.replicas.leader("t", 0).log.batches(0)))
            assert stored.codec == 1
            assert [record.value for record in stored.records()] == [b"a" * 100, b"b" * 100]

    run(main())


def test_a_restart_keeps_topics_and_records(run: Any, run_broker: Any, tmp_path: Any) -> None:
    async def main() -> None:
        async with run_broker(disk=PosixDisk(tmp_path / "data")) as running:
            client = await running.connect()
            await client.create_topic("t", partitions=2, retention_ms="123456789")
            await client.produce("t", b"kept", partition=1)
            cluster_id = running.broker.cluster_id
            topic_id = running.broker.metadata.topics["t"].topic_id
        async with run_broker(disk=PosixDisk(tmp_path / "data")) as running:
            broker = running.broker
            assert broker.cluster_id == cluster_id
            assert broker.metadata.topics["t"].topic_id == topic_id
            assert broker.metadata.topic_configs("t") == {"retention.ms": "123456789"}
            partition = broker.replicas.leader("t", 1)
            assert partition.high_watermark == 1
            result = partition.read(0, 1000, committed_only=False, at_least_one=True)
            assert not isinstance(result.records, bytes)
            (stored,) = batches(bytes(result.records.read()))
            assert [record.value for record in stored.records()] == [b"kept"]

    run(main())
