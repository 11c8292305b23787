"""A tiny HTTP/1.1 endpoint on the broker's loop, one request a connection: for those who look after a broker, and for
steering one in tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.server.net.listener import not_bound

HEAD_BYTES_MAX: Final = 16 << 10
"""A request line and headers; whatever is longer is not meant for us."""
_READ_TIMEOUT_S: Final = 30.0


class HttpRequest(NamedTuple):
    method: str
    path: str
    """As it was sent, without the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes

    @property
    def parts(self) -> list[str]:
        """The path's names."""
        return [unquote(part) for part in self.path.split("/") if part]


class HttpAnswer(NamedTuple):
    status: int
    content_type: str
    body: bytes


def text(status: int, message: str) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", message.encode() + b"\n")


class HttpError(Exception):
    """A request that is refused, with the status and the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class HttpEndpoint:
    """Hands every request to `handler`, on an address of its own. What cannot be read is answered by `refuse`."""

    def __init__(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        body_bytes_max: int = 0,
        refuse: Callable[[int, str], HttpAnswer] = text,
        sock: socket.socket | None = None,
    ) -> None:
        self._sock = sock  # bound already, by whoever wanted to know early that the port is free
        self._host = host
        self._port = port
        self._handler = handler
        self._body_bytes_max = body_bytes_max
        self._refuse = refuse
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None, "the endpoint is not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    async def start(self) -> None:
        if self._sock is not None:
            self._server = await asyncio.start_server(self._serve, sock=self._sock, limit=HEAD_BYTES_MAX)
            return
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise not_bound(self._host, self._port, error) from error

    async def stop(self) -> None:
        """Close, and end what is under way; the request that asks for it, if one does, is still answered."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        others = [task for task in self._busy if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            if self._server is None:
                return  # accepted while the endpoint ended
            status, content_type, body = await self._answer(reader)
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # not HTTP, or a client that left
        finally:
            self._busy.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> HttpAnswer:
        try:
            try:
                async with asyncio.timeout(_READ_TIMEOUT_S):
                    request = await _read(reader, self._body_bytes_max)
            except TimeoutError:
                raise HttpError(408, f"no whole request within {_READ_TIMEOUT_S:g} s") from None
            return await self._handler(request)
        except HttpError as error:
            return self._refuse(error.status, str(error))


Page = Callable[[], "HttpAnswer | Awaitable[HttpAnswer]"]


def pages(by_path: Mapping[str, Page]) -> Handler:
    """Pages that are only looked at."""

    async def handler(request: HttpRequest) -> HttpAnswer:
        page = by_path.get(request.path)
        if page is None:
            raise HttpError(404, f"there are: {', '.join(sorted(by_path))}")
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "GET only")
        found = page()
        answer = found if isinstance(found, HttpAnswer) else await found
        return answer if request.method == "GET" else answer._replace(body=b"")

    return handler


async def _read(reader: asyncio.StreamReader, body_bytes_max: int) -> HttpRequest:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise HttpError(400, "the headers are too long") from None
    first, *lines = head.split("\r\n")
    words = first.split()
    if len(words) != 3:
        raise HttpError(400, "not an HTTP request")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length) > body_bytes_max:
        raise HttpError(400, f"content-length {length!r} is not a number up to {body_bytes_max}")
    try:
        url = urlsplit(words[1])
    except ValueError as error:
        raise HttpError(400, f"not an address: {error}") from None
    body = await reader.readexactly(int(length))
    return HttpRequest(words[0], url.path, dict(parse_qsl(url.query)), headers, body)
