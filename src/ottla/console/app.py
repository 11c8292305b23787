"""The web application of the console: the page, the JSON API, and live streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ottla import __version__
from ottla.client import admin
from ottla.client.connection import ClientError, ConnectionLost, GroupHasMembers, UnknownTopic
from ottla.console.api import OPERATIONS
from ottla.console.console_source import ConsoleSource
from ottla.console.export import EXPORT_QUERY, export
from ottla.console.operations import (
    BODY_BYTES_MAX,
    PREFIX,
    BadRequest,
    Call,
    NotFound,
    Operation,
    Parameter,
    Stream,
    openapi,
    parse_body,
)
from ottla.console.powers import NO_POWERS
from ottla.console.records import RAW_PATH, RAW_QUERY, raw_part
from ottla.console.requests import live_requests
from ottla.console.tail import TAIL_QUERY, tail
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.http.endpoint import App
from ottla.http.guard import Guard
from ottla.http.requests import HttpError, read_body

EVENTS: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"
STREAMS: Final = (
    Stream("/topics/{topic}/tail", tail, "New records of a topic as they arrive.", TAIL_QUERY),
    Stream(
        "/topics/{topic}/export",
        export,
        "A topic as JSON lines.",
        EXPORT_QUERY,
        "application/x-ndjson",
        "{topic}.jsonl",
    ),
    Stream(RAW_PATH, raw_part, "The bytes of a record's key or value.", RAW_QUERY, OCTETS, "{topic}-{offset}.bin"),
    Stream("/requests/live", live_requests, "Requests of clients as they arrive."),
)

STATIC: Final = Path(__file__).parent / "static"
_FOLDERS: Final = ("js", "vendor")

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(source: ConsoleSource, *, token: str | None = None, read_only: bool = False) -> App:
    routes = [
        Route(PREFIX + each.path, _endpoint(lambda: source, each, read_only), methods=[each.method])
        for each in OPERATIONS
    ]
    # The tours read their data in the normal way, from the cluster that they run on.
    sandbox = [
        Route(f"{PREFIX}/sandbox{each.path}", _endpoint(lambda: source.guide.sandbox.source, each, read_only))
        for each in OPERATIONS
        if each.method == "GET"
    ]
    app = Starlette(
        routes=[
            Route(f"{PREFIX}/openapi.json", _json_page(openapi(__version__, STREAMS))),
            Route(f"{PREFIX}/console", _json_page(_about(source, read_only))),
            *(Route(PREFIX + each.path, _stream_endpoint(source, each)) for each in STREAMS),
            *routes,
            *sandbox,
            Route(PREFIX + "/{rest:path}", _no_operation, methods=["GET", "POST", "PATCH", "PUT", "DELETE"]),
            Route("/{path:path}", _static_file),
        ],
    )
    return _with_headers(Guard(token).wrap(_matching_raw_paths(app)))


def _with_headers(app: App) -> App:
    added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await app(scope, receive, send_with_headers)

    return wrapped


def _matching_raw_paths(app: App) -> App:
    """Match routes with the path as it was sent: `%2F` is part of the name of a group or subject, not a separator."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)

    return wrapped


def _path_params(request: Request) -> dict[str, Any]:
    return {name: unquote(value) if isinstance(value, str) else value for name, value in request.path_params.items()}


def _about(source: ConsoleSource, read_only: bool) -> dict[str, Any]:
    """The information that the page needs about its console; `missing` explains why some pages are empty."""
    inside = source.inside
    return {
        "version": __version__,
        "read_only": read_only,
        "missing": source.missing,
        "missing_powers": NO_POWERS if source.missing is None and (inside is None or inside.control is None) else None,
    }


def _json_page(content: Any) -> Any:
    async def endpoint(request: Request) -> Response:
        return JSONResponse(content)

    return endpoint


async def _no_operation(request: Request) -> Response:
    return _error(404, f"there is no {request.method} {unquote(request.url.path)}; see {PREFIX}/openapi.json")


