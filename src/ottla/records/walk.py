"""Check the records of a v2 payload without building them.

Kafka decodes every record of every produced batch, and so refuses malformed records. A Python loop over records costs
about 0.4 µs each, so this walk looks for runs instead: adjacent records with the same layout (same length, key size,
value size, no headers), which is what most producers send. In a run, each header byte is a column with a fixed stride,
and one slice and one comparison in C check a column. Records outside of runs are checked one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import InvalidRecord
from ottla.records.record import VARINT, VARLONG, Buffer, Span, read_raw, read_varint, read_varlong, spans

MIN_RUN: Final = 8
"""Shorter runs do not justify the dozen slices."""
RUN_BACKOFF: Final = 32
"""How many records to check one by one after no run was found."""
HEADERS_CHECKED_MAX: Final = 10_000
"""How many headers of a batch are checked: a few milliseconds of work. An empty header takes two bytes and compresses
well, so 4 KB on the wire can hold two million. Beyond this limit, the size of a record determines its end."""

_LOW: Final = bytes(range(0x80))
_HIGH: Final = bytes(range(0x80, 0x100))
_EVEN: Final = bytes(range(0, 0x100, 2))
LEAST_RECORD_SIZE: Final = 7  # length, attributes, two deltas, null key, null value, no headers
_LEAST_HEADER: Final = 2  # an empty name and no value
_UP_TO: Final = bytes(range(0x100))


class Walked(NamedTuple):
    """The summary of the records. Deltas are relative to the batch's base timestamp."""

    max_delta: int
    min_delta: int
    """A lower bound; exact if a delta is negative."""
    null_keys: list[int]
    """Indexes of records without a key."""
    sequential: bool
    """Offset deltas are 0, 1, 2, …"""
    saw_all_headers: bool = True
    """False if there are more than HEADERS_CHECKED_MAX."""


class _Layout(NamedTuple):
    """The positions of the fixed parts of a record, relative to its start, and their bytes."""

    size: int
    constants: list[tuple[int, int]]  # (position, byte) pairs that must be equal in the whole run
    timestamp: tuple[int, int]  # position and width of the delta
    offset: tuple[int, int]
    has_key: bool


def walk(data: Buffer, count: int, check_sequence: bool = True) -> Walked:
    """Check all `count` records. Raises InvalidRecord where Kafka does.

    Fewer than MIN_RUN records may be a memoryview. More are copied, because the string methods of bytes are needed.
    """
    if count == 1:
        return _walk_one(data)
    if count >= MIN_RUN:
        data = bytes(data)
    if count * LEAST_RECORD_SIZE > len(data):
        raise InvalidRecord(f"{len(data)} bytes cannot hold {count} records")
    highest: int | None = None
    lowest = 0
    null_keys: list[int] = []
    headers_left = [HEADERS_CHECKED_MAX]
    sequential = True
    position = index = 0
    try:
        while index < count:
            run = None
            if count - index >= MIN_RUN and isinstance(data, bytes):
                run = _run_at(data, position, index, count - index, check_sequence)
            if run is not None:
                length, position, run_highest, has_key, run_sequential = run
                run_lowest = 0
                if not has_key:
                    null_keys.extend(range(index, index + length))
                sequential = sequential and run_sequential
                index += length
            else:
                singles = min(count - index, RUN_BACKOFF)
                position, run_highest, run_lowest, run_sequential = _walk_singles(
                    data, position, index, singles, null_keys, headers_left
                )
                sequential = sequential and run_sequential
                index += singles
            if highest is None:
                highest, lowest = run_highest, run_lowest
            else:
                highest = max(highest, run_highest)
                lowest = min(lowest, run_lowest)
    except IndexError:
        raise InvalidRecord("records end before the declared count") from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last declared record")
    return Walked(highest or 0, lowest, null_keys, sequential, headers_left[0] >= 0)


