"""Guards of Produce and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from ottla.enums import AclOperation, ResourceType
from ottla.server.api import Api, RequestContext
from ottla.server.security.guards.parts import GuardAnswer, on_topic, on_topic_or_id, parted

_written = parted("topic_data", "responses", on_topic_or_id(AclOperation.WRITE))
_described = parted("topics", "topics", on_topic(AclOperation.DESCRIBE, "topic"))


def produce(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """WRITE on each topic. If the client expects no answer, its connection is closed."""
    count = len(request.topic_data)
    result = _written(api, ctx, request)
    if request.acks == 0 and len(request.topic_data) != count:
        ctx.connection.close("a produce request with acks=0 is not authorized")
    return result


def offset_for_leader_epoch(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """Followers may ask for any topic, consumers for those that they may describe."""
    if ctx.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, audit=False):
        return api.handler(ctx, request)
    return _described(api, ctx, request)
