"""A consumer that catches up is served by a shortcut. Its answers equal those of the normal path, byte for byte."""

import random
import struct
from functools import partial
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import NotLeaderOrFollower
from ottla.log.files import PosixDisk
from ottla.records.batch import Record, batches, build_batch, end_transaction_marker
from ottla.server.apis.fetch_repeated import FIRST_VERSION, RepeatedFetch
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.primitives import ZERO_UUID
from support.repeating import NOW_MS, Talk, counted, same_both_ways

LAST_VERSION = 17


class Consumer(Talk):
    """A consumer that fetches with one version of the API."""

    def __init__(self, running: Any, client: Any, version: int) -> None:
        super().__init__(running, client)
        self.version = version

    def frame(
        self, offset: int, *, topic: str = "t", partition: int = 0, epoch: int = -1, fetched_epoch: int = -1,
        max_bytes: int = 1 << 20, whole: int = 50 << 20, isolation: int = 0, min_bytes: int = 1, max_wait_ms: int = 0,
        session_epoch: int = -1, more: bool = False, rack: str = "", client_id: str = "c", behind: bytes = b"",
    ) -> bytes:  # fmt: skip
        version = self.version
        wanted = [
            FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=fetched_epoch,
                partition_max_bytes=max_bytes,
            )
            for index in ((partition, 1) if more else (partition,))
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=whole,
            isolation_level=isolation,
            session_epoch=session_epoch,
            rack_id=rack if version >= 11 else "",
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic if version < 13 else "",
                    topic_id=self.topic_id(topic) if version >= 13 else ZERO_UUID,
                    partitions=wanted,
                )
            ],
        )
        return self.framed(request, version, client_id, behind)

    async def fetch(self, offset: int, **how: Any) -> bytes:
        self.client.writer.write(self.frame(offset, **how))
        return await self.hear()


def transactional(producer_id: int) -> memoryview:
    record = Record(0, NOW_MS, None, b"x")
    how = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return memoryview(build_batch([record], **how))


def fill(running: Any, topic: str, index: int, rng: random.Random) -> None:
    """Writes batches of all sizes, including an aborted and an open transaction."""
    partition = running.broker.replicas.leader(topic, index)

    def append(count: int, *sizes: int) -> None:
        for _ in range(count):
            record = Record(0, NOW_MS, None, rng.randbytes(rng.choice(sizes)))
            partition.append(memoryview(build_batch([record])), 9)

    append(25, 10, 100, 3000, 60_000)
    partition.append(transactional(3), 9)
    marker = end_transaction_marker(False, 0, producer_id=3, producer_epoch=0, timestamp_ms=NOW_MS)
    partition.append_own(list(batches(marker)))
    append(20, 2000)
    partition.append(transactional(4), 9)
    append(5, 10, 60_000)


async def conversation(version: int, running: Any) -> list[bytes]:
    """A consumer that mostly repeats its requests, mixed with all requests that must not be mistaken for repeats."""
    rng = random.Random(version)
    client = await running.connect()
    consumer = Consumer(running, client, version)
    fetch = consumer.fetch
    await client.create_topic("t", 2, segment_bytes="1048576")
    await client.create_topic("u")
    for name, index in (("t", 0), ("t", 1), ("u", 0)):
        fill(running, name, index, rng)
    isolation = version % 2
    for _ in range(100):
        offset = rng.randrange(50)
        match rng.randrange(30):
            case 0:
                await fetch(offset, partition=1)
            case 1:
                await fetch(offset, topic="u")
            case 2:
                await fetch(offset, partition=7)
            case 3:
                await fetch(rng.choice((-1, 53, 1000)))
            case 4:
                await fetch(offset, more=True)
            case 5:
                await fetch(offset, epoch=0)
                await fetch(offset + 1, epoch=0)
                await fetch(offset + 2, epoch=0)
            case 6:
                await fetch(offset, epoch=5)
            case 7:
                await fetch(offset, fetched_epoch=0)
            case 8:
                await fetch(offset, max_bytes=rng.choice((0, 1, 100, 5000)))
            case 9:
                await fetch(offset, whole=rng.choice((0, 1, 5000)))
            case 10:
                await fetch(offset, isolation=1 - isolation)
            case 11:
                await fetch(offset, min_bytes=10_000_000)
            case 12:
                await fetch(offset, client_id="another")
            case 13:
                await fetch(offset, rack="there")
            case 14:
                await fetch(offset, behind=b"\0\0")
            case 15:
                await consumer.delete_records(rng.randrange(3))
            case 16:
                client.writer.write(b"".join([consumer.frame(n, isolation=isolation) for n in range(offset)]))
                for _ in range(offset):
                    await consumer.hear()
            case _:
                await fetch(offset, isolation=isolation)
    return consumer.heard


