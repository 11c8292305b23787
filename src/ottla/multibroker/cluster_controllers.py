"""The controllers of a cluster with a quorum: `ottla.Cluster(brokers=3, controllers=3)`. They are called c1, c2, c3."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.embedded.broker import Broker
from ottla.embedded.options import Options
from ottla.log.checkpoints import MetaProperties
from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.quorum_controller import QuorumController
from ottla.raft.voters import Endpoint, Voter, VoterSet
from ottla.server.api.registry import controller_apis
from ottla.server.broker import Broker as Server

if TYPE_CHECKING:
    from ottla.config import Config
    from ottla.log.files import Disk
    from ottla.multibroker.cluster import Cluster
    from ottla.server.request_log import ControlEvent

CONTROLLERS_MAX = 9


class ClusterController(Broker):
    """One controller of a cluster, with its own listener, recorded requests and faults."""

    def __init__(self, cluster: Cluster, name: str, options: Options) -> None:
        assert options.config is not None
        self._cluster = cluster
        self.node_id = options.config.node_id
        self.name = name
        self.node_clock = cluster.clock_of(self.node_id)
        self.socket: socket.socket | None = None
        super(Broker, self).__init__(options)

    def reserve_port(self) -> None:
        """The voters must know each other's ports before the first one starts."""
        listener = self._config.listeners[0]
        if listener.port:
            return
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setblocking(False)
        self.socket.bind((listener.host, 0))
        fixed = listener._replace(port=self.socket.getsockname()[1])
        self._config = self._config.with_static({"listeners": str(fixed)})

    def _new_server(self) -> Server:
        sock, self.socket = self.socket, None
        nodes = self._cluster.nodes
        return Server(
            self._config,
            disk=self.disk,
            clock=self.node_clock,
            chance=self._chance,
            registry=self._apis,
            topology=QuorumController(nodes, self.node_id, nodes.voters, sock),
        )

    @property
    def node(self) -> QuorumController:
        """The controller's node in the quorum, while it runs."""
        node = self.server.topology
        assert isinstance(node, QuorumController)
        return node

    @property
    def voter(self) -> Voter:
        listener = self._config.listeners[0]
        return Voter(self.node_id, endpoints=(Endpoint(listener.name, listener.host or "127.0.0.1", listener.port),))

    @property
    def address(self) -> tuple[str, int]:
        listener = self._config.listeners[0]
        return "127.0.0.1" if listener.host in ("", "0.0.0.0", "::") else listener.host, listener.port

    def _on_loop(self, work: Callable[[], None]) -> None:
        self._cluster.call(lambda _: work())

    def note(self, event: ControlEvent) -> None:
        self._log.add(event)

    def describe(self) -> dict[str, Any]:
        host, port = self.address
        found: dict[str, Any] = {"address": f"{host}:{port}", "node_id": self.node_id, "state": "down"}
        if not self.is_running:
            return found
        replica = self.node.raft.replica
        state = "active" if self.node.is_active else type(replica.role).__name__.lower()
        if self._cluster.nodes.network.is_paused(self.node_id):
            state = "paused"
        log = replica.log
        found.update(state=state, epoch=replica.epoch, end_offset=log.end_offset, high_watermark=log.high_watermark)
        return found


def make_controllers(
    cluster: Cluster,
    count: int,
    config_of: Callable[[int], Config],
    options_of: Callable[[int, str], dict[str, Any]],
) -> dict[str, ClusterController]:
    """The controllers by name. `options_of` returns the clock, seed and disk of a node with a folder of this name."""
    if not 1 <= count <= CONTROLLERS_MAX:
        raise ValueError(f"controllers={count}: a quorum has 1 to {CONTROLLERS_MAX}; 3 survive the loss of one")
    found = {}
    for number in range(1, count + 1):
        disk_id = CONTROLLER_ID + number  # it has its own folder, even on the node of a broker
        options = Options(config_of(number), apis=controller_apis(), **options_of(disk_id, f"controller-{number}"))
        found[f"c{number}"] = ClusterController(cluster, f"c{number}", options)
    return found


def voters_of(controllers: dict[str, ClusterController]) -> VoterSet:
    for controller in controllers.values():
        controller.reserve_port()
    return VoterSet(controller.voter for controller in controllers.values())


def cluster_id_in(disk: Disk) -> str | None:
    """The id of the cluster that a folder belongs to."""
    meta = MetaProperties.read(disk) if disk.exists("") else None
    return None if meta is None else meta.cluster_id
