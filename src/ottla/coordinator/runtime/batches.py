"""Encode a coordinator's records as one batch of its log, and decode them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.coordinator.runtime.interfaces import EncodableRecord
from ottla.errors import KafkaError
from ottla.records.batch import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
    Batch,
    Record,
    build_batch,
    pack_batch,
)
from ottla.records.record import encode_varint

logger = logging.getLogger(__name__)


class CorruptRecord(ValueError):
    """A record that cannot be decoded. It is logged and skipped."""


def readable_records(batch: Batch, partition: int, log_name: str) -> list[Record]:
    """The records of a stored batch; none if it is damaged, because the broker must start anyway."""
    try:
        return list(batch.records())
    except KafkaError as error:
        logger.error(
            "partition %d of the %s: the batch at offset %d cannot be read and is left out (see `ottla verify`): %s",
            partition,
            log_name,
            batch.base_offset,
            error,
        )
        return []


def encode_batch(
    records: Sequence[EncodableRecord],
    now_ms: int,
    codec: int,
    producer_id: int,
    producer_epoch: int,
    first_sequence: int,
) -> bytearray:
    """All records of an operation as one batch, with one timestamp.

    The records are encoded here without `Record` objects, because offset commits are small and frequent.
    """
    transactional = producer_id != NO_PRODUCER_ID
    if codec:
        entries = [Record(position, now_ms, *record.encode()) for position, record in enumerate(records)]
        return build_batch(entries, 0, codec, producer_id, producer_epoch, first_sequence, transactional=transactional)
    varint = encode_varint
    parts: list[bytes] = []
    for position, record in enumerate(records):
        key, value = record.encode()
        if value is None:
            value, value_size = b"", b"\x01"
        else:
            value_size = varint(len(value))
        head = varint(position) + varint(len(key))
        # Attributes and timestamp delta before, the number of headers after: a zero byte each.
        size = len(head) + len(key) + len(value_size) + len(value) + 3
        parts += (varint(size), b"\x00\x00", head, key, value_size, value, b"\x00")
    count = len(records)
    return pack_batch(
        b"".join(parts),
        count,
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=first_sequence,
    )
