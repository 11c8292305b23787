"""Senders without a connection here: other brokers, and clients whose request another broker forwarded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.requester import Requester
    from ottla.server.services import Services


class PeerConnection:
    """Another broker as the sender of a request: no socket, no ACLs, no quotas."""

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
        """There is nothing to close."""


class ForwardedConnection:
    """A client's connection as the controller sees it, to which a broker forwarded a request (KIP-590)."""

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
