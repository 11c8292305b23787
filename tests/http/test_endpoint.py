"""The HTTP endpoint: bad requests, slow clients, loading with the first client, and a stop with requests in
progress."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from ottla.http import protocol
from ottla.http.endpoint import HttpEndpoint
from ottla.http.requests import HttpAnswer, HttpError, HttpRequest, app_of, text
from ottla.server.net.listener import ListenError, bind


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


HEAD = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("request_", "status", "answer"),
    [
        (b"GET /a%20b/c?x=1&y=%C3%BC" + HEAD + b"\r\n", 200, "GET ['a b', 'c'] {'x': '1', 'y': 'ü'} b''"),
        (b"POST /" + HEAD + b"Content-Length: 4\r\n\r\nbody", 200, "POST [] {} b'body'"),
        (b"POST /" + HEAD + b"content-length:6\r\n\r\nlonger", 413, "larger than 4 bytes"),
        (b"POST /" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n6\r\nlonger\r\n0\r\n\r\n", 413, "larger than 4 bytes"),
        (b"POST /" + HEAD + b"Content-Length: -1\r\n\r\n", 400, "Invalid HTTP request"),
        (b"GET /refuse" + HEAD + b"\r\n", 409, "not now"),
        (b"hello\r\n\r\n", 400, "Invalid HTTP request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Invalid HTTP request"),
    ],
)
def test_answers(request_: bytes, status: int, answer: str) -> None:
    async def main() -> bytes:
        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(echo, body_bytes_max=4))
        await endpoint.start()
        try:
            return await raw(endpoint.port, request_)
        finally:
            await endpoint.stop()

    found = asyncio.run(main()).decode()
    assert found.startswith(f"HTTP/1.1 {status} "), found
    assert answer in found


def test_endless_headers_end_the_connection() -> None:
    async def main() -> bytes:
        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(echo))
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET /" + HEAD)
        try:
            while not reader.at_eof():
                writer.write(b"X: " + bytes(1000) + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()
            await endpoint.stop()

    assert b"200 OK" not in asyncio.run(main())


def test_one_connection_serves_several_requests() -> None:
    async def main() -> bytes:
        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(echo))
        await endpoint.start()
        try:
            return await raw(endpoint.port, b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET /second" + HEAD + b"\r\n")
        finally:
            await endpoint.stop()

    found = asyncio.run(main()).decode()
    assert "first" in found
    assert "second" in found


def test_a_client_may_disconnect_and_the_endpoint_stop_during_a_request() -> None:
    async def main() -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        async def slow(request: HttpRequest) -> HttpAnswer:
            begun.set()
            await release.wait()
            return text(200, "late")

        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(slow))
        await endpoint.start()
        _, gone = await asyncio.open_connection("127.0.0.1", endpoint.port)
        gone.write(b"GET")
        gone.close()
        waiting = asyncio.ensure_future(raw(endpoint.port, b"GET /" + HEAD + b"\r\n"))
        silent = asyncio.ensure_future(raw(endpoint.port, b"GET"))
        await begun.wait()
        await endpoint.stop()
        with suppress(ConnectionError):
            assert b"late" not in await waiting
        with suppress(ConnectionError):  # closed, or never accepted: it does not wait
            assert await silent == b""

    asyncio.run(main())


def test_a_client_that_disconnects_within_its_body_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """No traceback: any client that reaches the port could fill the log with them."""
    ended = asyncio.Event()

    async def main() -> None:
        async def note(request: HttpRequest) -> HttpAnswer:
            raise AssertionError("there is no whole request")

        inner = app_of(note, body_bytes_max=4)()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                await inner(scope, receive, send)
            finally:
                ended.set()

        endpoint = HttpEndpoint("127.0.0.1", 0, lambda: app)
        await endpoint.start()
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"POST /" + HEAD + b"Content-Length: 4\r\n\r\nbo")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(ended.wait(), 60)
        await asyncio.sleep(0)
        await endpoint.stop()

    asyncio.run(main())
    assert not caplog.records


def test_a_request_that_stops_the_endpoint_is_answered() -> None:
    async def main() -> bytes:
        async def stop(request: HttpRequest) -> HttpAnswer:
            await endpoint.stop()
            return text(200, "stopped")

        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(stop))
        await endpoint.start()
        return await raw(endpoint.port, b"GET /" + HEAD + b"\r\n")

    assert b"stopped" in asyncio.run(main())


def test_a_head_that_never_ends_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_HEAD_TIMEOUT_S", 0.05)

    async def main() -> list[bytes]:
        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(echo))
        await endpoint.start()
        try:
            first = await raw(endpoint.port, b"GET / HTTP/1.1\r\nHost:")
            second = await raw(endpoint.port, b"GET /one HTTP/1.1\r\nHost: x\r\n\r\nGET /two HTTP/1.1\r\n")
            return [first, second]
        finally:
            await endpoint.stop()

    first, second = asyncio.run(main())
    assert first == b""
    assert b"one" in second
    assert b"two" not in second


def test_clients_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_CONNECTIONS_MAX", 3)

    async def main() -> None:
        endpoint = HttpEndpoint("127.0.0.1", 0, app_of(echo))
        await endpoint.start()
        idle = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(2)]
        assert (await raw(endpoint.port, b"GET /" + HEAD + b"\r\n")).startswith(b"HTTP/1.1 503 ")
        idle[0][1].close()
        await idle[0][1].wait_closed()
        while not (await raw(endpoint.port, b"GET /" + HEAD + b"\r\n")).startswith(b"HTTP/1.1 200 "):
            pass  # until the server has noticed that one is gone
        idle[1][1].close()
        await idle[1][1].wait_closed()
        await endpoint.stop()

    asyncio.run(main())


def test_a_client_that_does_not_read_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_WRITE_TIMEOUT_S", 0.05)
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
        finally:
            ended.set()

    async def main() -> None:
        endpoint = HttpEndpoint("127.0.0.1", 0, lambda: app)
        await endpoint.start()
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await ended.wait()
        writer.close()
        await endpoint.stop()

    asyncio.run(main())


def test_the_http_library_is_loaded_with_the_first_client() -> None:
    program = """if True:
        import asyncio, sys
        from ottla.http.endpoint import HttpEndpoint
        from ottla.http.requests import app_of, text

        async def hello(request):
            return text(200, "hello")

        async def main():
            endpoint = HttpEndpoint("127.0.0.1", 0, app_of(hello))
            await endpoint.start()
            loaded = {"uvicorn", "starlette", "h11"} & set(sys.modules)
            assert not loaded, loaded
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
            assert b"hello" in await reader.read()
            assert "uvicorn" in sys.modules
            writer.close()
            await endpoint.stop()
            unused = HttpEndpoint("127.0.0.1", 0, app_of(hello))
            await unused.start()
            await unused.stop()

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_port_that_another_socket_takes_after_the_bind() -> None:
    """Two brokers that start at the same time bind the console's usual port together; one of them cannot listen."""

    async def main() -> None:
        late = bind("127.0.0.1", 0)
        port = late.getsockname()[1]
        with bind("127.0.0.1", port) as early:
            early.listen()
            endpoint = HttpEndpoint("127.0.0.1", port, app_of(echo), sock=late)
            with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
                await endpoint.start()
            await endpoint.stop()
            assert late.fileno() == -1

    asyncio.run(main())
