"""The channel between the brokers of a cluster in one process: requests over the simulated network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.multibroker.controller import CONTROLLER_ID
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode


class NetworkChannel:
    """The channel from one broker to the others and to the controller. A broker that is gone gets no answer."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def send(self, broker_id: int, request: Message, *, at_once: bool = False) -> Reply[Any]:
        node = self._node
        reply: Reply[Any] = Reply()

        def serve() -> object:
            return node.peer_server(broker_id).serve(node.node_id, request, request.MAX_VERSION)

        def received(response: object, error: Exception | None) -> None:
            if not node.is_alive:
                return
            if error is not None:
                reply.fail(error)
            else:
                reply.resolve(response)

        if broker_id == CONTROLLER_ID:
            node.link.call(lambda active: active.when_committed(active.duties.serve(request)), received)
        else:
            node.network.ask(node.node_id, broker_id, serve, received)
        return reply
