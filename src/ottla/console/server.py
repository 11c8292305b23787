"""The console on an HTTP address."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.console.console_source import ConsoleSource
from ottla.console.inside import FROM_OUTSIDE
from ottla.http.endpoint import App, HttpEndpoint
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import socket

    from ottla.client.security import Security
    from ottla.console import app, schemas
    from ottla.console.console_source import AskRegistry
    from ottla.console.inside import Inside
    from ottla.console.worker_views import WorkerViews
    from ottla.http import guard
else:
    app = lazy("ottla.console.app")
    schemas = lazy("ottla.console.schemas")
    guard = lazy("ottla.http.guard")

_LOOPBACK: Final = "127.0.0.1"


def own_console(inside: Inside, port: int, *, read_only: bool = False) -> ConsoleServer:
    """The console of the brokers of this process, for this machine only."""
    return ConsoleServer(lambda: "", _LOOPBACK, port, inside=inside, read_only=read_only)


def worker_view(inside: Inside, sock: socket.socket, token: str) -> HttpEndpoint:
    """The view of one worker for the console of all workers; only that console knows the token."""
    source = ConsoleSource(lambda: "", inside=inside, is_view=True)
    return HttpEndpoint(_LOOPBACK, 0, lambda: app.make_app(source, token=token), sock=sock)


class ConsoleServer:
    """Serves the page and its API. Until a browser opens it, it uses only a port."""

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
        workers: WorkerViews | None = None,
        registry: AskRegistry | None = None,
    ) -> None:
        if token is None and host != _LOOPBACK and host not in guard.LOCAL_NAMES:
            raise ValueError(f"a console on {host} can be reached from other machines: it needs a token")
        self._source = ConsoleSource(bootstrap, security, inside, missing, workers)
        self._source.given_registry = registry
        self._token = token

        def make() -> App:
            self._source.decode = schemas.decoder(self._source)
            return app.make_app(self._source, token=token, read_only=read_only)

        self._endpoint = HttpEndpoint(host, port, make)

    @property
    def url(self) -> str:
        """The URL to open in a browser, with the token if one is needed."""
        return self._endpoint.url if self._token is None else f"{self._endpoint.url}/?token={self._token}"

    async def start(self) -> None:
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await self._source.close()
