"""What a connection does with bytes: frames cut anywhere, order, back-pressure, and everything malformed."""

import asyncio
import logging
import socket
import struct
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import InvalidRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import ApiVersionsRequest, MetadataRequest

START_MS = 1_700_000_000_000


def fetch(topic: str, offset: int, *, max_wait_ms: int = 500, min_bytes: int = 1, max_bytes: int = 1 << 20) -> Any:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
                ],
            )
        ],
    )


def test_frames_may_arrive_in_any_pieces(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            frames = b"".join(client.frame(ApiVersionsRequest(), 0, answered=False) for _ in range(3))
            for size in (1, 3, 7, len(frames)):
                for start in range(0, len(frames), size):
                    client.writer.write(frames[start : start + size])
                    await client.writer.drain()
                    await asyncio.sleep(0)
                for _ in range(3):
                    assert struct.unpack_from(">i", await client.receive_frame())[0] in (1, 2, 3)

    run(main())


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="only Linux lets a socket choose")
def test_a_local_connection_uses_no_pacing(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.call(ApiVersionsRequest(), 0)
            (connection,) = running.broker.connections
            name = connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert name.rstrip(b"\0") == b"reno"

    run(main())


def test_answers_keep_their_order_after_a_waiting_fetch(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock) as running:
            client = await running.connect()
            await client.create_topic("t")
            client.send(fetch("t", 0), 4)
            client.send(ApiVersionsRequest(), 0)
            client.send(MetadataRequest(topics=[]), 1)
            await running.settle()
            other = await running.connect()
            assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0, "others are not held up"
            assert not client.reader._buffer  # type: ignore[attr-defined]
            clock.advance(500)
            assert (await client.receive()).responses[0].topic == "t"
            assert (await client.receive()).error_code == 0
            assert (await client.receive()).brokers[0].node_id == 1

    run(main())


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(struct.pack(">i", -5), "frame of -5 bytes", id="negative length"),
        pytest.param(struct.pack(">i", 2_000_000_000), "frame of 2000000000 bytes", id="huge length"),
        pytest.param(struct.pack(">i", 3) + b"abc", "frame of 3 bytes", id="shorter than a header"),
        pytest.param(struct.pack(">ihhih", 10, 4711, 0, 1, -1), "unknown api key 4711", id="unknown key"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), "unsupported version 99 of Metadata", id="version"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, 500), "client id", id="client id past the end"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), "malformed", id="huge count"),
        pytest.param(struct.pack(">ihhih", 10, 18, 99, 1, -1), "tags end too early", id="header not whole"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "frame of", id="HTTP"),
    ],
)
def test_a_bad_frame_closes_its_connection_only(
    run: Any, run_broker: Any, caplog: pytest.LogCaptureFixture, frame: bytes, reason: str
) -> None:
    async def main() -> None:
        async with run_broker() as running:
            good = await running.connect()
            bad = await running.connect()
            bad.writer.write(frame)
            assert await bad.is_closed()
            assert (await good.call(ApiVersionsRequest(), 0)).error_code == 0

    with caplog.at_level(logging.WARNING, "ottla.server"):
        run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1, lines
    assert reason in lines[0]
    assert "127.0.0.1:" in lines[0]


def test_an_announced_size_allocates_nothing_before_the_bytes_arrive(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            before = resident_bytes()
            for _ in range(20):
                client = await running.connect()
                client.writer.write(struct.pack(">i", 90_000_000) + b"x" * 100)
            await running.settle()
            assert resident_bytes() - before < 30_000_000

    run(main())


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_an_unknown_version_of_api_versions_is_answered_with_version_0(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            client.writer.write(struct.pack(">ihhih", 15, 18, 77, 5, 4) + b"abcd\0")
            body = await client.receive_frame()
            assert body == struct.pack(">ihihhh", 5, 35, 1, 18, 0, 4)
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


def test_a_client_id_need_not_be_text(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            client.writer.write(struct.pack(">ihhih", 12, 18, 0, 6, 2) + b"\xff\xfe")
            assert struct.unpack_from(">ih", await client.receive_frame()) == (6, 0)

    run(main())


def test_bytes_behind_a_request_are_ignored(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            client.writer.write(struct.pack(">ihhih", 14, 18, 0, 6, -1) + b"rest")
            assert struct.unpack_from(">ih", await client.receive_frame()) == (6, 0)

    run(main())


def test_a_bad_software_name_is_refused(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            request = ApiVersionsRequest(client_software_name="bad name!", client_software_version="1")
            assert (await client.call(request, 3)).error_code == InvalidRequest.code

    run(main())


def test_a_reader_that_stops_costs_a_bounded_buffer(run: Any, run_broker: Any) -> None:
    """A client sends fetches and never reads the answers: the broker stops serving only that connection."""

    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            for _ in range(8):
                await client.produce("t", b"x" * 500_000)
            slow = await running.connect()
            for _ in range(400):
                slow.writer.write(slow.frame(fetch("t", 0, max_bytes=4_000_000), 4))
            await running.settle()
            (connection,) = [c for c in running.broker.connections if c._writing]
            queued = len(connection._out)
            await client.produce("t", b"y" * 500_000)
            await running.settle()
            assert len(connection._out) == queued, "no more of its requests are served"
            assert queued < 300
            first = await slow.receive()
            assert first.responses[0].partitions[0].records

    run(main())


def test_idle_connections_are_closed(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        clock = ManualClock(START_MS)
        async with run_broker(clock=clock, settings={"connections.max.idle.ms": 10_000}) as running:
            idle, busy = await running.connect(), await running.connect()
            await busy.call(ApiVersionsRequest(), 0)
            await idle.call(ApiVersionsRequest(), 0)
            clock.advance(6_000)
            await busy.call(ApiVersionsRequest(), 0)
            clock.advance(6_000)
            assert await idle.is_closed()
            assert (await busy.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


def test_a_peer_that_disconnects_during_a_long_poll_is_forgotten(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            timers = len(running.broker.timer)
            client.send(fetch("t", 0, max_wait_ms=100_000), 4)
            await running.settle()
            partition = running.broker.replicas.leader("t", 0)
            assert len(partition.watchers) == 1
            await client.close()
            for _ in range(100):
                if not partition.watchers:
                    break
                await asyncio.sleep(0.01)
            assert not partition.watchers
            assert len(running.broker.timer) < timers, "neither its wait nor its idle timer remains"

    run(main())


def test_a_stop_answers_waiting_requests(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            client.send(fetch("t", 0, max_wait_ms=100_000), 4)
            await running.settle()
            stopping = asyncio.ensure_future(running.broker.stop())
            assert (await client.receive()).responses[0].partitions[0].error_code == 0
            await stopping
            assert await client.is_closed()

    run(main())
