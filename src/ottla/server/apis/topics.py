"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from ottla.config import Config
from ottla.enums import AnsweredBy
from ottla.errors import (
    NONE,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.metadata.controller import NewTopic
from ottla.metadata.image import TopicState
from ottla.metadata.java_hash_order import java_names
from ottla.metadata.topics import CLUSTER_METADATA_TOPIC
from ottla.server.api import GuardedBy, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.wire.primitives import ZERO_UUID

Result = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult

FIRST_STRICT_CREATION, FIRST_STRICT_DELETION = 6, 5
"""Versions since which a quota refuses requests; clients of older versions only have to wait (KIP-599)."""


def _create_error(ctx: RequestContext, request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in request.topics])


@handles(
    CreateTopicsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=[
        GuardedBy("topics.create_topics", "CREATE on the cluster or on each topic"),
        GuardedBy("topics.created_configs", "DESCRIBE_CONFIGS to see their settings"),
    ],
    on_error=_create_error,
)
def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """v0–v7. v1 validate only; v4 broker defaults for counts (KIP-464); v5 returns the topic's configs (KIP-525);
    v7 returns its id.

    The topics are ready when the answer is sent, so only a timeout of 0 can expire.
    """
    counts = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0 and 1 in counts.values():
        raise RequestTimedOut()  # duplicates are refused without the controller
    wanted = [
        _new_topic(topic)
        for topic in request.topics
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC
    ]
    quota = ctx.mutations(strict=ctx.version >= FIRST_STRICT_CREATION)
    outcomes = ctx.services.controller.create_topics(
        wanted, validate_only=request.validate_only, admit=None if quota is None else quota.admit
    )
    response = CreateTopicsResponse(throttle_time_ms=0 if quota is None else quota.throttle_ms)
    for new, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            response.topics.append(_refused(new.name, outcome))
        else:
            response.topics.append(_created(ctx, outcome, new))
    response.topics += [_refused(name, InvalidRequest("Duplicate topic name.")) for name in _repeated(request, counts)]
    if counts[CLUSTER_METADATA_TOPIC] == 1:
        prohibited = InvalidRequest(f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
        response.topics.append(_refused(CLUSTER_METADATA_TOPIC, prohibited))
    return response


def _repeated(request: CreateTopicsRequest, counts: Counter[str]) -> list[str]:
    """The names that appear more than once, in the order of Kafka's hash set."""
    if len(counts) == len(request.topics):
        return []
    seen: set[str] = set()
    again: dict[str, None] = {}
    for topic in request.topics:
        if topic.name in seen:
            again[topic.name] = None
        seen.add(topic.name)
    return java_names(again)


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _refused(name: str, error: KafkaError) -> Result:
    return Result(name=name, error_code=error.code, error_message=own_message(error))


def _created(ctx: RequestContext, topic: TopicState, new: NewTopic) -> Result:
    result = Result(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
    )
    if ctx.version >= 5:
        overrides = tuple((name, value) for name, value in new.configs.items() if value is not None)
        result.configs = _topic_configs(ctx.services.config, overrides)
    return result


@lru_cache(maxsize=64)
def _topic_configs(
    config: Config, overrides: tuple[tuple[str, str], ...]
) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """The configs of a new topic.

    Most topics have the same configs, and describing them costs more than creating the topic. Given values are returned
    exactly as they were sent, including spaces.
    """
    given = dict(overrides)
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=given.get(entry.name, entry.value),
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in config.describe("topic", given)
    ]


def _delete_error(ctx: RequestContext, request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            Deleted(name=name, topic_id=topic_id, error_code=error.code, error_message=own_message(error))
            for name, topic_id in _named(ctx, request)
        ]
    )


def _named(ctx: RequestContext, request: DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    if ctx.version >= 6:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, ZERO_UUID) for name in request.topic_names]


@handles(
    DeleteTopicsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=[
        GuardedBy("topics.deleted_names", "DESCRIBE to see the name of a topic given by its id"),
        GuardedBy("topics.delete_topics", "DELETE on the cluster or on each topic"),
    ],
    on_error=_delete_error,
)
def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """v0–v6. v5 error messages; v6 topics by id (KIP-516).

    A name or an id that appears twice is refused, and so is a topic given by both.
    """
    if not ctx.services.config["delete.topic.enable"]:
        raise TopicDeletionDisabled() if ctx.version >= 3 else InvalidRequest("Topic deletion is disabled.")
    counts = Counter(_named(ctx, request))
    if request.timeout_ms <= 0 and any(
        count == 1 and (name is None) != (topic_id == ZERO_UUID) for (name, topic_id), count in counts.items()
    ):
        raise RequestTimedOut()
    response = DeleteTopicsResponse()

    def refuse(name: str | None, topic_id: bytes, error: KafkaError) -> None:
        response.responses.append(
            Deleted(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
        )

    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for name, topic_id in _named(ctx, request):
        if name is None and topic_id == ZERO_UUID:
            refuse(None, ZERO_UUID, InvalidRequest("Neither topic name nor id were specified."))
        elif name is None:
            ids[topic_id] += 1
        elif topic_id == ZERO_UUID:
            names[name] += 1
        else:
            refuse(name, topic_id, InvalidRequest("You may not specify both topic name and topic id."))
    image = ctx.services.metadata
    doomed: dict[bytes, TopicState] = {}
    for topic_id, count in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            refuse(None, topic_id, InvalidRequest("Duplicate topic id."))
        elif topic is None:
            refuse(None, topic_id, UnknownTopicId())
        else:
            doomed[topic_id] = topic
    for name, count in names.items():
        topic = image.topics.get(name)
        if count > 1:
            refuse(name, ZERO_UUID, InvalidRequest("Duplicate topic name."))
        elif topic is None:
            refuse(name, ZERO_UUID, UnknownTopicOrPartition())
        elif topic.topic_id in ids:
            doomed.pop(topic.topic_id, None)
            refuse(
                name,
                topic.topic_id,
                InvalidRequest("The provided topic name maps to an ID that was already supplied."),
            )
        else:
            doomed[topic.topic_id] = topic
    quota = ctx.mutations(strict=ctx.version >= FIRST_STRICT_DELETION)
    if quota is not None:
        for topic_id, topic in list(doomed.items()):
            try:
                quota.admit(len(topic.partitions))
            except KafkaError as error:
                del doomed[topic_id]
                refuse(topic.name, topic_id, error)
        response.throttle_time_ms = quota.throttle_ms
    ctx.services.controller.delete_topics(doomed.values())
    response.responses += [
        Deleted(name=topic.name, topic_id=topic.topic_id, error_code=NONE) for topic in doomed.values()
    ]
    return response
