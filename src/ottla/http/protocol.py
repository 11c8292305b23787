"""uvicorn's HTTP/1.1 protocol on a loop that is already running, with limits on slow and idle clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final

from starlette.requests import ClientDisconnect
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ottla.http.endpoint import App, DropConnection

HEAD_BYTES_MAX: Final = 64 << 10
"""The request line and the headers together."""

_HEAD_TIMEOUT_S: Final = 10.0
"""How long a client may take to send its request line and headers."""

_CONNECTIONS_MAX: Final = 512
"""More clients than this get 503: a console, a registry and a few scrapers need far fewer."""

_WRITE_TIMEOUT_S: Final = 30.0
"""How long a client may stop reading an answer."""


class _Protocol(H11Protocol):
    """Closes a connection if no complete request head arrives in time; uvicorn itself would wait forever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_request():
            self._stop_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_TIMEOUT_S, self._head_overdue)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_overdue(self) -> None:
        self._head_timer = None
        if not self._in_request():
            self.transport.close()


class HttpServer:
    """Accepts connections for one application."""

    def __init__(self, app: App, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._state = ServerState()
        self._clients: dict[asyncio.Task[Any] | None, Any] = {}
        """The client of each current request."""
        self._config = Config(
            self._bounded(app),
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._config.load()
        self._state.default_headers = self._config.encoded_headers
        self._server: asyncio.Server | None = None

    async def start(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._server = await loop.create_server(
            lambda: _Protocol(config=self._config, server_state=self._state, app_state={}, _loop=loop),
            sock=sock,
            ssl=self._tls,
        )

    async def close(self) -> None:
        """End all requests except the one that asked for the stop."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        current = asyncio.current_task()
        own_client = self._clients.get(current)
        for connection in list(self._state.connections):
            if own_client is None or getattr(connection, "client", None) != own_client:
                connection.transport.abort()
            else:
                connection.shutdown()
        others = [task for task in self._state.tasks if task is not current]
        # Once a connection is lost, uvicorn does not complain about the request that ends without an answer.
        await asyncio.sleep(0)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _bounded(self, app: App) -> App:
        """The application with a limit on how long a client may stop reading an answer."""

        async def bounded(scope: Any, receive: Any, send: Any) -> None:
            async def send_in_time(message: Any) -> None:
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await send(message)

            task = asyncio.current_task()
            self._clients[task] = scope["client"]
            try:
                await app(scope, receive, send_in_time)
            except TimeoutError:
                pass  # the client reads too slowly: its request ends here
            except ClientDisconnect:
                pass  # the client left before its request was complete
            except DropConnection:
                for connection in list(self._state.connections):
                    if getattr(connection, "client", None) == scope["client"]:
                        connection.transport.abort()
                await asyncio.sleep(0)  # after the connection is lost, uvicorn does not expect an answer
            except asyncio.CancelledError:
                if self._server is not None:
                    raise
            finally:
                del self._clients[task]

        return bounded
