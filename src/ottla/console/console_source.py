"""The cluster that a console shows. Its client is opened with the first request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.console.inside import FROM_OUTSIDE
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.client import connection, routing
    from ottla.client.routing import Client
    from ottla.client.security import Security
    from ottla.console import lag, learn, operations, own_broker
    from ottla.console.inside import Inside
    from ottla.console.lag import LagWatch
    from ottla.console.learn import Guide
    from ottla.console.worker_views import WorkerViews
else:
    connection = lazy("ottla.client.connection")
    lag = lazy("ottla.console.lag")
    learn = lazy("ottla.console.learn")
    operations = lazy("ottla.console.operations")
    own_broker = lazy("ottla.console.own_broker")
    routing = lazy("ottla.client.routing")

_RETRY_TIMEOUT_S: Final = 3.0
"""A page should report an unreachable cluster soon; it retries by itself."""

Decode = Callable[[str, bool, bytes], Awaitable[dict[str, Any] | None]]
"""Decodes bytes with a schema: called with the topic, whether it is the key, and the bytes. The result is shown next to
them: {"schema": "orders-value, version 3", "value": …} or {"schema": …, "problem": "why not"}; None without a
schema."""

AskRegistry = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]
"""Calls a schema registry with a method, a path and a body; returns the status and the body of the answer."""


class ConsoleSource:
    """`bootstrap` is called for each new client, because an embedded broker may restart on another port."""

    def __init__(
        self,
        bootstrap: Callable[[], str],
        security: Security | None = None,
        inside: Inside | None = None,
        missing: str = FROM_OUTSIDE,
        workers: WorkerViews | None = None,
        *,
        is_view: bool = False,
    ) -> None:
        """With `inside` the console uses the brokers of this process instead of `bootstrap`. `missing` explains why
        there is no `inside`. With `workers` it asks worker processes for their internal state. `is_view` marks the
        source in such a process: the console that sends the request has already checked the permissions.
        """
        self.inside = inside
        self.workers = workers
        self.is_view = is_view
        self.missing = missing if inside is None and workers is None else None
        self.decode: Decode | None = None
        """Set when the first client connects."""
        self.given_registry: AskRegistry | None = None
        """An external schema registry; without it, the registry of this process is used."""
        self._lags: LagWatch | None = None
        self._guide: Guide | None = None
        self._bootstrap = bootstrap
        self._security = security
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            try:
                address = "" if self.inside is not None else self._bootstrap()
            except RuntimeError as error:  # an embedded broker that is down has no address
                raise connection.ConnectionLost(str(error)) from error
            self._client = routing.Client(
                address,
                security=self._security,
                retry_timeout_s=_RETRY_TIMEOUT_S,
                request_timeout_s=15.0,
                open_broker=None if self.inside is None else own_broker.connections_to(self.inside.servers),
            )
        return self._client

    @property
    def registry(self) -> AskRegistry | None:
        """The schema registry, if one is known."""
        if self.given_registry is not None or self.inside is None:
            return self.given_registry
        return self.inside.registry()

    @property
    def lags(self) -> LagWatch:
        if self._lags is None:
            self._lags = lag.LagWatch()
        return self._lags

    @property
    def guide(self) -> Guide:
        """The current guided tour, if any."""
        if self._guide is None:
            self._guide = learn.Guide()
        return self._guide

    def now_ms(self) -> int:
        """The time of the brokers, which may have a virtual clock."""
        servers = {} if self.inside is None else self.inside.servers()
        return next((server.clock.now_ms() for server in servers.values()), int(time.time() * 1000))

    def need_inside(self) -> Inside:
        """The internals that only the brokers' own process can show. Raises NotFound with the reason without them."""
        if self.inside is None:
            raise operations.NotFound(self.missing or "no worker has this")
        return self.inside

    async def reconnect(self) -> None:
        """Drop the client: its cluster is no longer reachable."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def close(self) -> None:
        if self._guide is not None:
            await self._guide.stop()
        await self.reconnect()
