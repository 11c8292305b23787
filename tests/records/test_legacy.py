"""Message formats 0 and 1, in both directions against two other implementations, and what Kafka refuses."""

import contextlib
import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AioReader
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords

from ottla.errors import CorruptMessage, InvalidRecord, KafkaError, UnsupportedCompressionType
from ottla.records.batch import LOG_APPEND_TIME, Batch, Record, build_batch
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla.records.legacy import LegacyBatch, any_batches, build_message_set, encode_message, message_set

CODECS = (0, GZIP, SNAPPY, LZ4)
octets = st.none() | st.binary(max_size=100)
rows = st.lists(st.tuples(st.integers(0, 2**40), octets, octets), min_size=1, max_size=15)
# The broken LZ4 framing needs a package there. test_conversion reads such frames from Kafka.
UNSUPPORTED_ELSEWHERE = {(0, LZ4)}
NOW = 1_700_000_000_000


def as_records(values, base=0):
    return [Record(base + n, timestamp, key, value) for n, (timestamp, key, value) in enumerate(values)]


def read(data):
    return [record for message in message_set(data) for record in message.records()]


def without_time(records):
    return [record._replace(timestamp=-1) for record in records]


THREE = [Record(n, NOW + n, b"k%d" % n, b"v%d" % n) for n in range(3)]


@given(rows, st.sampled_from((0, 1)), st.sampled_from(CODECS), st.integers(0, 2**40))
@settings(deadline=None, max_examples=50)
def test_round_trip(values, magic, codec, base):
    records = as_records(values, base)
    data = build_message_set(records, magic, codec)
    messages = list(message_set(data))
    assert len(messages) == (1 if codec else len(records))
    for message in messages:
        message.ensure_valid()
        assert message.codec == codec
    assert messages[-1].last_offset == records[-1].offset
    assert messages[-1].next_offset == records[-1].offset + 1
    assert messages[0].base_offset == base
    assert read(data) == (records if magic else without_time(records))
    if magic and codec:
        assert messages[0].max_timestamp == max(record.timestamp for record in records)


@given(rows, st.sampled_from((0, 1)), st.sampled_from(CODECS))
@settings(deadline=None, max_examples=60)
def test_other_implementations_read_ours(values, magic, codec):
    assume((magic, codec) not in UNSUPPORTED_ELSEWHERE)
    records = as_records(values)
    data = build_message_set(records, magic, codec)
    expected = [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in records]
    kafka_python = []
    reader = MemoryRecords(data)
    while (batch := reader.next_batch()) is not None:
        assert batch.validate_crc()
        kafka_python += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert kafka_python == expected
    aiokafka = []
    for message in message_set(data):
        batch = AioReader(bytearray(message.view()), magic)
        assert batch.validate_crc()
        aiokafka += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert aiokafka == expected


@given(rows, st.sampled_from((0, 1)), st.sampled_from(CODECS), st.sampled_from((AioBuilder, KafkaPythonBuilder)))
@settings(deadline=None, max_examples=60)
def test_we_read_other_implementations(values, magic, codec, builder_type):
    assume((magic, codec) not in UNSUPPORTED_ELSEWHERE)
    builder = builder_type(magic=magic, compression_type=codec, batch_size=1 << 20)
    records = as_records(values)
    for record in records:
        builder.append(record.offset, timestamp=record.timestamp, key=record.key, value=record.value)
    data = builder.build()
    for message in message_set(data):
        assert message.crc_ok()
    assert read(data) == (records if magic else without_time(records))


def test_known_bytes():
    body = b"\x01\x00" + struct.pack(">q", NOW) + b"\0\0\0\1k" + b"\xff\xff\xff\xff"
    expected = struct.pack(">qiI", 5, len(body) + 4, zlib.crc32(body)) + body
    assert build_message_set([Record(5, NOW, b"k", None)], 1) == expected


def test_inner_offsets_are_relative_in_format_1_and_absolute_in_0():
    records = [record._replace(offset=record.offset + 40) for record in THREE]
    for magic, inner in ((1, [0, 1, 2]), (0, [40, 41, 42])):
        (wrapper,) = message_set(build_message_set(records, magic, GZIP))
        assert [message.last_offset for message in wrapper.inner()] == inner
        assert wrapper.last_offset == 42
        assert [record.offset for record in wrapper.records()] == [40, 41, 42]


