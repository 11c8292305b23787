"""Take records out of a batch. What stays keeps its offset, its bytes where possible, and the batch's last sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.records import compression
from ottla.records.batch import (
    APPEND_TIME_FLAG,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Batch,
    encode_varint,
    pack_batch,
)
from ottla.records.legacy import LegacyBatch, build_message_set
from ottla.records.record import Record, spans

_KIND_FLAGS: Final = APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


class Kept(NamedTuple):
    """A record that stays, as it lies in its batch's payload."""

    start: int
    after_timestamp: int
    end: int
    timestamp_delta: int


def payload_of(batch: Batch) -> bytes:
    """The checked, uncompressed records of a batch: rewriting must not make damage look whole."""
    if not batch.crc_ok():
        raise CorruptMessage(f"the batch at offset {batch.base_offset} has a wrong CRC")
    return batch.uncompressed_payload()


Keep = Callable[[int, bytes | None, bool], bool]
"""`keep(offset, key, has_value)`."""


class Filtered(NamedTuple):
    """What is left of a batch: its bytes (None: nothing), and how many records."""

    content: bytearray | memoryview | None
    record_count: int


def filter_batch(
    batch: Batch,
    keep: Keep | None,
    *,
    retain_empty: bool,
    new_horizon_ms: int,
    horizon_for_marker: bool,
) -> Filtered:
    """Apply `keep` to every record (None keeps none).

    A batch that keeps a tombstone, or a marker whose transaction is gone, is given `new_horizon_ms` unless it has a
    delete horizon: from then on they may go (KIP-534).
    """
    kept: list[Kept] = []
    tombstones = False
    data = b""
    if keep is not None and batch.record_count:
        data = payload_of(batch)
        base = batch.base_offset
        for start, after_timestamp, value_at, end, delta_ms, offset_delta, key in spans(data, batch.record_count):
            has_value = not data[value_at] & 1
            if keep(base + offset_delta, key, has_value):
                kept.append(Kept(start, after_timestamp, end, delta_ms))
                if not has_value:
                    tombstones = True
    if not kept:
        return Filtered(_emptied(batch) if retain_empty else None, 0)
    needs_horizon = (tombstones or horizon_for_marker) and not batch.has_delete_horizon
    if len(kept) == batch.record_count and not needs_horizon:
        return Filtered(batch.view(), len(kept))
    horizon_ms = new_horizon_ms if needs_horizon else batch.delete_horizon_ms
    return Filtered(_rebuilt(batch, data, kept, horizon_ms), len(kept))


def _emptied(batch: Batch) -> bytearray:
    """The header alone: offsets, epoch and sequences stay."""
    return pack_batch(
        b"",
        0,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes & _KIND_FLAGS,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _rebuilt(batch: Batch, data: bytes, kept: list[Kept], horizon_ms: int | None) -> bytearray:
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_FLAG else None
    old_base = batch.base_timestamp
    if append_time is not None:
        first = highest = append_time
    else:
        first = old_base + kept[0].timestamp_delta
        highest = old_base + max([span.timestamp_delta for span in kept])
    base_timestamp = first if horizon_ms is None else horizon_ms
    if append_time is None and base_timestamp == old_base:
        payload = b"".join([data[span.start : span.end] for span in kept])
    else:
        payload = b"".join([_with_timestamp(data, span, old_base, base_timestamp, append_time) for span in kept])
    codec = batch.codec
    if codec:
        payload = compression.compress(codec, payload)
    attributes = batch.attributes & ~DELETE_HORIZON_FLAG
    return pack_batch(
        payload,
        len(kept),
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=attributes if horizon_ms is None else attributes | DELETE_HORIZON_FLAG,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=highest,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _with_timestamp(data: bytes, span: Kept, old_base: int, new_base: int, append_time: int | None) -> bytes:
    timestamp = old_base + span.timestamp_delta if append_time is None else append_time
    delta = encode_varint(timestamp - new_base)
    rest = data[span.after_timestamp : span.end]
    return b"".join((encode_varint(1 + len(delta) + len(rest)), b"\0", delta, rest))


def filter_legacy(batch: LegacyBatch, keep: Keep, *, retain_empty: bool) -> tuple[bytes | memoryview | None, int]:
    """The same for a message of format 0 or 1, which cannot be empty: one that must stay stays whole."""
    batch.ensure_valid()
    records: list[Record] = list(batch.records())
    kept = [record for record in records if keep(record.offset, record.key, record.value is not None)]
    if len(kept) == len(records) or (not kept and retain_empty):
        return batch.view(), len(records)
    if not kept:
        return None, 0
    append_time = batch.max_timestamp if batch.magic and batch.attributes & APPEND_TIME_FLAG else None
    return build_message_set(kept, batch.magic, batch.codec, append_time_ms=append_time), len(kept)
