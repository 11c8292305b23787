"""The records of `__transaction_state`: each has the whole state of a transactional id; a null value removes it."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.transactions.state import BY_NUMBER, State, Transaction
from ottla.wire.primitives import MalformedMessage
from ottla.wire.stored import TransactionLogKey, TransactionLogValue
from ottla.wire.stored.coding import CoordinatorRecords, decode_versioned, encode_versioned, peek_int16

KEY_TYPE: Final = 0

_Partitions = TransactionLogValue.PartitionsSchema


class TransactionRecord(NamedTuple):
    transactional_id: str
    transaction: Transaction | None
    version: int = 1
    """v1, with tagged fields, needs transaction.version 1."""

    def encode(self) -> tuple[bytes, bytes | None]:
        key = CoordinatorRecords.encode_key(TransactionLogKey(transactional_id=self.transactional_id))
        if self.transaction is None:
            return key, None
        return key, encode_versioned(_value_of(self.transaction), self.version)


def _value_of(transaction: Transaction) -> TransactionLogValue:
    partitions: list[_Partitions] | None = None
    if transaction.state is not State.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(transaction.partitions):
            by_topic.setdefault(topic, []).append(index)
        partitions = [_Partitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Decode a record; None for an unknown type. Raises CorruptRecord."""
    if key is None:
        raise CorruptRecord("it has no key")
    try:
        if peek_int16(key) != KEY_TYPE:
            return None
        transactional_id = decode_versioned(TransactionLogKey, key)[0].transactional_id
        if value is None:
            return TransactionRecord(transactional_id, None)
        stored, version = decode_versioned(TransactionLogValue, value)
    except MalformedMessage as error:
        raise CorruptRecord(str(error)) from error
    state = BY_NUMBER.get(stored.transaction_status)
    if state is None:
        raise CorruptRecord(f"there is no transaction state {stored.transaction_status}")
    partitions = frozenset(
        (entry.topic, index) for entry in stored.transaction_partitions or () for index in entry.partition_ids
    )
    return TransactionRecord(
        transactional_id,
        Transaction(
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            timeout_ms=stored.transaction_timeout_ms,
            state=state,
            partitions=partitions,
            start_ms=stored.transaction_start_timestamp_ms,
            update_ms=stored.transaction_last_update_timestamp_ms,
            previous_producer_id=stored.previous_producer_id,
            next_producer_id=stored.next_producer_id,
            client_version=stored.client_transaction_version,
        ),
        version,
    )
