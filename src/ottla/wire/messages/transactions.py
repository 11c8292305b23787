"""Idempotent and transactional producers."""

from __future__ import annotations

from ottla.enums import ApiKey

from ..schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class InitProducerIdRequest(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6+"):
    """v3 resumes a known producer id and epoch (KIP-360); v4 may return PRODUCER_FENCED (KIP-588); v5 transactions v2
    (KIP-890); v6 two-phase commit (KIP-939), which Apache Kafka 4.3 does not advertise.
    """

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+", unstable="6+"):
    """v6 returns the transaction that stayed prepared."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


class AddPartitionsToTxnRequest(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """v0–3 one transaction, from clients; v4 several, from brokers, which may only verify (KIP-890); v5 may return
    TRANSACTION_ABORTABLE.
    """

    class AddPartitionsToTxnTopic(Struct):
        name: str = string()
        partitions: list[int] = array(int32)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        producer_epoch: int = int16()
        verify_only: bool = boolean()
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = array("AddPartitionsToTxnTopic")

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnResponse(Message, key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """v4 top-level error and a result for each transaction."""

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int = int32()
        partition_error_code: int = int16()

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = string()
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = array(
            "AddPartitionsToTxnPartitionResult"
        )

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = string()
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = array(
            "AddPartitionsToTxnTopicResult"
        )

    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")


class AddOffsetsToTxnRequest(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """v2 may return PRODUCER_FENCED (KIP-588); v4 TRANSACTION_ABORTABLE (KIP-890)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """Throttle time and an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


class EndTxnRequest(Message, key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """v2 may return PRODUCER_FENCED (KIP-588); v4 TRANSACTION_ABORTABLE; v5 ends with a new epoch (KIP-890)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """v5 the producer id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


class WriteTxnMarkersRequest(Message, key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    """From the transaction coordinator to partition leaders. v2 transaction version (KIP-1228)."""

    class WritableTxnMarkerTopic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class WritableTxnMarker(Struct):
        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = array("WritableTxnMarkerTopic")
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+")

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WriteTxnMarkersResponse(Message, key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    """Errors by producer id, topic and partition."""

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class WritableTxnMarkerTopicResult(Struct):
        name: str = string()
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = array(
            "WritableTxnMarkerPartitionResult"
        )

    class WritableTxnMarkerResult(Struct):
        producer_id: int = int64()
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = array("WritableTxnMarkerTopicResult")

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


class TxnOffsetCommitRequest(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    """v2 leader epoch (KIP-320); v3 group membership (KIP-447); v4 may return TRANSACTION_ABORTABLE; v5 adds the group
    to the transaction implicitly (KIP-890).
    """

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int = int32()
        committed_offset: int = int64()
        committed_leader_epoch: int = int32("2+", default=-1)
        committed_metadata: str | None = string(nullable="0+")

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = string()
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = array(
            "TxnOffsetCommitRequestPartition"
        )

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponse(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    """Throttle time, then an error for each partition."""

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int = int32()
        error_code: int = int16()

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = string()
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = array(
            "TxnOffsetCommitResponsePartition"
        )

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


class DescribeTransactionsRequest(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    """State of transactional ids, for operators (KIP-664)."""

    transactional_ids: list[str] = array(string)


class DescribeTransactionsResponse(Message, key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    """The start time is -1 if no transaction is open."""

    class TopicData(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    class TransactionState(Struct):
        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[DescribeTransactionsResponse.TopicData] = array("TopicData")

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


class ListTransactionsRequest(Message, key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    """v1 only those older than a duration (KIP-994); v2 a pattern of ids (KIP-1152)."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListTransactionsResponse(Message, key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    """Returns the unknown state filters."""

    class TransactionState(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)


class DescribeProducersRequest(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    """The known producers of a partition (KIP-664)."""

    class TopicRequest(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[TopicRequest] = array(TopicRequest)


class DescribeProducersResponse(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    """Includes the first offset of an open transaction."""

    class ProducerState(Struct):
        producer_id: int = int64()
        producer_epoch: int = int32()
        last_sequence: int = int32(default=-1)
        last_timestamp: int = int64(default=-1)
        coordinator_epoch: int = int32()
        current_txn_start_offset: int = int64(default=-1)

    class PartitionResponse(Struct):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        active_producers: list[DescribeProducersResponse.ProducerState] = array("ProducerState")

    class TopicResponse(Struct):
        name: str = string()
        partitions: list[DescribeProducersResponse.PartitionResponse] = array("PartitionResponse")

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
