"""The cluster that a console shows: a client to it, opened with the first question."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.console.inside import FROM_OUTSIDE
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.client import connection, routing
    from ottla.client.routing import Client
    from ottla.client.security import Security
    from ottla.console import operations, own_broker
    from ottla.console.inside import Inside
else:
    connection = lazy("ottla.client.connection")
    operations = lazy("ottla.console.operations")
    own_broker = lazy("ottla.console.own_broker")
    routing = lazy("ottla.client.routing")

_RETRY_TIMEOUT_S: Final = 3.0
"""A page shall say soon that the cluster is away; it asks again by itself."""


class ClusterSource:
    """`bootstrap` is asked for with each new client: an embedded broker may come back on another port."""

    def __init__(
        self,
        bootstrap: Callable[[], str],
        security: Security | None = None,
        inside: Inside | None = None,
        missing: str = FROM_OUTSIDE,
    ) -> None:
        """With `inside` the brokers of this process are asked, and `bootstrap` is not used. `missing` says why there is
        no `inside`."""
        self.inside = inside
        self.missing = missing if inside is None else None
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
                open_broker=None if self.inside is None else own_broker.connections_to(self.inside),
            )
        return self._client

    def need_inside(self) -> Inside:
        """What only the brokers' own process can show; NotFound, with the reason, where there is none."""
        if self.inside is None:
            raise operations.NotFound(self.missing)
        return self.inside

    async def reconnect(self) -> None:
        """Forget the client: its cluster cannot be reached any more."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def close(self) -> None:
        await self.reconnect()
