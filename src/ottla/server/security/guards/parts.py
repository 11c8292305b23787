"""The building blocks of guards.

A guard runs before a handler. Most guards split a request: denied items get the API's error answer, the rest is
handled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from ottla.answers import Answer, then
from ottla.enums import AclOperation, ResourceType
from ottla.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.server.api import Api, RequestContext
from ottla.server.dispatch import dispatch
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message

GuardAnswer: TypeAlias = Answer[Message | None]
Guard: TypeAlias = Callable[[Api, RequestContext, Any], GuardAnswer]

Allowed = Callable[[RequestContext, Any], bool]
"""Whether the sender has permission for an item of a list."""

DENIED: dict[int, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}
"""The error of a denied operation, by the kind of its resource."""


def need(ctx: RequestContext, operation: AclOperation, kind: ResourceType, name: str) -> None:
    """Refuse the whole request if the sender may not do this with a resource."""
    if not ctx.may(operation, kind, name):
        raise DENIED[kind]()


def handled(api: Api, ctx: RequestContext, request: Any, finish: Callable[[Any], None]) -> GuardAnswer:
    """Call the handler and correct its answer, now or when it arrives."""

    def finished(response: Message | None) -> Message | None:
        if response is not None:
            finish(response)
        return response

    return then(dispatch(api.handler, api, ctx, request), finished)


def parted(
    items_of: str, answers_of: str, allowed: Allowed, error: Callable[[], KafkaError] = TopicAuthorizationFailed
) -> Guard:
    """A guard that removes denied items from a list of the request and adds their errors to the response."""

    def guard(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
        items = getattr(request, items_of)
        kept: list[Any] = []
        denied_items: list[Any] = []
        for item in items:
            (kept if allowed(ctx, item) else denied_items).append(item)
        if not denied_items:
            return api.handler(ctx, request)
        refused = copy.copy(request)
        setattr(refused, items_of, denied_items)
        setattr(request, items_of, kept)
        denied = getattr(api.on_error(ctx, refused, error()), answers_of)
        return handled(api, ctx, request, lambda response: getattr(response, answers_of).extend(denied))

    return guard


def topic_name(ctx: RequestContext, topic: Any) -> str | None:
    """The name of a topic given by name or id; None for an unknown id."""
    if topic.topic_id == ZERO_UUID:
        return topic.name  # type: ignore[no-any-return]
    known = ctx.services.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else None


def on_topic(operation: AclOperation, field: str = "name") -> Allowed:
    """Whether the sender may do this with the topic that an item names in `field`."""
    return lambda ctx, topic: ctx.may(operation, ResourceType.TOPIC, getattr(topic, field))


def on_topic_or_id(operation: AclOperation) -> Allowed:
    """The same for topics that have a name or an id. The handler reports an unknown id."""

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        name = topic_name(ctx, topic)
        return name is None or ctx.may(operation, ResourceType.TOPIC, name)

    return allowed