def test_an_append_time_wrapper_sets_the_time_of_its_messages():
    (wrapper,) = message_set(build_message_set(THREE, 1, LZ4, append_time_ms=NOW + 99))
    assert wrapper.timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp for record in wrapper.records()} == {NOW + 99}
    # A wrapper stamped later than its messages were written: its time still wins.
    value = compress(GZIP, build_message_set(THREE, 1))
    (wrapper,) = message_set(encode_message(2, 1, GZIP | 8, NOW + 500, None, value))
    assert {record.timestamp for record in wrapper.records()} == {NOW + 500}


def test_format_0_has_no_timestamp_type():
    (message,) = message_set(encode_message(0, 0, 8, 0, b"k", b"v"))
    assert message.timestamp_type == 0
    assert message.max_timestamp == -1


def test_a_wrapper_offset_of_zero_does_not_change_inner_offsets():
    value = compress(GZIP, build_message_set(THREE, 1))
    (wrapper,) = message_set(encode_message(0, 1, GZIP, NOW, None, value))
    assert [record.offset for record in wrapper.records()] == [0, 1, 2]
    (wrapper,) = message_set(encode_message(1, 1, GZIP, NOW, None, value))
    with pytest.raises(InvalidRecord):
        wrapper.records()


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        (GZIP, None),
        (GZIP, compress(GZIP, b"")),
        (GZIP, compress(GZIP, build_message_set(THREE, 1, GZIP))),
        (GZIP, compress(GZIP, build_batch(THREE))),
        (ZSTD, compress(ZSTD, build_message_set(THREE, 1))),
    ],
)
def test_wrappers_that_kafka_refuses_are_refused(attributes, value):
    (wrapper,) = message_set(encode_message(2, 1, attributes, NOW, None, value))
    with pytest.raises(InvalidRecord):
        wrapper.records()


def test_zstd_is_not_written():
    with pytest.raises(UnsupportedCompressionType):
        build_message_set(THREE, 1, ZSTD)


@pytest.mark.parametrize("codec", CODECS)
def test_truncation_at_every_byte_gives_the_whole_messages_before(codec):
    data = build_message_set(THREE, 1, codec) + build_message_set(THREE, 0, codec)
    ends = [message.end_position for message in any_batches(data)]
    for cut in range(len(data)):
        assert [message.end_position for message in any_batches(data[:cut])] == [end for end in ends if end <= cut]


def test_every_flipped_byte_after_the_size_is_noticed():
    data = bytearray(build_message_set(THREE[:1], 1))
    for position in range(12, len(data)):
        data[position] ^= 0x10
        assert not LegacyBatch(data).crc_ok()
        with pytest.raises(CorruptMessage):
            LegacyBatch(data).ensure_valid()
        data[position] ^= 0x10


def test_invalid_sizes_and_magics_are_refused():
    for broken in (
        struct.pack(">qi", 0, 13) + bytes(20),
        struct.pack(">qi", 0, -1) + bytes(20),
        struct.pack(">qiIb", 0, 20, 0, 3) + bytes(20),
        struct.pack(">qiIb", 0, 20, 0, -1) + bytes(20),
        struct.pack(">qiib", 0, 20, 0, 2) + bytes(20),
    ):
        with pytest.raises(CorruptMessage):
            list(any_batches(broken))


def test_fields_that_exceed_their_message_are_refused():
    for position in (26, 32):
        data = bytearray(build_message_set(THREE[:1], 1))
        struct.pack_into(">i", data, position, 1000)
        with pytest.raises(InvalidRecord):
            read(data)


def test_formats_can_be_mixed_in_a_log():
    data = build_message_set(THREE, 0) + build_message_set(THREE, 1, GZIP) + build_batch(THREE)
    kinds = [type(batch) for batch in any_batches(data)]
    assert kinds == [LegacyBatch] * 4 + [Batch]
    with pytest.raises(InvalidRecord):
        list(message_set(data))


@given(st.binary(max_size=120), st.integers(0, 1), st.integers(0, 7))
@settings(deadline=None, max_examples=50)
def test_garbage_raises_no_other_exception(garbage, magic, attributes):
    for data in (
        garbage,
        encode_message(3, magic, attributes, NOW, None, garbage),
        struct.pack(">qi", 0, 30) + garbage,
    ):
        with contextlib.suppress(KafkaError):
            for batch in any_batches(data):
                list(batch.records(1 << 20))
