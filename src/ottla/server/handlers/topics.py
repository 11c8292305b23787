"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from collections import Counter

from ottla.cluster.controller import NewTopic
from ottla.cluster.metadata import TopicState
from ottla.cluster.topics import CLUSTER_METADATA_TOPIC
from ottla.errors import (
    InvalidRequest,
    KafkaError,
    TopicDeletionDisabled,
    UnknownTopicId,
)
from ottla.server.api import RequestContext, handles
from ottla.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.wire.primitives import ZERO_UUID

Result = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult


def _create_error(ctx: RequestContext, request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in request.topics])


@handles(CreateTopicsRequest, on_error=_create_error)
def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """v0–v7. v1 validate only; v4 broker defaults for counts (KIP-464); v5 returns the topic's configs (KIP-525);
    v7 returns its id.

    The topics are ready to be written when the answer is sent, so that `timeout_ms` has nothing to wait for.
    """
    response = CreateTopicsResponse()
    counts = Counter(topic.name for topic in request.topics)
    wanted = []
    for name, count in counts.items():
        if count > 1:
            response.topics.append(_refused(name, InvalidRequest("Duplicate topic name.")))
        elif name == CLUSTER_METADATA_TOPIC:
            prohibited = InvalidRequest(f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
            response.topics.append(_refused(name, prohibited))
    for topic in request.topics:
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC:
            wanted.append(_new_topic(topic))
    outcomes = ctx.broker.controller.create_topics(wanted, validate_only=request.validate_only)
    for new, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            response.topics.append(_refused(new.name, outcome))
        else:
            response.topics.append(_created(ctx, outcome, new, request.validate_only))
    return response


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments}
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        duplicate_assignment=len(assignments) != len(topic.assignments),
        configs={config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: KafkaError) -> Result:
    return Result(name=name, error_code=error.code, error_message=error.message)


def _created(ctx: RequestContext, topic: TopicState, new: NewTopic, validate_only: bool) -> Result:
    result = Result(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else topic.topic_id,
        error_code=0,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
    )
    if ctx.version >= 5:
        overrides = {name: value for name, value in new.configs.items() if value is not None}
        result.configs = [
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in ctx.broker.config.describe("topic", overrides)
        ]
    return result


def _delete_error(ctx: RequestContext, request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            Deleted(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in _named(ctx, request)
        ]
    )


def _named(ctx: RequestContext, request: DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    if ctx.version >= 6:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, ZERO_UUID) for name in request.topic_names]


@handles(DeleteTopicsRequest, on_error=_delete_error)
def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """v0–v6. v5 error messages; v6 topics by id (KIP-516)."""
    if not ctx.broker.config["delete.topic.enable"]:
        raise TopicDeletionDisabled() if ctx.version >= 3 else InvalidRequest("Topic deletion is disabled.")
    named = _named(ctx, request)
    names = Counter(name for name, _ in named if name is not None)
    ids = Counter(topic_id for _, topic_id in named if topic_id != ZERO_UUID)
    response = DeleteTopicsResponse()
    seen: set[str | bytes] = set()
    for name, topic_id in named:
        key = name if name is not None else topic_id
        if key in seen:
            continue
        seen.add(key)
        try:
            if name is not None and topic_id != ZERO_UUID:
                raise InvalidRequest("You may not specify both topic name and topic id.")
            if name is None and topic_id == ZERO_UUID:
                raise InvalidRequest("Neither topic name nor id were specified.")
            if name is not None and names[name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            if ids[topic_id] > 1:
                raise InvalidRequest("Duplicate topic id.")
            response.responses.append(_delete(ctx, name, topic_id))
        except KafkaError as error:
            shown = None if isinstance(error, UnknownTopicId) else name
            response.responses.append(
                Deleted(name=shown, topic_id=topic_id, error_code=error.code, error_message=error.message)
            )
    return response


def _delete(ctx: RequestContext, name: str | None, topic_id: bytes) -> Deleted:
    controller = ctx.broker.controller
    topic = controller.delete_topic(name=name) if name is not None else controller.delete_topic(topic_id=topic_id)
    return Deleted(name=topic.name, topic_id=topic.topic_id, error_code=0)