@pytest.mark.parametrize("version", range(FIRST_VERSION, LAST_VERSION + 1))
def test_repeated_fetches_equal_ordinary_ones(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, version: int
) -> None:
    async def main() -> None:
        folders = iter((tmp_path / "short", tmp_path / "long"))
        converse = partial(conversation, version)
        await same_both_ways(
            monkeypatch, RepeatedFetch, run_broker, converse, lambda: PosixDisk(next(folders)), served_more_than=5
        )

    run(main())


@pytest.mark.parametrize("version", [12, 17])
def test_a_recreated_topic_is_read_from_its_own_log(run: Any, run_broker: Any, version: int) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            consumer = Consumer(running, client, version)
            await client.create_topic("t")
            await client.produce("t", b"old")
            for _ in range(4):
                assert b"old" in await consumer.fetch(0)
            frame = consumer.frame(0)
            await consumer.delete("t")
            client.writer.write(frame)
            gone = await consumer.hear()
            at = 4 + 1 + 4 + 2 + 4 + 1 + (2 if version < 13 else 16) + 1 + 4
            assert struct.unpack_from(">h", gone, at)[0] == (3 if version < 13 else 100)
            await client.create_topic("t")
            await client.produce("t", b"new")
            assert b"new" in await consumer.fetch(0)

    run(main())


def test_at_the_end_a_consumer_waits_for_records(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client, producer = await running.connect(), await running.connect()
            consumer = Consumer(running, client, 12)
            await client.create_topic("t")
            await producer.produce("t", b"one")
            with counted(monkeypatch, RepeatedFetch) as served:
                for _ in range(3):
                    await consumer.fetch(0, max_wait_ms=500)
                assert len(served) == 1
                client.writer.write(consumer.frame(1, max_wait_ms=500))
                await running.settle()
                await producer.produce("t", b"two")
                assert b"two" in await consumer.hear()
                assert len(served) == 1
                await consumer.fetch(0, max_wait_ms=500)
                assert len(served) == 2

    run(main())


def test_a_quota_is_seen_at_once(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            consumer = Consumer(running, client, 12)
            await client.create_topic("t")
            await client.produce("t", b"one")
            with counted(monkeypatch, RepeatedFetch) as served:
                for _ in range(3):
                    await consumer.fetch(0)
                assert len(served) == 1
                await consumer.limit("consumer_byte_rate")
                await consumer.fetch(0)
                assert len(served) == 1

    run(main())


def test_a_follower_uses_the_normal_path(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            client = await running.connect()
            consumer = Consumer(running, client, 12)
            await client.create_topic("t")
            await client.produce("t", b"one")

            def follows(*_: Any) -> None:
                raise NotLeaderOrFollower

            with counted(monkeypatch, RepeatedFetch) as served, monkeypatch.context() as patch:
                patch.setattr(type(running.broker.replicas), "leader", follows)
                for _ in range(4):
                    assert b"one" in await consumer.fetch(0)
                assert not served

    run(main())
