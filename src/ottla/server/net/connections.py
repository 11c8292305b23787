"""The open connections of a broker, and what they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.server.net.buffers import ReceiveBuffers
from ottla.server.net.turns import Turns

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.server.net.busy_poll import Pace
    from ottla.server.net.connection import Connection
    from ottla.server.services import CurrentConfig

BYTES_PER_ELEMENT = 512
"""A request may have one array element per this many bytes of `socket.request.max.bytes`, which allows 204,800 by
default. Kafka has no such limit; here an element that takes one byte on the wire may take a kilobyte in memory."""


class Connections:
    """The connections of all listeners. A connection that is idle for `connections.max.idle.ms` is closed."""

    def __init__(
        self,
        current: CurrentConfig,
        clock: Clock,
        timer: Timer,
        on_closed: Callable[[Connection], None],
        pace: Pace | None,
    ) -> None:
        self._current = current
        self._clock = clock
        self._timer = timer
        self._on_closed = on_closed
        self._open: set[Connection] = set()
        self._all_closed: asyncio.Future[None] | None = None
        self.pace = pace
        """Set if the process only serves clients: a busy connection may keep the loop for a moment."""
        self.buffers = ReceiveBuffers()
        self.turns = Turns()
        self.request_bytes_max: int = current.config["socket.request.max.bytes"]
        self.request_elements_max = self.request_bytes_max // BYTES_PER_ELEMENT

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        limit_ms = self._current.config["connections.max.idle.ms"]
        if limit_ms < 0:
            return

        def check() -> None:
            left_ms = connection.last_active_ms + limit_ms - self._clock.monotonic_ms()
            if left_ms > 0:
                connection.idle_timer = self._timer.schedule(left_ms, check)
            else:
                connection.close("idle for longer than connections.max.idle.ms", logging.INFO)

        # One timer per connection, which is rarely rescheduled: a request does not touch it.
        connection.idle_timer = self._timer.schedule(limit_ms, check)

    def closed(self, connection: Connection) -> None:
        """Called when a connection is closed."""
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
        self._open.discard(connection)
        self._on_closed(connection)
        if not self._open and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def hold_back(self) -> None:
        """Read nothing until `let_go`, like a stopped process."""
        for connection in self:
            connection.hold_back()

    def let_go(self) -> None:
        for connection in self:
            connection.let_go()

    async def finish(self, grace_s: float) -> None:
        """Close each connection when its request is answered; after `grace_s` seconds close the rest."""
        for connection in self:
            connection.finish()
        if self._open:
            self._all_closed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_closed], timeout=grace_s)
        self.close()

    def close(self) -> None:
        for connection in self:
            connection.close()
