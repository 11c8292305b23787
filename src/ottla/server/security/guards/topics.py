"""Guards of Metadata, DescribeTopicPartitions, CreateTopics and DeleteTopics."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.enums import AclOperation, ResourceType
from ottla.errors import NONE, TopicAuthorizationFailed
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.server.api import Api, RequestContext
from ottla.server.security.guards.parts import GuardAnswer, handled, on_topic, parted, topic_name
from ottla.wire.primitives import ZERO_UUID


def _may_see(ctx: RequestContext, name: str) -> bool:
    return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=False)


def _may_create(ctx: RequestContext, name: str) -> bool:
    if ctx.may(AclOperation.CREATE, ResourceType.CLUSTER, audit=False):
        return True
    return ctx.may(AclOperation.CREATE, ResourceType.TOPIC, name)


def metadata(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """Topics that the sender may not describe are left out of a list of all, and refused if named."""
    topic = api.request.MetadataRequestTopic  # type: ignore[attr-defined]
    names = ctx.services.metadata.topics
    if request.topics is None or (ctx.version == 0 and not request.topics):
        seen = [name for name in names if _may_see(ctx, name)]
        request.topics = [topic(name=name) for name in seen]
        if seen or ctx.version > 0:
            return api.handler(ctx, request)
        request.topics = [topic(name="")]  # in v0 an empty list means all topics
        return handled(api, ctx, request, lambda response: response.topics.clear())
    creates = request.allow_auto_topic_creation or ctx.version < 4
    creates = creates and ctx.services.config["auto.create.topics.enable"]
    result = api.response.MetadataResponseTopic  # type: ignore[attr-defined]
    kept, denied = [], []
    for wanted in request.topics:
        name = topic_name(ctx, wanted)
        if name is None:
            kept.append(wanted)
        elif not ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            by_id = wanted.topic_id != ZERO_UUID
            denied.append(
                result(error_code=TopicAuthorizationFailed.code, name=None if by_id else name, topic_id=wanted.topic_id)
            )
        elif creates and name not in names and not _may_create(ctx, name):
            denied.append(result(error_code=TopicAuthorizationFailed.code, name=name))
        else:
            kept.append(wanted)
    request.topics = kept
    if not denied:
        return api.handler(ctx, request)
    if not kept and ctx.version == 0:
        request.topics = [topic(name="")]

        def only_denied(response: Any) -> None:
            response.topics = denied

        return handled(api, ctx, request, only_denied)
    return handled(api, ctx, request, lambda response: response.topics.extend(denied))


_named_topics = parted("topics", "topics", on_topic(AclOperation.DESCRIBE))


def describe_topic_partitions(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """DESCRIBE on each named topic; without names, all that the sender may describe are listed."""
    if request.topics:
        if any(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name) for topic in request.topics):
            return _named_topics(api, ctx, request)
        # No topic is left, and the handler would treat an empty list as all topics.
        return api.on_error(ctx, request, TopicAuthorizationFailed())
    topic = api.request.TopicRequest  # type: ignore[attr-defined]
    cursor = request.cursor
    names = sorted(name for name in ctx.services.metadata.topics if _may_see(ctx, name))
    if cursor is not None and cursor.partition_index >= 0:
        names = [name for name in names if name >= cursor.topic_name]
        if cursor.topic_name not in names:
            request.cursor = None
    if not names:
        return api.response()
    request.topics = [topic(name=name) for name in names]
    return api.handler(ctx, request)


def create_topics(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """CREATE on the cluster or on the topic. An invalid topic gets its own error instead."""
    counts = Counter(topic.name for topic in request.topics)

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        is_refused_anyway = counts[topic.name] > 1 or topic.name == CLUSTER_METADATA_TOPIC
        return is_refused_anyway or _may_create(ctx, topic.name)

    guard = parted("topics", "topics", allowed, lambda: TopicAuthorizationFailed("Authorization failed."))
    return guard(api, ctx, request)


def created_configs(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """The settings of a new topic are shown to clients that may describe them."""

    def hide(response: Any) -> None:
        for made in response.topics:
            if made.error_code != NONE:
                continue
            if not ctx.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, made.name, audit=False):
                made.topic_config_error_code = TopicAuthorizationFailed.code
                made.configs = None
                made.num_partitions = made.replication_factor = -1

    return handled(api, ctx, request, hide)


_deleted_by_name = parted(
    "topic_names", "responses", lambda ctx, name: ctx.may(AclOperation.DELETE, ResourceType.TOPIC, name)
)


def delete_topics(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """DELETE on the cluster or on each topic; for a topic given by its id, DESCRIBE as well."""
    if ctx.may(AclOperation.DELETE, ResourceType.CLUSTER, audit=False):
        return api.handler(ctx, request)
    if ctx.version < 6:
        return _deleted_by_name(api, ctx, request)

    def allowed(ctx: RequestContext, topic: Any) -> bool:
        if topic.name is not None:
            is_refused_anyway = topic.topic_id != ZERO_UUID
            return is_refused_anyway or ctx.may(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        known = ctx.services.metadata.topics_by_id.get(topic.topic_id)
        if known is None:
            return True
        needed = (AclOperation.DESCRIBE, AclOperation.DELETE)
        return all(ctx.may(operation, ResourceType.TOPIC, known.name) for operation in needed)

    return parted("topics", "responses", allowed)(api, ctx, request)


def deleted_names(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """A denied topic given by its id is named in the answer if the client may describe it."""

    def show(response: Any) -> None:
        for deleted in response.responses:
            known = ctx.services.metadata.topics_by_id.get(deleted.topic_id)
            if deleted.error_code == TopicAuthorizationFailed.code and deleted.name is None and known is not None:
                deleted.name = known.name if _may_see(ctx, known.name) else None

    return handled(api, ctx, request, show)
