"""An HTTP address on the broker's event loop. It listens immediately, and loads the HTTP library with the first
client.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import lazy
from ottla.server.net.listener import bind, listen

if TYPE_CHECKING:
    import ssl

    from ottla.http import protocol
    from ottla.http.protocol import HttpServer
else:
    protocol = lazy("ottla.http.protocol")

logger = logging.getLogger(__name__)

App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


class DropConnection(Exception):
    """Raised by an application to close the connection instead of answering."""


_BACKLOG: Final = 128

_CANNOT_WATCH: Final[tuple[type, ...]] = (asyncio.ProactorEventLoop,) if hasattr(asyncio, "ProactorEventLoop") else ()
"""Event loops without `add_reader`, such as the default loop on Windows."""


class HttpEndpoint:
    """Serves one ASGI application on one address.

    `make_app` is called once, in a thread, when the first client connects. It should import the modules that the
    application needs. `sock` is a socket that is already bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        make_app: Callable[[], App],
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._make_app = make_app
        self._sock = sock
        self._tls = tls
        self._server: HttpServer | None = None
        self._loading: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def port(self) -> int:
        assert self._sock is not None, "the endpoint is not started"
        port: int = self._sock.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises ListenError if the address is not available."""
        if self._sock is None:
            self._sock = bind(self._host, self._port)
        listen(self._sock, _BACKLOG)
        self._sock.setblocking(False)
        self._is_open = True
        loop = asyncio.get_running_loop()
        if isinstance(loop, _CANNOT_WATCH):
            await self._load()
        else:
            loop.add_reader(self._sock, self._first_client)

    async def stop(self) -> None:
        """Close, and end the current requests. A request that asked for the stop is answered."""
        if not self._is_open:
            if self._sock is not None:
                self._sock.close()
            return
        self._is_open = False
        assert self._sock is not None
        if self._loading is None and self._server is None:
            asyncio.get_running_loop().remove_reader(self._sock)
        if self._loading is not None:
            self._loading.cancel()
        if self._server is not None:
            await self._server.close()
        self._sock.close()
        self._loading = self._server = None

    async def down(self) -> None:
        """Stop, but keep the port: clients are refused until up()."""
        if self._is_open:
            port = self.port
            await self.stop()
            self._sock = bind(self._host, port)

    async def up(self) -> None:
        """Listen again after down()."""
        if not self._is_open:
            await self.start()

    def _first_client(self) -> None:
        """A client waits to be accepted: import the HTTP modules in a thread, while Kafka clients are served."""
        loop = asyncio.get_running_loop()
        assert self._sock is not None
        loop.remove_reader(self._sock)
        self._loading = loop.create_task(self._load())

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._sock is not None
        try:
            server = await loop.run_in_executor(None, self._make_server)
            await server.start(loop, self._sock)
        except Exception:
            logger.exception("HTTP on port %d cannot be served", self.port)
            self._sock.close()
            return
        if not self._is_open:
            await server.close()
            return
        self._server = server

    def _make_server(self) -> protocol.HttpServer:
        return protocol.HttpServer(self._make_app(), self._tls)
