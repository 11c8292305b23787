"""Who sent a request: a client on a connection, another broker, or a client whose request was forwarded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.config import Listener
    from ottla.server.services import Services


class Requester(Protocol):
    """The sender of a request, as handlers see it: a connection, a peer or a forwarded client."""

    principal: str
    """`User:name`, as in ACLs and quotas."""
    client_software: tuple[str, str] | None
    """Name and version of the client library, as sent with ApiVersions (KIP-511)."""
    state: dict[str, Any] | None
    """The data that handlers keep while the connection is open."""

    @property
    def services(self) -> Services:
        """The services that this sender's requests may use."""

    @property
    def peer(self) -> str:
        """The sender, for log lines."""

    @property
    def client_host(self) -> str:
        """The sender's address as Kafka shows it, `/127.0.0.1`."""

    @property
    def listener(self) -> Listener:
        """The listener that the request came through."""

    @property
    def local_host(self) -> str:
        """The address of this machine that the sender used."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the sender authenticated with a delegation token (KIP-48)."""

    @property
    def wants_changes_only(self) -> bool:
        """Whether an answer to a replica's fetch may leave out unchanged partitions, as with a fetch session."""

    def work_ns(self) -> int:
        """How long the broker has worked on the request, for quotas."""

    def close(self, reason: str | None = None, level: int = logging.WARNING) -> None:
        """End the connection; nothing more is answered on it."""
