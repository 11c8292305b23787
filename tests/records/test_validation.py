"""Validation, case by case. The codes of the tables are Apache Kafka's answers to the same bytes over a raw socket:
4.3.1 for produce 3 and up, 3.9.1 (with 4.x's timestamp bound) for message sets in produce 0 to 2.

Not tested there: the cases exactly at a timestamp bound, which need a clock that stands still, and the marker,
which Kafka's produce handler refuses before validation (TRANSACTIONAL_ID_AUTHORIZATION_FAILED).
"""

import random
import struct
import zlib

import lz4.frame
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
    UnsupportedCompressionType,
)
from ottla.records import compression
from ottla.records.batch import (
    HEADER,
    Batch,
    Record,
    build_batch,
    encode_record,
    end_transaction_marker,
    pack_batch,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla.records.legacy import build_message_set, encode_message
from ottla.records.validation import (
    CHEAP_COMPRESSED_SIZE,
    CHEAP_RECORD_COUNT,
    Depth,
    Origin,
    ValidationOptions,
    may_store_as_is,
    record_errors_of,
    validate,
)

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
FIELDS = [
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
]


def three(**options):
    return build_batch([Record(n, NOW + n, b"k%d" % n, b"v%d" % n) for n in range(3)], **options)


def patched(data, **fields):
    """Replaces header fields and corrects the CRC, unless it is one of them."""
    data = bytearray(data)
    values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
    HEADER.pack_into(data, 0, *values.values())
    if "crc" not in fields:
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def raw(payload, count, codec=0, delta=None, **fields):
    values = {
        "base_offset": 0,
        "leader_epoch": -1,
        "attributes": codec,
        "last_offset_delta": count - 1 if delta is None else delta,
        "base_timestamp": NOW,
        "max_timestamp": NOW,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
    }
    return pack_batch(payload, count, **(values | fields))


def one(index=0, key=b"k", timestamp=0):
    return encode_record(Record(0, 0, key, b"v"), index, timestamp)


def record(index, timestamp=NOW, key=b"a"):
    return Record(index, timestamp, key, b"b")


GOOD = one(0) + one(1)
APPEND = ValidationOptions(timestamp_type=1)
COMPACT = ValidationOptions(compacted=True)
RECENT = ValidationOptions(timestamp_before_max_ms=1000)
PLAIN = ValidationOptions()
FUTURE = NOW + 2 * HOUR_MS


def to(codec, **options):
    return ValidationOptions(target_codec=codec, **options)


def outcome(data, options=PLAIN, version=13, now=NOW + 100):
    """(error code, indexes of bad records, result)."""
    try:
        return 0, [], validate(bytearray(data), options, now, version)
    except KafkaError as error:
        return error.code, [index for index, _ in record_errors_of(error)], None


HEADER_CASES = {
    "ok": (three(), 0),
    "base offset": (patched(three(), base_offset=5), 87),
    "two batches": (three() + three(), 87),
    "nothing": (b"", 87),
    "a partial batch": (three()[:-1], 87),
    "a few bytes after": (three() + bytes(5), 0),
    "an impossible size after": (three() + bytes(12), 2),
    "a partial batch after": (three() + three()[:50], 0),
    "wrong crc": (patched(three(), crc=1), 2),
    "magic 7": (patched(three(), magic=7), 2),
    "magic -1": (patched(three(), magic=-1), 2),
    "message format 1": (build_message_set([record(0)], 1), 87),
    "message format 0": (build_message_set([record(0)], 0), 87),
    "size 13": (patched(three(), batch_length=13), 2),
    "size 40": (patched(three(), batch_length=40), 2),
    "size 48": (patched(three(), batch_length=48), 2),
    "count below offsets": (patched(three(), record_count=2), 87),
    "count above offsets": (patched(three(), record_count=4), 87),
    "too few declared": (patched(three(), record_count=2, last_offset_delta=1), 87),
    "too many declared": (patched(three(), record_count=4, last_offset_delta=3), 87),
    "empty": (raw(b"", 0), 87),
    "empty with an offset": (raw(b"", 0, delta=0), 87),
    "negative count": (raw(b"", -1), 87),
    "wrong last offset": (patched(three(), last_offset_delta=5), 87),
    "control": (three(control=True), 87),
    "marker": (end_transaction_marker(True, 0, producer_id=1, producer_epoch=0, timestamp_ms=NOW), 87),
    "producer without sequence": (three(producer_id=5, producer_epoch=0), 87),
    "sequence without producer": (three(producer_epoch=0, base_sequence=0), 0),
    "codec 5": (patched(three(), attributes=5), -1),
    "codec 7": (patched(three(), attributes=7), -1),
    "unused attributes": (patched(three(), attributes=0x180), 0),
    "delete horizon": (patched(three(), attributes=0x40), 0),
    "negative timestamp": (build_batch([record(0, -5)]), 0),
}


@pytest.mark.parametrize("depth", Depth)
@pytest.mark.parametrize("name", HEADER_CASES)
def test_headers(name, depth):
    data, code = HEADER_CASES[name]
    if depth is Depth.HEADERS and name in ("too few declared", "too many declared"):
        code = 0
    assert outcome(data, ValidationOptions(depth=depth))[0] == code


PAYLOAD_CASES = {
    "trailing byte": (GOOD + b"\0", 2, 87),
    "too few": (GOOD, 3, 87),
    "too many": (GOOD + one(2), 2, 87),
    "no records": (b"", 2, 87),
    "negative length": (one(0) + b"\x01", 2, 87),
    "overlong key size": (one(0) + b"\x20\0\0\x02\xff\xff\xff\xff\xff\x01" + b"0" * 8, 2, 87),
    "key past the record": (b"\x10\0\0\0\x80\x02vvv", 1, 87),
    "key size -2 is null": (b"\x0c\0\0\0\x03\x01\x00", 1, 0),
    "negative headers": (b"\x0c\0\0\0\x01\x01\x01", 1, 87),
    "too many headers": (b"\x0e\0\0\0\x01\x01\xc8\x01", 1, 87),
    "null header name": (b"\x10\0\0\0\x01\x01\x02\x01\x01", 1, 87),
}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("depth", [Depth.AUTO, Depth.RECORDS])
@pytest.mark.parametrize("name", PAYLOAD_CASES)
def test_payloads(name, codec, depth):
    payload, count, code = PAYLOAD_CASES[name]
    assert outcome(raw(compress(codec, payload), count, codec), ValidationOptions(depth=depth))[0] == code


@pytest.mark.parametrize("codec", range(5))
def test_record_sizes_that_do_not_fit_are_refused(codec):
    """Kafka accepts these if they are compressed, and stores a batch that no consumer can read. Ottla refuses them."""
    for change in (4, -2):
        payload = one(0) + bytes([one(1)[0] + change]) + one(1)[1:]
        assert outcome(raw(compress(codec, payload), 2, codec))[0] == InvalidRecord.code


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("deltas", [(5, 9), (0, 0), (1, 0)])
def test_offset_deltas_are_only_free_without_compression(codec, deltas):
    data = raw(compress(codec, b"".join(map(one, deltas))), 2, codec)
    assert outcome(data)[0] == (UnknownServerError.code if codec else 0)
    # Where the codec changes the records are rebuilt, and the offsets with them.
    code, _, result = outcome(data, to(GZIP if codec != GZIP else LZ4))
    assert code == 0
    assert [r.offset for r in result.batch.records()] == [0, 1]


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("depth", [Depth.AUTO, Depth.RECORDS])
def test_unreadable_compression(codec, depth):
    options = ValidationOptions(depth=depth)
    packed = compress(codec, GOOD)
    assert outcome(raw(b"\xde\xad\xbe\xef" * 5, 2, codec), options)[0] == UnknownServerError.code
    assert outcome(raw(packed[:-5], 2, codec), options)[0] == UnknownServerError.code
    assert outcome(raw(packed[:-1], 2, codec), options)[0] == UnknownServerError.code
    assert outcome(raw(packed + b"garbage!!", 2, codec), options)[0] == (
        0 if codec in (GZIP, LZ4) else UnknownServerError.code
    )
    assert outcome(raw(b"", 2, codec), options)[0] == (InvalidRecord.code if codec == ZSTD else UnknownServerError.code)


def test_framings():
    frame = lz4.frame.compress
    assert outcome(raw(snappy.compress(GOOD), 2, SNAPPY))[0] == 0
    assert outcome(raw(frame(GOOD, block_linked=False, store_size=True), 2, LZ4))[0] == 0
    assert outcome(raw(frame(GOOD, block_linked=False, store_size=False, content_checksum=True), 2, LZ4))[0] == 0
    assert outcome(raw(compress(LZ4, GOOD, magic=0), 2, LZ4))[0] == UnknownServerError.code
    dependent = frame(b"".join(map(one, range(20_000))), block_linked=True)
    assert len(dependent) > CHEAP_COMPRESSED_SIZE
    for depth in Depth:
        assert outcome(raw(dependent, 20_000, LZ4), ValidationOptions(depth=depth))[0] == UnknownServerError.code


@pytest.mark.parametrize(
    ("version", "code"), [(3, UnsupportedCompressionType.code), (6, UnsupportedCompressionType.code), (7, 0), (13, 0)]
)
def test_zstd_by_version(version, code):
    assert outcome(three(codec=ZSTD), version=version)[0] == code


MIXED_TIMES = [record(0), record(1, FUTURE), record(2, FUTURE)]
KEYLESS = [record(0), record(1, key=None), record(2, key=None)]
RECORD_CASES = {
    "future": (build_batch(MIXED_TIMES), PLAIN, 32, [1, 2]),
    "future gzip": (build_batch(MIXED_TIMES, codec=GZIP), PLAIN, 32, [1, 2]),
    "future under a lying header": (patched(build_batch(MIXED_TIMES), max_timestamp=NOW), PLAIN, 32, [1, 2]),
    "future where the broker sets the time": (build_batch(MIXED_TIMES), APPEND, 0, []),
    "future header only": (patched(three(), max_timestamp=FUTURE), PLAIN, 0, []),
    "past": (build_batch([record(0, NOW - 5000), record(1)]), RECENT, 32, [0]),
    "no timestamp": (build_batch([record(0, -1), record(1, -1)]), RECENT, 0, []),
    "exactly at the bound": (build_batch([record(0, NOW + 100 + HOUR_MS)]), PLAIN, 0, []),
    "just over the bound": (build_batch([record(0, NOW + 101 + HOUR_MS)]), PLAIN, 32, [0]),
    "exactly at the lower bound": (build_batch([record(0, NOW - 900)]), RECENT, 0, []),
    "just below the lower bound": (build_batch([record(0, NOW - 901)]), RECENT, 32, [0]),
    "append flag": (patched(three(), attributes=8), PLAIN, 0, []),
    "append flag, no time": (patched(three(), attributes=8, max_timestamp=-1), PLAIN, 32, [0, 1, 2]),
    "append flag, far": (patched(three(), attributes=8, max_timestamp=FUTURE), PLAIN, 32, [0, 1, 2]),
    "append flag where the broker sets it": (patched(three(), attributes=8), APPEND, 32, [0, 1, 2]),
    "keyless": (build_batch(KEYLESS), COMPACT, 87, [1, 2]),
    "keyless lz4": (build_batch(KEYLESS, codec=LZ4), COMPACT, 87, [1, 2]),
    "keyless and far": (build_batch([record(0, key=None), record(1, FUTURE)]), COMPACT, 32, [0, 1]),
    "keyless and far in one": (build_batch([record(0, FUTURE, None)]), COMPACT, 87, [0]),
    "keyless elsewhere": (build_batch(KEYLESS), PLAIN, 0, []),
    "many keyless": (build_batch([record(n, key=None) for n in range(100)]), COMPACT, 87, list(range(100))),
    "a tombstone has a key": (build_batch([Record(0, NOW, b"k", None)]), COMPACT, 0, []),
}


@pytest.mark.parametrize("depth", [Depth.AUTO, Depth.RECORDS])
@pytest.mark.parametrize("name", RECORD_CASES)
def test_records(name, depth):
    data, options, code, bad = RECORD_CASES[name]
    options = ValidationOptions(
        compacted=options.compacted,
        timestamp_type=options.timestamp_type,
        timestamp_before_max_ms=options.timestamp_before_max_ms,
        depth=depth,
    )
    assert outcome(data, options)[:2] == (code, bad)


def test_the_structure_is_checked_before_records():
    data = raw(one(0, None) + one(1, None) + b"\0", 2)
    assert outcome(data, COMPACT)[:2] == (InvalidRecord.code, [])


def test_the_fast_path_returns_the_same_bytes_in_place():
    data = bytearray(b"head") + three() + b"tail"
    view = memoryview(data)[4:-4]
    result = validate(view, PLAIN, NOW)
    assert result.append_time_ms == -1
    assert result.record_count == 3
    assert result.max_timestamp == NOW + 2
    assert not result.converted
    assert result.data.obj is data
    result.batch.stamp(500, 3)
    assert Batch(data, 4).base_offset == 500
    assert Batch(data, 4).crc_ok()
    assert data[:4] + data[-4:] == b"headtail"


def test_bytes_after_the_batch_are_not_appended():
    result = validate(three() + bytes(5), PLAIN, NOW)
    assert bytes(result.data) == three()


def test_append_time_is_written_and_returned():
    data = three()
    result = validate(data, APPEND, NOW + 77)
    assert result.append_time_ms == result.max_timestamp == NOW + 77
    assert Batch(data).crc_ok()
    assert Batch(data).attributes == 8
    assert {r.timestamp for r in Batch(data).records()} == {NOW + 77}


def test_an_append_flag_is_cleared_where_the_producer_sets_the_time():
    data = patched(three(), attributes=8)
    validate(data, PLAIN, NOW)
    assert Batch(data).attributes == 0
    assert Batch(data).crc_ok()
    assert [r.timestamp for r in Batch(data).records()] == [NOW, NOW + 1, NOW + 2]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("claimed", [NOW, NOW + 500, -1])
def test_a_wrong_maximum_timestamp_is_corrected(codec, claimed):
    data = patched(three(codec=codec), max_timestamp=claimed)
    result = validate(data, PLAIN, NOW)
    assert result.max_timestamp == NOW + 2
    assert Batch(data).max_timestamp == NOW + 2
    assert Batch(data).crc_ok()


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("append", [False, True])
def test_recompression(source, target, append):
    data = build_batch(
        [Record(n, NOW + n, b"k%d" % n, b"v" * 50, [("h", b"x")]) for n in range(3)],
        codec=source,
        producer_id=8,
        producer_epoch=2,
        base_sequence=30,
        transactional=True,
    )
    before = list(Batch(data).records())
    result = validate(data, to(target, timestamp_type=int(append)), NOW + 9)
    batch = result.batch
    assert result.converted == (source != target)
    assert batch.crc_ok()
    assert batch.codec == target
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (8, 2, 30, True)
    assert (batch.last_offset_delta, batch.record_count) == (2, 3)
    assert result.append_time_ms == (NOW + 9 if append else -1)
    times = [NOW + 9] * 3 if append else [NOW, NOW + 1, NOW + 2]
    assert [r.timestamp for r in batch.records()] == times
    assert [r[2:] for r in batch.records()] == [r[2:] for r in before]
    batch.stamp(10, 1)
    assert batch.crc_ok()


def test_recompression_uses_the_level():
    text = b"".join(b"the %d quick brown %d fox" % (n, n * 7) for n in range(2000))
    data = build_batch([Record(0, NOW, None, text)])
    sizes = [validate(bytearray(data), to(ZSTD, level=level), NOW).batch.size for level in (-50, 19)]
    assert sizes[0] > sizes[1]


def test_negative_timestamps_cannot_be_recompressed():
    assert outcome(build_batch([record(0, -5)]), to(GZIP))[0] == UnknownServerError.code
    assert outcome(build_batch([record(0, -1)]), to(GZIP))[0] == 0


def test_sizes():
    large = build_batch([Record(0, NOW, b"a", b"x" * 2000)])
    assert outcome(large, ValidationOptions(max_message_bytes=1000))[0] == MessageTooLarge.code
    assert outcome(patched(large, crc=5), ValidationOptions(max_message_bytes=1000))[0] == MessageTooLarge.code
    assert outcome(large, ValidationOptions(max_message_bytes=len(large)))[0] == 0
    assert outcome(large, ValidationOptions(max_message_bytes=len(large) - 1))[0] == MessageTooLarge.code
    packed = build_batch([Record(0, NOW, b"a", b"x" * 2000)], codec=GZIP)
    assert outcome(packed, ValidationOptions(max_message_bytes=1000))[0] == 0
    assert outcome(packed, to(0, max_message_bytes=1000))[0] == MessageTooLarge.code


def test_bombs_are_refused_where_they_must_be_opened():
    bomb = raw(compress(ZSTD, bytes(100 << 20)), 1, ZSTD)
    with pytest.raises(MessageTooLarge):
        validate(bomb, ValidationOptions(compacted=True, decompressed_limit=1 << 20), NOW)
    assert outcome(bomb)[0] in (0, InvalidRecord.code)  # the automatic check does not open it, or not far


def test_decompression_is_limited_by_the_largest_message():
    """A maximum below the base requires a check of every record, and any producer can send that."""
    options = ValidationOptions(max_message_bytes=1 << 20)
    assert options.decompressed_limit == 32 << 20
    bomb = raw(compress(ZSTD, bytes((32 << 20) + 1)), 1, ZSTD, max_timestamp=NOW - 1)
    assert outcome(bomb, options)[0] == MessageTooLarge.code
    # Records of seven bytes: more of them than an uncompressed batch of the greatest size could hold.
    count = options.records_max + 1
    many = raw(compress(ZSTD, b"\x0c\0\0\0\x01\x01\0" * count), count, ZSTD, max_timestamp=NOW - 1)
    assert outcome(many, options)[0] == MessageTooLarge.code
    fewer = raw(compress(ZSTD, b"\x0c\0\0\0\x01\x01\0" * 9), 9, ZSTD, max_timestamp=NOW - 1)
    assert outcome(fewer, options)[0] == UnknownServerError.code  # read, and its offset deltas are wrong
    inner = b"".join(encode_message(n, 1, 0, NOW, None, b"") for n in range(count))
    wrapped = encode_message(count - 1, 1, GZIP, NOW, None, compress(GZIP, inner))
    assert outcome(wrapped, options, version=2)[0] == MessageTooLarge.code


def test_coordinators_may_write_control_batches_at_any_offset():
    marker = end_transaction_marker(True, 0, producer_id=1, producer_epoch=0, timestamp_ms=NOW, base_offset=9)
    for options in (PLAIN, to(GZIP)):
        result = validate(bytearray(marker), options, NOW, origin=Origin.COORDINATOR)
        assert result.batch.is_control
        assert not result.batch.is_compressed


def varied(count):
    return [Record(n, NOW + n, b"k" * (n % 7), b"v" * (n % 13)) for n in range(count)]


def test_the_automatic_check_reads_few_or_large_records():
    """It always reads few records or large ones, and many small ones only if necessary."""

    def short_count(records, codec=0):
        batch = Batch(build_batch(records, codec=codec))
        return patched(batch.view(), record_count=len(records) - 1, last_offset_delta=len(records) - 2)

    few = varied(CHEAP_RECORD_COUNT)
    many = varied(CHEAP_RECORD_COUNT * 10)
    equal = [record(n) for n in range(500)]
    large = [Record(n, NOW, None, b"v" * (4000 + n)) for n in range(CHEAP_RECORD_COUNT * 2)]
    for records in (few, large):
        assert outcome(short_count(records))[0] == InvalidRecord.code
    assert outcome(short_count(few, codec=LZ4))[0] == InvalidRecord.code
    assert outcome(short_count(many))[0] == 0
    assert outcome(short_count(equal))[0] == 0
    assert outcome(short_count(many), COMPACT)[0] == InvalidRecord.code
    assert outcome(short_count(many), RECENT)[0] == InvalidRecord.code
    assert outcome(short_count(many), to(GZIP))[0] == InvalidRecord.code
    assert outcome(short_count(many), ValidationOptions(depth=Depth.RECORDS))[0] == InvalidRecord.code
    assert outcome(patched(short_count(many), max_timestamp=NOW - 1))[0] == InvalidRecord.code


def test_options_from_a_topic_config():
    config = {
        "compression.type": "zstd",
        "compression.zstd.level": 7,
        "cleanup.policy": ["compact", "delete"],
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": 5,
        "message.timestamp.after.max.ms": 6,
        "max.message.bytes": 7000,
    }
    options = ValidationOptions.from_topic_config(config)
    assert options == ValidationOptions(ZSTD, 7, True, 1, 5, 6, 7000)
    config |= {"compression.type": "producer", "cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
    assert ValidationOptions.from_topic_config(config) == ValidationOptions(None, None, False, 0, 5, 6, 7000)
    config |= {"compression.type": "uncompressed"}
    assert ValidationOptions.from_topic_config(config).target_codec == 0


# --- message sets ----------------------------------------------------------------------------------------------------

ROWS = [Record(n, NOW + n, b"k%d" % n, b"v%d" % n) for n in range(3)]
ROWS_KEYLESS = [record(0), record(1, key=None), record(2, key=None)]
INNER = build_message_set(ROWS, 1)


def flipped(data, position=-1):
    data = bytearray(data)
    data[position] ^= 1
    return bytes(data)


def wrapper(value, magic=1, codec=GZIP, offset=2):
    return encode_message(offset, magic, codec, NOW, None, value)


def resized(position):
    data = bytearray(build_message_set(ROWS[:1], 1))
    struct.pack_into(">i", data, position, 1000)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return data


SET_CASES = {
    "v2 batch": (three(), PLAIN, 0),
    "zstd v2 batch": (three(codec=ZSTD), PLAIN, 0),
    "two v2 batches": (three() + three(), PLAIN, 87),
    "formats 0 and 1": (build_message_set(ROWS[:1], 0) + build_message_set(ROWS[1:], 1), PLAIN, 87),
    "formats 1 and 2": (build_message_set(ROWS[:1], 1) + three(), PLAIN, 87),
    "two wrappers": (build_message_set(ROWS, 1, GZIP) * 2, PLAIN, 87),
    "plain and wrapper": (INNER + build_message_set(ROWS, 1, GZIP), PLAIN, 87),
    "wrapper and plain": (build_message_set(ROWS, 1, GZIP) + INNER, PLAIN, 87),
    "wrong crc": (flipped(INNER), PLAIN, 2),
    "wrong inner crc": (wrapper(compress(GZIP, flipped(INNER))), PLAIN, 2),
    "format 0 in 1": (wrapper(compress(GZIP, build_message_set(ROWS, 0))), PLAIN, 87),
    "format 1 in 0": (wrapper(compress(GZIP, INNER), magic=0), PLAIN, 87),
    "nested": (wrapper(compress(GZIP, build_message_set(ROWS, 1, GZIP))), PLAIN, 87),
    "null wrapper": (wrapper(None), PLAIN, 87),
    "empty wrapper": (wrapper(compress(GZIP, b"")), PLAIN, 87),
    "garbage wrapper": (wrapper(b"garbage"), PLAIN, -1),
    "zstd wrapper": (wrapper(compress(ZSTD, INNER), codec=ZSTD), PLAIN, 87),
    "codec 5": (wrapper(b"x", codec=5), PLAIN, -1),
    "wrapper offset 0": (wrapper(compress(GZIP, INNER), offset=0), PLAIN, 0),
    "wrapper offset too low": (wrapper(compress(GZIP, INNER), offset=1), PLAIN, 87),
    "append flag": (build_message_set(ROWS, 1, append_time_ms=NOW), PLAIN, 0),
    "append flag wrapper": (build_message_set(ROWS, 1, GZIP, append_time_ms=NOW), PLAIN, 0),
    "append flag, append topic": (build_message_set(ROWS, 1, append_time_ms=NOW), APPEND, 32),
    "append topic": (INNER, APPEND, 0),
    "append topic, format 0": (build_message_set(ROWS, 0, GZIP), APPEND, 0),
    "keyless": (build_message_set(ROWS_KEYLESS, 1), COMPACT, 87),
    "keyless gzip": (build_message_set(ROWS_KEYLESS, 1, GZIP), COMPACT, 87),
    "keyless format 0": (build_message_set(ROWS_KEYLESS, 0), COMPACT, 87),
    "future": (build_message_set(MIXED_TIMES, 1), PLAIN, 32),
    "negative timestamp": (build_message_set([record(0, -5)], 1), PLAIN, -1),
    "no timestamp": (build_message_set([record(0, -1)], 1), PLAIN, 0),
    "too large": (
        build_message_set([Record(0, NOW, None, bytes(2000))], 1),
        ValidationOptions(max_message_bytes=999),
        10,
    ),
    "too large together": (
        build_message_set([Record(n, NOW, None, bytes(500)) for n in range(4)], 1),
        ValidationOptions(max_message_bytes=999),
        10,
    ),
    "magic 3": (patched(three(), magic=3), PLAIN, 2),
    "size 13": (struct.pack(">qi", 0, 13) + bytes(40), PLAIN, 2),
    "key past the message": (resized(26), PLAIN, -1),
    "value past the message": (resized(32), PLAIN, -1),
}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", SET_CASES)
def test_message_sets(name, version):
    data, options, code = SET_CASES[name]
    assert outcome(data, options, version)[0] == code


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("target", [None, 0, GZIP, ZSTD])
def test_message_sets_become_one_batch(magic, codec, target):
    result = validate(build_message_set(ROWS, magic, codec), to(target), NOW, produce_version=magic + 1)
    batch = result.batch
    assert batch.crc_ok()
    assert batch.codec == (codec if target is None else target)
    assert (batch.record_count, batch.last_offset_delta, batch.base_offset) == (3, 2, 0)
    times = [NOW, NOW + 1, NOW + 2] if magic else [-1] * 3
    assert [(r.offset, r.timestamp, r.key, r.value) for r in batch.records()] == [
        (n, times[n], row.key, row.value) for n, row in enumerate(ROWS)
    ]
    assert result.converted
    batch.stamp(7, 7)


def test_message_sets_without_a_whole_message_are_not_an_error():
    for data in (b"", build_message_set(ROWS[:1], 1)[:-1]):
        assert validate(data, PLAIN, NOW, produce_version=2) is None
        with pytest.raises(InvalidRecord):
            validate(data, PLAIN, NOW, produce_version=3)
    result = validate(INNER[:-1], PLAIN, NOW, produce_version=2)
    assert result.record_count == 2


def test_record_errors_of_plain_messages_count_from_each_message():
    """In Kafka, each plain message is a separate batch, and the first invalid one ends the check."""
    assert outcome(build_message_set(ROWS_KEYLESS, 1), COMPACT, 2)[:2] == (InvalidRecord.code, [0])
    assert outcome(build_message_set(ROWS_KEYLESS, 1, GZIP), COMPACT, 2)[:2] == (InvalidRecord.code, [1, 2])


@given(st.binary(max_size=200), st.integers(0, 13), st.sampled_from(Depth))
def test_garbage(data, version, depth):
    assert outcome(data, ValidationOptions(depth=depth), version)[0] in (
        0,
        UnknownServerError.code,
        CorruptMessage.code,
        MessageTooLarge.code,
        InvalidRecord.code,
        UnsupportedCompressionType.code,
    )


@given(st.sampled_from(range(5)), st.sampled_from([PLAIN, COMPACT, APPEND, to(GZIP)]), st.data())
@settings(deadline=None, max_examples=80)
def test_mutations_with_a_right_crc(codec, options, data):
    batch = three(codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    code, _, result = outcome(batch, options)
    assert code in (0, UnknownServerError.code, MessageTooLarge.code, InvalidTimestamp.code, InvalidRecord.code)
    if code == 0:
        assert result.batch.crc_ok()
        assert result.batch.codec in compression.BY_NAME.values()


MANY = [Record(n, NOW + n, b"key", random.Random(n).randbytes(150)) for n in range(CHEAP_RECORD_COUNT + 20)]
BOUNDARIES = [-(1 << 31), -2, -1, 0, 1, 2, 3, 51, 52, 53, 0x10, 0x12, 0x20, 0x23, 1 << 20, (1 << 31) - 1]


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
def test_many_records_are_accepted_without_reading_them(codec):
    assert may_store_as_is(Batch(build_batch(MANY, codec=codec)), ValidationOptions(), NOW)


SINGLE = [Record(0, NOW, None, b"v" * 100), Record(0, NOW, b"key", b"v" * 30), Record(0, NOW, b"key", None)]


@pytest.mark.parametrize("record", SINGLE[:2])
def test_one_small_record_is_accepted_after_a_few_checks(record):
    assert may_store_as_is(Batch(build_batch([record])), ValidationOptions(), NOW)


@given(
    records=st.sampled_from([MANY, *([record] for record in SINGLE)]),
    codec=st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]),
    options=st.sampled_from([ValidationOptions(), ValidationOptions(max_message_bytes=3000)]),
    changes=st.dictionaries(st.sampled_from(FIELDS[5:]), st.sampled_from(BOUNDARIES), max_size=2),
    damage=st.booleans(),
    skew_ms=st.sampled_from([0, -2 * HOUR_MS, 2 * HOUR_MS, -HOUR_MS - 1]),
)
@settings(deadline=None, max_examples=1000)
def test_the_quick_check_accepts_what_full_validation_keeps_unchanged(
    records, codec, options, changes, damage, skew_ms
):
    data = bytearray(build_batch(records, codec=codec))
    fields = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))
    for name, value in changes.items():
        small = name in ("attributes", "producer_epoch")
        fields[name] = max(min(value, 0x7FFF), -0x8000) if small else value
    HEADER.pack_into(data, 0, *fields.values())
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]) ^ damage)
    before = bytes(data)
    if may_store_as_is(Batch(data), options, NOW + skew_ms):
        assert validate(data, options, NOW + skew_ms).append_time_ms == -1
        assert data == before


@given(
    record=st.sampled_from(SINGLE),
    changes=st.dictionaries(
        st.integers(-2, 9), st.integers(0, 255) | st.sampled_from([0, 1, 2]), min_size=1, max_size=2
    ),
)
@settings(deadline=None, max_examples=2000)
def test_one_record_is_sound_only_if_it_can_be_read(record, changes):
    data = bytearray(build_batch([record]))
    for place, byte in changes.items():  # its size, deltas, the size of key and value, the number of headers
        data[HEADER.size + place if place >= 0 else len(data) + place] = byte
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    if may_store_as_is(Batch(data), ValidationOptions(), NOW):
        (read,) = Batch(data).records()
        assert (read.timestamp, read.offset, read.headers) == (NOW, 0, ())
