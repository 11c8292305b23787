"""The channel between the brokers of a cluster in one process: requests over the simulated network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.multibroker.controller import CONTROLLER_ID
from ottla.server.peers import Answered
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode


class NetworkChannel:
    """From one broker to the others, and to the controller. A broker that is gone hears no answer."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def send(self, broker_id: int, request: Message, answered: Answered, *, at_once: bool = False) -> None:
        node = self._node

        def serve() -> object:
            if broker_id == CONTROLLER_ID:
                return node.controller_node.serve(node.node_id, request)
            return node.peer(broker_id).broker.peer_server.serve(node.node_id, request, request.MAX_VERSION)

        def received(response: object, error: Exception | None) -> None:
            if node.is_alive:
                answered(response, error)

        node.network.ask(node.node_id, broker_id, serve, received)
