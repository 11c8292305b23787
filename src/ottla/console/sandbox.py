"""The cluster of the guided tours: three brokers in memory with a virtual clock, separate from all real data."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.client.routing import Client
from ottla.console.console_source import ConsoleSource
from ottla.console.operations import NotFound
from ottla.http.requests import HttpRequest
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.multibroker import cluster
    from ottla.multibroker.cluster import Cluster
else:
    cluster = lazy("ottla.multibroker.cluster")

IDLE_S: Final = 600.0
"""A sandbox without requests for this long is stopped."""
BROKERS: Final = 3


class Sandbox:
    """The cluster of the current tour. A new tour ends the previous one, and nothing runs before the first tour."""

    def __init__(self) -> None:
        self.id = ""
        self._cluster: Cluster | None = None
        self._source: ConsoleSource | None = None
        self._used_at = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start with an empty cluster."""
        await self.stop()
        made = cluster.Cluster(BROKERS, clock="virtual", settings={"log.cleaner.enable": "false"})
        await made.__aenter__()
        self._cluster = made
        self._source = ConsoleSource(lambda: "", inside=made.inside())
        self.id = secrets.token_hex(8)
        self._used_at = time.monotonic()
        self._watch = asyncio.get_running_loop().create_task(self._stop_when_idle())

    async def stop(self) -> None:
        self.id = ""
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
        source, self._source = self._source, None
        if source is not None:
            await source.close()
        running, self._cluster = self._cluster, None
        if running is not None:
            await running.__aexit__(None, None, None)

    async def _stop_when_idle(self) -> None:
        left = IDLE_S
        while left > 0:
            await asyncio.sleep(left)
            left = self._used_at + IDLE_S - time.monotonic()
        await self.stop()

    @property
    def source(self) -> ConsoleSource:
        if self._source is None:
            raise NotFound("no tour is running: start one first")
        self._used_at = time.monotonic()
        return self._source

    @property
    def client(self) -> Client:
        return self.source.client

    async def steer(self, path: str, body: Any = None) -> Any:
        """Call the control endpoint of the cluster: `/cluster/kill`, `/clock/advance` …"""
        control = self.source.need_inside().control
        assert control is not None
        return await control(HttpRequest("POST", path, {}, {}, json.dumps(body or {}).encode()))

    async def advance(self, **duration: float) -> None:
        await self.steer("/clock/advance", duration)
        await self.settle()

    async def settle(self) -> None:
        """Wait for the effects of a step: followers fetch, and the controller is informed."""
        for _ in range(20):
            await asyncio.sleep(0.01)
