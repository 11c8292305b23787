"""The decoder by columns gives what the plain decoder gives, for any records and any damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import KafkaError
from ottla.records.batch import Batch, Record, batches, build_batch
from ottla.records.legacy import any_batches, build_message_set
from ottla.spark import decode as module
from ottla.spark.decode import Block, Irregular, decode, decode_plainly, headers_type
from ottla.spark.wanted import Wanted

HEADERS = headers_type()
BYTES = st.none() | st.binary(max_size=40) | st.integers(100, 9000).map(lambda size: b"x" * size)
NAMES = st.text(max_size=12)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 200),
        st.integers(0, 1 << 42) | st.integers(0, 300),
        BYTES,
        BYTES,
        st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=300)), max_size=4),
    ),
    max_size=12,
)


def make_batch(entries: Any, base: int = 0, **more: Any) -> bytearray:
    offset = base - 1
    records = []
    for step, timestamp, key, value, headers in entries:
        offset += step
        records.append(Record(offset, timestamp, key, value, headers))
    return build_batch(records, base, **more)


def rows(block: Block) -> list[tuple[Any, ...]]:
    listed = block.headers.to_pylist() if block.headers is not None else [None] * len(block)
    return [
        (int(offset), int(timestamp), int(kind), key, value, headers)
        for offset, timestamp, kind, key, value, headers in zip(
            block.offsets,
            block.timestamps_ms,
            block.timestamp_types,
            block.keys.to_pylist(),
            block.values.to_pylist(),
            listed,
            strict=True,
        )
    ]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(RECORDS, st.integers(0, 4), st.booleans()), max_size=5),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.integers(0, 400),
    st.booleans(),
)
def test_any_records(groups: Any, start: int, length: int, least_ms: int, with_headers: bool) -> None:
    data, base = bytearray(), 0
    for entries, codec, append_time in groups:
        made = make_batch(entries, base, codec=codec, append_time_ms=1234 if append_time else None)
        data += made
        base = max(base + 1, Batch(made).next_offset)
    found = list(batches(bytes(data)))
    wanted = Wanted(start, start + length, least_ms)
    headers = HEADERS if with_headers else None
    expected = decode_plainly(found, wanted, headers)
    got = decode(found, wanted, headers)
    assert rows(got) == rows(expected)
    assert got.keys.validate(full=True) is None and got.values.validate(full=True) is None
    if got.headers is not None:
        assert got.headers.type == HEADERS
        got.headers.validate(full=True)


@settings(deadline=None, max_examples=150)
@given(RECORDS.filter(bool), st.data())
def test_damage_is_never_decoded_differently(entries: Any, data: Any) -> None:
    """For any bytes, the fast decoder returns the result of the plain one, or its error."""
    made = make_batch(entries)
    for _ in range(data.draw(st.integers(1, 3))):
        made[data.draw(st.integers(61, len(made) - 1))] = data.draw(st.integers(0, 255))
    found = [Batch(bytes(made))]
    try:
        expected: Any = rows(decode_plainly(found, Wanted(), HEADERS))
    except KafkaError as error:
        expected = type(error)
    try:
        got: Any = rows(decode(found, Wanted(), HEADERS))
    except KafkaError as error:
        got = type(error)
    assert got == expected


def test_usual_records_take_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "decode_plainly", lambda *_: pytest.fail("went the slow way"))
    entries = [(1, 1_000 + i, f"k{i}".encode() if i % 3 else None, b"v" * (i * 7 % 900), []) for i in range(3_000)]
    entries[5] = (1, 0, b"", None, [("a", b"1"), ("b", None)])
    entries[2_999] = (1, 1 << 44, b"k" * 70_000, b"v" * 1_000_000, [("c" * 200, b"z" * 500)])
    found = list(batches(bytes(make_batch(entries))))
    got = decode(found, Wanted(), HEADERS)
    assert list(got.offsets) == list(range(3_000))
    assert got.values[2_999].as_py() == b"v" * 1_000_000
    assert got.headers is not None and got.headers[5].as_py() == [
        {"key": "a", "value": b"1"},
        {"key": "b", "value": None},
    ]
    assert got.headers[6].as_py() is None


def test_many_batches_are_walked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of different counts, records of one to three bytes of length, and what a filter leaves."""
    monkeypatch.setattr(module, "decode_plainly", lambda *_: pytest.fail("went the slow way"))
    monkeypatch.setattr(module, "_walk", lambda *_: pytest.fail("went one by one"))
    data, base = bytearray(), 0
    for number in range(60):
        size = (3, 90, 20_000)[number % 3] if number < 50 else 90
        made = make_batch([(1, i, b"k" * (i % 3), b"v" * size, []) for i in range(10 - number % 4)], base)
        data += made
        base = Batch(made).next_offset
    found = list(batches(bytes(data)))
    expected = [record for batch in found for record in batch.records() if 7 <= record.offset < 480]
    got = decode(found, Wanted(7, 480))
    assert [record.offset for record in expected] == list(got.offsets)
    assert [record.value for record in expected] == got.values.to_pylist()
    assert [record.key for record in expected] == got.keys.to_pylist()
    assert len(decode(found)) == base


