"""The requests that clients send: a list, one complete request, and a live stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.console.operations import Call, NotFound, Parameter, operation
from ottla.console.own_broker import CLIENT_ID
from ottla.console.worker_views import by_time
from ottla.errors import name_of
from ottla.server.request_contents import LeftOutRecords
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.schema import Struct

if TYPE_CHECKING:
    from ottla.server.request_log import Request, RequestLog

LIVE_INTERVAL_S: Final = 0.2
LIVE_ROWS_MAX: Final = 2000
"""The maximum number of rows in one event, so that a page keeps the broker busy only for a moment."""

_ITEMS_MAX: Final = 200
_BYTES_MAX: Final = 256
_WALL_NS: Final = time.time_ns() - time.perf_counter_ns()


def logs_of(call: Call) -> Sequence[RequestLog]:
    return call.source.need_inside().request_logs()


@operation(
    "GET",
    "/requests",
    query=(Parameter("decoded", "boolean", default=False, help="with complete requests and responses"),),
    gather=by_time,
)
async def list_requests(call: Call) -> Any:
    """The requests that are kept, oldest first."""
    show = in_full if call.query.get("decoded") else row
    return [show(request) for request in _kept(call)]


@operation("GET", "/requests/{number:int}")
async def describe_request(call: Call) -> Any:
    """One complete request, and its response."""
    wanted = int(call.path["number"])
    if call.source.workers is not None:
        return await call.source.workers.request(wanted, "/requests")
    found = next((request for request in _kept(call) if request.number == wanted), None)
    if found is None:
        raise NotFound(f"request {wanted} is no longer kept")
    return in_full(found)


def _kept(call: Call) -> list[Request]:
    return sorted((each for log in logs_of(call) for each in log), key=lambda each: each.number)


async def live_requests(call: Call) -> AsyncIterator[tuple[str, Any]]:
    """Requests as they arrive. Brokers record them while this stream is open."""
    if call.source.workers is not None:
        return call.source.workers.events("/requests/live")
    logs = logs_of(call)

    async def events() -> AsyncIterator[tuple[str, Any]]:
        watches = [(log, log.watch()) for log in logs]
        try:
            kept = iter(_kept(call))
            while rows := [row(each) for each in islice(kept, LIVE_ROWS_MAX)]:
                yield "requests", rows
                await asyncio.sleep(0)
            while True:
                for _, watch in watches:
                    if rows := [row(each) for each in watch.take(LIVE_ROWS_MAX)]:
                        yield "requests", rows
                yield "status", {"missed": sum(watch.missed for _, watch in watches), "now_us": _wall_us()}
                await asyncio.sleep(LIVE_INTERVAL_S)
        finally:
            for log, watch in watches:
                log.unwatch(watch)

    return events()


def _wall_us(at_ns: int | None = None) -> int:
    """Microseconds since 1970; JavaScript's numbers hold them."""
    return ((time.perf_counter_ns() if at_ns is None else at_ns) + _WALL_NS) // 1000


def row(request: Request) -> dict[str, Any]:
    """The data for a line of the list or a bar of the timeline."""
    return {
        "number": request.number,
        "broker": request.broker,
        "client": request.client_id,
        "peer": request.peer,
        "api": request.api,
        "version": request.version,
        "at_us": _wall_us(request.started_ns),
        "took_us": None if request.ended_ns is None else (request.ended_ns - request.started_ns) // 1000,
        "waited": request.waited,
        "errors": request.errors,
        "fault": request.fault,
        "about": [*request.topics, *request.groups][:3] if request.request is not None else [str(request)],
        "own": request.client_id == CLIENT_ID,
    }


def in_full(request: Request) -> dict[str, Any]:
    return {
        **row(request),
        "correlation_id": request.correlation_id,
        "bytes": request.request_bytes,
        "request": shown(request.request, request.version),
        "response": shown(request.response, request.version),
    }


def shown(value: Any, version: int, name: str = "") -> Any:
    """A message, or a part of one, as JSON. Long lists and byte strings are shortened, with a note."""
    if isinstance(value, Struct):
        return {
            field.name: (
                uuid_to_base64(getattr(value, field.name))
                if field.kind == "uuid"
                else shown(getattr(value, field.name), version, field.name)
            )
            for field in value.FIELDS
            if field.exists(version)
        }
    if isinstance(value, LeftOutRecords):
        return f"{value.bytes} bytes of records"
    if isinstance(value, (list, tuple)):
        items = [shown(each, version) for each in value[:_ITEMS_MAX]]
        return items if len(value) <= _ITEMS_MAX else [*items, f"… and {len(value) - _ITEMS_MAX} more"]
    if isinstance(value, (bytes, bytearray, memoryview)):
        start = bytes(value[:_BYTES_MAX]).hex()
        return f"{len(value)} bytes: {start}{'…' if len(value) > _BYTES_MAX else ''}"
    if name.endswith("error_code") and value:
        return f"{value} {name_of(value)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"{len(value)} bytes of records" if hasattr(value, "__len__") else str(value)
