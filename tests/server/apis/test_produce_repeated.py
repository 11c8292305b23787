"""Repeated produce requests use a shortcut. Its answers equal those of the normal path, byte for byte."""

import random
import struct
from functools import partial
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import KafkaStorageError
from ottla.log.files import MemoryDisk, MemoryFile
from ottla.replication.partition import Partition
from ottla.server.apis.produce_repeated import FIRST_VERSION, RepeatedProduce
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.primitives import ZERO_UUID
from support.batches import fixed_batch
from support.repeating import NOW_MS, Talk, counted, same_both_ways
from support.requests import produce_request


def batch(*values: bytes, **options: Any) -> bytearray:
    return fixed_batch(*values, key=b"k", **options)


def damaged(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


class Producer(Talk):
    async def produce(
        self, records: Any, *, version: int, topic: str = "t", partition: int = 0, acks: int = -1, behind: bytes = b"",
        more: bool = False, client_id: str = "c",
    ) -> None:  # fmt: skip
        topic_id = self.topic_id(topic) if version >= 13 else ZERO_UUID
        data = ProduceRequest.PartitionProduceData
        partitions = [data(index=partition, records=records)]
        if more:
            partitions.append(data(index=1, records=batch(b"more")))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic if version < 13 else "", topic_id=topic_id, partition_data=partitions
                )
            ],
        )
        self.client.writer.write(self.framed(request, version, client_id, behind))
        if acks:
            self.heard.append((await self.client.receive_frame()).replace(topic_id, b"the topic's id.."))


async def conversation(seed: int, version: int, running: Any) -> tuple[list[bytes], bytes]:
    """A producer that mostly repeats its requests, mixed with all requests that must not be mistaken for repeats."""
    rng = random.Random(seed)
    client = await running.connect()
    talk = Producer(running, client)
    await client.create_topic("t", 2)
    await client.create_topic("u")
    sequence = 0
    for _ in range(60):
        match rng.randrange(24):
            case 0:
                await talk.produce(batch(b"x"), version=version, partition=1)
            case 1:
                await talk.produce(batch(b"x"), version=version, topic="u")
            case 2:
                await talk.produce(damaged(batch(b"x")), version=version)
            case 3:
                await talk.produce(batch(b"x", b"y", base_offset=3), version=version)
            case 4:
                await talk.produce(None, version=version)
            case 5:
                await talk.produce(b"", version=version)
            case 6:
                await talk.produce(batch(b"x"), version=version, behind=b"\0\0\0\0")
            case 7:
                await talk.produce(batch(b"x"), version=version, acks=0)
            case 8:
                await talk.produce(batch(b"x"), version=version, more=True)
            case 9:
                await talk.produce(batch(b"x" * 20_000), version=version)
            case 10:
                await talk.produce(batch(b"x" * 2_000_000), version=version)
            case 11:
                await talk.produce(
                    batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence), version=version
                )
                sequence += 1
            case 12:
                await talk.produce(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0), version=version)
            case 13:
                await talk.delete("u")
                await talk.client.create_topic("u")
                await talk.produce(batch(b"x"), version=version, topic="u")
            case 14:
                await talk.delete_records(rng.randrange(3))
            case 15:
                await talk.produce(batch(b"x"), version=version, client_id="another")
            case 16:
                await talk.produce(batch(b"x"), version=rng.randrange(FIRST_VERSION, 13) if version < 13 else 13)
            case 17:
                await talk.produce(batch(b"x", b"y", codec=3), version=version, acks=1)
            case 18:
                await talk.produce(bytearray(61), version=version)
            case _:
                await talk.produce(batch(*[b"v"] * rng.randrange(1, 4)), version=version)
    log = running.broker.replicas.leader("t", 0).log
    start = log.log_start_offset
    return talk.heard, bytes(log.read(start, 1 << 30).records.read()) if log.log_end_offset > start else b""


