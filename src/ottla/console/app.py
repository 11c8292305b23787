"""The application behind the console's address: the page, the JSON API, and what is live."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ottla import __version__
from ottla.client.connection import ClientError, ConnectionLost, UnknownTopic
from ottla.console.api import OPERATIONS
from ottla.console.cluster_source import ClusterSource
from ottla.console.operations import (
    BODY_BYTES_MAX,
    PREFIX,
    BadRequest,
    Call,
    NotFound,
    Operation,
    Parameter,
    openapi,
    parse_body,
)
from ottla.console.powers import NO_POWERS
from ottla.console.requests import live_requests
from ottla.console.tail import TAIL_QUERY, tail
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.http.endpoint import App
from ottla.http.guard import Guard
from ottla.http.requests import bounded_body

STATIC: Final = Path(__file__).parent / "static"

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(source: ClusterSource, *, token: str | None = None, read_only: bool = False) -> App:
    routes = [
        Route(PREFIX + each.path, _endpoint(source, each, read_only), methods=[each.method]) for each in OPERATIONS
    ]
    app = Starlette(
        routes=[
            Route(f"{PREFIX}/openapi.json", _json_page(openapi(__version__))),
            Route(f"{PREFIX}/console", _json_page(_about(source, read_only))),
            Route(f"{PREFIX}/topics/{{topic}}/tail", _live_endpoint(source, tail, TAIL_QUERY)),
            Route(f"{PREFIX}/requests/live", _live_endpoint(source, live_requests)),
            *routes,
            Route(PREFIX + "/{rest:path}", _no_operation, methods=["GET", "POST", "PATCH", "PUT", "DELETE"]),
            Route("/{path:path}", _static_file),
        ],
    )
    return _with_headers(Guard(token).wrap(app))


def _with_headers(app: App) -> App:
    added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await app(scope, receive, send_with_headers)

    return wrapped


def _about(source: ClusterSource, read_only: bool) -> dict[str, Any]:
    """What the page needs to know of its console; `missing` says why some pages have nothing to show."""
    inside = source.inside
    return {
        "version": __version__,
        "read_only": read_only,
        "missing": source.missing,
        "missing_powers": NO_POWERS if inside is not None and inside.control is None else None,
    }


def _json_page(content: Any) -> Any:
    async def endpoint(request: Request) -> Response:
        return JSONResponse(content)

    return endpoint


async def _no_operation(request: Request) -> Response:
    return _error(404, f"there is no {request.method} {request.url.path}; see {PREFIX}/openapi.json")


async def _static_file(request: Request) -> Response:
    """A file of the page. Any path without a file name is the page itself: the script reads the rest of the address."""
    name = request.path_params["path"]
    file = (STATIC / name).resolve()
    if name and file.is_file() and file.is_relative_to(STATIC):
        return FileResponse(file)
    if "." in name.rsplit("/", 1)[-1]:
        return _error(404, f"there is no file {name!r}")
    return FileResponse(STATIC / "index.html")


def _error(status: int, message: str, code: str | None = None) -> JSONResponse:
    return JSONResponse({"error": message} if code is None else {"error": message, "code": code}, status)


def _endpoint(source: ClusterSource, declared: Operation, read_only: bool) -> Any:
    async def endpoint(request: Request) -> Response:
        if declared.changes and read_only:
            return _error(403, "this console is read-only")
        try:
            call = Call(source, dict(request.path_params), _query(request, declared.query))
            if declared.body is not None:
                call.body = parse_body(await _body(request))
            return JSONResponse(await declared.handler(call))
        except Exception as error:
            return await _refusal(source, error)

    return endpoint


def _query(request: Request, declared: Sequence[Parameter]) -> dict[str, Any]:
    return {one.name: one.parse(request.query_params.get(one.name)) for one in declared}


async def _body(request: Request) -> bytes:
    body = await bounded_body(request, BODY_BYTES_MAX)
    if body is None:
        raise BadRequest(f"the body is larger than {BODY_BYTES_MAX} bytes")
    return body


async def _refusal(source: ClusterSource, error: Exception) -> JSONResponse:
    """The answer to a call that failed; what is not expected goes to the log as well."""
    if isinstance(error, BadRequest):
        return _error(400, str(error))
    if isinstance(error, (NotFound, UnknownTopic)):
        return _error(404, str(error))
    if isinstance(error, KafkaError):
        status = 404 if isinstance(error, UnknownTopicOrPartition) else 409
        return _error(status, error.message, error.name)
    if isinstance(error, (ConnectionLost, OSError)):
        await source.reconnect()
        return _error(503, f"the cluster cannot be reached: {error}")
    if isinstance(error, ClientError):
        return _error(502, str(error))
    raise error


def _live_endpoint(source: ClusterSource, begin: Any, query: Sequence[Parameter] = ()) -> Any:
    """Server-sent events of what `begin` returns, and `problem` before the end after an error."""

    async def endpoint(request: Request) -> Response:
        try:
            events = await begin(Call(source, dict(request.path_params), _query(request, query)))
        except Exception as error:
            return await _refusal(source, error)
        return StreamingResponse(_event_stream(source, events), media_type="text/event-stream")

    return endpoint


async def _event_stream(source: ClusterSource, events: AsyncIterator[tuple[str, Any]]) -> AsyncIterator[str]:
    try:
        async for kind, data in events:
            yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
    except Exception as error:
        problem = await _refusal(source, error)
        yield f"event: problem\ndata: {bytes(problem.body).decode()}\n\n"
    finally:
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):
            await events.aclose()  # type: ignore[attr-defined]
