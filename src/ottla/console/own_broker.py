"""A connection to a broker of this process, without a socket, a listener or a login."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.answers import Answer, Reply
from ottla.client.connection import BrokerConnection, ConnectionLost, common_version
from ottla.client.routing import BOOTSTRAP_NODE, OpenBroker
from ottla.log.files import FileRegion
from ottla.server.api import Registry, RequestContext, Route
from ottla.server.broker import Broker
from ottla.server.dispatch import dispatch
from ottla.server.peers import ForwardedConnection
from ottla.wire.messages import RESPONSES
from ottla.wire.schema import Message

CLIENT_ID: Final = "ottla-console"


class Caller(NamedTuple):
    """A part of this process that uses the broker as a client does. Its principal in ACLs is `User:<client_id>`."""

    client_id: str
    apis: Callable[[Broker], Registry] = lambda server: server.registry
    """The APIs that it calls: those of clients, with faults and recorded requests, or others."""


REGISTRY_CLIENT_ID: Final = "ottla-registry"
CONSOLE: Final = Caller(CLIENT_ID)
REGISTRY: Final = Caller(REGISTRY_CLIENT_ID)


def connections_to(servers_now: Callable[[], Mapping[int, Broker]], caller: Caller = CONSOLE) -> OpenBroker:
    """Opens connections to the brokers of this process."""

    def open_broker(node_id: int) -> BrokerConnection:
        servers = servers_now()
        server = next(iter(servers.values()), None) if node_id == BOOTSTRAP_NODE else servers.get(node_id)
        if server is None:
            raise ConnectionLost("the broker is not running" if not servers else f"broker {node_id} is not running")
        return OwnBrokerConnection(server, caller)

    return open_broker


class OwnBrokerConnection:
    """Passes requests to the broker's dispatcher. They are encoded and decoded, like requests over a network."""

    def __init__(self, server: Broker, caller: Caller = CONSOLE) -> None:
        self.address = f"broker {server.node_id}"
        self._server = server
        self._client_id = caller.client_id
        self._apis = caller.apis(server)
        self._versions = {
            api.key: (api.min_version, api.max_version) for api in self._apis.apis.values() if api.advertised
        }
        self._sender = ForwardedConnection(
            server.services,
            server.config.listeners[0],
            principal=f"User:{caller.client_id}",
            token_authenticated=False,
            client_host="/127.0.0.1",
            local_host="127.0.0.1",
        )
        self._sender.peer = caller.client_id.removeprefix("ottla-")
        self._waiting: set[Reply[Any]] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed or not self._server.is_running

    def version_for(self, request: type[Message], highest: int | None = None) -> int:
        return common_version(self.address, self._versions, request, highest)

    async def call(self, request: Message, highest: int | None = None) -> Any:
        return await self.send(request, self.version_for(type(request), highest))

    def send(self, request: Message, version: int, *, answered: bool = True) -> asyncio.Future[Any]:
        if self.is_closed:
            raise ConnectionLost(f"{self.address} is not running")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = self._serve(request, version)
        if not answered:
            future.set_result(None)
        elif isinstance(answer, Reply):
            self._waiting.add(answer)
            answer.when_done(lambda reply: self._answered(future, reply))
        else:
            future.set_result(answer)
        return future

    def _serve(self, request: Message, version: int) -> Answer[Any]:
        route = self._apis.route(request.API_KEY, version)
        assert route is not None, "the broker must serve this version"
        frame = bytearray(request.encode(version))  # offsets are stamped into the bytes of produced batches
        decoded, _ = route.decode(memoryview(frame), 0)
        ctx = RequestContext(self._sender, request.API_KEY, version, 0, self._client_id, len(frame))
        answer = dispatch(route.handler, route.api, ctx, decoded)
        if isinstance(answer, Reply):
            return answer.then(lambda response: _as_received(route, version, response))
        return _as_received(route, version, answer)

    def _answered(self, future: asyncio.Future[Any], reply: Reply[Any]) -> None:
        self._waiting.discard(reply)
        if future.done():  # its caller may have been cancelled
            return
        if reply.error is None:
            future.set_result(reply.value)
        else:
            future.set_exception(ConnectionLost(f"{self.address} does not answer: it is stopping"))

    async def drain(self) -> None:
        """Nothing is buffered."""

    async def close(self) -> None:
        self._closed = True
        for reply in tuple(self._waiting):
            reply.cancel()


def _as_received(route: Route, version: int, response: Message | None) -> Any:
    """A response as a client would read it from the network."""
    if response is None:
        return None
    parts: list[Any] = []
    route.encode(response, parts)
    frame = b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)
    return RESPONSES[route.api.key].decode(frame, version)