_ONE_WITH_KEY: Final = Walked(0, 0, [], True)
_ONE_WITHOUT_KEY: Final = Walked(0, 0, [0], True)


def plain_record(data: Buffer) -> Walked | None:
    """Quick check of a batch with one record, without headers and with lengths of one or two bytes.

    Producers that do not linger send almost only such batches. None for other batches.
    """
    end = len(data)
    try:
        size = data[0]
        position = 1
        if size >= 0x80 and data[1] < 0x80:
            size = size & 0x7F | data[1] << 7
            position = 2
        if (
            not size & 1
            and position + (size >> 1) == end
            and not data[position + 1]  # timestamp and offset: no delta
            and not data[position + 2]
        ):
            key = data[position + 3]
            value_at = position + (4 if key & 1 else 4 + (key >> 1))
            value = data[value_at]
            if value >= 0x80:
                value_at += 1
                value = value & 0x7F | data[value_at] << 7
            if (
                key < 0x80
                and value < 0x4000
                and not value & 1
                and value_at + 2 + (value >> 1) == end
                and not data[end - 1]
            ):
                return _ONE_WITHOUT_KEY if key & 1 else _ONE_WITH_KEY
    except IndexError:
        pass
    return None


def _walk_one(data: Buffer) -> Walked:
    plain = plain_record(data)
    if plain is not None:
        return plain
    null_keys: list[int] = []
    headers_left = [HEADERS_CHECKED_MAX]
    try:
        position, delta, _, sequential = _walk_singles(data, 0, 0, 1, null_keys, headers_left)
    except IndexError:
        raise InvalidRecord("records end before the declared count") from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last declared record")
    return Walked(delta, delta, null_keys, sequential, headers_left[0] >= 0)


def _walk_singles(
    data: Buffer, position: int, index: int, count: int, null_keys: list[int], headers_left: list[int]
) -> tuple[int, int, int, bool]:
    """Check `count` records one by one -> (position, highest and lowest timestamp delta, offsets in sequence).

    `headers_left` holds how many headers may still be checked, and is negative once there were more. Varints of one and
    two bytes are by far the most common and are read inline: a call would cost more than the rest.
    """
    size = len(data)
    highest = -1 << 63
    lowest = 1 << 63
    sequential = True
    for record_index in range(index, index + count):
        byte = data[position]
        if byte < 0x80:
            end = position + 1 + (byte >> 1)
            position += 2
        else:
            second = data[position + 1]
            if second < 0x80:
                end = position + 2 + ((byte & 0x7F | second << 7) >> 1)
                position += 3
            else:
                length, position = read_varint(data, position)
                end = position + length
                position += 1
        if byte & 1 or end > size:
            raise InvalidRecord("a record's size is negative or runs past the end of the batch")
        byte = data[position]
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                delta = (byte >> 1 & 0x3F | second << 6) ^ -(byte & 1)
                position += 2
            else:
                delta, position = read_varlong(data, position)
        if delta > highest:
            highest = delta
        if delta < lowest:
            lowest = delta
        byte = data[position]
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            position += 1
        else:
            second = data[position + 1]
            if second < 0x80:
                delta = (byte >> 1 & 0x3F | second << 6) ^ -(byte & 1)
                position += 2
            else:
                delta, position = read_varint(data, position)
        if delta != record_index:
            sequential = False
        byte = data[position]
        if byte < 0x80:
            position += 1 if byte & 1 else 1 + (byte >> 1)
        else:
            length, position = read_varint(data, position)
            position += max(length, 0)
        if byte & 1:
            null_keys.append(record_index)
        byte = data[position]
        if byte < 0x80:
            position += 1 if byte & 1 else 1 + (byte >> 1)
        else:
            second = data[position + 1]
            if second < 0x80:
                position += 2 if byte & 1 else 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                length, position = read_varint(data, position)
                position += max(length, 0)
        if data[position] == 0:
            position += 1
        else:
            position = _skip_headers(data, position, end, headers_left)
        if position != end:
            raise InvalidRecord(f"record ends at {position} where its size says {end}")
    return position, highest, lowest, sequential


