"""Payloads read and written piece by piece: the same result as at once, with little memory."""

import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import InvalidRecord, KafkaError, MessageTooLarge
from ottla.records import streaming
from ottla.records.batch import Batch, Record, build_batch, pack_batch
from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from ottla.records.conversion import down_convert
from ottla.records.legacy import LegacyBatch, any_batches, build_message_set, encode_message
from ottla.records.record import decode_records, encode_record

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
MEGABYTE = 1 << 20
NOW = 1_700_000_000_000


def peak_of(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def packed(payload: bytes, count: int, codec: int) -> bytearray:
    """A batch with a count of `count` records and any payload."""
    return pack_batch(
        compress(codec, payload),
        count,
        base_offset=0,
        leader_epoch=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def bomb(codec: int, mebibytes: int = 32) -> Batch:
    """Many records of 20 KB that compress to almost nothing; the last one is the newest."""
    record = encode_record(Record(0, 0, b"k", bytes(20_000)), 0, 0)
    count = (mebibytes << 20) // len(record)
    return Batch(packed(record * count + encode_record(Record(0, 0, b"k", b"v"), count, 7), count + 1, codec))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=300), times=st.sampled_from((1, 300, 2000)))
@settings(deadline=None, max_examples=20)
def test_pieces_are_the_payload(codec: int, data: bytes, times: int) -> None:
    content = data * times
    pieces = list(streaming.decompressed(codec, compress(codec, content)))
    assert b"".join(pieces) == content
    assert all(len(piece) <= streaming.WINDOW_BYTES for piece in pieces)
    assert b"".join(streaming.decompressed(codec, compress(codec, content), window_bytes=1 << 20)) == content
    compressor = streaming.Compressor(codec)
    for _ in range(times):
        compressor.write(data)
    assert decompress(codec, compressor.finish()) == content


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_payload_cut_at_any_byte_is_an_error_for_every_reader(codec: int) -> None:
    content = compress(codec, bytes(range(256)) * 20)
    for end in range(0, len(content), 7):
        cut = content[:end]
        outcomes: list[object] = []
        readings: list[Callable[[int, bytes], Iterable[bytes]]] = [
            lambda codec, cut: [decompress(codec, cut)],
            streaming.decompressed,
            lambda codec, cut: streaming.decompressed(codec, cut, window_bytes=1 << 20),
        ]
        for read in readings:
            try:
                outcomes.append(b"".join(read(codec, cut)))
            except KafkaError as error:
                outcomes.append(error.code)
        assert outcomes[0] == outcomes[1] == outcomes[2], f"cut at {end}"


def test_a_gzip_payload_may_have_several_members() -> None:
    content = b"".join(compress(GZIP, bytes([n]) * 100_000) for n in range(5)) + b"ignored"
    assert b"".join(streaming.decompressed(GZIP, content)) == decompress(GZIP, content)


def test_the_old_checksum_of_lz4_is_read_and_written() -> None:
    compressor = streaming.Compressor(LZ4, magic=0)
    compressor.write(b"old" * 1000)
    frame = compressor.finish()
    assert decompress(LZ4, frame, magic=0) == b"".join(streaming.decompressed(LZ4, frame, magic=0)) == b"old" * 1000


records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(NOW, NOW + 2**40),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.just(()),
    ),
    min_size=1,
    max_size=30,
)


@given(records, st.integers(1, 400))
@settings(deadline=None)
def test_windows_and_times_do_not_depend_on_where_pieces_end(made: list[Record], size: int) -> None:
    numbered = [record._replace(offset=n) for n, record in enumerate(made)]
    batch = Batch(build_batch(numbered))
    payload = bytes(batch.payload())
    pieces = [payload[start : start + size] for start in range(0, len(payload), size)]
    read: list[Record] = []
    for data, count in streaming.windows(pieces, len(made), 1 << 20):
        read += decode_records(data, count, 0, batch.base_timestamp, None)
    assert read == numbered
    times = [each for some in streaming.record_times(pieces, len(made)) for each in some]
    assert times == [(record.timestamp - batch.base_timestamp, record.offset) for record in numbered]


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_count_is_an_error(count: int) -> None:
    payload = encode_record(Record(0, 0, None, b"v"), 0, 0) * 2
    for pieces in ([payload], [payload[:5], payload[5:]]):
        with pytest.raises(InvalidRecord):
            for data, whole in streaming.windows(pieces, count, 100):
                list(decode_records(data, whole, 0, 0, None))
        with pytest.raises(InvalidRecord):
            list(streaming.record_times(pieces, count))


