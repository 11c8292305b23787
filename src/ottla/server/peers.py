"""Other brokers: the channel for requests to them, and how their requests are answered here.

`Channel` has three implementations: `LocalChannel` here for a single broker, `multibroker/channel.py` over the
simulated network inside one process, and `workers/channel.py` over the sockets between worker processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.answers import Answer, Reply
from ottla.server.api import Registry, RequestContext, registered_apis
from ottla.server.dispatch import dispatch
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.requester import Requester
    from ottla.server.services import Services

ServeInternal = Callable[[int, Any], Message]
"""Answers a request that only brokers send; gets the id of the sender and the request."""


class Unreachable(Exception):
    """The other broker is down, or did not answer in time."""


class Channel(Protocol):
    """The channel to other brokers. Requests are those of the Kafka protocol, in their newest version."""

    def send(self, broker_id: int, request: Message, *, at_once: bool = False) -> Reply[Any]:
        """Send a request to another broker. The reply gets the response, or fails with Unreachable or a KafkaError.

        With `at_once` the caller cannot continue without the answer, so an implementation may poll for it for a
        moment.
        """


class LocalChannel:
    """The channel of a single broker to itself, in the same process."""

    def __init__(self, node_id: int, server: Callable[[], PeerServer]) -> None:
        self._node_id = node_id
        self._server = server

    def send(self, broker_id: int, request: Message, *, at_once: bool = False) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        if broker_id == self._node_id:
            reply.complete(lambda: self._server().serve(broker_id, request, request.MAX_VERSION))
        else:
            reply.fail(Unreachable(f"there is no broker {broker_id}"))
        return reply


class PeerServer:
    """Answers the requests of other brokers, with the same handlers as those of clients."""

    def __init__(
        self, services: Services, listener: Listener, internal: Mapping[int, ServeInternal] | None = None
    ) -> None:
        """`internal`, by API key: requests from brokers to a controller, which clients cannot send."""
        self._services = services
        self._listener = listener
        self._internal = internal or {}
        self._registry: Registry = registered_apis()
        self._peers: dict[int, PeerConnection] = {}

    def serve(self, peer_id: int, request: Message, version: int) -> Answer[Any]:
        """The answer to another broker; errors are in the response, as they are for clients."""
        internal = self._internal.get(request.API_KEY)
        if internal is not None:
            return internal(peer_id, request)
        route = self._registry.route(request.API_KEY, version)
        assert route is not None, f"no handler for version {version} of {type(request).__name__}"
        connection = self._peers.get(peer_id)
        if connection is None:
            connection = self._peers[peer_id] = PeerConnection(self._services, self._listener, peer_id)
        ctx = RequestContext(connection, request.API_KEY, version, 0, connection.peer, 0)
        return dispatch(route.handler, route.api, ctx, request)


class PeerConnection:
    """Another broker as the sender of a request, without socket, ACLs and quotas."""

    wants_changes_only = True
    token_authenticated = False
    client_host = "/127.0.0.1"
    local_host = "127.0.0.1"

    def __init__(self, services: Services, listener: Listener, peer_id: int) -> None:
        self.services = services.for_peers()
        self.peer = f"broker {peer_id}"
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.client_software: tuple[str, str] | None = None
        self.state: dict[str, Any] | None = None

    def work_ns(self) -> int:
        return 0

    def close(self, reason: str | None = None, level: int = logging.WARNING) -> None:
        """Nothing to close."""


class ForwardedConnection:
    """A client's connection as the controller sees it, for a request that a broker forwarded (KIP-590)."""

    __slots__ = (
        "client_host",
        "client_software",
        "listener",
        "local_host",
        "peer",
        "principal",
        "services",
        "state",
        "token_authenticated",
    )

    wants_changes_only = False

    def __init__(
        self,
        services: Services,
        listener: Listener,
        *,
        principal: str,
        token_authenticated: bool,
        client_host: str,
        local_host: str,
    ) -> None:
        self.services = services
        self.listener = listener
        self.principal = principal
        self.token_authenticated = token_authenticated
        self.client_host = client_host
        self.local_host = local_host
        self.peer = client_host
        self.client_software: tuple[str, str] | None = None
        self.state: dict[str, Any] | None = None

    @classmethod
    def of(cls, client: Requester, services: Services) -> ForwardedConnection:
        """The client of a request that is served with other services."""
        return cls(
            services,
            client.listener,
            principal=client.principal,
            token_authenticated=client.token_authenticated,
            client_host=client.client_host,
            local_host=client.local_host,
        )

    def work_ns(self) -> int:
        return 0

    def close(self, reason: str | None = None, level: int = logging.WARNING) -> None:
        """The broker that has the connection closes it when there is no answer."""
