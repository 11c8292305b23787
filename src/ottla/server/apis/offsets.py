"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.answers import Answer, attempt, gather, in_slices, then
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.offsets.offsets import FIRST_TOPIC_ID_VERSION, NO_OFFSET, refused_commit
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import GroupAuthorizationFailed, KafkaError, NotCoordinator, TopicAuthorizationFailed
from ottla.server.api import ChecksItself, GuardedBy, OnEach, OnGroup, Repeated, RequestContext, Route, handles
from ottla.server.apis.answers import Unknown
from ottla.server.apis.commit_repeated import RepeatedCommit
from ottla.server.apis.groups import client_of
from ottla.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

FIRST_MULTI_GROUP_VERSION = 8
FIRST_TOP_LEVEL_ERROR_VERSION = 2

# For the authorizer: kinds of resources, and the operation that reads offsets.

_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_CommittedPartition = OffsetCommitResponse.OffsetCommitResponsePartition


def _commit_error(ctx: RequestContext, request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return refused_commit(request, error.code)


def _model(
    ctx: RequestContext,
    route: Route,
    frame: memoryview,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    answer: bytes,
    last: Repeated | None,
) -> Repeated | None:
    """The template for the connection's next request; only if no guard runs before this handler."""
    if route.handler is not offset_commit or ctx.services.authorizer is not None:
        return None
    if not isinstance(last, RepeatedCommit) or not last.is_like(ctx.version, frame, request):
        return RepeatedCommit(ctx.version, frame, request)
    last.learn(ctx.services, route, frame, request, client_of(ctx), response, answer)
    return last


@handles(
    OffsetCommitRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[OnGroup(AclOperation.READ), OnEach(AclOperation.READ, ResourceType.TOPIC, "topics", by_id=True)],
    on_error=_commit_error,
    model=_model,
)
def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    """v0–v10. v0–v1, which 4.0 dropped, are stored like the rest; v2–v4 have their own retention; v9 members of the
    consumer protocol; v10 topics by id."""
    unknown = Unknown(_CommittedTopic, _CommittedPartition, by_id=ctx.version >= FIRST_TOPIC_ID_VERSION)
    request.topics = unknown.set_apart(ctx.services.metadata, request.topics)
    if not request.topics:
        return OffsetCommitResponse(topics=list(unknown.topics.values()))
    if not unknown.topics:
        return _commit(ctx, request)
    return unknown.beside(lambda: _commit(ctx, request), lambda error: _commit_error(ctx, request, error))


def _commit(ctx: RequestContext, request: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    return requests.commit_offsets(ctx.services.groups, request, client_of(ctx))


def _fetch_error(ctx: RequestContext, request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    if ctx.version >= FIRST_MULTI_GROUP_VERSION:
        return OffsetFetchResponse(groups=[_failed(group.group_id, error) for group in request.groups])
    return _older_shape(ctx, request, _failed(request.group_id, error))


@handles(
    OffsetFetchRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=ChecksItself("DESCRIBE on the group and on each topic"),
    on_error=_fetch_error,
)
def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> Answer[OffsetFetchResponse]:
    """v0–v10. v2 all topics of a group; v7 require-stable (KIP-447); v8 many groups (KIP-709); v10 topics by id."""
    if ctx.version < FIRST_MULTI_GROUP_VERSION:
        return _fetch_one(ctx, request)
    by_id = ctx.version >= FIRST_TOPIC_ID_VERSION

    def fetched(groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup]) -> list[Answer[_Group]]:
        return [_fetch(ctx, group, by_id, request.require_stable) for group in groups]

    return then(
        then(in_slices(request.groups, requests.DESCRIBED_AT_A_TIME, fetched), gather),
        lambda groups: OffsetFetchResponse(groups=groups),
    )


def _failed(group_id: str, error: KafkaError) -> _Group:
    return _Group(group_id=group_id, topics=[], error_code=error.code)


def _fetch(
    ctx: RequestContext, group: OffsetFetchRequest.OffsetFetchRequestGroup, by_id: bool, require_stable: bool
) -> Answer[_Group]:
    try:
        if ctx.services.authorizer is not None:
            found = _fetch_allowed(ctx, group, by_id, require_stable)
        else:
            found = requests.fetch_offsets(ctx.services.groups, group, by_id=by_id, require_stable=require_stable)
    except KafkaError as error:
        return _failed(group.group_id, error)
    # The commit took too long: Kafka makes its clients look for the coordinator again, which old clients can do.
    return attempt(lambda: found, lambda _: _failed(group.group_id, NotCoordinator()))


def _fetch_allowed(
    ctx: RequestContext, group: OffsetFetchRequest.OffsetFetchRequestGroup, by_id: bool, require_stable: bool
) -> Answer[_Group]:
    """With an authorizer: only groups and topics that the client may describe; others are refused if named."""
    if not ctx.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
        raise GroupAuthorizationFailed()
    names = ctx.services.metadata.topics_by_id

    def allowed(
        topic: OffsetFetchRequest.OffsetFetchRequestTopics | OffsetFetchResponse.OffsetFetchResponseTopics,
    ) -> bool:
        name = topic.name
        if by_id:
            known = names.get(topic.topic_id)
            if known is None:
                return True  # an unknown id: the look-up of its offsets reports it
            name = known.name
        return ctx.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, audit=group.topics is not None)

    refused = []
    if group.topics is not None:
        refused = [topic for topic in group.topics if not allowed(topic)]
        group.topics = [topic for topic in group.topics if allowed(topic)]
    denied = [
        OffsetFetchResponse.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=TopicAuthorizationFailed.code,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in refused
    ]

    def shown(found: _Group) -> _Group:
        found.topics = [topic for topic in found.topics if allowed(topic)] + denied
        return found

    return requests.fetch_offsets(ctx.services.groups, group, by_id=by_id, require_stable=require_stable, shown=shown)


def _fetch_one(ctx: RequestContext, request: OffsetFetchRequest) -> Answer[OffsetFetchResponse]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if request.topics is None
        else [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ],
    )
    return then(_fetch(ctx, asked, False, request.require_stable), lambda group: _older_shape(ctx, request, group))


def _older_shape(ctx: RequestContext, request: OffsetFetchRequest, found: _Group) -> OffsetFetchResponse:
    """The answer for one group; before v2 only partitions have errors."""
    if found.error_code and ctx.version < FIRST_TOP_LEVEL_ERROR_VERSION:
        topics = [
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=found.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


@handles(
    OffsetDeleteRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[OnGroup(AclOperation.DELETE), GuardedBy("groups.offset_delete", "READ on each topic")],
)
def offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> Answer[OffsetDeleteResponse]:
    """v0 (KIP-496). Topics that the group reads are refused."""
    unknown = Unknown(
        OffsetDeleteResponse.OffsetDeleteResponseTopic, OffsetDeleteResponse.OffsetDeleteResponsePartition
    )
    request.topics = unknown.set_apart(ctx.services.metadata, request.topics)

    def delete() -> Answer[OffsetDeleteResponse]:
        return requests.delete_offsets(ctx.services.groups, request)

    def refuse(error: KafkaError) -> OffsetDeleteResponse:
        raise error  # an error of the group applies to all

    return unknown.beside(delete, refuse)
