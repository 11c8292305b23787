"""Codecs: round trips, the framings that other clients write, truncation, bombs."""

import gzip
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import lz4.frame
import pytest
import snappy
import zstandard
from aiokafka import codec as aio_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import KafkaError, MessageTooLarge, UnknownServerError, UnsupportedCompressionType
from ottla.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CorruptPayload,
    _xxh32_short,
    check_lz4_frame,
    compress,
    decompress,
)

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
TEXT = b"the quick brown fox jumps over the lazy dog. " * 4000
payloads = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(max_size=50), st.integers(0, 3000)
)


@given(payloads, st.sampled_from((NONE, *CODECS)), st.sampled_from((0, 1, 2)))
@settings(deadline=None, max_examples=50)
def test_round_trip(data, codec, magic):
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, magic=magic) == data
    assert decompress(codec, memoryview(bytearray(packed)), limit=len(data), magic=magic) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(GZIP, (-1, *range(1, 10))), (LZ4, range(1, 18)), (ZSTD, (-100, -1, 1, 3, 10, 22)), (SNAPPY, (None,))],
)
def test_levels(codec, levels):
    sizes = []
    for level in levels:
        packed = compress(codec, TEXT, level)
        assert decompress(codec, packed) == TEXT
        sizes.append(len(packed))
    assert max(sizes) < len(TEXT)


@pytest.mark.parametrize("codec", CODECS)
def test_threads_compress_at_the_same_time(codec):
    def work(number):
        data = bytes([number]) * 50_000 + TEXT
        return all(decompress(codec, compress(codec, data)) == data for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_a_damaged_payload_does_not_hurt_the_next_one():
    packed = compress(ZSTD, TEXT)
    with pytest.raises(CorruptPayload):
        decompress(ZSTD, packed[:100] + bytes(50) + packed[150:])
    assert decompress(ZSTD, packed) == TEXT


def test_lz4_level_nine_is_the_fast_compressor_as_in_kafka():
    data = bytes(range(256)) * 50 + TEXT[:5000] + bytes(reversed(range(256))) * 20
    assert compress(LZ4, data, 9) == compress(LZ4, data)


@pytest.mark.parametrize("codec", CODECS)
def test_other_libraries_read_ours(codec):
    packed = compress(codec, TEXT)
    readers = {
        GZIP: aio_codec.gzip_decode,
        SNAPPY: aio_codec.snappy_decode,
        LZ4: aio_codec.lz4_decode,
        ZSTD: aio_codec.zstd_decode,
    }
    assert readers[codec](packed) == TEXT


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (GZIP, gzip.compress(TEXT)),
        (GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
        (GZIP, gzip.compress(TEXT) + b"garbage that Java ignores"),
        (SNAPPY, snappy.compress(TEXT)),
        (SNAPPY, aio_codec.snappy_encode(TEXT, xerial_blocksize=1024)),
        (SNAPPY, compress(SNAPPY, TEXT[:99]) + compress(SNAPPY, TEXT[99:])),
        (LZ4, lz4.frame.compress(TEXT, block_linked=False, store_size=True)),
        (LZ4, lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, block_checksum=True)),
        (LZ4, compress(LZ4, TEXT) + b"after the end mark"),
        (ZSTD, zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)),
        (ZSTD, compress(ZSTD, TEXT[:500]) + compress(ZSTD, TEXT[500:])),
        (ZSTD, b"\x50\x2a\x4d\x18\x03\0\0\0abc" + compress(ZSTD, TEXT)),
    ],
)
def test_framings_of_other_clients_are_read(codec, packed):
    assert decompress(codec, packed) == TEXT


def test_streamed_zstd_without_a_content_size():
    packer = zstandard.ZstdCompressor().compressobj()
    packed = packer.compress(TEXT) + packer.flush()
    assert decompress(ZSTD, packed) == TEXT
    assert decompress(ZSTD, packed, limit=len(TEXT)) == TEXT
    with pytest.raises(MessageTooLarge):
        decompress(ZSTD, packed, limit=len(TEXT) - 1)


def test_snappy_is_written_in_xerial_blocks_of_32_kib():
    packed = compress(SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = int.from_bytes(packed[16:20], "big")
    assert len(snappy.uncompress(packed[20 : 20 + first])) == 32768
    assert compress(SNAPPY, b"") == packed[:16]


def test_lz4_header_is_that_of_the_java_client():
    assert compress(LZ4, b"x" * 100)[:7] == bytes.fromhex("04224d18604082")
    broken = compress(LZ4, b"x" * 100, magic=0)
    assert broken[:6] == bytes.fromhex("04224d186040")
    assert broken[6] == _xxh32_short(broken[:6]) >> 8 & 0xFF != 0x82
    assert decompress(LZ4, broken, magic=0) == b"x" * 100
    assert decompress(LZ4, compress(LZ4, b"x" * 100), magic=0) == b"x" * 100
    with pytest.raises(CorruptPayload):
        decompress(LZ4, broken, magic=1)


def test_xxh32_vectors():
    assert _xxh32_short(b"") == 0x02CC5D05
    assert _xxh32_short(b"a") == 0x550D7456
    assert _xxh32_short(b"abc") == 0x32D153FF


@pytest.mark.parametrize(
    "frame",
    [
        lz4.frame.compress(TEXT, block_linked=True),
        b"",
        b"\x04\x22\x4d\x18\x60",
        b"\x04\x22\x4d\x18\xa0\x40\x00",
        b"\x04\x22\x4d\x18\x61\x40\x00",
        b"\x04\x22\x4d\x19\x60\x40\x82",
    ],
)
def test_lz4_frames_that_kafka_refuses(frame):
    with pytest.raises(CorruptPayload):
        check_lz4_frame(frame)
    with pytest.raises(CorruptPayload):
        decompress(LZ4, frame)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 2])
