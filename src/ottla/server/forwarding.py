"""Requests that the controller answers, forwarded by the broker that got them (Kafka's Envelope, KIP-590).

A broker that is its own controller forwards nothing. Brokers of a cluster and workers define how a request reaches
their controller; the handlers declare which requests go there (`AnsweredBy.CONTROLLER`, `may_create_topics`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, then
from ottla.enums import AnsweredBy, ApiKey, ConfigResourceType
from ottla.server.api import Api, Handler, Registry, RequestContext
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.wire.messages import IncrementalAlterConfigsRequest

Forward = Callable[[Api, RequestContext, Any], Answer[Message | None]]
"""Forwards a client's request to the controller."""


def forwarding(registry: Registry, forward: Forward, creating: MetadataImage | None = None) -> Registry:
    """The same APIs, with `forward` for those that the controller answers.

    Pass `creating`, the broker's metadata, if requests that may create a topic must be forwarded too.
    """

    def wrap(api: Api) -> Handler:
        def forwarded(ctx: RequestContext, request: Any) -> Answer[Message | None]:
            return forward(api, ctx, request)

        if api.key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return _with_own_loggers(api.handler, forwarded)
        if api.answered_by is AnsweredBy.CONTROLLER:
            return forwarded
        if creating is None or api.may_create_topics is None:
            return api.handler
        return if_it_may_create(api, creating, forwarded)

    return registry.wrapped(wrap)


def if_it_may_create(api: Api, image: MetadataImage, handler: Handler) -> Handler:
    """`handler` for requests that may create a topic, the API's own handler for all others."""
    may_create = api.may_create_topics
    assert may_create is not None

    def chosen(ctx: RequestContext, request: Any) -> Answer[Message | None]:
        return (handler if may_create(image, request) else api.handler)(ctx, request)

    return chosen


def _with_own_loggers(local: Handler, forwarded: Handler) -> Handler:
    """The log levels of a broker are set in its own process; everything else in the request goes to the controller."""

    def handler(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> Any:
        resources = request.resources
        own = [resource for resource in resources if resource.resource_type == ConfigResourceType.BROKER_LOGGER]
        if not own:
            return forwarded(ctx, request)
        request.resources = own
        answer = local(ctx, request)
        request.resources = [
            resource for resource in resources if resource.resource_type != ConfigResourceType.BROKER_LOGGER
        ]
        return then(forwarded(ctx, request), lambda others: joined(answer, others)) if request.resources else answer

    def joined(answer: Any, others: Any) -> Any:
        answer.responses += others.responses
        return answer

    return handler
