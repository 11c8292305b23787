"""The HTTP endpoint: what is not HTTP, what is too long, and an end with requests under way."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from ottla.server.http import HEAD_BYTES_MAX, HttpAnswer, HttpEndpoint, HttpError, HttpRequest, text


async def echo(request: HttpRequest) -> HttpAnswer:
    if request.path == "/refuse":
        raise HttpError(409, "not now")
    return text(200, f"{request.method} {request.parts} {request.query} {request.body!r}")


async def raw(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_", "status", "answer"),
    [
        (b"GET /a%20b/c?x=1&y=%C3%BC HTTP/1.1\r\n\r\n", 200, "GET ['a b', 'c'] {'x': '1', 'y': 'ü'} b''"),
        (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", 200, "POST [] {} b'body'"),
        (b"POST / HTTP/1.1\r\ncontent-length:5\r\n\r\nlonger", 400, "not a number up to 4"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "not a number up to 4"),
        (b"GET /refuse HTTP/1.1\r\n\r\n", 409, "not now"),
        (b"hello\r\n\r\n", 400, "not an HTTP request"),
        (b"GET //[ HTTP/1.1\r\n\r\n", 400, "not an address"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 400, "too long"),
    ],
)
def test_answers(run: Any, request_: bytes, status: int, answer: str) -> None:
    async def main() -> bytes:
        endpoint = HttpEndpoint("127.0.0.1", 0, echo, body_bytes_max=4)
        await endpoint.start()
        try:
            return await raw(endpoint.port, request_)
        finally:
            await endpoint.stop()

    found = run(main()).decode()
    assert found.startswith(f"HTTP/1.1 {status} "), found
    assert answer in found


def test_a_client_that_leaves_and_an_end_under_way(run: Any) -> None:
    async def main() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def slow(request: HttpRequest) -> HttpAnswer:
            begun.set()
            await release.wait()
            return text(200, "late")

        endpoint = HttpEndpoint("127.0.0.1", 0, slow)
        await endpoint.start()
        _, gone = await asyncio.open_connection("127.0.0.1", endpoint.port)
        gone.write(b"GET")
        gone.close()
        waiting = asyncio.ensure_future(raw(endpoint.port, b"GET / HTTP/1.1\r\n\r\n"))
        silent = asyncio.ensure_future(raw(endpoint.port, b"GET"))
        await begun.wait()
        await endpoint.stop()
        assert await waiting == b""
        with suppress(ConnectionError):  # closed, or never accepted: it does not wait
            assert await silent == b""

    run(main())
