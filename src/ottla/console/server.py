"""The console on an HTTP address."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.console.cluster_source import ClusterSource
from ottla.console.inside import FROM_OUTSIDE
from ottla.http.endpoint import App, HttpEndpoint
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.console import app
    from ottla.console.inside import Inside
    from ottla.http import guard
else:
    app = lazy("ottla.console.app")
    guard = lazy("ottla.http.guard")

_LOOPBACK: Final = "127.0.0.1"


def own_console(inside: Inside, port: int, *, read_only: bool = False) -> ConsoleServer:
    """The console of the brokers of this process, for this machine only."""
    return ConsoleServer(lambda: "", _LOOPBACK, port, inside=inside, read_only=read_only)


class ConsoleServer:
    """Serves the page and its API. Nothing but the port is taken until somebody opens it."""

    def __init__(
        self,
        bootstrap: Callable[[], str],
        host: str,
        port: int,
        *,
        security: Security | None = None,
        inside: Inside | None = None,
        missing: str = FROM_OUTSIDE,
        token: str | None = None,
        read_only: bool = False,
    ) -> None:
        if token is None and host != _LOOPBACK and host not in guard.LOCAL_NAMES:
            raise ValueError(f"a console on {host} can be reached from other machines: it needs a token")
        self._source = ClusterSource(bootstrap, security, inside, missing)
        self._token = token

        def make() -> App:
            return app.make_app(self._source, token=token, read_only=read_only)

        self._endpoint = HttpEndpoint(host, port, make)

    @property
    def url(self) -> str:
        """What to open in a browser; with the token, if one is needed."""
        return self._endpoint.url if self._token is None else f"{self._endpoint.url}/?token={self._token}"

    async def start(self) -> None:
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await self._source.close()
