"""The controllers of `ottla.Cluster(controllers=3)`: which one is active, and their start."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.lazy_imports import lazy
from ottla.multibroker.cluster_process import NodeProcess

if TYPE_CHECKING:
    from ottla.multibroker import cluster_controllers
    from ottla.multibroker.cluster_broker import ClusterBroker
    from ottla.multibroker.cluster_controllers import ClusterController
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.cluster_view import ClusterServer
else:
    cluster_controllers = lazy("ottla.multibroker.cluster_controllers")

T = TypeVar("T")


class Quorum:
    """The quorum of a cluster; empty without one."""

    if TYPE_CHECKING:  # provided by the cluster
        nodes: ClusterNodes
        brokers: dict[int, ClusterBroker]
        controllers: dict[str, ClusterController]

        def broker(self, broker_id: int) -> ClusterBroker: ...
        @property
        def _is_elsewhere(self) -> bool: ...
        def call(self, work: Callable[[ClusterServer], T]) -> T: ...
        def wait_until(self, holds: Callable[[Any], bool], timeout: float = 60.0) -> Any: ...

    @property
    def active_controller(self) -> str | None:
        """The name of the controller that leads the quorum, such as "c1"; None while no controller leads it."""
        active = self.call(lambda server: server.nodes.active_controller)
        return None if active is None else self._name_of(active.node_id)

    def _name_of(self, node_id: int) -> str | None:
        """The name of the controller on a node."""
        return next((name for name, each in self.controllers.items() if each.node_id == node_id), None)

    def _process_of(self, node: int | str) -> NodeProcess:
        """The node of a broker (by number) or a controller (by name), with everything on it."""
        name = node if isinstance(node, str) else self._name_of(node)
        controller = None if name is None else self.controller(name)
        broker = self.broker(node) if isinstance(node, int) else self.brokers.get(self.controller(node).node_id)
        return NodeProcess(broker, controller, self._has_majority)

    def _has_majority(self) -> bool:
        return sum(each.is_running for each in self.controllers.values()) * 2 > len(self.controllers)

    def controller(self, name: str) -> ClusterController:
        """A controller of the quorum, for its requests, its faults and its data."""
        if name not in self.controllers:
            known = ", ".join(self.controllers) or "none: make the cluster with controllers=3"
            raise ValueError(f"there is no controller {name!r}; the controllers are {known}")
        return self.controllers[name]

    @property
    def bootstrap_controllers(self) -> str:
        """The value for `--bootstrap-controller` of Kafka's tools: all controllers, including those that are down."""
        if not self.controllers:
            raise ValueError("the controller has no address; make the cluster with controllers=3")
        return ",".join("{}:{}".format(*controller.address) for controller in self.controllers.values())

    def wait_for_controller(self, timeout: float = 60.0) -> Any:
        """Wait until a controller is active."""
        return self.wait_until(lambda cluster: cluster.active_controller is not None, timeout)

    async def _start_quorum(self) -> None:
        controllers = list(self.controllers.values())
        cluster_ids = (cluster_controllers.cluster_id_in(controller.disk) for controller in controllers)
        voters = cluster_controllers.voters_of(self.controllers)
        self.nodes.prepare_quorum(voters, next(filter(None, cluster_ids), None))
        for controller in controllers:
            await controller.start()
        # There is no leader yet, so do not wait for a timeout.
        for controller in controllers:
            controller.node.raft.stand_for_election()
        for controller in controllers:
            controller.node.register_with_active()

    def _await_controller(self) -> None:
        """Wait for a controller: after a failover there is none for a moment. A caller on its loop cannot wait."""
        if self.controllers and self.active_controller is None:
            if not self._is_elsewhere:
                raise RuntimeError("no controller is active now: `await cluster.wait_for_controller()` first")
            self.wait_for_controller()

    def _describe_controllers(self) -> dict[str, Any]:
        if not self.controllers:
            return {}
        return {"controllers": {name: controller.describe() for name, controller in self.controllers.items()}}