def test_a_record_beyond_the_limit_is_not_gathered() -> None:
    payload = encode_record(Record(0, 0, None, bytes(10 * MEGABYTE)), 0, 0)
    with pytest.raises(MessageTooLarge):
        list(Batch(packed(payload, 1, GZIP)).record_windows())


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_times_of_a_bomb_cost_no_memory(codec: int) -> None:
    batch = bomb(codec)
    found: list[tuple[int, int]] = []

    def look() -> None:
        for times in batch.record_times():
            found[:] = times[-1:] or found

    assert peak_of(look) < 3 * MEGABYTE + batch.size
    assert found == [(NOW + 7, batch.record_count - 1)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_bomb_is_converted_for_old_clients_as_a_stream(codec: int) -> None:
    batch = bomb(codec)
    converted: list[bytes] = []
    peak = peak_of(lambda: converted.append(down_convert(batch.buffer, 1)))
    assert peak < 6 * MEGABYTE + 3 * batch.size
    wrapper = next(any_batches(converted[0]))
    assert (wrapper.last_offset, wrapper.max_timestamp) == (batch.record_count - 1, NOW + 7)


def old_bomb(codec: int, mebibytes: int = 32) -> LegacyBatch:
    """The same in message format 1, as the folder of an old broker may contain it."""
    made = [Record(5 + n, NOW, b"k", bytes(20_000)) for n in range((mebibytes << 20) // 20_000)]
    data = build_message_set([*made, Record(5 + len(made), NOW + 7, b"k", b"v")], 1, codec)
    return LegacyBatch(data)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_bomb_in_an_old_format_is_read_as_a_stream(codec: int) -> None:
    batch = old_bomb(codec)
    found: list[tuple[int, int]] = []

    def look() -> None:
        for times in batch.record_times():
            found[:] = times[-1:] or found

    assert peak_of(look) < 3 * MEGABYTE + 2 * batch.size
    assert found == [(NOW + 7, batch.last_offset)]
    converted: list[bytes] = []
    assert peak_of(lambda: converted.append(down_convert(batch.buffer, 0))) < 6 * MEGABYTE + 3 * batch.size
    (wrapper,) = any_batches(converted[0])
    assert (wrapper.magic, wrapper.last_offset) == (0, batch.last_offset)
    assert batch.base_offset == next(iter(wrapper.records())).offset == 5


@given(records, st.sampled_from((GZIP, SNAPPY, LZ4)), st.sampled_from((0, 1)))
@settings(deadline=None, max_examples=50)
def test_old_wrappers_are_the_same_in_windows(made: list[Record], codec: int, magic: int) -> None:
    wrapper = LegacyBatch(build_message_set([each._replace(offset=n) for n, each in enumerate(made)], magic, codec))
    at_once = list(wrapper.records(1 << 20))
    assert [record for some in wrapper.record_windows() for record in some] == at_once
    assert list(wrapper.records()) == at_once


@pytest.mark.parametrize("value", [b"", encode_message(0, 1, GZIP, NOW, None, b"inner")])
def test_old_wrappers_that_are_refused_in_windows_too(value: bytes) -> None:
    wrapper = LegacyBatch(encode_message(3, 1, GZIP, NOW, None, compress(GZIP, value)))
    with pytest.raises(InvalidRecord):
        list(wrapper.records(1 << 20))
    with pytest.raises(InvalidRecord):
        list(wrapper.records())


def test_an_old_message_beyond_the_limit_is_not_gathered() -> None:
    inner = encode_message(0, 1, 0, NOW, None, bytes(10 * MEGABYTE))
    wrapper = LegacyBatch(encode_message(0, 1, GZIP, NOW, None, compress(GZIP, inner)))
    with pytest.raises(MessageTooLarge):
        list(wrapper.records())
