"""One console for several worker processes: data that only a broker's own process has is gathered from all of them.

Each worker serves the same JSON API on its own address, for the supervisor process. An operation that
needs the inside of a broker declares how to merge the answers of the workers (`gather` in its declaration).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ottla.client.connection import ConnectionLost
from ottla.console.operations import PREFIX, BadRequest, NotFound

NUMBERS: Final = 1024
"""Each worker numbers its own requests. A number here is the worker's number times this, plus the worker's position."""
_LINE_BYTES_MAX: Final = 64 << 20


class WorkerAddress(NamedTuple):
    port: int
    token: str


class WorkerViews:
    """The views of the workers, requested over HTTP on the loopback address."""

    def __init__(self, addresses: Sequence[WorkerAddress]) -> None:
        self._addresses = addresses

    async def all(self, method: str, path: str, query: dict[str, Any], body: Any = None) -> list[Any]:
        """The answers of all workers, without those that answer NotFound. NotFound if all do."""
        answers = await asyncio.gather(*(self._ask(each, method, path, query, body) for each in self._addresses))
        found = [_numbered(data, place) for place, (status, data) in enumerate(answers) if status == 200]
        if found:
            return found
        status, data = next((each for each in answers if each[0] != 404), answers[0])
        raise (NotFound if status == 404 else BadRequest)(data.get("error", f"the worker answered {status}"))

    async def request(self, number: int, path: str) -> Any:
        """One complete request. Its number shows which worker has it."""
        own, place = divmod(number, NUMBERS)
        if place >= len(self._addresses):
            raise NotFound(f"request {number} is no longer kept")
        status, data = await self._ask(self._addresses[place], "GET", f"{path}/{own}", {})
        if status != 200:
            raise NotFound(f"request {number} is no longer kept")
        return _numbered(data, place)

    async def events(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """The server-sent events of all workers, as they arrive."""
        arrived: asyncio.Queue[tuple[str, Any] | Exception] = asyncio.Queue(1000)
        missed: dict[int, int] = {}

        async def follow(place: int, address: WorkerAddress) -> None:
            try:
                async for kind, data in _event_stream(address, path):
                    if kind == "status":
                        missed[place] = data["missed"]
                        data = {**data, "missed": sum(missed.values())}
                    await arrived.put((kind, _numbered(data, place)))
                raise ConnectionLost("a worker ended")
            except Exception as error:
                await arrived.put(error)

        tasks = [
            asyncio.get_running_loop().create_task(follow(place, each)) for place, each in enumerate(self._addresses)
        ]
        try:
            while True:
                event = await arrived.get()
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, address: WorkerAddress, method: str, path: str, query: dict[str, Any], body: Any = None
    ) -> tuple[int, Any]:
        given = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in query.items()}
        text = urlencode({name: value for name, value in given.items() if value is not None})
        reader, writer = await _open(address, method, f"{path}?{text}" if text else path, body)
        try:
            status = await _status(reader)
            raw = await reader.read()
        finally:
            writer.close()
        return status, json.loads(raw)


async def _open(
    address: WorkerAddress, method: str, path: str, body: Any = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream with HTTP 1.0, so that the answer ends with the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port, limit=_LINE_BYTES_MAX)
    except OSError as error:
        raise ConnectionLost(f"a worker does not answer: {error}") from error
    raw = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {PREFIX}{path} HTTP/1.0\r\nHost: 127.0.0.1:{address.port}\r\n"
        f"Authorization: Bearer {address.token}\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    return reader, writer


async def _status(reader: asyncio.StreamReader) -> int:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionLost("a worker closed the connection") from None
    return int(head.split(b" ", 2)[1])


async def _event_stream(address: WorkerAddress, path: str) -> AsyncIterator[tuple[str, Any]]:
    reader, writer = await _open(address, "GET", path)
    try:
        await _status(reader)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                event = (await reader.readuntil(b"\n\n")).decode()
                kind, _, data = event.removeprefix("event: ").partition("\ndata: ")
                yield kind, json.loads(data)
    finally:
        writer.close()


def _numbered(data: Any, place: int) -> Any:
    """Requests with the numbers of this console."""
    if isinstance(data, list):
        return [_numbered(each, place) for each in data]
    if isinstance(data, dict) and "number" in data and "api" in data:
        return {**data, "number": data["number"] * NUMBERS + place}
    return data


# -- merging the answers of several workers


def joined(answers: Sequence[Any]) -> Any:
    """Join the lists of all workers."""
    return [each for answer in answers for each in answer]


def first(answers: Sequence[Any]) -> Any:
    """The first answer, because only one worker has it."""
    return answers[0]


def by_time(answers: Sequence[Any]) -> Any:
    """Join the lists of all workers, in order of time."""
    return sorted(joined(answers), key=lambda each: each.get("at_us", each.get("at_ms", 0)))


def histories(answers: Sequence[Any]) -> Any:
    return {
        "now_ms": max(each["now_ms"] for each in answers),
        "events": by_time([each["events"] for each in answers]),
    }


def replicas(answers: Sequence[Any]) -> Any:
    """Merge the replicas: each worker knows the offsets of the partitions that it leads."""
    merged = {**answers[0], "running": sorted({each for answer in answers for each in answer["running"]})}
    known: dict[tuple[str, int, int], Any] = {
        (part["topic"], part["partition"], replica["broker"]): replica
        for answer in answers
        for part in answer["partitions"]
        for replica in part["replicas"]
        if replica["end_offset"] is not None
    }
    merged["partitions"] = [
        {
            **part,
            "replicas": [
                known.get((part["topic"], part["partition"], replica["broker"]), replica)
                for replica in part["replicas"]
            ],
        }
        for part in answers[0]["partitions"]
    ]
    return merged
