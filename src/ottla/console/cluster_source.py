"""The cluster that a console shows: a client to it, opened with the first question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.connection import ConnectionLost
from ottla.client.routing import Client
from ottla.client.security import Security

_RETRY_TIMEOUT_S: Final = 3.0
"""A page shall say soon that the cluster is away; it asks again by itself."""


class ClusterSource:
    """`bootstrap` is asked for with each new client: an embedded broker may come back on another port."""

    def __init__(self, bootstrap: Callable[[], str], security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            try:
                address = self._bootstrap()
            except RuntimeError as error:  # an embedded broker that is down has no address
                raise ConnectionLost(str(error)) from error
            self._client = Client(
                address,
                security=self._security,
                retry_timeout_s=_RETRY_TIMEOUT_S,
                request_timeout_s=15.0,
            )
        return self._client

    async def reconnect(self) -> None:
        """Forget the client: its cluster cannot be reached any more."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def close(self) -> None:
        await self.reconnect()
