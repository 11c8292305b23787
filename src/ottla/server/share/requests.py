"""The requests between brokers about share state, each for one share partition, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.coordinator.share_state.state import ShareKey, ShareState, StateBatch
from ottla.enums import OffsetTimestamp
from ottla.errors import KafkaError, error_for
from ottla.wire.messages import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ListOffsetsRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from ottla.wire.schema import Message


def initialize(key: ShareKey, state_epoch: int, start_offset: int) -> Message:
    cls = InitializeShareGroupStateRequest
    one = cls.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
    return cls(group_id=key.group_id, topics=[cls.InitializeStateData(topic_id=key.topic_id, partitions=[one])])


def delete(key: ShareKey) -> Message:
    cls = DeleteShareGroupStateRequest
    one = cls.PartitionData(partition=key.partition)
    return cls(group_id=key.group_id, topics=[cls.DeleteStateData(topic_id=key.topic_id, partitions=[one])])


def read(key: ShareKey, leader_epoch: int) -> Message:
    cls = ReadShareGroupStateRequest
    one = cls.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    return cls(group_id=key.group_id, topics=[cls.ReadStateData(topic_id=key.topic_id, partitions=[one])])


def summary(key: ShareKey) -> Message:
    cls = ReadShareGroupStateSummaryRequest
    one = cls.PartitionData(partition=key.partition, leader_epoch=0)
    return cls(group_id=key.group_id, topics=[cls.ReadStateSummaryData(topic_id=key.topic_id, partitions=[one])])


def write(
    key: ShareKey,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    done_count: int,
    batches: Sequence[StateBatch],
) -> Message:
    cls = WriteShareGroupStateRequest
    one = cls.PartitionData(
        partition=key.partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=done_count,
        state_batches=[
            cls.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    return cls(group_id=key.group_id, topics=[cls.WriteStateData(topic_id=key.topic_id, partitions=[one])])


def tell(response: Any, done: Callable[[ShareState | None, KafkaError | None], None]) -> None:
    """Pass on another broker's answer about one share partition."""
    result = response.results[0].partitions[0]
    if result.error_code:
        done(None, error_for(result.error_code, result.error_message))
        return
    done(
        ShareState(
            state_epoch=getattr(result, "state_epoch", 0),
            leader_epoch=getattr(result, "leader_epoch", 0),
            start_offset=getattr(result, "start_offset", -1),
            done_count=getattr(result, "delivery_complete_count", -1),
            batches=tuple(
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in getattr(result, "state_batches", ())
            ),
        ),
        None,
    )


def list_offset(topic: str, index: int) -> Message:
    """Where a partition ends, for a broker that does not lead it."""
    cls = ListOffsetsRequest
    one = cls.ListOffsetsPartition(partition_index=index, timestamp=OffsetTimestamp.LATEST)
    return cls(replica_id=-1, topics=[cls.ListOffsetsTopic(name=topic, partitions=[one])])


def listed_offset(response: Any) -> int | None:
    listed = response.topics[0].partitions[0]
    return None if listed.error_code else int(listed.offset)
