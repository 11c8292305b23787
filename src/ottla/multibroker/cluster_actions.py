"""Actions on a cluster: stop and start brokers, cut the network, move leaders and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.network import sides_of
from ottla.multibroker.partition_moves import drop_from_isr, lead_here, move_replicas
from ottla.server.request_log import ControlEvent

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.cluster_broker import ClusterBroker
    from ottla.multibroker.cluster_controllers import ClusterController
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.cluster_process import NodeProcess
    from ottla.multibroker.cluster_view import ClusterServer
    from ottla.multibroker.node_clock import NodeClock

T = TypeVar("T")

CONTROLLER: Final = "controller"
"""The name of the controller in lists of nodes: `partition_network([1, CONTROLLER], [2, 3])`."""


class Controls:
    """The verbs of `ottla.Cluster`. Each appears among the requests of its brokers.

    A node that is both broker and controller can be named by its number or as a controller. Actions affect the whole
    node.
    """

    if TYPE_CHECKING:  # provided by the cluster
        nodes: ClusterNodes
        brokers: dict[int, ClusterBroker]
        controllers: dict[str, ClusterController]
        _clock: Clock

        @property
        def active_controller(self) -> str | None: ...
        def controller(self, name: str) -> ClusterController: ...
        def clock_of(self, node_id: int) -> NodeClock: ...
        def _process_of(self, node: int | str) -> NodeProcess: ...
        def _has_majority(self) -> bool: ...
        def broker(self, broker_id: int) -> ClusterBroker: ...
        def call(self, work: Callable[[ClusterServer], T]) -> T: ...
        def _do(self, work: Coroutine[Any, Any, T]) -> Any: ...

    def kill(self, broker_id: int) -> Any:
        """End a broker as SIGKILL does; the others notice when its session expires."""
        node = self._process_of(broker_id)
        self._note(f"kill {broker_id}", [broker_id])
        return self._do(node.kill())

    def stop(self, broker_id: int) -> Any:
        """Stop a broker cleanly: it hands over its partitions first."""
        node = self._process_of(broker_id)
        self._note(f"stop {broker_id}", [broker_id])
        return self._do(node.down())

    def start(self, broker_id: int) -> Any:
        """Start a broker again, with its port and its data."""
        node = self._process_of(broker_id)
        self._note(f"start {broker_id}", [broker_id])
        return self._do(node.up())

    def restart(self, broker_id: int) -> Any:
        node = self._process_of(broker_id)
        self._note(f"restart {broker_id}", [broker_id])
        return self._do(node.restart())

    def pause(self, broker_id: int) -> None:
        """Freeze a broker as SIGSTOP does: its connections stay open, but it answers nothing."""
        node = self._process_of(broker_id)
        self._note(f"pause {broker_id}", [broker_id])
        self.call(lambda _: node.pause())

    def resume(self, broker_id: int) -> None:
        node = self._process_of(broker_id)
        self._note(f"resume {broker_id}", [broker_id])
        self.call(lambda _: node.resume())

    def partition_network(self, *sides: Iterable[int | str]) -> None:
        """Cut the network between brokers: `partition_network([1], [2, 3])`. Clients still reach all of them.

        The controller is on the larger side unless a side lists it: `partition_network([1, "controller"], [2, 3])`.
        With a quorum, `["c1"], ["c2", "c3"]` cuts it; nodes on none of the sides reach all others.
        """
        shown = [list(side) for side in sides]
        named = [list(dict.fromkeys(self._node_id(node) for node in side)) for side in shown]
        controllers = [each.node_id for each in self.controllers.values()] or [CONTROLLER_ID]
        cut = sides_of(named, self.brokers, controllers)
        self._note(f"partition network {shown}", [*self.brokers, *self.controllers])
        self.call(lambda _: self.nodes.network.cut(cut))

    def slow_link(self, first: int | str, second: int | str, *, ms: float, both_ways: bool = True) -> None:
        """Delay everything between two nodes by `ms`; 0 removes the delay."""
        a, b = self._node_id(first), self._node_id(second)
        if a == b:
            raise ValueError(f"{first} and {second} are on one node, and there is no network between them")

        def slow(_: Any) -> None:
            self.nodes.network.slow(a, b, ms)
            if both_ways:
                self.nodes.network.slow(b, a, ms)

        self._note(f"slow link {first}–{second} by {ms:g} ms", (first, second))
        self.call(slow)

    def slow_controller(self, name: str, *, ms: float) -> None:
        """Delay everything to and from a controller by `ms`; 0 removes the delay."""
        slow_id = self.controller(name).node_id

        def slow(_: Any) -> None:
            for other in [*self.brokers, *(each.node_id for each in self.controllers.values())]:
                if other != slow_id:
                    self.nodes.network.slow(slow_id, other, ms)
                    self.nodes.network.slow(other, slow_id, ms)

        self._note(f"slow controller {name} by {ms:g} ms", [name])
        self.call(slow)

    def skew_clock(self, node: int | str, *, ms: int) -> None:
        """Set the clock of a node this far ahead of the others, or behind if negative; 0 corrects it.

        From then on, the time of day is wrong there: timestamps, retention, the ends of tokens and transactions.
        Durations are measured by another clock, as in Kafka, so sessions and request timeouts stay correct.
        """
        clock = self.clock_of(self._node_id(node))
        self._note(f"set the clock of {node} {abs(ms)} ms {'behind' if ms < 0 else 'ahead'}", [node])
        self.call(lambda _: setattr(clock, "skew_ms", int(ms)))

    def _describe_clocks(self) -> dict[str, int]:
        """The clocks that are wrong, by node."""
        names: list[int | str] = [*self.brokers]
        names += [name for name, each in self.controllers.items() if each.node_id not in self.brokers]
        skews = {str(name): self.clock_of(self._node_id(name)).skew_ms for name in names}
        return {name: skew_ms for name, skew_ms in skews.items() if skew_ms}

    # -- controllers of a quorum -------------------------------------------------------------------------------

    def kill_controller(self, name: str | None = None) -> Any:
        """End a controller as SIGKILL does; without a name, the active one. The others elect a new one."""
        controller = self._controller_or_active(name)
        self._note(f"kill {controller.name}", [controller.name])
        return self._do(self._process_of(controller.name).kill())

    def stop_controller(self, name: str | None = None) -> Any:
        """Stop a controller cleanly: the active one resigns first, and the others elect a new one immediately."""
        controller = self._controller_or_active(name)
        self._note(f"stop {controller.name}", [controller.name])
        return self._do(self._process_of(controller.name).down())

    def start_controller(self, name: str | None = None) -> Any:
        """Start a controller again, with its port and its data; without a name, all that are down."""
        chosen = [self.controller(name)] if name else [c for c in self.controllers.values() if not c.is_running]
        self._note(f"start {', '.join(each.name for each in chosen)}", [each.name for each in chosen])

        async def start() -> None:
            for each in chosen:
                await self._process_of(each.name).up()
            if self._has_majority():
                await asyncio.gather(*(each.starting for each in self.brokers.values() if each.starting is not None))

        return self._do(start())

    def pause_controller(self, name: str | None = None) -> None:
        """Freeze a controller as SIGSTOP does; without a name, the active one."""
        controller = self._controller_or_active(name)
        self._note(f"pause {controller.name}", [controller.name])
        self.call(lambda _: self._process_of(controller.name).pause())

    def resume_controller(self, name: str | None = None) -> None:
        """Resume a controller; without a name, all that are paused."""

        def resume(_: Any) -> None:
            for each in [self.controller(name)] if name else self.controllers.values():
                if each.is_running and self.nodes.network.is_paused(each.node_id):
                    self._process_of(each.name).resume()

        self._note(f"resume {name or 'controllers'}", [name] if name else self.controllers)
        self.call(resume)

    def _controller_or_active(self, name: str | None) -> ClusterController:
        if name is not None:
            return self.controller(name)
        if not self.controllers:
            raise ValueError("the controller of this cluster cannot fail; make the cluster with controllers=3")
        active = self.active_controller
        if active is None:
            raise ValueError("no controller is active now; name one")
        return self.controller(active)

    def _node_id(self, node: int | str) -> int:
        """The node id for a number, "c1" or "controller"."""
        if node == CONTROLLER:
            return self._controller_or_active(None).node_id if self.controllers else CONTROLLER_ID
        if isinstance(node, str) and not node.isdecimal():
            return self.controller(node).node_id
        return self.broker(int(node)).node_id

    def heal(self) -> None:
        """Repair the network, and let every replica return to the ISR."""
        self._note("heal", self.brokers)

        def heal(_: Any) -> None:
            self.nodes.kept_out.clear()
            self.nodes.network.heal()

        self.call(heal)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Make another in-sync replica the leader."""
        self._note(f"move the leader of {topic}-{partition} to {to}", [to], topic)
        self.call(lambda server: lead_here(server, topic, partition, to))

    def shrink_isr(self, topic: str, partition: int = 0, *, remove: Iterable[int]) -> None:
        """Remove replicas from the ISR, and keep them out until `heal()`."""
        gone = list(remove)
        self._note(f"shrink the ISR of {topic}-{partition} by {gone}", gone, topic)
        self.call(lambda server: drop_from_isr(server, topic, partition, gone))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Start a move to other replicas; None cancels a move in progress."""
        self._note(f"move {topic}-{partition} to {replicas}", replicas or (), topic)
        self.call(lambda server: move_replicas(server, topic, partition, replicas))

    def elect_preferred(self) -> None:
        """Give every partition back to its preferred leader, if that replica is in sync."""
        self._note("elect preferred leaders", self.brokers)
        self.call(lambda server: server.controller.commit(server.controller.broker_changes.preferred()))

    def _note(self, text: str, nodes: Iterable[int | str], topic: str | None = None) -> None:
        event = ControlEvent(text, self._clock.now_ms(), topic)
        for node in nodes:
            if node in self.brokers:
                self.brokers[int(node)].note(event)
            elif node in self.controllers:
                self.controllers[str(node)].note(event)
