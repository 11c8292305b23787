"""The broker's part of streams groups, in addition to their coordinator: permissions, and the internal topics."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ottla.answers import Answer, then
from ottla.coordinator.groups.requests import in_answers_order
from ottla.coordinator.groups.streams.description import DescribedGroup, describe
from ottla.coordinator.groups.streams.protocol import Answer as Heard
from ottla.coordinator.groups.streams.topology import MISSING_INTERNAL_TOPICS, InternalTopic
from ottla.coordinator.groups.streams.validation import validate
from ottla.enums import AclOperation, ResourceType
from ottla.errors import (
    NONE,
    InvalidGroupId,
    KafkaError,
    StreamsInvalidTopology,
    TopicAuthorizationFailed,
    error_for,
)
from ottla.metadata.image import CLUSTER_NAME
from ottla.metadata.topics import INTERNAL_TOPICS, is_legal_topic_name
from ottla.server.api import RequestContext
from ottla.server.apis.answers import own_message
from ottla.server.apis.groups import client_of
from ottla.server.dispatch import dispatch
from ottla.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

logger = logging.getLogger(__name__)

ERRORS_NAMED_MAX = 3


def heartbeat(ctx: RequestContext, request: StreamsGroupHeartbeatRequest) -> Answer[StreamsGroupHeartbeatResponse]:
    refused = _refused_topology(ctx, request)
    if refused is not None:
        return refused
    validate(request)
    shard = ctx.services.groups.shard_for(request.group_id)
    return then(
        shard.run(shard.streams.heartbeat(request, client_of(ctx))),
        lambda heard: _with_internal_topics(ctx, request.group_id, heard),
    )


def _refused_topology(
    ctx: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | None:
    """The answer to a topology with forbidden topics, or topics that this client may not see."""
    if request.topology is None:
        return None
    names = list(dict.fromkeys(name for each in request.topology.subtopologies for name in _named_topics(each)))
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        raise StreamsInvalidTopology(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        )
    illegal = [name for name in names if not is_legal_topic_name(name)]
    if illegal:
        raise StreamsInvalidTopology(f"Topic names {','.join(illegal)} are not valid topic names.")
    if not all(ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return StreamsGroupHeartbeatResponse(error_code=TopicAuthorizationFailed.code)
    return None


def _named_topics(subtopology: Any) -> Iterable[str]:
    return (
        *subtopology.source_topics,
        *subtopology.repartition_sink_topics,
        *(topic.name for topic in subtopology.repartition_source_topics),
        *(topic.name for topic in subtopology.state_changelog_topics),
    )


# -- internal topics ---------------------------------------------------------------------------------------------------


def _with_internal_topics(ctx: RequestContext, group_id: str, heard: Heard) -> Answer[StreamsGroupHeartbeatResponse]:
    """The response. Missing topics are created before it is sent; if that fails, it contains the reason."""
    response, missing = heard
    if not missing:
        return response
    if ctx.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audit=False):
        denied = []
    else:
        denied = [name for name in missing if not ctx.may(AclOperation.CREATE, ResourceType.TOPIC, name)]
    if denied:
        _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
        return response
    errors = ctx.services.groups.shard_for(group_id).streams.topic_errors
    now_ms = ctx.services.clock.now_ms()
    for name in [name for name, (until_ms, _) in errors.items() if until_ms <= now_ms]:
        del errors[name]
    failed = {name: errors[name][1] for name in missing if name in errors}
    if failed:
        named = ", ".join(f"{name} ({text})" for name, text in list(failed.items())[:ERRORS_NAMED_MAX])
        more = len(failed) - ERRORS_NAMED_MAX
        _add_detail(response, f"Creation failed: {named}{f' and {more} more' if more > 0 else ''}.")
    wanted = [topic for name, topic in missing.items() if name not in failed]
    if not wanted:
        return response
    made = _create(ctx, wanted)
    until_ms = now_ms + 2 * response.heartbeat_interval_ms

    def told(outcome: CreateTopicsResponse) -> StreamsGroupHeartbeatResponse:
        # Kafka creates topics in the background, so the next heartbeat reports failures.
        for topic in outcome.topics:
            if topic.error_code:
                text = topic.error_message or error_for(topic.error_code).message
                logger.warning("internal topic %s of streams group %s is not created: %s", topic.name, group_id, text)
                errors[topic.name] = (until_ms, text)
        return response

    return then(made, told)


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"
            return


def _create(ctx: RequestContext, topics: Iterable[InternalTopic]) -> Answer[CreateTopicsResponse]:
    """As if the client had sent CreateTopics: the controller decides, with the client's permissions."""
    request = CreateTopicsRequest(
        timeout_ms=ctx.services.config["request.timeout.ms"],
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor or -1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
    )
    version = CreateTopicsRequest.STABLE_VERSION
    route = ctx.services.registry.route(CreateTopicsRequest.API_KEY, version)
    assert route is not None
    api = route.api
    there = RequestContext(ctx.connection, api.key, version, 0, ctx.client_id, 0)

    made: Any = dispatch(route.handler, api, there, request)
    return made  # type: ignore[no-any-return]  # a CreateTopicsResponse, or a reply that gets one


# -- descriptions of groups --------------------------------------------------------------------------------------------

_HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


def described(ctx: RequestContext, group_ids: Iterable[str], *, include_operations: bool) -> list[DescribedGroup]:
    coordinator = ctx.services.groups
    named = list(group_ids)
    groups = [
        DescribedGroup(group_id="", error_code=InvalidGroupId.code, members=[]) for group_id in named if not group_id
    ]
    for group_id in in_answers_order(coordinator, filter(None, named)):
        try:
            groups.append(describe(coordinator.shard_for(group_id), group_id))
        except KafkaError as error:
            groups.append(
                DescribedGroup(group_id=group_id, error_code=error.code, error_message=own_message(error), members=[])
            )
    for group in groups:
        if include_operations and group.error_code == NONE:
            group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
    if ctx.services.authorizer is None:
        return groups
    return [group if _may_see(ctx, group) else _hidden(group) for group in groups]


def _may_see(ctx: RequestContext, group: DescribedGroup) -> bool:
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    return all(
        ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        for each in subtopologies
        for name in _named_topics(each)
    )


def _hidden(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=TopicAuthorizationFailed.code,
        error_message=_HIDDEN_TOPICS,
        members=[],
        topology=None,
    )