def _skip_headers(data: Buffer, position: int, end: int, headers_left: list[int]) -> int:
    count, position = read_varint(data, position)
    if count < 0 or count > end - position:
        raise InvalidRecord(f"invalid number of record headers: {count}")
    checked = min(count, max(headers_left[0], 0))
    headers_left[0] -= count
    for _ in range(checked):
        length, position = read_varint(data, position)
        if length < 0:
            raise InvalidRecord(f"negative header key size {length}")
        position += length
        length, position = read_varint(data, position)
        position += max(length, 0)
        if position > end:
            raise InvalidRecord("a header runs past the end of its record")
    if checked == count:
        return position
    if (count - checked) * _LEAST_HEADER > end - position:
        raise InvalidRecord(f"{end - position} bytes cannot hold {count - checked} headers")
    return end


# --- keys ------------------------------------------------------------------------------------------------------------


_KEYS_AT_ONCE: Final = 32


class Keyed(NamedTuple):
    """The data of records that compaction needs, one list for each kind."""

    offset_deltas: list[int]
    keys: list[bytes | None]
    tombstones: list[int]
    """Indexes of records without a value."""


def keyed(data: bytes, count: int) -> Keyed:
    """The keys of a payload. Of the other parts of a record only the sizes are read."""
    found = Keyed([], [], [])
    position = index = 0
    try:
        while index < count:
            length = 0
            if count - index >= MIN_RUN:
                length, position = _keyed_run(data, position, index, count - index, found)
            if not length:
                length = min(count - index, RUN_BACKOFF)
                position = _keyed_singles(data, position, index, length, found)
            index += length
    except IndexError:
        raise InvalidRecord("records end before the declared count") from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last declared record")
    return found


def _keyed_run(data: bytes, start: int, index: int, most: int, found: Keyed) -> tuple[int, int]:
    """The keys of a run at `start` -> (records, end position). No records if there is no run."""
    _, _, value_at, first_end, _, first_delta, key = next(spans(data, 1, start, to_end=False))
    length = _sequence_at(data, start, first_delta, most) if key is not None else 0
    if key is None or not length:
        return 0, start
    key_size, stride = len(key), first_end - start
    end = start + length * stride
    found.offset_deltas.extend(range(first_delta, first_delta + length))
    found.keys.extend(_run_keys(data, value_at - key_size, key_size, stride, length))
    if data[value_at] & 1:
        found.tombstones.extend(range(index, index + length))
    return length, end


def _run_keys(data: bytes, start: int, size: int, stride: int, count: int) -> list[bytes]:
    """`count` keys of `size` bytes, `stride` bytes apart. Reading many in one call takes a quarter of the time."""
    keys: list[bytes] = []
    step = stride * _KEYS_AT_ONCE
    singly_from = start + count // _KEYS_AT_ONCE * step
    if singly_from > start:
        read = _keys_at_once(size, stride).unpack_from
        for at in range(start, singly_from, step):
            keys += read(data, at)
    keys += [data[at : at + size] for at in range(singly_from, start + count * stride, stride)]
    return keys


@lru_cache(maxsize=64)
def _keys_at_once(size: int, stride: int) -> Struct:
    return Struct(f"{size}s{stride - size}x" * (_KEYS_AT_ONCE - 1) + f"{size}s")


def _keyed_singles(data: bytes, position: int, index: int, count: int, found: Keyed) -> int:
    """The keys of `count` records -> their end position."""
    size = len(data)
    add_delta, add_key = found.offset_deltas.append, found.keys.append
    for record_index in range(index, index + count):
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
        position += 1
        while data[position] > 0x7F:  # the timestamp delta
            position += 1
        position += 1
        if (raw := data[position]) < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            position += 2
        else:
            raw, position = read_raw(data, position, VARINT)
        add_delta((raw >> 1) ^ -(raw & 1))
        if (raw := data[position]) < 0x80:
            position += 1
        else:
            raw, position = read_raw(data, position, VARINT)
        if raw & 1:
            add_key(None)
        else:
            start = position
            position += raw >> 1
            add_key(data[start:position])
        if position >= end:
            raise InvalidRecord("a record's key runs past its end")
        if data[position] & 1:
            found.tombstones.append(record_index)
        position = end
    return position


