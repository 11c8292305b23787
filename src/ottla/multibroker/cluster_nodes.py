"""The nodes of a cluster: which are up, and metadata changes for all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.clock import Clock, Timer
from ottla.config import Config
from ottla.errors import LeaderNotAvailable
from ottla.lazy_imports import lazy
from ottla.metadata.controller import Randomness
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.multibroker.controller_link import ActiveController, ControllerLink, LinkToOne
from ottla.multibroker.network import Network
from ottla.wire.primitives import uuid_to_base64

if TYPE_CHECKING:
    from ottla.log.files import Disk
    from ottla.multibroker import quorum_link, raft_node
    from ottla.multibroker.node import BrokerNode
    from ottla.multibroker.quorum_controller import QuorumController
    from ottla.multibroker.raft_node import RaftNetwork
    from ottla.raft.voters import VoterSet
else:
    quorum_link = lazy("ottla.multibroker.quorum_link")
    raft_node = lazy("ottla.multibroker.raft_node")


class ClusterNodes:
    """A controller or a quorum of them, a network, and the brokers that are up."""

    def __init__(self, config: Config, clock: Clock, chance: Randomness) -> None:
        """`config` is for the controller; the brokers have their own."""
        self.clock = clock
        self._config = config
        self._chance = chance
        self.timer = Timer(clock, asyncio.get_running_loop())
        self.network = Network(asyncio.get_running_loop(), self.timer)
        self.network.on_change = self._ways_opened
        self.network.request_timeout_ms = config["request.timeout.ms"]
        self._single: ControllerNode | None = None
        self.controllers: dict[int, QuorumController] = {}
        """The controllers of a quorum that are or were up."""
        self._last_active: QuorumController | None = None
        self.voters: VoterSet
        self.raft_network: RaftNetwork
        self.cluster_id = ""
        self.brokers: dict[int, BrokerNode] = {}
        self.is_stopping = False
        self.kept_out: set[tuple[str, int, int]] = set()
        """(topic, partition, broker) of replicas that must stay out of the ISR, even if they keep up."""

    # -- the controller ----------------------------------------------------------------------------------------

    def start_single(self, disk: Disk) -> None:
        """Start a single controller, which does not fail."""
        controller = self._single = ControllerNode(self._config, disk, self.clock, self.timer, self._chance)
        controller.on_append = self._appended
        controller.start()
        controller.log.observers = self._observers
        self.cluster_id = controller.cluster_id
        self.network.up(CONTROLLER_ID)

    def prepare_quorum(self, voters: VoterSet, cluster_id: str | None) -> None:
        """Prepare the quorum; its controllers are started after this, like brokers."""
        self.voters = voters
        self.cluster_id = cluster_id or uuid_to_base64(self._chance.uuid())
        self.raft_network = raft_node.RaftNetwork(self.network, self.timer, self.clock)

    def stop(self) -> None:
        """Stop the controllers, after the last broker."""
        if self._single is not None:
            self.network.down(CONTROLLER_ID)
            self._single.stop()
        self.timer.close()

    @property
    def active_controller(self) -> QuorumController | None:
        """The controller that leads the quorum; if two claim it, the one with the newer epoch."""
        active = [node for node in self.controllers.values() if node.is_active]
        return max(active, key=lambda node: node.raft.replica.epoch, default=None)

    @property
    def controller(self) -> ActiveController:
        """The controller to ask about the cluster: the active one, or the last active one."""
        if self._single is not None:
            return self._single
        found = self.active_controller or self._last_active
        if found is None:
            raise LeaderNotAvailable("no controller was elected yet")
        return found

    def controller_joined(self, node: QuorumController) -> None:
        self.controllers[node.node_id] = node
        self.network.up(node.node_id)

    def controller_left(self, node: QuorumController) -> None:
        if self.controllers.get(node.node_id) is node:
            self._part_left(node.node_id)

    def controller_changed(self, node: QuorumController) -> None:
        self._last_active = node

    def link_for(self, node: BrokerNode) -> ControllerLink:
        if self._single is not None:
            return LinkToOne(node, self._single)
        return quorum_link.QuorumLink(node, self)

    def fence(self, broker_id: int) -> None:
        """Fence a broker that is gone, and notify all nodes."""
        active = self._single or self.active_controller
        if active is not None:
            active.duties.fence(broker_id)

    def _observers(self) -> list[tuple[int, int]]:
        """The brokers that fetch from the controller, with their positions in its log."""
        return [
            (number, node.followed.last_offset + 1)
            for number, node in sorted(self.brokers.items())
            if node.broker.is_running and self.network.reaches(number, CONTROLLER_ID)
        ]

    # -- brokers -----------------------------------------------------------------------------------------------

    async def pause(self, delay_ms: float) -> None:
        """Wait by the cluster's clock."""
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
            self._part_left(node.node_id)

    def _part_left(self, node_id: int) -> None:
        """A broker or a controller is gone. The node is gone too, unless its other part is still running."""
        parts = (self.brokers.get(node_id), self.controllers.get(node_id))
        if not any(part is not None and part.is_alive for part in parts):
            self.network.down(node_id)

    def _appended(self) -> None:
        for node in tuple(self.brokers.values()):
            if node.is_alive:
                node.metadata_appended()

    def _ways_opened(self) -> None:
        for controller in tuple(self.controllers.values()):
            if controller.is_alive:
                controller.way_open()
        for node in tuple(self.brokers.values()):
            node.followed_way_open()
