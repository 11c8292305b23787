"""The controller as a broker of the cluster reaches it: forwarded requests, and the few things it asks for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.answers import started
from ottla.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    RequestTimedOut,
    TopicAlreadyExists,
)
from ottla.metadata.controller import Admit, Controller, NewTopic
from ottla.metadata.image import TopicState
from ottla.multibroker.controller import CONTROLLER_ID, ControllerNode
from ottla.server.api import Api, Registry, RequestContext
from ottla.server.forwarding import forwarding
from ottla.server.peers import ForwardedConnection, Unreachable
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode


def forwarding_registry(node: BrokerNode, registry: Registry) -> Registry:
    """A registry whose requests for the controller are answered by what the controller knows."""

    def at_controller(api: Api, ctx: RequestContext, request: Any) -> Any:
        controller = node.controller_node
        services = node.broker.services.at_controller(
            CONTROLLER_ID, controller.controller, controller.image, controller.log, controller.quotas
        )
        client = ForwardedConnection.of(ctx.connection, services)
        return api.handler(
            RequestContext(client, ctx.api_key, ctx.version, ctx.correlation_id, ctx.client_id, ctx.request_bytes),
            request,
        )

    async def over_network(api: Api, ctx: RequestContext, request: Any) -> Any:
        try:
            return await node.network.call(node.node_id, CONTROLLER_ID, lambda: at_controller(api, ctx, request))
        except Unreachable:
            raise RequestTimedOut from None

    def forward(api: Api, ctx: RequestContext, request: Any) -> Any:
        if node.network.is_direct(node.node_id, CONTROLLER_ID):
            return at_controller(api, ctx, request)
        return started(over_network(api, ctx, request))

    return forwarding(registry, forward)


class ControllerGate(Controller):
    """The controller for the few things that a broker wants of it while it serves something else."""

    def __init__(self, node: BrokerNode, remote: ControllerNode) -> None:
        super().__init__(
            node.broker.metadata, remote, lambda: node.broker.config, node.broker.chance, remote.directory_of
        )
        self._node = node
        self._remote = remote

    def _there(self) -> Controller:
        if not self._node.network.reaches(self._node.node_id, CONTROLLER_ID):
            raise RequestTimedOut
        return self._remote.controller

    def commit(self, records: Sequence[Message]) -> None:
        self._there().commit(records)

    def create_topics(
        self, wanted: Sequence[NewTopic], validate_only: bool = False, admit: Admit | None = None
    ) -> list[TopicState | KafkaError]:
        return self._there().create_topics(wanted, validate_only, admit)

    def create_partitions(
        self,
        wanted: Iterable[tuple[str, int, list[list[int]] | None]],
        validate_only: bool = False,
        admit: Admit | None = None,
    ) -> list[KafkaError | None]:
        return self._there().create_partitions(wanted, validate_only, admit)

    def delete_topics(self, topics: Iterable[TopicState]) -> None:
        self._there().delete_topics(topics)

    def create_internal_topic(self, name: str) -> TopicState:
        try:
            return self._made(name, lambda there: there.create_internal_topic(name))
        except KafkaError:
            # Too few brokers for its topic, say, or the controller cannot be reached: the client tries again.
            raise CoordinatorNotAvailable from None

    def auto_create_topic(self, name: str) -> TopicState:
        return self._made(name, lambda there: there.auto_create_topic(name))

    def _made(self, name: str, make: Callable[[Controller], object]) -> TopicState:
        known = self.image.topics.get(name)
        if known is None:
            with suppress(TopicAlreadyExists):
                make(self._there())
            known = self.image.topics.get(name)
        if known is None:
            raise LeaderNotAvailable  # the metadata that says so has not arrived yet
        return known

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        return self._there().allocate_producer_ids(broker_id, broker_epoch)
