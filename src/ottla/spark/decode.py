"""Record batches to Arrow columns, column by column instead of record by record.

A record is a chain of varints, so its fields have no fixed position. First the decoder walks the lengths of the
records; if there are many batches, it walks all of them in parallel. Then numpy reads the same field of all records at
once, and one Arrow `take` per column copies the keys and values out of the original bytes. Anything unusual (an old
message format, a malformed record) goes through the plain decoder of `ottla.records`, which handles every case and
reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ottla.errors import InvalidRecord, MessageTooLarge
from ottla.records.batch import APPEND_TIME_FLAG, HEADER_SIZE, Batch
from ottla.records.legacy import LegacyBatch
from ottla.records.record import VARINT, Record, decode_records, read_raw
from ottla.records.walk import LEAST_RECORD_SIZE
from ottla.spark.wanted import EVERYTHING, Wanted

AnyBatch: TypeAlias = Batch | LegacyBatch
Array: TypeAlias = Any

MIN_RUN: Final = 8
"""The shortest run of records of equal length that is worth detecting."""
RUN_BACKOFF: Final = 32
"""How many records to walk one by one after no such run was found."""
MIN_LANES: Final = 24
"""The minimum number of batches to walk in parallel, relative to the record count of the longest batch."""
UNPACKED_BYTES_MAX: Final = 8 << 20
"""A batch that decompresses to more than this is decoded one window at a time."""
PART_BYTES: Final = 32 << 20
"""How many decompressed bytes are decoded together."""
HEADERS_MAX: Final = 1_000_000
"""The maximum number of headers to decode together. An empty header takes two bytes that compress to almost none."""
NOTHING_UNPACKED: Final[Mapping[Any, bytes]] = {}
_UNLIKELY_MS: Final = 1 << 60
_LONGEST_DATA: Final = (1 << 31) - 1


class Irregular(Exception):
    """The data does not fit the fast path."""


class Block(NamedTuple):
    """Decoded records. `headers` is None unless requested."""

    offsets: Array
    timestamps_ms: Array
    timestamp_types: Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.offsets)


def headers_type() -> pa.DataType:
    return pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def decode(
    batches: Sequence[AnyBatch],
    wanted: Wanted = EVERYTHING,
    headers: pa.DataType | None = None,
    unpacked: Mapping[AnyBatch, bytes] = NOTHING_UNPACKED,
) -> Block:
    """The wanted records of data batches. `headers` is the Arrow type of the headers column; None omits the column.

    `unpacked` holds payloads that are already decompressed. Malformed records raise InvalidRecord, as in the plain
    decoder.
    """
    batches = [batch for batch in batches if _overlaps(batch, wanted)]
    try:
        return _decode_columns(batches, *_payloads(batches, unpacked), wanted, headers)
    except (Irregular, IndexError):
        return decode_plainly(batches, wanted, headers)


def decode_parts(
    batches: Sequence[AnyBatch], wanted: Wanted = EVERYTHING, headers: pa.DataType | None = None
) -> Iterator[Block]:
    """Like `decode`, but in several blocks if compressed batches hold too much data to keep in memory at once.

    A few kilobytes can decompress to hundreds of megabytes. Raises InvalidRecord, MessageTooLarge or CorruptPayload.
    """
    together: list[AnyBatch] = []
    unpacked: dict[AnyBatch, bytes] = {}
    size = 0
    for batch in batches:
        if not _overlaps(batch, wanted):
            continue
        payload = _unpacked(batch) if batch.is_compressed else b""
        if together and (payload is None or size + len(payload) > PART_BYTES):
            yield decode(together, wanted, headers, unpacked)
            together, unpacked, size = [], {}, 0
        if payload is not None:
            together.append(batch)
            unpacked[batch] = payload
            size += len(payload)
        elif isinstance(batch, LegacyBatch):
            yield decode_plainly([batch], wanted, headers)
        else:
            for data, count in batch.payload_windows():
                yield _decode_window(batch, data, count, wanted, headers)
    if together:
        yield decode(together, wanted, headers, unpacked)


def _unpacked(batch: AnyBatch) -> bytes | None:
    """The payload of a compressed batch, or None if the batch must be decoded separately."""
    if isinstance(batch, LegacyBatch):
        return None
    try:
        return batch.uncompressed_payload(UNPACKED_BYTES_MAX)
    except MessageTooLarge:
        return None


def _decode_window(batch: Batch, data: bytes, count: int, wanted: Wanted, headers: pa.DataType | None) -> Block:
    """Some of the records of a batch."""
    try:
        return _decode_columns([batch], data, [(0, len(data), count)], wanted, headers)
    except (Irregular, IndexError):
        append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_FLAG else None
        records = decode_records(
            data, count, batch.base_offset, batch.base_timestamp, append_time, with_headers=headers is not None
        )
        return _listed([(batch.timestamp_type, record) for record in records if _is_wanted(record, wanted)], headers)


def _overlaps(batch: AnyBatch, wanted: Wanted) -> bool:
    if batch.last_offset < wanted.start or (isinstance(batch, Batch) and batch.base_offset >= wanted.end):
        return False
    # Kafka's own index relies on the header's largest timestamp as well. Format 0 has no timestamps.
    return batch.max_timestamp >= wanted.least_ms or batch.max_timestamp < 0


# --- one by one ------------------------------------------------------------------------------------------------------


def decode_plainly(batches: Sequence[AnyBatch], wanted: Wanted, headers: pa.DataType | None = None) -> Block:
    """Like `decode`, with the plain decoder."""
    return _listed(
        [
            (batch.timestamp_type, record)
            for batch in batches
            for record in batch.records()
            if _is_wanted(record, wanted)
        ],
        headers,
    )


def _is_wanted(record: Record, wanted: Wanted) -> bool:
    return wanted.start <= record.offset < wanted.end and wanted.least_ms <= record.timestamp < wanted.before_ms


def _listed(found: Sequence[tuple[int, Record]], headers: pa.DataType | None) -> Block:
    listed = None
    if headers is not None:
        _check_headers(sum(len(record.headers) for _, record in found))
        rows = [[{"key": name, "value": value} for name, value in one.headers] or None for _, one in found]
        listed = pa.array(rows, type=headers)
    return Block(
        np.array([record.offset for _, record in found], dtype=np.int64),
        np.array([record.timestamp for _, record in found], dtype=np.int64),
        np.array([kind for kind, _ in found], dtype=np.int32),
        pa.array([record.key for _, record in found], type=pa.binary()),
        pa.array([record.value for _, record in found], type=pa.binary()),
        listed,
    )


def _check_headers(count: int) -> None:
    if count > HEADERS_MAX:
        raise InvalidRecord(f"records that are read together have {count} headers; {HEADERS_MAX} is the most")


# --- by column ---------------------------------------------------------------------------------------------------


def _decode_columns(
    batches: Sequence[AnyBatch],
    data: bytes | memoryview,
    spans: Sequence[tuple[int, int, int]],
    wanted: Wanted,
    headers: pa.DataType | None,
) -> Block:
    """`data` holds the records of all batches. `spans` has (start, end, count) for each batch in it."""
    if len(data) > _LONGEST_DATA:
        raise Irregular
    if any(count > (end - start) // LEAST_RECORD_SIZE for start, end, count in spans):
        raise Irregular  # an impossible count: do not allocate arrays of this size
    octets = np.frombuffer(data, dtype=np.uint8)
    positions, ends = _bodies(data, octets, spans)
    counts = [count for _, _, count in spans]

    appended = np.array([batch.attributes & APPEND_TIME_FLAG != 0 for batch in batches], dtype=bool)
    deltas, positions = _varints(octets, positions + 1, 9)  # skip the attributes of the record
    times = np.array(
        [b.max_timestamp if b.attributes & APPEND_TIME_FLAG else b.base_timestamp for b in batches],  # type: ignore[union-attr]
        dtype=np.int64,
    )
    if appended.any():
        deltas[np.repeat(appended, counts)] = 0
    timestamps = np.repeat(times, counts) + deltas
    offsets, positions = _varints(octets, positions)
    if len(offsets) and (offsets.min() < 0 or abs(deltas).max() >= _UNLIKELY_MS):
        raise Irregular  # it must not be dropped as if its time or offset did not match
    offsets += np.repeat(np.array([batch.base_offset for batch in batches], dtype=np.int64), counts)
    types: Array = np.repeat(appended.astype(np.int32), counts)

    key_sizes, key_starts = _varints(octets, positions)
    key_ends = key_starts + np.maximum(key_sizes, 0)
    value_sizes, value_starts = _varints(octets, key_ends)
    value_ends = value_starts + np.maximum(value_sizes, 0)
    if (value_ends >= ends).any():
        raise Irregular
    slices: Array = np.empty((len(offsets), 4), dtype=np.int32)
    slices[:, 0], slices[:, 1], slices[:, 2], slices[:, 3] = key_starts, key_ends, value_starts, value_ends
    no_key, no_value = key_sizes < 0, value_sizes < 0
    kept = _kept(offsets, timestamps, wanted)
    if kept is not None:
        offsets, timestamps, types = offsets[kept], timestamps[kept], types[kept]
        slices, no_key, no_value = slices[kept], no_key[kept], no_value[kept]
        value_ends, ends = value_ends[kept], ends[kept]
    source = _slices(data, slices)
    keys = _take(source, slices, 0, no_key)
    values = _take(source, slices, 2, no_value)
    listed = None if headers is None else _headers(data, octets, value_ends, ends, headers)
    return Block(offsets, timestamps, types, keys, values, listed)


def _payloads(
    batches: Sequence[AnyBatch], unpacked: Mapping[AnyBatch, bytes]
) -> tuple[bytes | memoryview, list[tuple[int, int, int]]]:
    """One buffer with the records of all batches, and (start, end, count) for each batch in it."""
    first = batches[0].buffer if batches else b""
    shared = True
    for batch in batches:
        if not isinstance(batch, Batch) or batch.record_count < 0:
            raise Irregular
        shared = shared and batch.buffer is first and not batch.is_compressed
    if shared and not isinstance(first, bytearray):
        return first, [
            (batch.position + HEADER_SIZE, batch.position + batch.size, batch.record_count)  # type: ignore[union-attr]
            for batch in batches
        ]
    parts: list[bytes | memoryview] = []
    spans = []
    position = 0
    for batch in batches:
        assert isinstance(batch, Batch)
        part: bytes | memoryview = batch.payload()
        if batch.is_compressed and batch.record_count:
            part = unpacked.get(batch) or batch.uncompressed_payload()
        parts.append(part)
        spans.append((position, position + len(part), batch.record_count))
        position += len(part)
    return b"".join(parts), spans


def _bodies(data: bytes | memoryview, octets: Array, spans: Sequence[tuple[int, int, int]]) -> tuple[Array, Array]:
    """The start of each record, after its length field, and its end."""
    if sum(count for _, _, count in spans) >= MIN_LANES * max((count for _, _, count in spans), default=1):
        return _walk_lanes(octets, spans)
    lengths, positions = _varints(octets, _walk(data, spans))
    return positions, positions + lengths


def _walk_lanes(octets: Array, spans: Sequence[tuple[int, int, int]]) -> tuple[Array, Array]:
    """Walk all batches in parallel: the first record of each, then the second of those that have one, and so on."""
    table: Array = np.array(spans, dtype=np.int64)
    order = np.argsort(-table[:, 2], kind="stable")
    positions, stops, counts = table[order].T.copy()
    longest = int(counts[0])
    going: Array = np.searchsorted(-counts, -np.arange(longest), side="left")  # batches with that many records
    bodies: Array = np.empty((longest, len(counts)), dtype=np.int64)
    ends: Array = np.empty((longest, len(counts)), dtype=np.int64)
    for number, lanes in enumerate(going.tolist()):
        here = positions[:lanes]
        first, second = octets.take(here), octets.take(here + 1)
        if first.min() >= 0x80 and second.max() < 0x80:  # the usual width needs fewer calls
            raw = (second.astype(np.int64) << 7) + first - 0x80
            lengths, after = raw >> 1, here + 2
            if (raw & 1).any():
                raise Irregular
        else:
            lengths, after = _varints(octets, here)
            if lengths.min() < 0:
                raise Irregular
        bodies[number, :lanes] = after
        ends[number, :lanes] = positions[:lanes] = after + lengths
    if (positions != stops).any():
        raise Irregular
    back = np.argsort(order)
    there = np.arange(longest) < counts[back][:, None]
    return bodies.T[back][there], ends.T[back][there]


def _walk(data: bytes | memoryview, spans: Sequence[tuple[int, int, int]]) -> Array:
    """The start of each record, at its length field.

    Producers send runs of records of equal length. In a run, the first bytes of the lengths are a fixed stride apart,
    so one slice and one comparison in C find its end. Records outside of runs are walked one by one.
    """
    found: list[int] = []
    add = found.append
    octets = data if isinstance(data, bytes) else bytes(data)
    for position, stop, count in spans:
        until = len(found) + count
        look_at = len(found)
        while (done := len(found)) < until:
            raw = octets[position]
            if raw < 0x80:
                size, width = 1 + (raw >> 1), 1
            else:
                second = octets[position + 1]
                if second >= 0x80:
                    raw, after = read_raw(octets, position, VARINT)
                    size, width = after - position + (raw >> 1), 3
                else:
                    size, width = 2 + ((raw & 0x7F | second << 7) >> 1), 2
            if raw & 1:
                raise Irregular
            add(position)
            if done < look_at or width == 3 or until - done < MIN_RUN:
                position += size
                continue
            end = position + size * min(until - done, (stop - position) // size)
            column = octets[position:end:size]
            run = len(column) - len(column.lstrip(column[:1]))
            if width == 2 and run >= MIN_RUN:
                column = octets[position + 1 : end : size]
                run = min(run, len(column) - len(column.lstrip(column[:1])))
            if run >= MIN_RUN:
                found.extend(range(position + size, position + size * run, size))
                position += size * run
            else:
                look_at = done + RUN_BACKOFF
                position += size
        if position != stop:
            raise Irregular
    return np.array(found, dtype=np.int64)


def _varints(octets: Array, positions: Array, longest: int = 5) -> tuple[Array, Array]:
    """The zigzag varint at each position, and the positions after them."""
    first = octets.take(positions)
    raw = first.astype(np.int64)
    positions = positions + 1
    more = first >= 0x80
    count = np.count_nonzero(more)
    if count == len(first) and count:
        byte = octets.take(positions)
        positions += 1
        raw = (raw & 0x7F) | (byte & 0x7F).astype(np.int64) << 7
        going, shift = np.flatnonzero(byte >= 0x80), 14
    else:
        going, shift = np.flatnonzero(more) if count else more[:0], 7
        raw[going] &= 0x7F
    while len(going):
        if shift == 7 * longest:
            raise Irregular
        byte = octets.take(positions[going])
        positions[going] += 1
        raw[going] |= (byte & 0x7F).astype(np.int64) << shift
        going = going[byte >= 0x80]
        shift += 7
    if shift > 28 and longest == 5 and raw.max() > 0xFFFFFFFF:
        raise Irregular
    return (raw >> 1) ^ -(raw & 1), positions


def _kept(offsets: Array, timestamps: Array, wanted: Wanted) -> Array | None:
    """The indexes of the wanted records, or None if all are wanted."""
    if not len(offsets):
        return None
    mask = None
    if offsets.min() < wanted.start or offsets.max() >= wanted.end:
        mask = (offsets >= wanted.start) & (offsets < wanted.end)
    if timestamps.min() < wanted.least_ms or timestamps.max() >= wanted.before_ms:
        timely = (timestamps >= wanted.least_ms) & (timestamps < wanted.before_ms)
        mask = timely if mask is None else mask & timely
    return None if mask is None else np.flatnonzero(mask)


def _slices(data: bytes | memoryview, bounds: Array) -> pa.Array:
    """The buffer as an Arrow array with one entry for each slice between two bounds, without a copy."""
    if not len(bounds):
        return pa.array([], type=pa.binary())
    return pa.Array.from_buffers(
        pa.binary(), bounds.size - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0
    )


def _take(source: pa.Array, bounds: Array, column: int, null: Array) -> pa.Array:
    """Every slice that starts at this column of the bounds."""
    count = len(bounds)
    missing = int(np.count_nonzero(null))
    if missing == count:
        return pa.nulls(count, pa.binary())
    indexes = np.arange(column, count * bounds.shape[1], bounds.shape[1], dtype=np.int32)
    return source.take(pa.array(indexes, mask=null if missing else None))


def _headers(data: bytes | memoryview, octets: Array, positions: Array, ends: Array, kind: pa.DataType) -> pa.Array:
    """The headers of all records: the first header of each, then the second of those that have one, and so on."""
    counts, after = _varints(octets, positions)
    if (counts < 0).any() or (counts > ends - after).any():
        raise Irregular
    _check_headers(int(counts.sum()))
    active = np.flatnonzero(counts)
    left, at = counts[active], after[active]
    owners: list[Array] = []
    bounds: list[Array] = []
    nulls: list[Array] = []
    while len(active):
        name_sizes, name_starts = _varints(octets, at)
        if (name_sizes < 0).any():
            raise Irregular
        name_ends = name_starts + name_sizes
        value_sizes, value_starts = _varints(octets, name_ends)
        at = value_starts + np.maximum(value_sizes, 0)
        if (at > ends[active]).any():
            raise Irregular
        owners.append(active)
        nulls.append(value_sizes < 0)
        bounds.append(np.stack([name_starts, name_ends, value_starts, at], axis=1))
        after[active] = at
        left = left - 1
        more = left > 0
        active, left, at = active[more], left[more], at[more]
    if (after != ends).any():
        raise Irregular
    if not owners:
        return pa.nulls(len(counts), kind)
    order = np.argsort(np.concatenate(owners), kind="stable")
    slices = np.ascontiguousarray(np.concatenate(bounds)[order], dtype=np.int32)
    source = _slices(data, slices)
    names = _take(source, slices, 0, np.zeros(len(slices), dtype=bool))
    values = _take(source, slices, 2, np.concatenate(nulls)[order])
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        raise Irregular from None
    fields = [kind.value_type.field(0), kind.value_type.field(1)]
    entries = pa.StructArray.from_arrays([names, values], fields=fields)
    limits: Array = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=limits[1:])
    present = pa.array(counts > 0).buffers()[1]
    return pa.Array.from_buffers(kind, len(counts), [present, pa.py_buffer(limits)], children=[entries])
