"""A process of a cluster: a broker, a controller, or both (`process.roles=broker,controller`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.multibroker.cluster_broker import ClusterBroker
    from ottla.multibroker.cluster_controllers import ClusterController


class NodeProcess:
    """One node of a cluster, with the parts that run on it."""

    def __init__(
        self, broker: ClusterBroker | None, controller: ClusterController | None, has_majority: Callable[[], bool]
    ) -> None:
        """`has_majority` returns whether enough controllers are up to elect one."""
        self.broker = broker
        self.controller = controller
        self._has_majority = has_majority

    @property
    def _parts(self) -> list[ClusterBroker | ClusterController]:
        """The parts of the node. The broker stops before its controller."""
        return [part for part in (self.broker, self.controller) if part is not None]

    @property
    def _running(self) -> list[ClusterBroker | ClusterController]:
        """The parts to act on. If none runs, the first one, whose error reports this."""
        return [part for part in self._parts if part.is_running] or self._parts[:1]

    async def kill(self) -> None:
        """Kill all parts at the same time."""
        await self.end_start()
        await asyncio.gather(*(part.kill() for part in self._running))

    async def down(self) -> None:
        await self.end_start()
        for part in self._parts:
            await part.down()

    async def up(self) -> None:
        """Start the parts that are down. On a combined node, the broker starts when a majority of controllers is up."""
        broker, controller = self.broker, self.controller
        if broker is None or controller is None:
            await self._parts[0].up()
            return
        if not controller.is_running:
            await controller.up()
        broker.starting = asyncio.ensure_future(broker.up())
        if self._has_majority():
            await broker.starting

    async def end_start(self) -> None:
        """End a start that waits for other controllers."""
        if self.broker is None or self.broker.starting is None:
            return
        starting, self.broker.starting = self.broker.starting, None
        if not starting.done():
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting

    async def restart(self) -> None:
        await self.down()
        await self.up()

    def pause(self) -> None:
        for part in self._running:
            part.node.pause()

    def resume(self) -> None:
        for part in self._running:
            part.node.resume()
