"""One broker of `ottla.Cluster`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.embedded.broker import Broker
from ottla.embedded.faults import Faults
from ottla.multibroker.node import BrokerNode
from ottla.server.broker import Broker as Server

if TYPE_CHECKING:
    from ottla.embedded.options import Options
    from ottla.multibroker.cluster import Cluster
    from ottla.server.request_log import ControlEvent


class ClusterBroker(Broker):
    """One broker of a cluster."""

    def __init__(self, cluster: Cluster, node_id: int, options: Options) -> None:
        self._cluster = cluster
        self.node_id = node_id
        self.node_clock = cluster.clock_of(node_id)
        self.starting: asyncio.Future[None] | None = None
        """A start that waits until a controller is elected."""
        super(Broker, self).__init__(options)

    def _new_faults(self) -> Faults:
        return Faults(self, beyond=self._cluster.faults)

    def _new_server(self) -> Server:
        return Server(
            self._config,
            disk=self.disk,
            clock=self.node_clock,
            chance=self._chance,
            registry=self._apis,
            topology=BrokerNode(self._cluster.nodes, self.node_id),
        )

    @property
    def node(self) -> BrokerNode:
        """The broker's node in the cluster, while it runs."""
        node = self.server.topology
        assert isinstance(node, BrokerNode)
        return node

    def _on_loop(self, work: Callable[[], None]) -> None:
        self._cluster.call(lambda _: work())

    @property
    def is_starting(self) -> bool:
        return self.starting is not None and not self.starting.done()

    def note(self, event: ControlEvent) -> None:
        self._log.add(event)
