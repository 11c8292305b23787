"""A broker on this test's own event loop, and a client that speaks frames."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.config import Config
from ottla.log.files import Disk, MemoryDisk
from ottla.records.batch import Record, build_batch
from ottla.server.api import Registry
from ottla.server.broker import Broker
from ottla.wire.frames import request_header_version, response_header_version
from ottla.wire.messages import RESPONSES
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.topics import CreateTopicsRequest


class Client:
    """One connection; requests go out as they are asked for, answers come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0
        self.waiting: list[tuple[int, int, int]] = []

    def frame(self, request: Any, version: int, client_id: str | None = "test") -> bytes:
        self.correlation_id += 1
        self.waiting.append((request.API_KEY, version, self.correlation_id))
        head = struct.pack(">hhi", request.API_KEY, version, self.correlation_id)
        if client_id is None:
            head += struct.pack(">h", -1)
        else:
            head += struct.pack(">h", len(client_id)) + client_id.encode()
        if request_header_version(request.API_KEY, version) >= 2:
            head += b"\0"
        body = head + request.encode(version)
        return struct.pack(">i", len(body)) + body

    def send(self, request: Any, version: int) -> None:
        self.writer.write(self.frame(request, version))

    async def answer(self) -> Any:
        api_key, version, correlation_id = self.waiting.pop(0)
        body = await self.read_frame()
        assert struct.unpack_from(">i", body)[0] == correlation_id
        start = 4 + (response_header_version(api_key, version) >= 1)
        return RESPONSES[api_key].decode(body[start:], version)

    async def read_frame(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return await self.answer()

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        config = CreateTopicsRequest.CreatableTopicConfig
        response = await self.call(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
                    )
                ]
            ),
            7,
        )
        assert response.topics[0].error_code == 0, response

    async def produce(self, topic: str, *values: bytes, version: int = 9, acks: int = -1, partition: int = 0) -> Any:
        response = await self.call(produce_request(topic, batch(*values), acks=acks, partition=partition), version)
        return response.responses[0].partition_responses[0]

    async def closed(self) -> bool:
        """Wait for the broker to close the connection."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **options: Any) -> bytearray:
    return build_batch([Record(n, timestamp, None, value) for n, value in enumerate(values)], **options)


def produce_request(topic: str, records: Any, *, acks: int = -1, partition: int = 0, **fields: Any) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data], **fields)],
    )


class Running:
    """A started broker with ways to reach it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.broker.addresses[0][1]

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def settle(self) -> None:
        """Let everything that is ready on the loop happen."""
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def _running(
    *,
    disk: Disk | None = None,
    clock: ManualClock | None = None,
    settings: dict[str, object] | None = None,
    registry: Registry | None = None,
) -> AsyncIterator[Running]:
    overrides: dict[str, object] = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
    broker = Broker(
        Config.load(overrides=overrides, preset="dev"),
        disk=disk if disk is not None else MemoryDisk(),
        clock=clock,
        registry=registry,
    )
    running = Running(broker)
    await broker.start()
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        await broker.stop()


RunBroker = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def run_broker() -> RunBroker:
    return _running


@pytest.fixture
def wire() -> Any:
    """The builders above, for tests that take them through a fixture."""

    class Wire:
        batch = staticmethod(batch)
        produce_request = staticmethod(produce_request)

    return Wire


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end, and fail if it takes absurdly long or leaves tasks behind."""

    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        async def guarded() -> Any:
            before = asyncio.all_tasks()
            result = await asyncio.wait_for(main, 30)
            left = asyncio.all_tasks() - before
            assert not left, f"tasks left behind: {left}"
            return result

        return asyncio.run(guarded())

    return runner
