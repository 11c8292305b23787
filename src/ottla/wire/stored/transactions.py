"""Records of `__transaction_state`, and the snapshot of a partition's producers."""

from __future__ import annotations

from ..schema import Message, Struct, array, int8, int16, int32, int64, string, uint32


class TransactionLogKey(Message, key=0, versions="0"):
    """A transactional id."""

    transactional_id: str = string()


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    """The state of a transactional id. v1 flexible, with the previous and next producer ids of KIP-890 as tags."""

    class PartitionsSchema(Struct):
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


class ProducerSnapshot(Message, versions="1"):
    """A `.snapshot` file: the producers of a partition at a segment's start. The CRC-32C covers the rest."""

    class ProducerEntry(Struct):
        producer_id: int = int64()
        epoch: int = int16()
        last_sequence: int = int32()
        last_offset: int = int64()
        offset_delta: int = int32()
        timestamp: int = int64()
        coordinator_epoch: int = int32()
        current_txn_first_offset: int = int64()

    crc: int = uint32()
    producer_entries: list[ProducerEntry] = array(ProducerEntry)
