"""Steering a broker over HTTP, for tests in other languages and for `ottla faults`. Off unless asked for.

Every answer is JSON. Only this machine is served, and no web page: a request that names another host, or that a page
of another origin sent, is refused.

    GET    /                         bootstrap address, topics, groups, faults
    GET    /faults    POST /faults   {"kind": "error", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    GET    /faults/1  DELETE /faults/1   DELETE /faults
    GET    /topics/NAME/records      POST /topics/NAME/records  [values] or {"records": […], "partition": 0}
    POST   /topics/NAME              {"partitions": 3, "config": {}}     DELETE /topics/NAME
    GET    /groups/ID
    GET    /requests?api=Fetch&client_id=…
    POST   /clock/advance            {"minutes": 10}
    POST   /broker/down | up | kill | restart        POST /reset
    GET    /report?prefix=…          topics, groups and requests as text, for people
    POST   /scenario                 a scenario in YAML or JSON
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.testing.records import from_json

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

HOST: Final = "127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_BODY_MAX: Final = 64 * 1024 * 1024
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
}


class HttpRequest(NamedTuple):
    method: str
    path: list[str]
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body.strip() else {}
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from None

    def options(self) -> dict[str, Any]:
        found = self.json()
        if not isinstance(found, dict):
            raise Refused(400, "the body must be a JSON object")
        return found


class Refused(Exception):
    """Nothing was done; the status and the message say why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlServer:
    """A few lines of HTTP/1.1: one request a connection."""

    def __init__(self, broker: Broker, port: int) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"control={port} is not a port; 0 takes a free one")
        self._broker = broker
        self._port = port
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
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
            status, answer = await self._answer(reader)
            body = json.dumps(answer, ensure_ascii=False).encode() + b"\n"
            head = (
                f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            self._busy.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, Any]:
        from ottla.testing.broker import BrokerStopped

        try:
            return 200, await self._route(await _read(reader))
        except Refused as refusal:
            return refusal.status, {"error": str(refusal)}
        except BrokerStopped as error:
            return 409, {"error": str(error)}
        except (ValueError, TypeError, KeyError, AssertionError, RuntimeError) as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            return 400, {"error": str(message)}

    async def route(self, request: HttpRequest) -> Any:
        """The answer to a request that came in another way."""
        return await self._route(request)

    async def _route(self, request: HttpRequest) -> Any:
        name = request.path[0] if request.path else ""
        handlers: dict[str, Callable[[HttpRequest], Awaitable[Any]]] = {
            "": self._overview,
            "faults": self._faults,
            "topics": self._topics,
            "groups": self._groups,
            "requests": self._requests,
            "clock": self._clock,
            "broker": self._life,
            "reset": self._reset,
            "scenario": self._scenario,
            "report": self._report,
        }
        if name not in handlers:
            raise Refused(404, f"there is no /{name}; there are {', '.join('/' + each for each in handlers)}")
        return await handlers[name](request)

    async def _overview(self, request: HttpRequest) -> Any:
        broker = self._broker
        if not broker.is_running:
            return {"running": False, "bootstrap": None, "faults": [fault.to_dict() for fault in broker.faults]}
        return {
            "running": True,
            "bootstrap": broker.bootstrap,
            "topics": broker.topics(),
            "groups": broker.groups(),
            "faults": [fault.to_dict() for fault in broker.faults],
        }

    async def _faults(self, request: HttpRequest) -> Any:
        faults = self._broker.faults
        if len(request.path) > 1:
            if not request.path[1].isdigit():
                raise Refused(404, f"{request.path[1]!r} is not the number of a fault")
            try:
                fault = faults.get(int(request.path[1]))
            except KeyError as error:
                raise Refused(404, error.args[0]) from None
            if method_of(request, "GET", "DELETE") == "DELETE":
                fault.remove()
            return fault.to_dict()
        method = method_of(request, "GET", "POST", "DELETE")
        if method == "GET":
            return [fault.to_dict() for fault in faults.all]
        if method == "DELETE":
            faults.clear()
            return {}
        options = request.options()
        if "kind" not in options:
            raise Refused(400, 'say which: {"kind": "error", …}; see docs/faults.md')
        return faults.apply(options.pop("kind"), **options).to_dict()

    async def _topics(self, request: HttpRequest) -> Any:
        if len(request.path) == 1:
            return self._broker.topics()
        topic = self._broker.topic(request.path[1])
        if len(request.path) == 2:
            if method_of(request, "POST", "DELETE") == "DELETE":
                topic.delete()
            else:
                options = request.options()
                topic.create(options.get("partitions", -1), options.get("config"))
            return {"topic": topic.name, "partitions": topic.partitions}
        if request.path[2] != "records":
            raise Refused(404, "a topic has /records")
        if method_of(request, "GET", "POST") == "POST":
            given = request.json()
            options = given if isinstance(given, dict) else {"records": given}
            records = [_given(each) for each in options.get("records", [])]
            return [record.to_dict() for record in topic.append(records, partition=options.get("partition"))]
        partition = request.query.get("partition")
        return [record.to_dict() for record in topic.records(None if partition is None else int(partition))]

    async def _groups(self, request: HttpRequest) -> Any:
        if len(request.path) == 1:
            return self._broker.groups()
        group = self._broker.group(request.path[1])
        lags = group.lags()
        return {
            "group": group.group_id,
            "state": group.state,
            "members": [
                {"member_id": member.member_id, "client_id": member.client_id, "assignment": list(member.assignment)}
                for member in group.members()
            ],
            "offsets": [
                {"topic": topic, "partition": index, "committed": offset, "lag": lags.get((topic, index))}
                for (topic, index), offset in group.committed().items()
            ],
        }

    async def _requests(self, request: HttpRequest) -> Any:
        known = {key: request.query.get(key) for key in ("api", "client_id", "topic", "group")}
        return [seen.to_dict() for seen in self._broker.requests(**known)]

    async def _clock(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        if request.path[1:] != ["advance"]:
            raise Refused(404, "the clock has /clock/advance")
        self._broker.clock.advance(**request.options())
        return {"now_ms": self._broker.clock.now_ms()}

    async def _life(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        verbs = {name: getattr(self._broker, name) for name in ("down", "up", "kill", "restart")}
        verb = verbs.get(request.path[1] if len(request.path) > 1 else "")
        if verb is None:
            raise Refused(404, f"a broker goes {', '.join(verbs)}")
        await verb()
        return {"running": self._broker.is_running}

    async def _reset(self, request: HttpRequest) -> Any:
        method_of(request, "POST")
        self._broker.reset(**request.options())
        return {}

    async def _report(self, request: HttpRequest) -> Any:
        from ottla.testing.report import report

        return {"text": report(self._broker, prefix=request.query.get("prefix", ""))}

    async def _scenario(self, request: HttpRequest) -> Any:
        from ottla.testing.scenario import parse, run_scenario

        method_of(request, "POST")
        return await run_scenario(self._broker, parse(request.body.decode()))


def _given(item: Any) -> Any:
    """A value, or [key, value] or [key, value, headers]."""
    if not isinstance(item, list):
        return from_json(item)
    key, value, *headers = item
    return from_json(key), from_json(value), [(name, from_json(data)) for name, data in (headers or [[]])[0]]


def method_of(request: HttpRequest, *allowed: str) -> str:
    if request.method not in allowed:
        raise Refused(405, f"{request.method} is not possible here; use {' or '.join(allowed)}")
    return request.method


async def _read(reader: asyncio.StreamReader) -> HttpRequest:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise Refused(400, "the headers are too long") from None
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise Refused(400, "this is not HTTP")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("host", HOST).rpartition(":")[0] not in {*_LOCAL_NAMES, ""} or "origin" in headers:
        raise Refused(403, "only programs on this machine are served")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > _BODY_MAX:
        raise Refused(400, f"content-length {length!r} is not a number up to {_BODY_MAX}")
    url = urlsplit(words[1])
    path = [unquote(part) for part in url.path.split("/") if part]
    return HttpRequest(words[0], path, dict(parse_qsl(url.query)), headers, await reader.readexactly(int(length)))
