"""A tiny HTTP endpoint for machines that look after the broker: metrics, health, readiness. GET only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ottla.server.listener import ListenError

HEAD_BYTES_MAX = 16 << 10
"""A scraper's request line and headers; whatever is longer is not one."""
_READ_TIMEOUT_S = 10.0

Page = Callable[[], tuple[int, str, bytes]]
"""Returns status, content type and body."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpEndpoint:
    """Serves pages by path on an address of its own, on the broker's loop."""

    def __init__(self, host: str, port: int, pages: dict[str, Page]) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None, "the endpoint is not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise ListenError(f"cannot listen on {self._host}:{self._port}: {error.strerror or error}") from error

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, kind, body = self._answer(head)
            writer.write(
                f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # not a scraper, or one that left
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> tuple[int, str, bytes]:
        words = head.split(b"\r\n", 1)[0].split()
        if len(words) != 3:
            return _text(400, "not an HTTP request")
        method, path = words[0], words[1].split(b"?")[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            return _text(404, f"there are: {', '.join(sorted(self._pages))}")
        if method not in (b"GET", b"HEAD"):
            return _text(405, "GET only")
        status, kind, body = page()
        return status, kind, b"" if method == b"HEAD" else body


def _text(status: int, message: str) -> tuple[int, str, bytes]:
    return status, "text/plain; charset=utf-8", message.encode() + b"\n"