def spans_at(data: bytes, count: int, offset_deltas: Sequence[int]) -> list[Span]:
    """The records with these increasing offset deltas. In runs, the other records are not decoded."""
    wanted = frozenset(offset_deltas)
    found: list[Span] = []
    position = index = 0
    while index < count:
        length = 0
        if count - index >= MIN_RUN:
            first = next(spans(data, 1, position, to_end=False))
            length = _sequence_at(data, position, first[5], count - index)
        if length:
            begin = bisect_left(offset_deltas, first[5])
            end = bisect_left(offset_deltas, first[5] + length, begin)
            found += _spans_in_run(data, first, offset_deltas[begin:end])
            position += length * (first[3] - position)
        else:
            length = min(count - index, RUN_BACKOFF)
            singles = list(spans(data, length, position, to_end=False))
            found += [span for span in singles if span[5] in wanted]
            position = singles[-1][3]
        index += length
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last declared record")
    return found


def _spans_in_run(data: bytes, first: Span, offset_deltas: Sequence[int]) -> Iterator[Span]:
    """These records of the run that begins with `first`."""
    start, after_timestamp, value_at, end, _, first_delta, key = first
    stride = end - start
    timestamp_at = read_raw(data, start, VARINT)[1] + 1
    key_at = value_at - len(key or b"")
    for delta in offset_deltas:
        shift = (delta - first_delta) * stride
        timestamp = data[timestamp_at + shift]
        if timestamp < 0x80:
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
        else:
            timestamp, _ = read_varlong(data, timestamp_at + shift)
        value = value_at + shift
        own_key = None if key is None else data[key_at + shift : value]
        yield start + shift, after_timestamp + shift, value, end + shift, timestamp, delta, own_key


# --- runs ------------------------------------------------------------------------------------------------------------


def _layout(data: bytes, start: int) -> _Layout | None:
    """The layout of the record at `start`. None if it has headers, or anything that needs the single check."""
    raw, position = read_raw(data, start, VARINT)
    end = position + (raw >> 1)
    if raw & 1 or end > len(data):
        return None
    places = list(range(start, position))
    timestamp_at = position + 1
    _, offset_at = read_raw(data, timestamp_at, VARLONG)
    _, key_at = read_raw(data, offset_at, VARINT)
    key_raw, position = read_raw(data, key_at, VARINT)
    places += range(key_at, position)
    value_at = position if key_raw & 1 else position + (key_raw >> 1)
    raw, position = read_raw(data, value_at, VARINT)
    places += range(value_at, position)
    headers_at = position if raw & 1 else position + (raw >> 1)
    if headers_at + 1 != end or data[headers_at] != 0:
        return None
    places.append(headers_at)
    return _Layout(
        end - start,
        [(at - start, data[at]) for at in places],
        (timestamp_at - start, offset_at - timestamp_at),
        (offset_at - start, key_at - offset_at),
        not key_raw & 1,
    )


