"""The v2 batch: header view, stamping, records, builder, control batches; against two other implementations."""

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.enums import ControlRecordType
from ottla.errors import CorruptMessage, InvalidRecord, UnknownServerError
from ottla.records.batch import (
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    Batch,
    Record,
    batches,
    build_batch,
    control_batch,
    encode_varint,
    end_transaction_marker,
    increment_sequence,
    key_value_batch,
    pack_batch,
    parse_control_key,
)
from ottla.records.checksum import crc32c
from ottla.records.record import encode_record, read_varint, read_varlong

CODECS = range(5)
NOW = 1_700_000_000_000
octets = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=10), octets), max_size=3)
plain_records = st.lists(st.tuples(st.integers(0, 2**40), octets, octets, headers), min_size=1, max_size=20)


def as_records(rows, base_offset=0):
    return [Record(base_offset + n, ts, key, value, hs) for n, (ts, key, value, hs) in enumerate(rows)]


def plain(records):
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def three(**options):
    return build_batch([Record(n, NOW + n, b"k%d" % n, b"v%d" % n) for n in range(3)], **options)


@given(plain_records, st.sampled_from(CODECS), st.integers(0, 2**50))
@settings(deadline=None, max_examples=50)
def test_round_trip(rows, codec, base_offset):
    records = as_records(rows, base_offset)
    data = build_batch(records, base_offset, codec, 7, 3, 11, transactional=True, leader_epoch=5)
    (batch,) = batches(data)
    assert batch.crc_ok()
    batch.ensure_valid()
    assert plain(batch.records()) == plain(records)
    assert (batch.base_offset, batch.next_offset, batch.record_count) == (
        base_offset,
        base_offset + len(rows),
        len(rows),
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch) == (7, 3, 11, 5)
    assert batch.last_sequence == 11 + len(rows) - 1
    assert batch.codec == codec
    assert batch.is_compressed == (codec != 0)
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.max_timestamp == max(row[0] for row in rows)
    assert batch.view() == data


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value):
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 5


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value):
    encoded = encode_varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize(("read", "width"), [(read_varint, 5), (read_varlong, 10)])
def test_overlong_varints_are_refused(read, width):
    assert read(b"\xff" * (width - 1) + b"\x00", 0)[1] == width
    with pytest.raises(InvalidRecord):
        read(b"\xff" * width + b"\x00", 0)


def test_known_bytes():
    """A handwritten batch."""
    record = b"\x14\x00\x00\x00\x04k1\x04v1\x00"  # length 10 as zigzag 20, no deltas, key, value, no headers
    body = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + record
    expected = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body
    assert build_batch([Record(0, 1000, b"k1", b"v1")]) == expected


@given(plain_records, st.sampled_from(CODECS))
@settings(deadline=None, max_examples=50)
def test_other_implementations_read_ours(rows, codec):
    records = as_records(rows)
    data = bytes(build_batch(records, codec=codec))
    for reader in (KafkaPythonBatch(data), AioBatch(data)):
        assert reader.validate_crc()
        read = [(r.offset, r.timestamp, r.key, r.value, [(k, v) for k, v in r.headers]) for r in reader]
        assert read == plain(records)


@given(plain_records, st.sampled_from(CODECS), st.sampled_from([KafkaPythonBuilder, AioBuilder]))
@settings(deadline=None, max_examples=50)
def test_we_read_other_implementations(rows, codec, builder_type):
    builder = builder_type(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        batch_size=1 << 20,
    )
    for offset, (timestamp, key, value, hs) in enumerate(rows):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=hs)
    (batch,) = batches(builder.build())
    assert batch.crc_ok()
    assert plain(batch.records()) == plain(as_records(rows))
    assert (batch.producer_id, batch.base_sequence) == (9, 4)


