"""What can be done to a cluster: ends and starts of brokers, cuts in the network, leaders and replicas that move."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.multibroker.controller import CONTROLLER_ID
from ottla.multibroker.network import sides_of
from ottla.multibroker.partition_moves import drop_from_isr, lead_here, move_replicas
from ottla.server.request_log import ControlEvent

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.multibroker.cluster import ClusterBroker
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.cluster_view import ClusterServer

T = TypeVar("T")

CONTROLLER: Final = "controller"
"""The controller's name where nodes are named: `partition_network([1, CONTROLLER], [2, 3])`."""


class Controls:
    """The verbs of `ottla.Cluster`. Each is noted among the requests of the brokers that it concerns."""

    if TYPE_CHECKING:  # what the cluster has
        nodes: ClusterNodes
        brokers: dict[int, ClusterBroker]
        _clock: Clock

        def broker(self, broker_id: int) -> ClusterBroker: ...
        def call(self, work: Callable[[ClusterServer], T]) -> T: ...
        def _do(self, work: Coroutine[Any, Any, T]) -> Any: ...

    def kill(self, broker_id: int) -> Any:
        """End a broker as SIGKILL does; the others notice when its session is over."""
        broker = self.broker(broker_id)
        self._note(f"kill {broker_id}", [broker_id])
        return self._do(broker.kill())

    def stop(self, broker_id: int) -> Any:
        """Stop a broker cleanly: it hands its partitions over first."""
        broker = self.broker(broker_id)
        self._note(f"stop {broker_id}", [broker_id])
        return self._do(broker.down())

    def start(self, broker_id: int) -> Any:
        """Start a broker again, on its port and its data."""
        broker = self.broker(broker_id)
        self._note(f"start {broker_id}", [broker_id])
        return self._do(broker.up())

    def restart(self, broker_id: int) -> Any:
        broker = self.broker(broker_id)
        self._note(f"restart {broker_id}", [broker_id])
        return self._do(broker.restart())

    def pause(self, broker_id: int) -> None:
        """Freeze a broker as SIGSTOP does: its connections stay, nothing is answered."""
        broker = self.broker(broker_id)
        self._note(f"pause {broker_id}", [broker_id])
        self.call(lambda _: broker.node.pause())

    def resume(self, broker_id: int) -> None:
        broker = self.broker(broker_id)
        self._note(f"resume {broker_id}", [broker_id])
        self.call(lambda _: broker.node.resume())

    def partition_network(self, *sides: Iterable[int | str]) -> None:
        """Cut the network between brokers: `partition_network([1], [2, 3])`. Clients still reach all of them.

        The controller is with the larger side unless one names it: `partition_network([1, "controller"], [2, 3])`.
        """
        named = [[CONTROLLER_ID if node == CONTROLLER else int(node) for node in side] for side in sides]
        cut = sides_of(named, [*self.brokers, CONTROLLER_ID], CONTROLLER_ID)
        self._note(f"partition network {named}", self.brokers)
        self.call(lambda _: self.nodes.network.cut(cut))

    def slow_link(self, first: int | str, second: int | str, *, ms: float, both_ways: bool = True) -> None:
        """Let everything between two nodes take `ms` longer; 0 makes it fast again."""
        a, b = (CONTROLLER_ID if node == CONTROLLER else self.broker(int(node)).node_id for node in (first, second))

        def slow(_: Any) -> None:
            self.nodes.network.slow(a, b, ms)
            if both_ways:
                self.nodes.network.slow(b, a, ms)

        self._note(f"slow link {first}–{second} by {ms:g} ms", [n for n in (a, b) if n in self.brokers])
        self.call(slow)

    def heal(self) -> None:
        """The network is whole and fast again, and every replica may be in sync."""
        self._note("heal", self.brokers)

        def heal(_: Any) -> None:
            self.nodes.kept_out.clear()
            self.nodes.network.heal()

        self.call(heal)

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Have another replica lead, one that is in sync."""
        self._note(f"move the leader of {topic}-{partition} to {to}", [to], topic)
        self.call(lambda server: lead_here(server, topic, partition, to))

    def shrink_isr(self, topic: str, partition: int = 0, *, remove: Iterable[int]) -> None:
        """Take replicas out of the ISR, and keep them out until `heal()`."""
        gone = list(remove)
        self._note(f"shrink the ISR of {topic}-{partition} by {gone}", gone, topic)
        self.call(lambda server: drop_from_isr(server, topic, partition, gone))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Begin a move to other replicas; None calls a move back that is under way."""
        self._note(f"move {topic}-{partition} to {replicas}", replicas or (), topic)
        self.call(lambda server: move_replicas(server, topic, partition, replicas))

    def elect_preferred(self) -> None:
        """Give every partition back to its preferred leader, if that one is in sync."""
        self._note("elect preferred leaders", self.brokers)
        self.call(lambda server: server.controller.commit(server.controller.broker_changes.preferred()))

    def _note(self, text: str, brokers: Iterable[int], topic: str | None = None) -> None:
        event = ControlEvent(text, self._clock.now_ms(), topic)
        for number in brokers:
            if number in self.brokers:
                self.brokers[number].note(event)