def _run_at(
    data: bytes, start: int, index: int, most: int, check_sequence: bool
) -> tuple[int, int, int, bool, bool] | None:
    """A run at `start` -> (records, end position, highest timestamp delta, has key, in sequence), or None."""
    try:
        raw, body = read_raw(data, start, VARINT)
        stride = body - start + (raw >> 1)
        # If a record starts no run, the size of one of the next two usually differs: compare those first.
        size_bytes = data[start:body]
        for following in (start + stride, start + 2 * stride):
            if data[following : following + len(size_bytes)] != size_bytes:
                return None
        layout = _layout(data, start)
    except (InvalidRecord, IndexError):
        return None  # the single check finds and reports it
    if layout is None:
        return None
    length = min(most, (len(data) - start) // stride)
    for at, byte in layout.constants:
        column = data[start + at : start + length * stride : stride]
        if column != column[:1] * length:
            length -= len(column.lstrip(bytes((byte,))))
            if length < MIN_RUN:
                return None
    length = _same_width(data, start, stride, layout.offset, length)
    if length >= MIN_RUN:
        length = _same_width(data, start, stride, layout.timestamp, length)
    if length < MIN_RUN:
        return None
    highest = _highest_delta(data, start, stride, layout.timestamp, length)
    if highest is None:
        return None
    sequential = not check_sequence or _in_sequence(data, start, stride, layout.offset, length, index)
    return length, start + length * stride, highest, layout.has_key, sequential


def _sequence_at(data: bytes, start: int, first_delta: int, most: int) -> int:
    """How many records a run at `start` has, if its offset deltas are in sequence. 0 if there is no such run."""
    run = _run_at(data, start, first_delta, most, True) if first_delta >= 0 else None
    return run[0] if run is not None and run[4] else 0


def _same_width(data: bytes, start: int, stride: int, varint: tuple[int, int], length: int) -> int:
    """How many records of the run have this varint in the same width: only its last byte lacks the high bit."""
    at, width = varint
    for step in range(width - 1):
        column = data[start + at + step : start + length * stride : stride]
        length -= len(column.lstrip(_HIGH)) if column.translate(None, _HIGH) else 0
    column = data[start + at + width - 1 : start + length * stride : stride]
    return length if column.isascii() else length - len(column.lstrip(_LOW))


def _highest_delta(data: bytes, start: int, stride: int, varint: tuple[int, int], length: int) -> int | None:
    """The highest timestamp delta of a run. None if one is negative or wide, which needs the single check."""
    at, width = varint
    end = start + length * stride
    first = data[start + at : end : stride]
    if first.translate(None, _EVEN):
        return None
    if width == 1:
        return _highest_byte(first) >> 1
    if width > 2:
        return max(read_varlong(data, position)[0] for position in range(start + at, end, stride))
    second = data[start + at + 1 : end : stride]
    top = _highest_byte(second)
    # Timestamps mostly increase, so the records with the highest second byte are the last few.
    since = second.index(top)
    if second.count(top) == length - since:
        return max(first[since:]) >> 1 & 0x3F | top << 6
    return max((low >> 1 & 0x3F) | high << 6 for low, high in zip(first, second, strict=True))


def _highest_byte(column: bytes) -> int:
    """Like max(), but in C if the last byte is the highest."""
    last = column[-1]
    larger = column.translate(None, _UP_TO[: last + 1])
    return max(larger) if larger else last


_SEQUENCE_LIMIT: Final = 8192  # offset deltas of one and two bytes
_sequence_columns: list[bytes] = []


def _in_sequence(data: bytes, start: int, stride: int, varint: tuple[int, int], length: int, index: int) -> bool:
    """Whether the offset deltas of the run are index, index + 1, …"""
    at, width = varint
    if index + length > _SEQUENCE_LIMIT:
        positions = range(start + at, start + length * stride, stride)
        return all(read_varint(data, position)[0] == index + n for n, position in enumerate(positions))
    if width > 2:
        return False
    if not _sequence_columns:
        _sequence_columns.append(bytes(n << 1 if n < 64 else n << 1 & 0x7F | 0x80 for n in range(_SEQUENCE_LIMIT)))
        _sequence_columns.append(bytes(n >> 6 for n in range(_SEQUENCE_LIMIT)))
    return all(
        data[start + at + step : start + length * stride : stride] == _sequence_columns[step][index : index + length]
        for step in range(width)
    ) and (width == 1) == (index < 64)
