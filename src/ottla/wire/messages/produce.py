"""Produce: appending record batches."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..primitives import Buffer
from ..schema import Message, Struct, array, int16, int32, int64, string, struct, uuid
from ..schema import records as record_data


class ProduceRequest(Message, key=ApiKey.PRODUCE, versions="0-13", flexible="9+"):
    """v0–1 carry MessageSets of magic 0, v2 of magic 1; v3 record batches and the transactional id (KIP-98); v7 allows
    zstd (KIP-110); v9 is flexible; v12 lets a transactional write add its partition (KIP-890); v13 identifies topics by
    id (KIP-516).
    """

    class PartitionProduceData(Struct):
        index: int = int32()
        records: Buffer | None = record_data(nullable="0+")

    class TopicProduceData(Struct):
        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_data: list[ProduceRequest.PartitionProduceData] = array("PartitionProduceData")

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class ProduceResponse(Message, key=ApiKey.PRODUCE, versions="0-13", flexible="9+"):
    """v1 throttle time; v2 append time; v5 log start offset; v8 lists the bad records and an error message (KIP-467);
    v10 a leader hint and node endpoints (KIP-951); v13 topic ids.
    """

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = int32()
        batch_index_error_message: str | None = string(nullable="0+", default=None)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)

    class PartitionProduceResponse(Struct):
        index: int = int32()
        error_code: int = int16()
        base_offset: int = int64()
        log_append_time_ms: int = int64("2+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = array("BatchIndexAndErrorMessage", "8+")
        error_message: str | None = string("8+", nullable="8+", default=None)
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = struct("LeaderIdAndEpoch", "10+", tag=0)

    class TopicProduceResponse(Struct):
        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = array("PartitionProduceResponse")

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