def test_stamping_in_place_leaves_the_crc_valid():
    frame = bytearray(b"frame") + three() + b"more"
    batch = Batch(memoryview(frame), 5)
    payload = bytes(batch.payload())
    batch.stamp(1000, 7)
    again = Batch(frame, 5)
    assert (again.base_offset, again.leader_epoch, again.last_offset) == (1000, 7, 1002)
    assert again.crc_ok()
    assert again.crc == batch.crc
    assert bytes(again.payload()) == payload
    assert frame[:5] == b"frame"
    assert frame.endswith(b"more")
    assert [r.offset for r in again.records()] == [1000, 1001, 1002]


def test_stamping_an_append_time_sets_type_maximum_and_crc():
    data = three()
    Batch(data).stamp(0, -1, append_time_ms=NOW + 500)
    batch = Batch(data)
    assert batch.crc_ok()
    assert batch.timestamp_type == LOG_APPEND_TIME
    assert {r.timestamp for r in batch.records()} == {NOW + 500}
    batch.set_max_timestamp(CREATE_TIME, NOW + 2)
    assert Batch(data).crc_ok()
    assert [r.timestamp for r in Batch(data).records()] == [NOW, NOW + 1, NOW + 2]
    assert data == three()


def test_a_batch_over_bytes_cannot_be_stamped():
    with pytest.raises(TypeError):
        Batch(bytes(three())).stamp(1, 1)


def test_several_batches_and_a_partial_last_one():
    first, second = three(), build_batch([Record(3, NOW, None, None)], 3)
    data = first + second
    assert [b.base_offset for b in batches(data)] == [0, 3]
    for cut in range(1, len(second) + 1):
        assert [b.base_offset for b in batches(data[:-cut])] == [0]
        assert [b.base_offset for b in batches(data, 0, len(data) - cut)] == [0]
    assert next(batches(data, len(first))).position == len(first)


def test_every_flipped_byte_after_the_crc_field_is_noticed():
    data = three()
    for position in range(17, len(data)):
        data[position] ^= 0x40
        assert not Batch(data).crc_ok(), position
        data[position] ^= 0x40


def test_invalid_lengths_and_magics_are_refused():
    data = three()
    for position, value in ((11, 48), (8, 0x80), (16, 1), (16, 3)):
        broken = bytearray(data)
        broken[position] = value
        if position == 11:
            broken[8:12] = b"\0\0\0\x30"
        with pytest.raises(CorruptMessage):
            list(batches(broken))


def test_ensure_valid_names_the_offset():
    data = three()
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="offset 0"):
        Batch(data).ensure_valid()


@pytest.mark.parametrize("codec", CODECS)
def test_payload_cut_at_every_byte_is_an_error_never_a_wrong_answer(codec):
    whole = Batch(three(codec=codec))
    payload = bytes(whole.payload())
    for cut in range(len(payload)):
        batch = Batch(repack(payload[:cut], 3, codec))
        assert batch.crc_ok()
        with pytest.raises(Exception) as caught:
            list(batch.records())
        assert getattr(caught.value, "code", None) in (UnknownServerError.code, InvalidRecord.code), caught.value


def repack(payload, count, codec=0, **fields):
    base = {
        "base_offset": 0,
        "leader_epoch": -1,
        "attributes": codec,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW,
        "max_timestamp": NOW,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    return pack_batch(payload, count, **(base | fields))


@given(st.binary(max_size=80), st.integers(-2, 5))
def test_garbage_records_raise_invalid_record_or_decode(payload, count):
    with contextlib.suppress(InvalidRecord):
        list(Batch(repack(payload, count)).records())


@given(plain_records, st.data())
@settings(max_examples=60)
def test_a_mutated_payload_raises_no_other_exception(rows, data):
    payload = bytearray(Batch(build_batch(as_records(rows))).payload())
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRecord):
        list(Batch(repack(payload, len(rows))).records())


def test_trailing_bytes_and_wrong_counts():
    payload = encode_record(Record(0, 0, b"a", b"b"), 0, 0)
    assert len(list(Batch(repack(payload * 2, 2)).records())) == 2
    for broken, count in ((payload * 2, 1), (payload * 2, 3), (payload + b"\0", 1), (payload, -1)):
        with pytest.raises(InvalidRecord):
            list(Batch(repack(broken, count)).records())
    assert list(Batch(repack(payload, 0)).records()) == []


