"""The part of a produce answer for a partition whose records were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import (
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from ottla.records.validation import NotOneBatch, record_errors_of
from ottla.server.directory import names_leader
from ottla.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.services import Services

PartitionResponse = ProduceResponse.PartitionProduceResponse

_WITHOUT_LOG_START = (
    UnknownTopicOrPartition,
    UnknownTopicId,
    NotLeaderOrFollower,
    MessageTooLarge,
    RecordListTooLarge,
    CorruptMessage,
    KafkaStorageError,
    NotOneBatch,
    UnsupportedCompressionType,
    InvalidRequiredAcks,
    InvalidTopicException,
)
"""Errors after which Kafka does not report where the log starts."""


def failure(
    services: Services, version: int, topic: str | None, index: int, partition: Partition | None, error: KafkaError
) -> PartitionResponse:
    """`partition` is None if the error came before it was found, `topic` if its id is unknown."""
    response = PartitionResponse(index=index, error_code=error.code, base_offset=-1)
    if partition is not None and not isinstance(error, _WITHOUT_LOG_START):
        response.log_start_offset = partition.log_start_offset
    record_errors = record_errors_of(error)
    if record_errors:
        response.error_message = error.message
        response.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in record_errors
        ]
    elif version >= 10 and topic is not None and names_leader(error):
        leader = services.directory.leader_of((topic, index))
        if leader is not None:
            response.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return response
