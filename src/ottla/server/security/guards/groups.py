"""Guards of OffsetDelete, ListGroups and of the heartbeats and descriptions of the newer group protocols."""

from __future__ import annotations

from typing import Any

from ottla.enums import AclOperation, ResourceType
from ottla.errors import TopicAuthorizationFailed
from ottla.server.api import Api, RequestContext
from ottla.server.security.guards.parts import GuardAnswer, handled, need

_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def offset_delete(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """READ on each topic; a denied topic has an error for each partition, which the API's error answer cannot
    express.
    """
    response_type: Any = api.response
    kept, denied = [], []
    for topic in request.topics:
        if ctx.may(AclOperation.READ, ResourceType.TOPIC, topic.name):
            kept.append(topic)
            continue
        refused = [
            response_type.OffsetDeleteResponsePartition(
                partition_index=wanted.partition_index, error_code=TopicAuthorizationFailed.code
            )
            for wanted in topic.partitions
        ]
        denied.append(response_type.OffsetDeleteResponseTopic(name=topic.name, partitions=refused))
    request.topics = kept

    def add_denied(response: Any) -> None:
        if not response.error_code:  # an error of the group is the only error, as in Kafka
            response.topics.extend(denied)

    return handled(api, ctx, request, add_denied)


def subscribed_topics(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """One topic that a member may not describe fails its whole heartbeat."""
    for name in request.subscribed_topic_names or ():
        need(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    return api.handler(ctx, request)


def described_topics(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """A group is shown to clients that may describe all its topics."""

    def hide(response: Any) -> None:
        for group in response.groups:
            names = {name for member in group.members for name in member.subscribed_topic_names}
            for member in group.members:
                for assignment in (member.assignment, getattr(member, "target_assignment", None)):
                    if assignment is not None:
                        names.update(part.topic_name for part in assignment.topic_partitions)
            if not all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
                group.error_code = TopicAuthorizationFailed.code
                group.error_message = _HIDDEN_TOPICS
                group.members = []

    return handled(api, ctx, request, hide)


def list_groups(api: Api, ctx: RequestContext, request: Any) -> GuardAnswer:
    """Clients that may describe the cluster see all groups."""
    if ctx.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, audit=False):
        return api.handler(ctx, request)

    def hide(response: Any) -> None:
        response.groups = [
            group
            for group in response.groups
            if ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, audit=False)
        ]

    return handled(api, ctx, request, hide)