def test_records_are_lazy():
    good = encode_record(Record(0, 0, b"a", b"b"), 0, 0)
    records = Batch(repack(good + b"\xff", 2)).records()
    assert next(records).key == b"a"
    with pytest.raises(InvalidRecord):
        next(records)


def test_delete_horizon_and_gaps_survive():
    records = [Record(12, NOW, b"a", None), Record(15, NOW + 9, b"b", b"x")]
    batch = Batch(build_batch(records, 10, delete_horizon_ms=NOW + 1000, last_offset_delta=9))
    assert batch.has_delete_horizon
    assert batch.delete_horizon_ms == NOW + 1000
    assert batch.last_offset == 19
    assert plain(batch.records()) == plain(records)
    assert Batch(three()).delete_horizon_ms is None


def test_an_empty_batch_keeps_the_header_that_compaction_sets():
    batch = Batch(build_batch([], 10, codec=1, last_offset_delta=4, max_timestamp=NOW, producer_id=3, producer_epoch=0))
    assert (batch.record_count, batch.last_offset, batch.max_timestamp, batch.size) == (0, 14, NOW, HEADER_SIZE)
    assert batch.codec == 0
    assert batch.crc_ok()
    assert list(batch.records()) == []


def test_base_offset_none_takes_the_first_record():
    assert Batch(build_batch([Record(41, NOW, None, b"x")], None)).base_offset == 41


@pytest.mark.parametrize("commit", [True, False])
def test_end_transaction_marker(commit):
    data = end_transaction_marker(commit, 12, producer_id=4000, producer_epoch=6, timestamp_ms=NOW, base_offset=77)
    batch = Batch(data)
    assert batch.is_control
    assert batch.is_transactional
    assert batch.base_sequence == -1
    (marker,) = batch.control_records()
    assert marker.type == batch.control_type() == (ControlRecordType.COMMIT if commit else ControlRecordType.ABORT)
    assert (marker.offset, marker.version, marker.coordinator_epoch, marker.timestamp) == (77, 0, 12, NOW)
    assert bytes(batch.payload()).hex() == "20000000" + "08" + f"0000000{int(commit)}" + "0c" + "00000000000c" + "00"
    reader = KafkaPythonBatch(bytes(data))
    assert reader.is_control_batch
    assert reader.is_transactional


def test_control_batches_of_other_types():
    batch = Batch(control_batch(2, b"leader change", NOW, leader_epoch=3))
    (record,) = batch.control_records()
    assert (record.type, record.value, record.coordinator_epoch) == (2, b"leader change", -1)
    assert not batch.is_transactional
    assert parse_control_key(b"\0\1\0\5more") == (1, 5)
    for key in (None, b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(InvalidRecord):
            parse_control_key(key)
    with pytest.raises(InvalidRecord):
        Batch(build_batch([], control=True)).control_type()


def test_key_value_batch():
    batch = Batch(key_value_batch([(b"a", b"1"), (b"b", None)], NOW, codec=4))
    assert plain(batch.records()) == [(0, NOW, b"a", b"1", []), (1, NOW, b"b", None, [])]


def test_sequences_wrap():
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 5) == 3
    assert Batch(three(producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)).last_sequence == 1
    assert Batch(three()).last_sequence == -1


def test_header_keys_that_are_not_utf8_are_replaced():
    record = b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"
    batch = Batch(repack(encode_varint(len(record)) + record, 1))
    assert next(batch.records()).headers == [("\ufffd", None)]


def test_the_header_struct_is_the_format():
    assert HEADER.unpack(bytes(three())[:HEADER_SIZE])[:4] == (0, len(three()) - 12, -1, 2)


def test_crc32c_check_value():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(bytearray(b"x123456789"))[1:]) == 0xE3069283
