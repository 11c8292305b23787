"""Serves the registry over HTTP, with its schemas in the cluster's `_schemas` topic.

Until the first client connects, it only holds the port. The first request opens the topic and replays it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from ottla import __version__
from ottla.client.routing import Client, OpenBroker
from ottla.http.endpoint import App, HttpEndpoint
from ottla.http.requests import bounded_body
from ottla.lazy_imports import lazy
from ottla.registry import packages
from ottla.registry.options import RegistryOptions

if TYPE_CHECKING:
    from starlette import requests as starlette_requests
    from starlette import responses as starlette_responses

    from ottla.client.security import Security
    from ottla.registry import registry as registry_module
    from ottla.registry import rights, topic_log
    from ottla.registry.registry import Registry
    from ottla.registry.rest import http as rest
else:
    starlette_requests = lazy("starlette.requests")
    starlette_responses = lazy("starlette.responses")
    registry_module = lazy("ottla.registry.registry")
    rights = lazy("ottla.registry.rights")
    topic_log = lazy("ottla.registry.topic_log")
    rest = lazy("ottla.registry.rest.http")

logger = logging.getLogger(__name__)

_RETRY_TIMEOUT_S: Final = 10.0
_OWN_RETRY_TIMEOUT_S: Final = 3.0
"""Shorter, because a broker in this process is either running or was stopped on purpose."""

OpenClient = Callable[[], Client]
Serve = Callable[["rest.Request"], Awaitable["rest.Answer"]]
Around = Callable[["rest.Request", Serve], Awaitable["rest.Answer"]]

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"

_STORE_ERROR: Final = 50001
"""Confluent's code for a registry that cannot reach its topic."""


def clients_of(bootstrap: Callable[[], str], security: Security | None = None) -> OpenClient:
    """Clients of a cluster. Each one calls `bootstrap` again, because the address of an embedded broker may change."""
    return lambda: Client(bootstrap(), security=security, retry_timeout_s=_RETRY_TIMEOUT_S)


def clients_inside(open_broker: OpenBroker) -> OpenClient:
    """Clients of brokers that are reached without the network."""
    return lambda: Client("", open_broker=open_broker, retry_timeout_s=_OWN_RETRY_TIMEOUT_S)


