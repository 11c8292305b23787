"""The registry on an HTTP address, with its schemas in the cluster's `_schemas` topic.

Nothing but the port is taken until the first client connects. The first request opens the topic and replays it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from ottla import __version__
from ottla.client.routing import Client
from ottla.http.endpoint import App, HttpEndpoint
from ottla.http.guard import LOCAL_NAMES
from ottla.http.requests import bounded_body
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import ssl

    from starlette import requests as starlette_requests
    from starlette import responses as starlette_responses

    from ottla.client.security import Security
    from ottla.registry import registry as registry_module
    from ottla.registry import topic_log
    from ottla.registry.registry import Registry
    from ottla.registry.rest import http as rest
else:
    starlette_requests = lazy("starlette.requests")
    starlette_responses = lazy("starlette.responses")
    registry_module = lazy("ottla.registry.registry")
    topic_log = lazy("ottla.registry.topic_log")
    rest = lazy("ottla.registry.rest.http")

_RETRY_TIMEOUT_S: Final = 10.0

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"

_STORE_ERROR: Final = 50001
"""Confluent's code for a registry that cannot reach its topic."""


class RegistryServer:
    """Serves a Confluent-compatible schema registry for one cluster.

    With `users` (name and password) clients need basic authentication, with `tokens` a bearer token; either will do if
    both are given. Without them only this machine may be served.
    """

    def __init__(
        self,
        bootstrap: Callable[[], str],
        host: str,
        port: int,
        *,
        security: Security | None = None,
        users: Mapping[str, str] | None = None,
        tokens: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if not users and not tokens and host not in LOCAL_NAMES:
            raise ValueError(f"a registry on {host} can be reached from other machines: it needs users")
        self._bootstrap = bootstrap
        self._security = security
        self._users = users or {}
        self._tokens = tokens or {}
        self._client: Client | None = None
        self._registry: Registry | None = None
        self._opening = asyncio.Lock()
        self._endpoint = HttpEndpoint(host, port, self._make_app, tls=tls)

    @property
    def url(self) -> str:
        return self._endpoint.url

    async def start(self) -> None:
        await self._endpoint.start()

    async def stop(self) -> None:
        await self._endpoint.stop()
        await self._close_client()

    async def _close_client(self) -> None:
        client, self._client, self._registry = self._client, None, None
        if client is not None:
            await client.close()

    def _make_app(self) -> App:
        _load()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            answer = await self._answer(starlette_requests.Request(scope, receive))
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
        try:
            registry = await self._opened()
        except OSError as error:
            return _error(500, _STORE_ERROR, f"The registry cannot reach its topic: {error}")
        answer = await registry.handle(
            rest.Request(
                incoming.method,
                incoming.scope["raw_path"].decode("latin-1"),
                parse_qs(incoming.scope["query_string"].decode("latin-1"), keep_blank_values=True),
                body,
                incoming.headers.get("content-type"),
                incoming.headers.get("accept"),
                principal,
            )
        )
        if answer.body is None:
            return starlette_responses.Response(status_code=answer.status)
        text = answer.body if answer.raw else json.dumps(answer.body, ensure_ascii=False)
        return starlette_responses.Response(text, answer.status, media_type=answer.media_type)

    async def _opened(self) -> Registry:
        """The registry, opened and replayed with the first request. Raises OSError while the cluster is away."""
        async with self._opening:
            if self._registry is not None:
                return self._registry
            try:
                address = self._bootstrap()
            except RuntimeError as error:  # an embedded broker that is down has no address
                raise OSError(str(error)) from error
            client = Client(address, security=self._security, retry_timeout_s=_RETRY_TIMEOUT_S)
            try:
                log = topic_log.TopicLog(client, lambda: int(time.time() * 1000))
                await log.open()
                info = rest.Info(version=__version__, kafka_cluster=client.known.cluster_id or "")
                registry = registry_module.Registry(log, info)
                await registry.start()
            except BaseException:
                await client.close()
                raise
            self._client, self._registry = client, registry
            return registry

    def _authenticated(self, header: str) -> str | None:
        """The name of the client; None if what it sent proves nothing."""
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
    """Import what serves requests, in the thread that makes the application."""
    for module in (starlette_requests, starlette_responses, registry_module, topic_log, rest):
        _ = module.__name__


def _error(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> starlette_responses.Response:
    content = json.dumps({"error_code": code, "message": message})
    return starlette_responses.Response(content, status, headers, media_type=_MEDIA_TYPE)
