"""ListOffsets and OffsetForLeaderEpoch: from a time, or an epoch, to an offset."""

from __future__ import annotations

from collections import Counter

from ottla.answers import Answer, Steps, paced
from ottla.enums import AclOperation, AnsweredBy, IsolationLevel, OffsetTimestamp, ResourceType
from ottla.errors import (
    NONE,
    InvalidRequest,
    KafkaError,
    UnknownServerError,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from ottla.metadata.java_hash_order import scala_groups
from ottla.replication.partition import Partition
from ottla.server.api import GuardedBy, OnEach, RequestContext, handles
from ottla.wire.messages.fetch import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

_SPECIAL_SINCE: dict[int, int] = {
    OffsetTimestamp.LATEST: 0,
    OffsetTimestamp.EARLIEST: 0,
    OffsetTimestamp.MAX_TIMESTAMP: 7,
    OffsetTimestamp.EARLIEST_LOCAL: 8,
    OffsetTimestamp.LATEST_TIERED: 9,
    OffsetTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The version that introduced each special timestamp (KIP-734, KIP-405, KIP-1005, KIP-1023)."""


_LOOK_UP_BYTES = 4096
"""About how many bytes of indexes and headers a look-up reads: a request may need thousands of look-ups."""

Listed = ListOffsetsResponse.ListOffsetsPartitionResponse


def _list_error(ctx: RequestContext, request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    Listed(partition_index=wanted.partition_index, error_code=error.code) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    ListOffsetsRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnEach(AclOperation.DESCRIBE, ResourceType.TOPIC, "topics"),
    on_error=_list_error,
)
def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> Answer[ListOffsetsResponse]:
    """v0–v11. v0 answered with a list of segment offsets (4.0 dropped it); v1 one offset; v2 isolation (KIP-98);
    v4 leader epochs (KIP-320); v7 max timestamp (KIP-734); v8–v9, v11 tiered storage, which Ottla does not have.
    """
    if request.isolation_level not in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        raise UnknownServerError()
    return paced(_list(ctx, request))


def _list(ctx: RequestContext, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    counts = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    by_name: dict[str, dict[int, Listed]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            # A topic or partition that appears twice is answered once; a topic without partitions gets no answer.
            listed = by_name.setdefault(topic.name, {})
            twice = ctx.version >= 1 and counts[topic.name, wanted.partition_index] > 1
            try:
                if twice:
                    raise InvalidRequest()
                if wanted.timestamp < 0 and ctx.version < _SPECIAL_SINCE.get(wanted.timestamp, 1 << 15):
                    raise UnsupportedVersion()
                partition = ctx.services.replicas.leader_at(
                    topic.name, wanted.partition_index, wanted.current_leader_epoch
                )
                if ctx.version == 0:
                    found = Listed(
                        partition_index=wanted.partition_index,
                        error_code=NONE,
                        old_style_offsets=_segment_offsets(
                            partition, wanted.timestamp, wanted.max_num_offsets, ctx.services.clock.now_ms()
                        ),
                    )
                else:
                    found = yield from _look_up(ctx, request, partition, wanted)
            except KafkaError as error:
                found = Listed(partition_index=wanted.partition_index, error_code=error.code)
            listed[wanted.partition_index] = found
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=partitions)
            for name, partitions in scala_groups(by_name)
        ]
    )


def _look_up(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    partition: Partition,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
) -> Steps[Listed]:
    timestamp = wanted.timestamp
    committed_only = request.isolation_level == IsolationLevel.READ_COMMITTED
    limit = partition.last_stable_offset if committed_only else partition.high_watermark
    if request.replica_id >= 0:
        limit = partition.log.log_end_offset  # a follower looks for its position
    found = Listed(partition_index=wanted.partition_index, error_code=NONE)
    if timestamp == OffsetTimestamp.LATEST:
        found.offset = limit
        found.leader_epoch = partition.leader_epoch
    elif timestamp in (OffsetTimestamp.EARLIEST, OffsetTimestamp.EARLIEST_LOCAL):
        found.offset = partition.log_start_offset
        found.leader_epoch = partition.epoch_of_first_offset()
    elif timestamp in (OffsetTimestamp.LATEST_TIERED, OffsetTimestamp.EARLIEST_PENDING_UPLOAD):
        # There is only the local tier: Kafka also answers "none" here.
        found.offset = -1
    else:
        position = yield from partition.offset_for_time(timestamp)
        yield _LOOK_UP_BYTES
        if position is not None and position.offset < limit:
            found.timestamp, found.offset = position.timestamp, position.offset
            found.leader_epoch = position.leader_epoch
    return found


def _segment_offsets(partition: Partition, timestamp: int, count: int, now_ms: int) -> list[int]:
    """v0's answer: up to `count` segment base offsets, newest first, of segments last changed up to `timestamp`.

    The end of the log counts as a segment that was changed just now, unless the last segment is empty.
    """
    if count <= 0:
        raise UnsupportedForMessageFormat()
    candidates = partition.segment_offsets()
    candidates.append((partition.high_watermark, now_ms))
    if timestamp == OffsetTimestamp.EARLIEST:
        chosen = [candidates[0][0]]
    elif timestamp == OffsetTimestamp.LATEST:
        chosen = [offset for offset, _ in reversed(candidates)]
    else:
        chosen = [offset for offset, modified_ms in reversed(candidates) if modified_ms <= timestamp]
    return [offset for offset in dict.fromkeys(chosen) if offset <= partition.high_watermark][:count]


def _epoch_error(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition, error_code=error.code)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    OffsetForLeaderEpochRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=GuardedBy("records.offset_for_leader_epoch", "CLUSTER_ACTION on the cluster or DESCRIBE on each topic"),
    on_error=_epoch_error,
)
def offset_for_leader_epoch(ctx: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """v0–v4 (KIP-101, KIP-279). v2 the caller's own epoch is checked; v3 replica id."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition, error_code=NONE)
            try:
                partition = ctx.services.replicas.leader_at(topic.topic, wanted.partition, wanted.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = partition.epoch_end_offset(wanted.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            result.partitions.append(answer)
    return response
