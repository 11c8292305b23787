"""The client: versions, leaders that move, brokers that vanish, and invalid answers."""

import asyncio
from typing import Any

import pytest

from ottla.client import Client, ClientError, ConnectionLost
from ottla.client.fetcher import Fetcher, visible
from ottla.client.offsets import list_offsets
from ottla.client.producer import Producer, murmur2
from ottla.client.routing import parse_bootstrap
from ottla.enums import OffsetTimestamp
from ottla.errors import NotLeaderOrFollower, UnsupportedVersion
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker
from ottla.wire.messages.configs import DescribeConfigsRequest
from ottla.wire.messages.metadata import MetadataRequest

TPS = [("t", 0), ("t", 1), ("t", 2)]


def batch(*values: bytes) -> bytearray:
    return build_batch([Record(n, 1000 + n, None, value) for n, value in enumerate(values)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:99999", ":1", "http://a:9092"])
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT|no broker"):
        parse_bootstrap(text)


def test_versions_are_negotiated(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:
            await client.metadata(["t"])
            assert (1, "Metadata", 9) in fake.asked, "the newest that both support"
            connection = await client.connection()
            with pytest.raises(UnsupportedVersion, match="serves no DescribeConfigs"):
                connection.version_for(DescribeConfigsRequest)
            connection.versions[3] = (99, 100)
            with pytest.raises(UnsupportedVersion, match="versions 99 to 100 of Metadata"):
                connection.version_for(MetadataRequest)

    run(main())


def test_an_old_broker_is_asked_again(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:
            fake.api_versions_limit = 2
            await client.metadata(["t"])
            assert [asked for asked in fake.asked if asked[1] == "ApiVersions"] == [
                (1, "ApiVersions", 3),
                (1, "ApiVersions", 0),
            ]

    run(main())


def test_each_leader_is_asked_for_its_own_partitions(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster(brokers=3, leaders=[1, 2, 3]) as fake, Client(fake.bootstrap) as client:
            found = await list_offsets(client, dict.fromkeys(TPS, OffsetTimestamp.LATEST))
            assert {tp[1]: at.offset for tp, at in found.items()} == {0: 100, 1: 101, 2: 102}
            assert {broker for broker, name, _ in fake.asked if name == "ListOffsets"} == {1, 2, 3}

    run(main())


def test_a_leader_that_moved_is_found(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster(brokers=2, leaders=[1, 1, 2]) as fake, Client(fake.bootstrap) as client:
            await list_offsets(client, dict.fromkeys(TPS, OffsetTimestamp.LATEST))
            producer = Producer(client)
            assert await producer.append(("t", 0), batch(b"a")) == 0
            fake.leaders[0] = 2
            assert await producer.append(("t", 0), batch(b"b")) == 1
            found = await list_offsets(client, dict.fromkeys(TPS, OffsetTimestamp.LATEST))
            assert len(found) == 3

    run(main())


def test_retries_end_after_a_time_limit(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap, retry_timeout_s=0.2) as client:
            fake.leaders[0] = 1
            await client.metadata(["t"])
            fake.faults.append(lambda _b, request, _v: _refuse(fake, request))
            with pytest.raises(NotLeaderOrFollower, match="t-0"):
                await list_offsets(client, {("t", 0): OffsetTimestamp.LATEST})

    def _refuse(fake: Any, request: Any) -> Any:
        if type(request).__name__ != "ListOffsetsRequest":
            return None
        return fake._listoffsets(99, request)

    run(main())


def test_a_lost_answer_does_not_write_twice(cluster: Any, run: Any) -> None:
    """The broker writes the batch and disconnects before it answers: the same sequence is sent again."""

    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:
            lost = []

            def lose(broker: int, request: Any, _version: int) -> Any:
                if type(request).__name__ == "ProduceRequest" and len(lost) < 2:
                    lost.append(fake._produce(broker, request))
                    return "close"
                return None

            fake.faults.append(lose)
            producer = Producer(client)
            assert await producer.append(("t", 0), batch(b"a", b"b")) == 0
            assert await producer.append(("t", 0), batch(b"c")) == 2
            stored = [Batch(data) for data in fake.logs[0]]
            assert [(b.producer_id, b.base_sequence, b.record_count) for b in stored] == [(7, 0, 2), (7, 2, 1)]
            assert all(b.crc_ok() for b in stored)

    run(main())


def test_acks_0_waits_for_no_answer(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:

            def swallow(_broker: int, request: Any, _version: int) -> Any:
                if type(request).__name__ == "ProduceRequest":
                    assert request.acks == 0
                    return "close"
                return None

            fake.faults.append(swallow)
            assert await Producer(client, acks=0).append(("t", 0), batch(b"a")) == -1

    run(main())


def test_fetching_continues_after_a_broker_disconnects(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster(brokers=2, leaders=[1, 2]) as fake, Client(fake.bootstrap) as client:
            fake.logs[0] = [bytes(batch(b"a", b"b")), bytes(batch(b"c"))]
            fake.logs[1] = [bytes(batch(b"d"))]
            closed = []

            def close_once(broker: int, request: Any, _version: int) -> Any:
                if type(request).__name__ == "FetchRequest" and broker == 2 and not closed:
                    closed.append(broker)
                    fake.leaders[1] = 1
                    return "close"
                return None

            fake.faults.append(close_once)
            fetcher = Fetcher(client, {("t", 0): 1, ("t", 1): 0})
            seen: dict[int, list[Any]] = {0: [], 1: []}
            while fetcher.positions != {("t", 0): 3, ("t", 1): 1}:
                for fetched in await fetcher.poll():
                    for one in visible(fetched.batches, fetched.aborted):
                        seen[fetched.tp[1]] += [record.value for record in one.records()]
            await fetcher.close()
            assert seen == {0: [b"a", b"b", b"c"], 1: [b"d"]}
            assert closed == [2]

    run(main())


def test_a_damaged_batch_is_noticed(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:
            bad = batch(b"aaaa")
            bad[-3] ^= 1
            fake.logs[0] = [bytes(bad)]
            fetcher = Fetcher(client, {("t", 0): 0})
            with pytest.raises(ClientError, match=r"t-0: the batch at offset 0 is damaged .* --from 1"):
                await fetcher.poll()
            await fetcher.close()

    run(main())


@pytest.mark.parametrize(
    ("greeting", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x02ab", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63abcd", "cannot be read: answer 99 instead of 1"),
        (b"", "closed the connection"),
    ],
)
def test_a_server_that_is_not_a_broker_is_reported(run: Any, greeting: bytes, expected: str) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(greeting)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with Client(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            with pytest.raises(ConnectionLost, match=expected):
                await client.metadata()
        server.close()
        await server.wait_closed()

    run(main())


def test_the_next_address_is_tried(cluster: Any, run: Any) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(f"127.0.0.1:1,{fake.bootstrap}") as client:
            assert (await client.metadata()).cluster_id == "fake"

    run(main())


def test_aborted_transactions_are_not_seen() -> None:
    def at(offset: int, data: bytearray) -> Batch:
        made = Batch(data)
        made.stamp(offset, 0)
        return made

    def data(offset: int, producer_id: int) -> Batch:
        records = [Record(n, 1, None, b"%d" % n) for n in range(2)]
        return at(offset, build_batch(records, 0, 0, producer_id, 0, 0, transactional=producer_id >= 0))

    def marker(offset: int, producer_id: int, commit: bool) -> Batch:
        made = end_transaction_marker(commit, 0, producer_id=producer_id, producer_epoch=0, timestamp_ms=1)
        return at(offset, made)

    log = [
        data(0, 1),  # aborted
        data(2, 2),  # committed
        data(4, -1),
        marker(6, 1, commit=False),
        data(7, 1),  # the same producer's next one: committed
        marker(9, 2, commit=True),
        marker(10, 1, commit=True),
        data(11, 1),  # aborted again
        marker(13, 1, commit=False),
        data(14, -1),
    ]
    assert [one.base_offset for one in visible(log, [(1, 11), (1, 0)])] == [2, 4, 7, 14]
    assert [one.base_offset for one in visible(log, [])] == [0, 2, 4, 7, 11, 14]


def test_murmur2_is_kafkas() -> None:
    """The values are those of Kafka's own test."""
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-longer-string") == -1486304829 & 0xFFFFFFFF
    assert murmur2(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8") == -58897971 & 0xFFFFFFFF
    assert murmur2(b"abc") == 479470107


def test_a_cancellation_that_meets_its_answer_still_cancels(
    cluster: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cluster() as fake, Client(fake.bootstrap) as client:
            connection = await client.connection()
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            monkeypatch.setattr(connection, "call", lambda *_: answer)
            asking = asyncio.create_task(client.ask(MetadataRequest()))
            await asyncio.sleep(0)
            answer.set_result("an answer")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    run(main())