class RegistryServer:
    """Serves a Confluent-compatible schema registry for one cluster."""

    def __init__(self, open_client: OpenClient, options: RegistryOptions) -> None:
        self._open_client = open_client
        self._users = options.users
        self._tokens = options.tokens
        self._rights = None if options.rights is None else rights.Rights(options.rights)
        self._client: Client | None = None
        self._registry: Registry | None = None
        self._left: list[Client] = []
        """Clients of a previous topic, still to be closed."""
        self._to_purge: set[str] = set()
        self._opening = asyncio.Lock()
        self.around: Around | None = None
        """Set this to observe requests, or to prevent them from being served."""
        self._url = ""
        self._endpoint = HttpEndpoint(options.host, options.port, self._make_app, tls=options.tls)

    @property
    def url(self) -> str:
        return self._url

    async def start(self) -> None:
        await self._endpoint.start()
        self._url = self._endpoint.url
        if (advice := packages.advice()) is not None:
            logger.warning("registry: %s", advice)

    async def stop(self) -> None:
        await self._endpoint.stop()
        self.forget()
        await self._close_left()

    async def down(self) -> None:
        """Stop serving, but keep the port: clients are refused until up()."""
        await self._endpoint.down()

    async def up(self) -> None:
        """Serve again after down()."""
        await self._endpoint.up()

    def known_subjects(self) -> set[str]:
        """All subjects; none before the first request, which reads them from the topic."""
        return set() if self._registry is None else set(self._registry.state.subjects) - self._to_purge

    def forget(self) -> None:
        """Drop the state: the next request reads the topic, or creates it again."""
        if self._client is not None:
            self._left.append(self._client)
        self._client = self._registry = None
        self._to_purge.clear()

    def purge(self, subjects: Iterable[str]) -> None:
        """Remove subjects without a trace before the next request is served."""
        self._to_purge.update(subjects)

    async def _close_left(self) -> None:
        while self._left:
            await self._left.pop().close()

    def _make_app(self) -> App:
        _load()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            request = starlette_requests.Request(scope, receive)
            answer = await self._answer(request)
            answer.headers["X-Request-ID"] = request.headers.get("x-request-id") or str(uuid.uuid4())
            await answer(scope, receive, send)

        return app

    async def _answer(self, incoming: starlette_requests.Request) -> starlette_responses.Response:
        principal: str | None = None
        if self._users or self._tokens:
            principal = self._authenticated(incoming.headers.get("authorization", ""))
            if principal is None:
                return _error(401, 401, "Unauthorized", {"WWW-Authenticate": 'Basic realm="ottla"'})
        body = await bounded_body(incoming, registry_module.MAX_BODY_BYTES)
        if body is None:
            return _error(413, 413, f"The request body is larger than {registry_module.MAX_BODY_BYTES} bytes")
        request = rest.Request(
            incoming.method,
            incoming.scope["raw_path"].decode("latin-1"),
            parse_qs(incoming.scope["query_string"].decode("latin-1"), keep_blank_values=True),
            body,
            incoming.headers.get("content-type"),
            incoming.headers.get("accept"),
            principal,
        )
        answer = await (self._serve(request) if self.around is None else self.around(request, self._serve))
        if answer.body is None:
            return starlette_responses.Response(status_code=answer.status)
        text = answer.body if answer.raw else json.dumps(answer.body, ensure_ascii=False)
        return starlette_responses.Response(text, answer.status, media_type=answer.media_type)

    async def _serve(self, request: rest.Request) -> rest.Answer:
        try:
            registry = await self._opened()
        except OSError as error:
            message = f"The registry cannot reach its topic: {error}"
            return rest.Answer(500, {"error_code": _STORE_ERROR, "message": message})
        return await registry.handle(request)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the body of the answer to a request from this process, without faults and authentication."""
        path, _, query = path.partition("?")
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self._serve(rest.Request(method, path, parse_qs(query, keep_blank_values=True), data))
        return answer.status, answer.body

    async def _opened(self) -> Registry:
        """The registry. The first request opens it and replays its log. Raises OSError if no broker is reachable."""
        async with self._opening:
            registry = self._registry if self._registry is not None else await self._open()
            if self._to_purge:
                await registry.purge(self._to_purge)
                self._to_purge.clear()
            return registry

    async def _open(self) -> Registry:
        await self._close_left()
        try:
            client = self._open_client()
        except RuntimeError as error:  # an embedded broker that is down has no address
            raise OSError(str(error)) from error
        try:
            log = topic_log.TopicLog(client, lambda: int(time.time() * 1000))
            await log.open()
            info = rest.Info(version=__version__, kafka_cluster=client.known.cluster_id or "")
            registry = registry_module.Registry(log, info, self._rights)
            await registry.start()
        except BaseException:
            await client.close()
            raise
        self._client, self._registry = client, registry
        return registry

    def _authenticated(self, header: str) -> str | None:
        """The name of the client; None if its credentials are wrong or missing."""
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer":
            for name, token in self._tokens.items():
                if hmac.compare_digest(token.encode(), value.strip().encode()):
                    return name
        elif scheme.lower() == "basic":
            try:
                name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            known = self._users.get(name)
            if known is not None and hmac.compare_digest(known.encode(), password.encode()):
                return name
        return None


def _load() -> None:
    """Import the modules that requests need, in the thread that creates the application."""
    for module in (starlette_requests, starlette_responses, registry_module, topic_log, rest):
        _ = module.__name__


def _error(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> starlette_responses.Response:
    content = json.dumps({"error_code": code, "message": message})
    return starlette_responses.Response(content, status, headers, media_type=_MEDIA_TYPE)
