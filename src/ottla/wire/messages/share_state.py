"""Requests between brokers: the share coordinator keeps the state of share partitions (KIP-932)."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class InitializeShareGroupStateRequest(Message, key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """The group coordinator prepares a share partition at its share coordinator (KIP-932)."""

    class PartitionData(Struct):
        partition: int = int32()
        state_epoch: int = int32()
        start_offset: int = int64()

    class InitializeStateData(Struct):
        topic_id: bytes = uuid()
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = array("PartitionData")

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class InitializeShareGroupStateResponse(Message, key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """One error for each partition."""

    class PartitionResult(Struct):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    class InitializeStateResult(Struct):
        topic_id: bytes = uuid()
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = array("PartitionResult")

    results: list[InitializeStateResult] = array(InitializeStateResult)


class ReadShareGroupStateRequest(Message, key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """A partition leader loads the state of a share partition (KIP-932)."""

    class PartitionData(Struct):
        partition: int = int32()
        leader_epoch: int = int32()

    class ReadStateData(Struct):
        topic_id: bytes = uuid()
        partitions: list[ReadShareGroupStateRequest.PartitionData] = array("PartitionData")

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class ReadShareGroupStateResponse(Message, key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """The state epoch, the start offset and the batches in flight."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    class PartitionResult(Struct):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        state_epoch: int = int32()
        start_offset: int = int64()
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = array("StateBatch")

    class ReadStateResult(Struct):
        topic_id: bytes = uuid()
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = array("PartitionResult")

    results: list[ReadStateResult] = array(ReadStateResult)


class WriteShareGroupStateRequest(Message, key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    """A partition leader saves the changed batches (KIP-932). v1 the number of finished records after the start offset
    (KIP-1226).
    """

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    class PartitionData(Struct):
        partition: int = int32()
        state_epoch: int = int32()
        leader_epoch: int = int32()
        start_offset: int = int64()
        delivery_complete_count: int = int32("1+", default=-1)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = array("StateBatch")

    class WriteStateData(Struct):
        topic_id: bytes = uuid()
        partitions: list[WriteShareGroupStateRequest.PartitionData] = array("PartitionData")

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class WriteShareGroupStateResponse(Message, key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    """One error for each partition."""

    class PartitionResult(Struct):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    class WriteStateResult(Struct):
        topic_id: bytes = uuid()
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = array("PartitionResult")

    results: list[WriteStateResult] = array(WriteStateResult)


class DeleteShareGroupStateRequest(Message, key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """The group coordinator drops a share partition (KIP-932)."""

    class PartitionData(Struct):
        partition: int = int32()

    class DeleteStateData(Struct):
        topic_id: bytes = uuid()
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = array("PartitionData")

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class DeleteShareGroupStateResponse(Message, key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    """One error for each partition."""

    class PartitionResult(Struct):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    class DeleteStateResult(Struct):
        topic_id: bytes = uuid()
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = array("PartitionResult")

    results: list[DeleteStateResult] = array(DeleteStateResult)


class ReadShareGroupStateSummaryRequest(
    Message, key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    """The start offset without the batches, to describe a group (KIP-932)."""

    class PartitionData(Struct):
        partition: int = int32()
        leader_epoch: int = int32()

    class ReadStateSummaryData(Struct):
        topic_id: bytes = uuid()
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = array("PartitionData")

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class ReadShareGroupStateSummaryResponse(
    Message, key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    """v1 the number of finished records after the start offset (KIP-1226)."""

    class PartitionResult(Struct):
        partition: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        state_epoch: int = int32()
        leader_epoch: int = int32()
        start_offset: int = int64()
        delivery_complete_count: int = int32("1+", default=-1)

    class ReadStateSummaryResult(Struct):
        topic_id: bytes = uuid()
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = array("PartitionResult")

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