@pytest.mark.parametrize("version", range(FIRST_VERSION, 14))
def test_repeated_produces_equal_ordinary_ones(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def main() -> None:
        for seed in range(2):
            converse = partial(conversation, seed, version)
            await same_both_ways(monkeypatch, RepeatedProduce, run_broker, converse, served_more_than=5)

    run(main())


def test_a_transaction_uses_the_normal_path(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            talk = Producer(running, client)
            await client.create_topic("t")
            with counted(monkeypatch, RepeatedProduce) as served:
                for _ in range(4):
                    await talk.produce(batch(b"x"), version=11)
                assert served == [4, 5]  # 1 created the topic, 2 was the first produce, 3 showed that it repeats
                await talk.produce(
                    batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), version=11
                )
                assert served == [4, 5]
            assert struct.unpack_from(">h", talk.heard[-1], 4 + 1 + 1 + 2 + 1 + 4)[0] != 0  # no transaction was started

    run(main())


@pytest.mark.parametrize("version", [9, 13])
def test_a_recreated_topic_gets_its_own_records(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            talk = Producer(running, client)
            await client.create_topic("t")
            for _ in range(4):
                await talk.produce(batch(b"x"), version=version)
            old_id = talk.topic_id("t")
            await talk.delete("t")
            await talk.produce(batch(b"x"), version=version)
            await client.create_topic("t")
            assert talk.topic_id("t") != old_id
            await talk.produce(batch(b"x"), version=version)
            at = 4 + 1 + 1 + (2 if version < 13 else 16) + 1 + 4
            codes = [struct.unpack_from(">hq", answer, at) for answer in talk.heard]
            gone = 3 if version < 13 else 100  # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
            assert codes == [(0, 0), (0, 1), (0, 2), (0, 3), (gone, -1), (0, 0)]

    run(main())


def test_a_request_that_ends_too_early_closes_the_connection(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            talk = Producer(running, client)
            await client.create_topic("t")
            for _ in range(4):
                await talk.produce(batch(b"x"), version=9)
            whole = talk.framed(produce_request("t", batch(b"x")), 9, "c")
            client.writer.write(struct.pack(">i", len(whole) - 4 - 2) + whole[4:-2])
            assert await client.is_closed()

    run(main())


def test_a_quota_is_seen_at_once(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            talk = Producer(running, client)
            await client.create_topic("t")
            with counted(monkeypatch, RepeatedProduce) as served:
                for _ in range(3):
                    await talk.produce(batch(b"x"), version=9)
                assert len(served) == 1
                await talk.limit("producer_byte_rate")
                await talk.produce(batch(b"x"), version=9)
                assert len(served) == 1

    run(main())


def test_a_disk_error_is_answered(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            talk = Producer(running, client)
            await client.create_topic("t")
            for _ in range(3):
                await talk.produce(batch(b"x"), version=9)
            partition = running.broker.replicas.leader("t", 0)
            with monkeypatch.context() as patch:
                patch.setattr(type(partition), "append_batch", lambda *_: 1 // 0)
                await talk.produce(batch(b"x"), version=9)
            assert struct.unpack_from(">h", talk.heard[-1], 4 + 1 + 1 + 2 + 1 + 4)[0] == -1
            await talk.produce(batch(b"x"), version=9)
            assert struct.unpack_from(">hq", talk.heard[-1], 4 + 1 + 1 + 2 + 1 + 4) == (0, 3)

    run(main())


def pipelined(seed: int, version: int, talk: Producer) -> list[bytes]:
    """The frames of a producer that does not wait for answers, with some among them that are refused."""
    rng = random.Random(seed)
    sequence = 0
    frames = []
    for _ in range(120):
        records = batch(*[rng.randbytes(rng.randrange(1, 400))] * rng.randrange(1, 40), codec=rng.choice((0, 0, 3)))
        match rng.randrange(16):
            case 0:
                records = damaged(batch(b"x"))
            case 1:
                records = batch(b"x", base_offset=3)
            case 2 | 3 | 4 | 5:
                records = batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=sequence)
                sequence += rng.choice((0, 2, 2, 2, 2, 2, 4))
            case 6:
                records = batch(b"x" * 200_000)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="t" if version < 13 else "",
                    topic_id=talk.topic_id("t") if version >= 13 else ZERO_UUID,
                    partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)],
                )
            ],
        )
        frames.append(talk.framed(request, version, "c"))
    return frames


async def stored(running: Any, seed: int, version: int, at_once: int) -> tuple[list[bytes], dict[str, bytes]]:
    """The answers to a producer that has this many requests in flight, and the files that it filled."""
    client = await running.connect()
    talk = Producer(running, client)
    await client.create_topic("t", 1, segment_bytes="1048576", index_interval_bytes="1000")
    frames = pipelined(seed, version, talk)
    heard = []
    for first in range(0, len(frames), at_once):
        client.writer.write(b"".join(frames[first : first + at_once]))
        heard += [await client.receive_frame() for _ in frames[first : first + at_once]]
    running.broker.replicas.leader("t", 0).log.flush()
    disk = running.broker.disk
    names = [name for name in disk.scan("t-0") if name.endswith(("log", "index"))]
    return heard, {name: disk.read_bytes(f"t-0/{name}") for name in sorted(names)}


@pytest.mark.parametrize("version", [5, 9, 12])
def test_requests_that_arrive_together_are_stored_like_single_ones(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    runs: list[int] = []
    original = Partition.append_run

    def append_run(self: Partition, *arguments: Any) -> Any:
        offsets = original(self, *arguments)
        runs.append(len(offsets))
        return offsets

    async def main() -> None:
        monkeypatch.setattr(Partition, "append_run", append_run)
        for seed in range(3):
            outcomes = []
            for at_once in (1, 7, 40):
                runs.clear()
                async with run_broker(disk=MemoryDisk(), clock=ManualClock(NOW_MS)) as running:
                    outcomes.append(await stored(running, seed, version, at_once))
                assert (max(runs, default=0) > 2) == (at_once > 1)
            assert len([name for name in outcomes[0][1] if name.endswith(".log")]) > 1
            assert outcomes[0] == outcomes[1] == outcomes[2]

    run(main())


def test_requests_that_cannot_be_written_together_are_written_one_by_one(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MemoryFile.append

    def append(self: MemoryFile, buffers: Any) -> int:
        if len(buffers) > 1:
            raise KafkaStorageError("no space for so much")
        return original(self, buffers)

    async def main() -> None:
        outcomes = []
        for at_once in (1, 20):
            async with run_broker(disk=MemoryDisk(), clock=ManualClock(NOW_MS)) as running:
                with monkeypatch.context() as patch:
                    patch.setattr(MemoryFile, "append", append)
                    outcomes.append(await stored(running, 1, 9, at_once))
        assert outcomes[0] == outcomes[1]

    run(main())
