"""Targets for input that does not use Kafka's protocol: HTTP, the registry's requests and schemas, SASL messages,
certificates. Each may only refuse its input: no other exception, and no answer that says "internal error"."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ottla.http.protocol import HttpServer, _Protocol
from ottla.http.requests import HttpAnswer, HttpRequest, app_of
from ottla.metadata.image import ScramCredential
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.formats import Source, parse
from ottla.registry.registry import Registry
from ottla.registry.rest.http import Info, Request
from ottla.server.security.certificates import names_of
from ottla.server.security.jwt import split_token
from ottla.server.security.mechanisms import BearerToken, Mechanism, OAuthBearer, Plain, Refused, Scram
from ottla.server.security.principals import distinguished_name
from support.schema_log import MemoryLog

BODY_BYTES_MAX = 256
SCHEMA_TYPES = ("AVRO", "JSON", "PROTOBUF")


class _Wire(asyncio.Transport):
    """Keeps the bytes that are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Errors(logging.Handler):
    """What uvicorn logs about unexpected exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


async def _http(data: bytes) -> None:
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))

    async def answer(request: HttpRequest) -> HttpAnswer:
        assert len(request.body) <= BODY_BYTES_MAX
        return HttpAnswer(200, "text/plain", repr((request.parts, request.query)).encode())

    server = HttpServer(app_of(answer, body_bytes_max=BODY_BYTES_MAX)())
    wire = _Wire()
    protocol = _Protocol(config=server._config, server_state=server._state, app_state={}, _loop=loop)
    protocol.connection_made(wire)
    size = 1 + data[0] if data else 1
    for start in range(1, len(data), size):
        if wire.ended:
            break
        protocol.data_received(data[start : start + size])
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    await asyncio.gather(*server._state.tasks)
    assert not unhandled, unhandled
    assert not wire.sent or wire.sent.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1 5" not in wire.sent


def http(data: bytes) -> None:
    """A connection on an HTTP port; the first byte sets the size of the pieces in which the rest arrives."""
    errors = _Errors()
    log = logging.getLogger("uvicorn.error")
    propagated, log.propagate = log.propagate, False
    log.addHandler(errors)
    try:
        asyncio.run(_http(data))
    finally:
        log.removeHandler(errors)
        log.propagate = propagated
    assert not errors.said, errors.said


def registry(data: bytes) -> None:
    """A request with a schema to the schema registry: a line with method and path, then the body."""
    line, _, body = data.partition(b"\n")
    method, _, path = line.decode("latin-1").partition(" ")

    async def ask() -> int:
        registry = Registry(MemoryLog(now_ms=lambda: 1_700_000_000_000), Info("8.1.0", "abc", "fuzzed"))
        await registry.start()
        first = Request("POST", "/subjects/s/versions", {}, b'{"schema": "\\"string\\""}')
        assert (await registry.handle(first)).status == 200
        with suppress(ValueError):  # not a path
            split = urlsplit(path)
            query = parse_qs(split.query, keep_blank_values=True)
            return (await registry.handle(Request(method, split.path, query, body))).status
        return 400

    assert asyncio.run(ask()) != 500


def schema(data: bytes) -> None:
    """The text of a schema. The first byte sets its type."""
    text = data[1:].decode("utf-8", "replace")
    with suppress(InvalidSchema, RegistryError):
        parsed = parse(SCHEMA_TYPES[data[0] % 3 if data else 0], Source(text, new=True))
        parsed.check(True)
        assert parsed.cannot_read(parsed, lenient=False) == []


def _bearer(token: str) -> BearerToken:
    split_token(token)
    return BearerToken("alice", 0)


def sasl(data: bytes) -> None:
    """Two messages of a mechanism; the first byte sets the length of the first one."""
    size = data[0] if data else 0
    credential = ScramCredential(b"salt", bytes(32), bytes(32), 4096)
    mechanisms: list[Mechanism] = [
        Plain({"alice": "secret"}),
        Scram("sha256", {"alice": credential}.get, lambda name: None, lambda: "nonce"),
        OAuthBearer(_bearer),
    ]
    for mechanism in mechanisms:
        with suppress(Refused):
            for message in (data[1 : 1 + size], data[1 + size :]):
                mechanism.evaluate(message)
                if mechanism.complete:
                    assert mechanism.user == "alice"
                    break


def certificate(data: bytes) -> None:
    """A client's certificate, which becomes its name, and a new key store's, which is compared with the old one."""
    with suppress(ValueError, IndexError):
        distinguished_name(data)
    names_of(b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(data) + b"-----END CERTIFICATE-----\n")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "http": http,
    "registry": registry,
    "schema": schema,
    "sasl": sasl,
    "certificate": certificate,
}
