"""Requests and answers as plain values, for simple handlers, and the application around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from ottla.http.endpoint import App
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from starlette import requests, responses
else:
    requests = lazy("starlette.requests")
    responses = lazy("starlette.responses")

_BODY_TIMEOUT_S: Final = 30.0
"""How long a client may take to send a request's body."""


class HttpRequest(NamedTuple):
    method: str
    path: str
    """The path as it was sent, without the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """Headers by their names in lower case."""
    body: bytes
    ends: tuple[tuple[str, int], tuple[str, int]] | None = None
    """The addresses of the server and of the client."""

    @property
    def parts(self) -> list[str]:
        """The names between the slashes of the path."""
        return [unquote(part) for part in self.path.split("/") if part]


class HttpAnswer(NamedTuple):
    status: int
    content_type: str
    body: bytes


def text(status: int, message: str) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", message.encode() + b"\n")


class HttpError(Exception):
    """A refused request, with the status and the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


def app_of(
    handler: Handler, *, body_bytes_max: int = 0, refuse: Callable[[int, str], HttpAnswer] = text
) -> Callable[[], App]:
    """Makes the application that passes every request to `handler`; `refuse` builds the answer to a bad one."""

    def make() -> App:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            incoming = requests.Request(scope, receive)
            try:
                answer = await handler(
                    HttpRequest(
                        incoming.method,
                        scope["raw_path"].decode("latin-1"),
                        dict(parse_qsl(scope["query_string"].decode("latin-1"))),
                        dict(incoming.headers),
                        await read_body(incoming, body_bytes_max),
                        (scope["server"], scope["client"]),
                    )
                )
            except HttpError as error:
                answer = refuse(error.status, str(error))
            response = responses.Response(answer.body, answer.status, media_type=None)
            response.headers["content-type"] = answer.content_type
            await response(scope, receive, send)

        return app

    return make


async def read_body(request: Any, bytes_max: int) -> bytes:
    """The body of a Starlette request. HttpError if it is larger than this, or does not arrive in time."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            body = await bounded_body(request, bytes_max)
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {_BODY_TIMEOUT_S:g} s") from None
    if body is None:
        raise HttpError(413, f"the body is larger than {bytes_max} bytes")
    return body


async def bounded_body(request: Any, bytes_max: int) -> bytes | None:
    """The body of a Starlette request; None once it is larger than this."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            return None
    return bytes(body)


Page = Callable[[], "HttpAnswer | Awaitable[HttpAnswer]"]


def pages(by_path: Mapping[str, Page]) -> Handler:
    """A handler for pages that can only be read."""

    async def handler(request: HttpRequest) -> HttpAnswer:
        page = by_path.get(request.path)
        if page is None:
            raise HttpError(404, f"the paths are: {', '.join(sorted(by_path))}")
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "GET only")
        found = page()
        answer = found if isinstance(found, HttpAnswer) else await found
        return answer if request.method == "GET" else answer._replace(body=b"")

    return handler
