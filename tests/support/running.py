"""A broker on the test's event loop, with clients that are closed when it ends."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from ottla.clock import ManualClock
from ottla.config import Config
from ottla.log.files import Disk, MemoryDisk
from ottla.server.api import Registry
from ottla.server.broker import Broker
from support.async_wire import AsyncWire

TIMEOUT_S = 30

Result = TypeVar("Result")


class Running:
    """A started broker with ways to reach it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._clients: list[AsyncWire] = []

    def port(self, listener: int = 0) -> int:
        return self.broker.addresses[listener][1]

    async def connect(
        self, listener: int = 0, *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> AsyncWire:
        client = await AsyncWire.connect(host, self.port(listener), context)
        self._clients.append(client)
        return client

    async def as_user(self, user: str, listener: int = 0) -> AsyncWire:
        """A connection that has passed SASL PLAIN."""
        client = await self.connect(listener)
        response = await client.log_in(user)
        assert response.error_code == 0, response
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    @staticmethod
    async def settle() -> None:
        """Run everything that is ready on the loop."""
        for _ in range(20):
            await asyncio.sleep(0)


RunBroker = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def running_broker(
    *,
    disk: Disk | None = None,
    clock: ManualClock | None = None,
    settings: Mapping[str, object] | None = None,
    registry: Registry | None = None,
) -> AsyncIterator[Running]:
    """A broker, by default in memory, in real time, and with one plain listener."""
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
        await running.close()
        await broker.stop()


def run_to_end(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine, and fails if it takes longer than half a minute or leaves tasks behind."""

    async def guarded() -> Result:
        before = asyncio.all_tasks()
        result = await asyncio.wait_for(main, TIMEOUT_S)
        left = asyncio.all_tasks() - before
        assert not left, f"tasks left behind: {left}"
        return result

    return asyncio.run(guarded())
