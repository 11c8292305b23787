"""One connection does not starve the others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.log.files import PosixDisk
from ottla.server.net import connection, transport, turns
from ottla.wire.messages.metadata import ApiVersionsRequest

MANY = 200


@pytest.fixture
def time_stands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every turn end immediately."""
    monkeypatch.setattr(connection, "TURN_NS", -1)


@pytest.mark.usefixtures("time_stands_over")
def test_a_series_of_requests_is_interrupted_for_others(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client, other = await running.connect(), await running.connect()
            await other.call(ApiVersionsRequest(), 0)
            order: list[str] = []

            async def receive(name: str, reader: Any, count: int) -> None:
                for _ in range(count):
                    assert (await reader.receive()).error_code == 0
                order.append(name)

            for _ in range(MANY):
                client.send(ApiVersionsRequest(), 0)
            other.send(ApiVersionsRequest(), 0)
            await asyncio.gather(receive("many", client, MANY), receive("one", other, 1))
            assert order == ["one", "many"]

    run(main())


@pytest.mark.usefixtures("time_stands_over")
def test_requests_that_had_to_wait_are_served_in_order(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            client = await running.connect()
            await client.create_topic("t")
            frames = b"".join(client.frame(ApiVersionsRequest(), 0) for _ in range(MANY))
            client.writer.write(frames[:-7])
            for _ in range(MANY - 1):
                assert (await client.receive()).error_code == 0
            client.writer.write(frames[-7:])  # the rest of a frame that was cut off where the turn ended
            assert (await client.receive()).error_code == 0

    run(main())


def test_a_large_answer_is_sent_in_several_turns(
    run: Any, run_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SEND_BYTES", 100_000)

    async def main() -> None:
        async with run_broker(disk=PosixDisk(tmp_path / "data")) as running:
            client = await running.connect()
            await client.create_topic("t")
            for n in range(3):
                assert (await client.produce("t", bytes([n]) * 450_000)).error_code == 0
            response = await client.fetch("t", 0, 50 << 20)
            records = bytes(response.responses[0].partitions[0].records)
            assert all(bytes([n]) * 450_000 in records for n in range(3))
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


def test_large_requests_of_two_connections_arrive_whole(run: Any, run_broker: Any) -> None:
    async def main() -> None:
        async with run_broker() as running:
            clients = [await running.connect() for _ in range(2)]
            await clients[0].create_topic("t")

            async def produce(client: Any, n: int) -> None:
                for _ in range(4):
                    assert (await client.produce("t", bytes([n]) * 900_000)).error_code == 0

            await asyncio.gather(*(produce(client, n) for n, client in enumerate(clients)))
            response = await clients[0].fetch("t", 0, 50 << 20)
            records = bytes(response.responses[0].partitions[0].records)
            assert [records.count(bytes([n]) * 900_000) for n in range(2)] == [4, 4]

    run(main())


def test_a_connection_is_alone_when_no_other_was_served_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 10**12
    monkeypatch.setattr(turns, "perf_counter_ns", lambda: now_ns)
    shared, one, other = turns.Turns(), object(), object()
    shared.take(one)
    assert not shared.is_alone
    now_ns += 300_000_000
    assert shared.is_alone
    shared.take(one)
    assert shared.is_alone
    shared.take(other)
    shared.take(one)
    assert not shared.is_alone