def test_damage_in_one_of_many_batches_is_reported() -> None:
    made = make_batch([(1, i, None, b"v" * 100, []) for i in range(10)])
    damaged = bytearray(made)
    damaged[61] ^= 0x02  # the first record's length
    for place in (0, 20, 40):
        found = [Batch(bytes(made)) for _ in range(40)]
        found.insert(place, Batch(bytes(damaged)))
        with pytest.raises(KafkaError):
            decode(found)


def test_a_damaged_record_is_not_left_out_as_one_before_the_first_offset() -> None:
    made = make_batch([(65, 0, b"k", b"v", []), (1, 8192, None, None, []), (1, 64, None, None, [])])
    at = bytes(made).rindex(b"\x80\x01\x84\x01")  # time 64 and offset 66 of the last record
    made[at] = 0
    with pytest.raises(KafkaError):
        decode([Batch(bytes(made))])


def test_old_formats_and_names_that_are_no_text() -> None:
    records = [Record(offset, 7_000 + offset, b"k", b"v" * offset) for offset in range(20)]
    for magic in (0, 1):
        for codec in (0, 1, 2, 3):
            found = list(any_batches(bytes(build_message_set(records, magic, codec))))
            got = decode(found, Wanted(5, 15), HEADERS)
            assert list(got.offsets) == list(range(5, 15))
            assert got.values.to_pylist() == [record.value for record in records[5:15]]
    made = bytes(make_batch([(1, 5, b"k", b"v", [("name", b"1")])])).replace(b"name", b"n\xff\xfee")
    got = decode([Batch(made)], Wanted(), HEADERS)
    assert got.headers is not None and got.headers.to_pylist() == [[{"key": "n��e", "value": b"1"}]]


def test_no_records_decode_to_empty_columns() -> None:
    for headers in (None, HEADERS):
        empty = decode([], Wanted(), headers)
        assert len(empty) == 0 and len(empty.keys) == 0
    empty = decode([Batch(bytes(make_batch([], 5)))], Wanted(), HEADERS)
    assert len(empty) == 0


def test_varints_of_every_width() -> None:
    values = [0, -1, 63, 64, -64, -65, 8191, 8192, 1 << 20, (1 << 31) - 1, -(1 << 31)]
    from ottla.records.record import encode_varint

    encoded = [encode_varint(value) for value in values]
    starts = np.cumsum([0] + [len(one) for one in encoded[:-1]])
    got, after = module._varints(np.frombuffer(b"".join(encoded), dtype=np.uint8), starts)
    assert list(got) == values
    assert list(after - starts) == [len(one) for one in encoded]
    with pytest.raises((Irregular, IndexError)):
        module._varints(np.frombuffer(b"\xff" * 20, dtype=np.uint8), np.array([0]))
