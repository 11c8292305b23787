"""A registry on a log in memory, called directly or over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from ottla.registry.registry import Registry
from ottla.registry.rest.http import Answer, Info, Request
from support.schema_log import MemoryLog


class Api:
    """Calls the registry as an HTTP library would, without HTTP."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog(now_ms=lambda: 1_700_000_000_000)
        self.registry = Registry(self.log, Info("8.1.0", "abc", "test-cluster"))
        asyncio.run(self.registry.start())

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        split = urlsplit(path)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        query = parse_qs(split.query, keep_blank_values=True)
        return asyncio.run(self.registry.handle(Request(method, split.path, query, data, **more)))

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The body of an answer that must be a success."""
        answer = self.send(method, path, body)
        assert answer.status in (200, 204), answer
        return answer.body

    def error(self, method: str, path: str, body: Any = None) -> tuple[int, int, str]:
        """The status, error code and message of an answer that must be an error."""
        answer = self.send(method, path, body)
        assert answer.status >= 400, answer
        assert set(answer.body) == {"error_code", "message"}
        return answer.status, answer.body["error_code"], answer.body["message"]

    def register(self, subject: str, schema: Any, schema_type: str = "AVRO", query: str = "", **more: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, **more}
        answer: int = self.ok("POST", f"/subjects/{subject}/versions{query}", body)["id"]
        return answer

    def restarted(self) -> Api:
        """A second registry on the same log."""
        return Api(self.log)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def make_api() -> type[Api]:
    """Makes registries on a given log."""
    return Api


class HttpServer:
    """Serves a registry over HTTP/1.1 with the standard library, for real clients."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.log = MemoryLog(now_ms=lambda: 1_700_000_000_000)
        self.registry = Registry(self.log, Info("8.1.0", "abc", "test-cluster"))
        self.run(self.registry.start())
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it, a small answer waits for the client's acknowledgement of the headers.
            disable_nagle_algorithm = True

            def answer(self) -> None:
                outer.serve(self)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.serving = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.serving.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.requests: list[str] = []

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        split = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append(f"{handler.command} {handler.path}")
        request = Request(
            handler.command,
            split.path,
            parse_qs(split.query, keep_blank_values=True),
            body,
            handler.headers.get("Content-Type"),
            handler.headers.get("Accept"),
        )
        answer = self.run(self.registry.handle(request))
        data = b""
        if answer.body is not None:
            data = (answer.body if answer.raw else json.dumps(answer.body)).encode()
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.media_type)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def http() -> Iterator[HttpServer]:
    server = HttpServer()
    yield server
    server.close()


@pytest.fixture
def confluent_client() -> Iterator[Callable[..., SchemaRegistryClient]]:
    """Makes clients of Confluent's library from an address and options by name. Closes them at the end."""
    with ExitStack() as clients:
        yield lambda url, options=None: clients.enter_context(SchemaRegistryClient({"url": url, **(options or {})}))
