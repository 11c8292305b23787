"""A broker that receives odd frames, and checks that report everything it should not do."""

import asyncio
import logging
import socket
from typing import Any

from ottla.config import Config
from ottla.log.files import MemoryDisk
from ottla.server.broker import Broker
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest
from support.simulating.loop import SimClient, SimLoop

ASK_EVERY = 2000


class Complaints(logging.Handler):
    """Unexpected errors of a handler."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.unexpected: list[logging.LogRecord] = []
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        if record.exc_info is not None:
            self.unexpected.append(record)


class Target:
    """Frames are passed to the connection's parser. Its answers are read and dropped."""

    def __init__(self) -> None:
        overrides = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
            "auto.create.topics.enable": False,
            "group.initial.rebalance.delay.ms": 0,
            "max.connections": 2147483647,
        }
        self.loop: SimLoop
        self.broker = Broker(Config.load(overrides=overrides, preset="dev"), disk=MemoryDisk())
        self.complaints = Complaints()
        self.unhandled: list[dict[str, Any]] = []
        self._connection: Any = None
        self._client: socket.socket | None = None
        self._number = 0
        self.closed = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        loop.set_exception_handler(lambda _, context: self.unhandled.append(context))
        logging.getLogger("ottla").addHandler(self.complaints)
        logging.getLogger("ottla").propagate = False
        await self.broker.start()
        await self.make_topics()

    async def stop(self) -> None:
        try:
            self._drop()
            await self.broker.stop()
        finally:
            logging.getLogger("ottla").removeHandler(self.complaints)
            logging.getLogger("ottla").propagate = True

    def client(self) -> SimClient:
        self._number += 1
        return SimClient(self.broker, self._number)

    async def make_topics(self) -> None:
        client = self.client()
        config = CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact")
        for name, configs in (("t", []), ("x", []), ("compacted", [config])):
            wanted = CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=2, replication_factor=1, configs=configs
            )
            await client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7)
        client.disconnect()

    def topic_ids(self) -> list[bytes]:
        return [topic.topic_id for topic in self.broker.metadata.topics.values()]

    async def throw(self, frame: bytes) -> None:
        """Send one frame. A connection that is closed or waiting is replaced."""
        if self._connection is None:
            self._connect()
        connection = self._connection
        frames = connection._frames
        frames.room[: len(frame)] = frame
        frames.received(len(frame))
        connection._serve_frames()
        if connection._out:
            connection._flush()
        assert self._client is not None
        try:
            while len(self._client.recv(1 << 20)) == 1 << 20:
                pass
        except BlockingIOError:
            pass
        if (
            connection._closed
            or connection._pending is not None
            or connection._frames.partial is not None
            or connection._out
        ):
            self.closed += 1
            self._drop()
            await asyncio.sleep(0)

    def _connect(self) -> None:
        client = self.client()
        self._client = client.socket
        before = self.broker.connections
        self._connection = next(c for c in before if c.peer == f"127.0.0.1:{40_000 + self._number}")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            assert self._client is not None
            self._client.close()
            self._connection = self._client = None

    async def serves(self) -> bool:
        """Whether a well-behaved client is served."""
        client = self.client()
        answer = await client.call(MetadataRequest(topics=None), 12)
        client.disconnect()
        return len(answer.brokers) == 1
