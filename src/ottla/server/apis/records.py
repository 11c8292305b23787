"""DeleteRecords and DescribeProducers: requests about the log of a partition, except reading its records."""

from __future__ import annotations

from ottla.answers import Answer, Reply, gather, then
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import (
    NONE,
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import java_map, long_hash, scala_groups
from ottla.metadata.topics import INTERNAL_TOPICS, check_topic_name
from ottla.replication.leadership import Leadership
from ottla.server.api import OnEach, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.partitions import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.wire.messages.transactions import DescribeProducersRequest, DescribeProducersResponse

TrimmedPartition = DeleteRecordsResponse.DeleteRecordsPartitionResult
TrimmedTopic = DeleteRecordsResponse.DeleteRecordsTopicResult
DescribedPartition = DescribeProducersResponse.PartitionResponse

_INVALID_LOW_WATERMARK = -1


def _delete_error(ctx: RequestContext, request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            TrimmedTopic(
                name=topic.name,
                partitions=[_refused(wanted.partition_index, error) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refused(index: int, error: KafkaError) -> TrimmedPartition:
    return TrimmedPartition(partition_index=index, low_watermark=_INVALID_LOW_WATERMARK, error_code=error.code)


@handles(
    DeleteRecordsRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnEach(AclOperation.DELETE, ResourceType.TOPIC, "topics"),
    on_error=_delete_error,
)
def delete_records(ctx: RequestContext, request: DeleteRecordsRequest) -> Answer[DeleteRecordsResponse]:
    """v0–v2 (KIP-107): moves the start of a log; -1 means the high watermark.

    v2 flexible. The low watermark is the smallest start of all live replicas: with one replica, the answer is
    immediate; with more, it waits for them.
    """
    followed: list[Answer[None]] = []
    offsets: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:  # if a partition appears twice, the last offset counts
            offsets.setdefault(topic.name, {})[wanted.partition_index] = wanted.offset
    trimmed: dict[str, dict[int, TrimmedPartition]] = {}
    for name, wanted_offsets in offsets.items():
        results = trimmed[name] = {}
        for index, offset in wanted_offsets.items():
            try:
                known = ctx.services.metadata.topics.get(name)
                if known is None or index not in known.partitions:
                    raise UnknownTopicOrPartition()
                if name in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"Cannot delete records of internal topic {name}")
                partition = ctx.services.replicas.leader(name, index)
                low_watermark = partition.delete_records(offset)
                result = TrimmedPartition(partition_index=index, low_watermark=low_watermark, error_code=NONE)
                results[index] = result
                if partition.leadership is not None and partition.leadership.low_watermark < low_watermark:
                    followed.append(_trimmed(ctx, partition.leadership, result, request.timeout_ms))
            except KafkaError as error:
                results[index] = _refused(index, error)
    # In this case Kafka collects the errors in another kind of map.
    all_unknown = all(
        result.error_code == UnknownTopicOrPartition.code for results in trimmed.values() for result in results.values()
    )
    response = DeleteRecordsResponse(
        topics=[
            TrimmedTopic(name=name, partitions=partitions)
            for name, partitions in scala_groups(trimmed, immutable=all_unknown)
        ]
    )
    return then(gather(followed), lambda _: response)


def _trimmed(ctx: RequestContext, leadership: Leadership, result: TrimmedPartition, timeout_ms: int) -> Answer[None]:
    """Wait for the followers; even if the wait times out, they delete the records later."""
    trimmed: Reply[KafkaError | None] = Reply()
    timer = ctx.services.timer.schedule(max(timeout_ms, 1), lambda: trimmed.resolve(RequestTimedOut()))
    trimmed.on_cancel = timer.cancel
    leadership.when_trimmed(result.low_watermark, trimmed.resolve)

    def settle(error: KafkaError | None) -> None:
        timer.cancel()
        result.low_watermark = leadership.low_watermark if error is None else _INVALID_LOW_WATERMARK
        result.error_code = NONE if error is None else error.code

    return then(trimmed, settle)


def _describe_error(
    ctx: RequestContext, request: DescribeProducersRequest, error: KafkaError
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    DescribedPartition(partition_index=index, error_code=error.code, error_message=own_message(error))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    DescribeProducersRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnEach(AclOperation.READ, ResourceType.TOPIC, "topics"),
    on_error=_describe_error,
)
def describe_producers(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """v0 (KIP-664): the idempotent and transactional producers that a partition remembers."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        response.topics.append(
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_described(ctx, topic.name, index) for index in topic.partition_indexes],
            )
        )
    return response


def _described(ctx: RequestContext, name: str, index: int) -> DescribedPartition:
    try:
        check_topic_name(name)
        if name not in ctx.services.metadata.topics:
            return DescribedPartition(
                partition_index=index,
                error_code=UnknownTopicOrPartition.code,
                error_message=UnknownTopicOrPartition.default_message,
            )
        # A follower knows the same producers, and returns the same answer.
        partition = ctx.services.replicas.replica(name, index)
    except (InvalidTopicException, NotLeaderOrFollower, UnknownTopicOrPartition) as error:
        return DescribedPartition(partition_index=index, error_code=error.code, error_message=own_message(error))
    producers = partition.log.producers.producers
    return DescribedPartition(
        partition_index=index,
        error_code=NONE,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in map(producers.__getitem__, java_map(producers, long_hash))
        ],
    )
