"""A cluster that grows and shrinks while it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import KafkaError
from ottla.metadata.draining import drain_moves, still_on
from ottla.multibroker.cluster_options import BROKERS_MAX
from ottla.multibroker.partition_moves import move_replicas

if TYPE_CHECKING:
    from ottla.multibroker.cluster_broker import ClusterBroker
    from ottla.multibroker.cluster_controllers import ClusterController
    from ottla.multibroker.cluster_nodes import ClusterNodes
    from ottla.multibroker.cluster_options import Configs
    from ottla.multibroker.cluster_view import ClusterServer

T = TypeVar("T")

Progress = Callable[[int, int], object]
"""Called with the number of partitions moved so far, and the total."""


class Growth:
    """The methods of `ottla.Cluster` that change the number of brokers."""

    if TYPE_CHECKING:  # provided by the cluster
        nodes: ClusterNodes
        brokers: dict[int, ClusterBroker]
        controllers: dict[str, ClusterController]
        _configs: Configs

        def broker(self, broker_id: int) -> ClusterBroker: ...
        def call(self, work: Callable[[ClusterServer], T]) -> T: ...
        def _do(self, work: Coroutine[Any, Any, T], timeout: float = 0.0) -> Any: ...
        def _note(self, text: str, nodes: Any, topic: str | None = None) -> None: ...
        def _new_broker(self, number: int) -> ClusterBroker: ...
        async def _wait_until(self, holds: Callable[[Any], bool], timeout: float) -> None: ...

    def add_broker(
        self, broker_id: int | None = None, *, rack: str | None = None, settings: Mapping[str, object] | None = None
    ) -> Any:
        """Start one more broker and return its id: by default the next free one.

        It has the settings of the others, its own rack, and ports after theirs. Clients see it in the metadata. New
        topics use it; move partitions to it with `reassign`.
        """
        number = max(self.brokers, default=0) + 1 if broker_id is None else broker_id
        if number in self.brokers:
            raise ValueError(f"there is a broker {number} already")
        if number < 1 or len(self.brokers) >= BROKERS_MAX:
            raise ValueError(
                f"broker {number} cannot be added: ids begin at 1, and a cluster has at most {BROKERS_MAX}"
            )
        self._configs.add(number, rack, settings)
        broker = self.brokers[number] = self._new_broker(number)

        async def start() -> int:
            try:
                await broker.start()
            except BaseException:
                del self.brokers[number]
                raise
            return number

        self._note(f"add broker {number}", self.brokers)
        return self._do(start())

    def drain(
        self, broker_id: int, *, wait: bool = True, timeout: float = 60.0, on_progress: Progress | None = None
    ) -> Any:
        """Move every replica of a broker to other brokers.

        The broker stays, without replicas. If all other brokers already have a replica of a partition, that partition
        ends up with one replica fewer. Without `wait`, this returns when the moves have started.
        """
        self.broker(broker_id)
        self._note(f"drain {broker_id}", self.brokers)
        return self._do(self._drain(broker_id, wait, timeout, on_progress), timeout)

    async def _drain(self, broker_id: int, wait: bool, timeout: float, on_progress: Progress | None) -> None:
        def begin(server: ClusterServer) -> int:
            try:
                moves = list(drain_moves(server.metadata, broker_id))
            except KafkaError as error:
                raise ValueError(error.message) from error
            for move in moves:
                move_replicas(server, move.topic, move.partition, move.replicas)
            return still_on(server.metadata, broker_id)

        total = max(self.call(begin), 0)
        shown = -1

        def is_empty(_: Any) -> bool:
            nonlocal shown
            left = still_on(self.nodes.controller.image, broker_id)
            if on_progress is not None and total - left != shown:
                shown = total - left
                on_progress(shown, total)
            return left == 0

        if wait:
            await self._wait_until(is_empty, timeout)

    def remove_broker(self, broker_id: int, *, timeout: float = 60.0, on_progress: Progress | None = None) -> Any:
        """Drain a broker, stop it and unregister it. Its data stays on the disk."""
        broker = self.broker(broker_id)
        if len(self.brokers) == 1:
            raise ValueError("the last broker of a cluster cannot be removed")
        if any(controller.node_id == broker_id for controller in self.controllers.values()):
            raise ValueError(f"node {broker_id} is a controller, too, and cannot be removed; drain it instead")

        async def remove() -> None:
            if broker.is_running:
                await self._drain(broker_id, True, timeout, on_progress)
                await broker.stop()
            self.call(_unregister(broker_id))
            del self.brokers[broker_id]
            self.nodes.brokers.pop(broker_id, None)

        self._note(f"remove broker {broker_id}", self.brokers)
        return self._do(remove(), timeout)


def _unregister(broker_id: int) -> Callable[[ClusterServer], None]:
    def unregister(server: ClusterServer) -> None:
        if broker_id in server.metadata.brokers:
            server.controller.commit(server.controller.broker_changes.unregistered(broker_id))

    return unregister
