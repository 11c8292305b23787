"""The nodes of a cluster together: who is there, and word of the metadata to all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clock import Clock, Timer
from ottla.config import Config
from ottla.metadata.controller import Randomness
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.multibroker.network import Network

if TYPE_CHECKING:
    from ottla.log.files import Disk
    from ottla.multibroker.node import BrokerNode


class ClusterNodes:
    """A controller, a network, and the brokers that are up."""

    def __init__(self, config: Config, disk: Disk, clock: Clock, chance: Randomness) -> None:
        """`config` is the controller's; the brokers bring their own."""
        self.clock = clock
        self.timer = Timer(clock, asyncio.get_running_loop())
        self.network = Network(asyncio.get_running_loop(), self.timer)
        self.network.on_change = self._ways_opened
        self.network.request_timeout_ms = config["request.timeout.ms"]
        self.controller = ControllerNode(config, disk, clock, self.timer, chance)
        self.controller.on_append = self._appended
        self.brokers: dict[int, BrokerNode] = {}
        self.is_stopping = False
        self.kept_out: set[tuple[str, int, int]] = set()
        """(topic, partition, broker) of replicas that stay out of the ISR, however well they keep up."""

    def start(self) -> None:
        self.controller.start()
        self.controller.log.observers = self._observers
        self.network.up(CONTROLLER_ID)

    def stop(self) -> None:
        """After the last broker."""
        self.network.down(CONTROLLER_ID)
        self.controller.stop()
        self.timer.close()

    def _observers(self) -> list[tuple[int, int]]:
        """The brokers that the controller hears from, with the end of what they have read of its log."""
        return [
            (number, node.followed.last_offset + 1)
            for number, node in sorted(self.brokers.items())
            if node.broker.is_running and self.network.reaches(number, CONTROLLER_ID)
        ]

    async def pause(self, delay_ms: float) -> None:
        """By the cluster's clock."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        self.timer.schedule(delay_ms, end)
        await over

    def joined(self, node: BrokerNode) -> None:
        self.brokers[node.node_id] = node
        self.network.up(node.node_id)

    def left(self, node: BrokerNode) -> None:
        if self.brokers.get(node.node_id) is node:
            self.network.down(node.node_id)

    def _appended(self) -> None:
        for node in tuple(self.brokers.values()):
            if node.is_alive:
                node.metadata_appended()

    def _ways_opened(self) -> None:
        for node in tuple(self.brokers.values()):
            node.followed_way_open()
