"""Remove records from a batch. The rest keep their offsets, their bytes if possible, and the batch's last sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from ottla.records.record import Record, Span, spans
from ottla.records.streaming import Compressor
from ottla.records.walk import spans_at

_WINDOW_BYTES: Final = 1 << 20
"""Most batches fit into one window, so that no record has to be put together from two."""
_KIND_FLAGS: Final = APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


def checked_windows(batch: Batch) -> Iterator[tuple[bytes, int]]:
    """The records of a batch in windows, after a CRC check: rewriting must not make damaged data look valid."""
    if not batch.crc_ok():
        raise CorruptMessage(f"the batch at offset {batch.base_offset} has a wrong CRC")
    if not batch.is_compressed:
        return iter(((bytes(batch.payload()), batch.record_count),))
    return batch.payload_windows(compression.DEFAULT_LIMIT, _WINDOW_BYTES)


KeepRecord = Callable[[int, bytes | None, bool], bool]
"""`keep(offset, key, has_value)`."""
Keep = Callable[[bytes, int], list[Span]]
"""`keep(data, count)`: which of the `count` records in `data` stay. It may be called twice for the same records."""


def keep_all(data: bytes, count: int) -> list[Span]:
    return list(spans(data, count))


def keep_offsets(base_offset: int, offsets: list[int], keep_deletes: bool) -> Keep:
    """Keep the records at these increasing offsets, except tombstones that may be removed."""
    deltas = [offset - base_offset for offset in offsets]

    def keep(data: bytes, count: int) -> list[Span]:
        kept = spans_at(data, count, deltas)
        return kept if keep_deletes else [span for span in kept if not data[span[2]] & 1]

    return keep


class _Kept:
    """Which records of a batch stay, and the data for its new header."""

    def __init__(self) -> None:
        self.count = 0
        self.tombstones = False
        self.first_delta = self.highest_delta = 0
        self.windows: list[tuple[bytes, list[Span]]] | None = []
        """The records themselves, if they are few. Otherwise they are decompressed again."""

    def note(self, data: bytes, stay: list[Span]) -> None:
        if self.windows is not None:
            self.windows.append((data, stay))
            if len(self.windows) > 1:
                self.windows = None
        if not stay:
            return
        highest = max([span[4] for span in stay])
        if not self.count:
            self.first_delta, self.highest_delta = stay[0][4], highest
        elif highest > self.highest_delta:
            self.highest_delta = highest
        self.count += len(stay)
        if not self.tombstones:
            self.tombstones = any(data[span[2]] & 1 for span in stay)


def _kept_windows(batch: Batch, keep: Keep) -> Iterator[tuple[bytes, list[Span]]]:
    for data, count in checked_windows(batch):
        yield data, keep(data, count)


class Filtered(NamedTuple):
    """The rest of a batch: its bytes (None if nothing is left), and the number of records."""

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

    If a batch keeps a tombstone, or a marker whose transaction is gone, and has no delete horizon, it gets
    `new_horizon_ms`: from then on they may be removed (KIP-534).
    """
    kept = _Kept()
    if keep is not None and batch.record_count:
        for data, stay in _kept_windows(batch, keep):
            kept.note(data, stay)
    if keep is None or not kept.count:
        return Filtered(_emptied(batch) if retain_empty else None, 0)
    needs_horizon = (kept.tombstones or horizon_for_marker) and not batch.has_delete_horizon
    if kept.count == batch.record_count and not needs_horizon:
        return Filtered(batch.view(), kept.count)
    horizon_ms = new_horizon_ms if needs_horizon else batch.delete_horizon_ms
    windows = kept.windows if kept.windows is not None else _kept_windows(batch, keep)
    return Filtered(_rebuilt(batch, kept, windows, horizon_ms), kept.count)


def _emptied(batch: Batch) -> bytearray:
    """Only the header: offsets, epoch and sequences stay."""
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


def _rebuilt(
    batch: Batch, kept: _Kept, windows: Iterable[tuple[bytes, list[Span]]], horizon_ms: int | None
) -> bytearray:
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_FLAG else None
    old_base = batch.base_timestamp
    if append_time is not None:
        first = highest = append_time
    else:
        first = old_base + kept.first_delta
        highest = old_base + kept.highest_delta
    base_timestamp = first if horizon_ms is None else horizon_ms
    same_times = append_time is None and base_timestamp == old_base
    payload = Compressor(batch.codec, at_once=_WINDOW_BYTES)
    for data, stay in windows:
        if same_times:
            payload.write(b"".join([data[span[0] : span[3]] for span in stay]))
            continue
        for _, after_timestamp, _, end, delta_ms, _, _ in stay:
            timestamp = old_base + delta_ms if append_time is None else append_time
            delta = encode_varint(timestamp - base_timestamp)
            size = 1 + len(delta) + end - after_timestamp
            payload.write(b"".join((encode_varint(size), b"\0", delta, data[after_timestamp:end])))
    attributes = batch.attributes & ~DELETE_HORIZON_FLAG
    return pack_batch(
        payload.finish(),
        kept.count,
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


def filter_legacy(batch: LegacyBatch, keep: KeepRecord, *, retain_empty: bool) -> tuple[bytes | memoryview | None, int]:
    """Like `filter_batch`, for a message of format 0 or 1. Such a message cannot be empty, so one that must stay is
    kept whole."""
    batch.ensure_valid()
    records: list[Record] = list(batch.records())
    kept = [record for record in records if keep(record.offset, record.key, record.value is not None)]
    if len(kept) == len(records) or (not kept and retain_empty):
        return batch.view(), len(records)
    if not kept:
        return None, 0
    append_time = batch.max_timestamp if batch.magic and batch.attributes & APPEND_TIME_FLAG else None
    return build_message_set(kept, batch.magic, batch.codec, append_time_ms=append_time), len(kept)
