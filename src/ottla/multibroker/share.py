"""Share groups across brokers: the share coordinator of a share partition may be another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.server.share.state import ShareStates
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.broker import NodeBroker


class ShareStatesOfNode(ShareStates):
    def __init__(self, node: NodeBroker) -> None:
        self._node = node
        super().__init__(node)

    def send(self, broker_id: int, request: Message, version: int, answered: Callable[[Any], None]) -> None:
        node = self._node

        def told(response: Any, error: Exception | None) -> None:
            if node.is_alive:
                answered(response)

        node.network.ask(
            node.node_id, broker_id, lambda: node.peer(broker_id).serve_peer(node.node_id, request, version), told
        )