async def _static_file(request: Request) -> Response:
    """A file of the page. Any other path returns the page itself, and its script reads the rest of the path."""
    name = _path_params(request)["path"]
    file = (STATIC / name).resolve()
    if name and file.is_file() and file.is_relative_to(STATIC):
        return FileResponse(file)
    folder, _, rest = name.partition("/")
    if folder in _FOLDERS or (not rest and "." in name):  # names of topics and groups may contain dots
        return _error(404, f"there is no file {name!r}")
    return FileResponse(STATIC / "index.html")


def _error(status: int, message: str, code: str | None = None) -> JSONResponse:
    return JSONResponse({"error": message} if code is None else {"error": message, "code": code}, status)


def _endpoint(source_of: Callable[[], ConsoleSource], declared: Operation, read_only: bool) -> Any:
    async def endpoint(request: Request) -> Response:
        if declared.changes and read_only:
            return _error(403, "this console is read-only")
        source = None
        try:
            source = source_of()
            call = Call(source, _path_params(request), _query(request, declared.query))
            if declared.body is not None:
                call.body = parse_body(await read_body(request, BODY_BYTES_MAX))
            if declared.gather is not None and source.workers is not None:
                await _check_visible(call)
                own = request.scope["raw_path"].decode("latin-1").removeprefix(PREFIX)
                answers = await source.workers.all(declared.method, own, call.query, call.body)
                return JSONResponse(declared.gather(answers))
            return JSONResponse(await declared.handler(call))
        except Exception as error:
            return await _refusal(source, error)

    return endpoint


async def _check_visible(call: Call) -> None:
    """Raise for a topic or group that does not exist, or that ACLs hide: the workers do not check this."""
    if "topic" in call.path:
        await call.source.client.topic(call.path["topic"])
    if "group" in call.path:
        await admin.describe_group(call.source.client, call.path["group"])


def _query(request: Request, declared: Sequence[Parameter]) -> dict[str, Any]:
    return {one.name: one.parse(request.query_params.get(one.name)) for one in declared}


async def _refusal(source: ConsoleSource | None, error: Exception) -> JSONResponse:
    """The answer to a failed call; unexpected errors are also logged."""
    if isinstance(error, BadRequest):
        return _error(400, str(error))
    if isinstance(error, HttpError):
        return _error(error.status, str(error))
    if isinstance(error, (struct.error, UnicodeError, OverflowError)):
        return _error(400, f"a value does not fit into Kafka's protocol: {error}")
    if isinstance(error, (NotFound, UnknownTopic)):
        return _error(404, str(error))
    if isinstance(error, KafkaError):
        status = 404 if isinstance(error, UnknownTopicOrPartition) else 409
        return _error(status, error.message, error.name)
    if isinstance(error, GroupHasMembers):
        return _error(409, str(error))
    if isinstance(error, (ConnectionLost, OSError)):
        if source is not None:
            await source.reconnect()
        return _error(503, f"the cluster cannot be reached: {error}")
    if isinstance(error, ClientError):
        return _error(502, str(error))
    raise error


def _stream_endpoint(source: ConsoleSource, declared: Stream) -> Any:
    """Send the items of `begin` as server-sent events (after an error, `problem` is the last one) or as lines."""

    async def endpoint(request: Request) -> Response:
        try:
            found = await declared.begin(Call(source, _path_params(request), _query(request, declared.query)))
        except Exception as error:
            return await _refusal(source, error)
        if declared.media_type == EVENTS:
            return StreamingResponse(_event_stream(source, found), media_type=EVENTS)
        name = re.sub(r"[^\w.-]", "_", declared.file.format(**_path_params(request)))
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(found, media_type=declared.media_type, headers=headers)

    return endpoint


async def _event_stream(source: ConsoleSource, events: AsyncIterator[tuple[str, Any]]) -> AsyncIterator[str]:
    try:
        async for kind, data in events:
            yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
    except Exception as error:
        problem = await _refusal(source, error)
        yield f"event: problem\ndata: {bytes(problem.body).decode()}\n\n"
    finally:
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):
            await events.aclose()  # type: ignore[attr-defined]
