"""Requests of a broker to the controller: those that it forwards for clients, and a few of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.answers import then
from ottla.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
)
from ottla.metadata.controller import Admit, Controller, NewTopic
from ottla.metadata.image import TopicState
from ottla.multibroker.controller_link import ActiveController
from ottla.server.api import Api, Registry, RequestContext
from ottla.server.forwarding import forwarding
from ottla.server.peers import ForwardedConnection
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode


def forwarding_registry(node: BrokerNode, registry: Registry) -> Registry:
    """A registry that forwards the controller's requests."""

    def forward(api: Api, ctx: RequestContext, request: Any) -> Any:
        def at_controller(active: ActiveController) -> Any:
            services = node.broker.services.at_controller(
                active.node_id, active.controller, active.image, active.log, active.quotas
            )
            client = ForwardedConnection.of(ctx.connection, services)
            forwarded = RequestContext(
                client, ctx.api_key, ctx.version, ctx.correlation_id, ctx.client_id, ctx.request_bytes
            )
            return then(api.handler(forwarded, request), active.when_committed)

        return node.link.ask(at_controller)

    return forwarding(registry, forward)


def _no_directory(broker_id: int) -> bytes:
    return ZERO_UUID  # only the controller knows this; this broker does not place partitions


class ControllerGate(Controller):
    """The few calls to the controller that a broker makes while it serves a request."""

    def __init__(self, node: BrokerNode) -> None:
        super().__init__(
            node.broker.metadata,
            node.broker.metadata_log,
            lambda: node.broker.config,
            node.broker.chance,
            _no_directory,
        )
        self._node = node

    def _there(self) -> Controller:
        return self._node.link.controller()

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
            # For example, too few brokers for its topic, or the controller is unreachable: the client retries.
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
            raise LeaderNotAvailable  # this metadata has not arrived yet
        return known

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        return self._there().allocate_producer_ids(broker_id, broker_epoch)