def test_truncation_at_every_byte(codec, magic):
    data = TEXT[:200] + bytes(range(256))
    packed = compress(codec, data, magic=magic)
    for cut in range(len(packed)):
        try:
            result = decompress(codec, packed[:cut], magic=magic)
        except CorruptPayload:
            continue
        # Without any block these two streams are empty, and the check of the record count notices it.
        assert (codec, cut) in ((SNAPPY, 16), (ZSTD, 0)), cut
        assert result == b""


@given(st.sampled_from(CODECS), st.binary(max_size=100))
@settings(deadline=None, max_examples=50)
def test_garbage_is_refused_or_decoded_but_nothing_else(codec, garbage):
    for data in (garbage, compress(codec, b"")[:8] + garbage):
        try:
            decompress(codec, data, limit=1 << 20)
        except KafkaError as error:
            assert error.code in (UnknownServerError.code, MessageTooLarge.code)


@given(st.sampled_from(CODECS), st.data())
@settings(deadline=None, max_examples=100)
def test_flipped_bits_raise_only_the_expected_errors(codec, data):
    packed = bytearray(compress(codec, TEXT[:300]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decompress(codec, packed, limit=1 << 20)
    except KafkaError as error:
        assert error.code in (UnknownServerError.code, MessageTooLarge.code)


def zstd_rle_bomb():
    """A frame of run-length blocks: 4 bytes for each 128 KiB."""
    blocks = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (1 << 17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x88" + blocks * 200_000 + last


def zstd_claim(size):
    """A frame header that claims a content size it does not have."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"


BOMBS = {
    "gzip": (GZIP, gzip.compress(bytes(64 << 20), 9)),
    "snappy claim": (SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 10),
    "xerial": (SNAPPY, compress(SNAPPY, bytes(64 << 20))),
    "lz4": (LZ4, compress(LZ4, bytes(64 << 20))),
    "lz4 claim": (LZ4, lz4.frame.compress(bytes(64 << 20), block_linked=False, store_size=True)),
    "zstd": (ZSTD, compress(ZSTD, bytes(64 << 20))),
    "zstd without size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
    "zstd run-length": (ZSTD, zstd_rle_bomb()),
    "zstd claim": (ZSTD, zstd_claim(1 << 60)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bombs_are_refused_in_little_memory(name):
    codec, bomb = BOMBS[name]
    limit = 1 << 20
    decompress(codec, compress(codec, b"warm"))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            decompress(codec, bomb, limit)
        assert tracemalloc.get_traced_memory()[1] < 8 * limit + len(bomb)
    finally:
        tracemalloc.stop()


def test_a_wrong_decompressed_size_is_corrupt():
    with pytest.raises(CorruptPayload):
        decompress(SNAPPY, b"\x80\x80\x40" + b"\0" * 10)  # a megabyte in ten bytes
    with pytest.raises(CorruptPayload):
        decompress(ZSTD, zstd_claim(1000))


def test_unknown_codecs_are_refused():
    with pytest.raises(UnsupportedCompressionType):
        compress(5, b"x")
    with pytest.raises(CorruptPayload):
        decompress(7, b"x")


def test_gzip_with_a_wrong_checksum():
    packed = bytearray(compress(GZIP, TEXT))
    packed[-6] ^= 1
    with pytest.raises(CorruptPayload):
        decompress(GZIP, packed)
    with pytest.raises(CorruptPayload):
        decompress(GZIP, zlib.compress(TEXT))


class CountingStream:
    """A stream of zlib's; all of them together count the bytes that they were given."""

    given = 0

    def __init__(self, window):
        self._stream = zlib.decompressobj(window)

    def decompress(self, data, limit):
        CountingStream.given += len(data)
        return self._stream.decompress(data, limit)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def test_many_gzip_members_cost_no_more_than_their_bytes(monkeypatch):
    """zlib copies the bytes after a member. If it got the whole rest each time, the cost would be quadratic."""
    members = [gzip.compress(b"%d," % n) for n in range(5000)]
    payload = b"".join(members)
    monkeypatch.setattr(
        "ottla.records.compression.zlib", SimpleNamespace(decompressobj=CountingStream, error=zlib.error)
    )
    CountingStream.given = 0
    assert decompress(GZIP, payload) == b"".join(b"%d," % n for n in range(5000))
    assert CountingStream.given <= len(payload) + 5000 * 512


def test_gzip_members_of_any_size_follow_each_other():
    parts = [TEXT[:size] for size in (0, 1, 700, 5000, 100_000, 3)]
    assert decompress(GZIP, b"".join(map(gzip.compress, parts))) == b"".join(parts)
    with pytest.raises(MessageTooLarge):
        decompress(GZIP, b"".join(map(gzip.compress, parts)), limit=sum(map(len, parts)) - 1)
    assert len(decompress(GZIP, b"".join(map(gzip.compress, parts)), limit=sum(map(len, parts)))) == sum(
        map(len, parts)
    )
    with pytest.raises(CorruptPayload, match="ends early"):
        decompress(GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:-1])
