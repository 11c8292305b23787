"""The schema registry of the brokers of this process.

It reaches them without a socket. The features for testing clients do not affect it: faults do not hit its requests,
`requests()` does not list them, and `as_version` does not limit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.console.own_broker import REGISTRY, connections_to
from ottla.embedded.registry_faults import RegistryFaults
from ottla.embedded.registry_handle import Host, LocalAccess
from ottla.registry.log import TOPIC
from ottla.registry.options import RegistryOptions
from ottla.registry.server import RegistryServer, clients_inside
from ottla.server.api import Registry, registered_apis
from ottla.server.broker import Broker

__all__ = ["TOPIC", "OwnRegistry"]


class OwnRegistry:
    """The registry, with the operations for tests. The broker starts and stops its server."""

    def __init__(
        self,
        servers: Callable[[], Mapping[int, Broker]],
        options: RegistryOptions,
        apis: Callable[[Broker], Registry] = lambda server: registered_apis(),
    ) -> None:
        """`apis` are the APIs of a server, called inside this process."""
        self.server = RegistryServer(clients_inside(connections_to(servers, REGISTRY._replace(apis=apis))), options)
        self.faults = RegistryFaults()
        self.server.around = self.faults.around

    def access(self, host: Host) -> LocalAccess:
        """Access to the registry from threads other than the loop's."""
        return LocalAccess(host, self.server, self.faults)

    def reset(self, subjects: Iterable[str] | None) -> None:
        """Clear the faults, the list of requests and these subjects. None means all subjects; the caller deletes their
        topic.
        """
        self.faults.clear()
        self.faults.forget_requests()
        if subjects is None:
            self.server.forget()
        else:
            self.server.purge(subjects)
