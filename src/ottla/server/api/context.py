"""The context of a request: what a handler knows about it in addition to its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.enums import SUPPORTED_OPERATIONS
from ottla.metadata.image import CLUSTER_NAME

if TYPE_CHECKING:
    from ottla.server.requester import Requester
    from ottla.server.security.quotas import Mutations
    from ottla.server.services import Services

_ALL_OPERATIONS = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}
"""The operations as the bit field in answers."""


class RequestContext:
    """The sender of a request, and how it was sent."""

    __slots__ = ("api_key", "client_id", "connection", "correlation_id", "request_bytes", "services", "version")

    def __init__(
        self,
        connection: Requester,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request_bytes: int,
    ) -> None:
        self.connection = connection
        self.services: Services = connection.services
        """The part of the broker that handlers use."""
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request_bytes = request_bytes

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it, `/127.0.0.1`."""
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.listener.name

    @property
    def principal(self) -> str:
        return self.connection.principal

    def may(self, operation: int, kind: int, name: str = CLUSTER_NAME, *, audit: bool = True) -> bool:
        """Whether the sender may do this with a resource; without an authorizer everyone may do everything."""
        connection = self.connection
        authorizer = connection.services.access.authorizer
        return authorizer is None or authorizer.allows(
            connection.principal, connection.client_host[1:], operation, kind, name, audit=audit
        )

    def may_any(self, operation: int, kind: int) -> bool:
        """Whether the sender may do this with any resource of this kind."""
        connection = self.connection
        authorizer = connection.services.access.authorizer
        return authorizer is None or authorizer.allows_any(
            connection.principal, connection.client_host[1:], operation, kind
        )

    def mutations(self, *, strict: bool) -> Mutations | None:
        """The sender's quota for changes to topics, if there is one."""
        quotas = self.connection.services.access.quotas
        return None if quotas is None else quotas.mutations(self, strict=strict)

    def operations(self, kind: int, name: str = CLUSTER_NAME) -> int:
        """The operations that the sender may perform on a resource, as the bit field in answers."""
        connection = self.connection
        authorizer = connection.services.access.authorizer
        if authorizer is None:
            return _ALL_OPERATIONS[kind]
        return authorizer.operations(connection.principal, connection.client_host[1:], kind, name)
