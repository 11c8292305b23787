"""One record of a v2 batch: its varints, and reading and writing it.

    length varint, attributes 1, timestamp delta varlong, offset delta varint, key, value, headers

Keys, values, header names and header values are preceded by their size as a varint; -1 is null. All varints are zigzag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import InvalidRecord

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# --- reading records -------------------------------------------------------------------------------------------------


VARINT: Final = 28
VARLONG: Final = 63
"""The shift of the last byte of a varint of 5 or 10 bytes."""


def read_raw(data: Buffer, position: int, last_shift: int) -> tuple[int, int]:
    """The unsigned number of a varint whose last byte has at most `last_shift` -> (number, next position)."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Bits beyond 32 or 64 are dropped, as in Java.
            return raw & (0xFFFFFFFF if last_shift == VARINT else 0xFFFFFFFFFFFFFFFF), position
        if shift == last_shift:
            raise InvalidRecord(f"varint is longer than {last_shift // 7 + 1} bytes")
        shift += 7


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Zigzag varint of at most 5 bytes -> (value, next position). IndexError at the end of the data."""
    raw, position = read_raw(data, position, VARINT)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Zigzag varint of at most 10 bytes -> (value, next position). IndexError at the end of the data."""
    raw, position = read_raw(data, position, VARLONG)
    return (raw >> 1) ^ -(raw & 1), position


Span: TypeAlias = tuple[int, int, int, int, int, int, bytes | None]
"""The position of a record in its payload: (start, end of the timestamp delta, start of the value, end, timestamp
delta, offset delta, key). A plain tuple, because there is one for every record."""


def spans(data: bytes, count: int, position: int = 0, *, to_end: bool = True) -> Iterator[Span]:
    """The next `count` records. Values and headers are skipped. With `to_end`, the last one must end the data.

    Varints of one and two bytes, by far the most common, are read inline: a call would cost more than the decoding.
    """
    size = len(data)
    try:
        for _ in range(count):
            start = position
            if (raw := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = raw & 0x7F | second << 7
                position += 2
            else:
                raw, position = read_raw(data, position, VARINT)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise InvalidRecord("a record's size is negative or runs past the end of the batch")
            position += 1  # the attributes of a record are unused so far
            if (raw := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = raw & 0x7F | second << 7
                position += 2
            else:
                raw, position = read_raw(data, position, VARLONG)
            timestamp_delta = (raw >> 1) ^ -(raw & 1)
            after_timestamp = position
            if (raw := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = raw & 0x7F | second << 7
                position += 2
            else:
                raw, position = read_raw(data, position, VARINT)
            offset_delta = (raw >> 1) ^ -(raw & 1)
            if (raw := data[position]) < 0x80:
                position += 1
            else:
                raw, position = read_raw(data, position, VARINT)
            key = None
            if not raw & 1:
                begin = position
                position += raw >> 1
                key = data[begin:position]
            if position >= end:
                raise InvalidRecord("a record's key runs past its end")
            yield start, after_timestamp, position, end, timestamp_delta, offset_delta, key
            position = end
    except IndexError:
        raise InvalidRecord("records end before the declared count") from None
    if to_end and position != size:
        raise InvalidRecord(f"{size - position} bytes follow the last declared record")


def decode_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    *,
    with_headers: bool = True,
) -> Iterator[Record]:
    """Decode `count` records. The data must end with the last one. Headers can be skipped."""
    if count < 0:
        raise InvalidRecord(f"batch has a record count of {count}")
    new = tuple.__new__
    for _, _, position, end, timestamp_delta, offset_delta, key in spans(data, count):
        try:
            if (raw := data[position]) < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                raw = raw & 0x7F | second << 7
                position += 2
            else:
                raw, position = read_raw(data, position, VARINT)
            value = None
            if not raw & 1:
                start = position
                position += raw >> 1
                value = data[start:position]
            headers: Headers = ()
            if data[position] == 0:
                position += 1
            elif with_headers:
                headers, position = _read_headers(data, position, end)
            elif position < end:
                position = end
        except IndexError:
            raise InvalidRecord("a record ends before its headers") from None
        if position != end:
            raise InvalidRecord(f"record ends at {position} where its size says {end}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise InvalidRecord(f"invalid number of record headers: {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise InvalidRecord(f"negative header key size {length}")
        name = data[position : position + length].decode("utf-8", "replace")
        position += length
        length, position = read_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        if position > end:
            raise InvalidRecord("a header runs past the end of its record")
        headers.append((name, value))
    return headers, position


# --- writing records -------------------------------------------------------------------------------------------------


def _varint_bytes(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_SMALL_VARINTS: Final = {n: bytes(((n << 1) ^ (n >> 63),)) for n in range(-64, 64)}


def encode_varint(value: int) -> bytes:
    """Zigzag varint or varlong: both encodings agree for every value that fits the smaller one."""
    return _SMALL_VARINTS.get(value) or _varint_bytes(value)


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    varint = encode_varint
    _, _, key, value, headers = record
    parts = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    if key is None:
        parts.append(b"\x01")
    else:
        parts.append(varint(len(key)))
        parts.append(key)
    if value is None:
        parts.append(b"\x01")
    else:
        parts.append(varint(len(value)))
        parts.append(value)
    if headers:
        parts.append(varint(len(headers)))
        for name, header_value in headers:
            name_bytes = name.encode("utf-8", "replace")
            parts.append(varint(len(name_bytes)))
            parts.append(name_bytes)
            if header_value is None:
                parts.append(b"\x01")
            else:
                parts.append(varint(len(header_value)))
                parts.append(header_value)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    return varint(len(body)) + body
