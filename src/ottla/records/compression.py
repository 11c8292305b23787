"""The codecs of record payloads, each with a limit on the decompressed size.

Codec numbers are the low three attribute bits: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Codec packages are imported
on first use, so a broker that gets no snappy never loads it.

The errors are Kafka's: a payload that a codec cannot read is UNKNOWN_SERVER_ERROR, because an exception escapes from
the codec's stream. The limit is ours: MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Final

from ottla.errors import MessageTooLarge, UnknownServerError, UnsupportedCompressionType
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import snappy
    import zstandard
    from lz4 import frame as lz4_frame
else:
    lz4_frame = lazy("lz4.frame")
    snappy = lazy("snappy")
    zstandard = lazy("zstandard")

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

BY_NAME: Final = {"none": NONE, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

# Kafka's defaults of compression.{gzip,lz4,zstd}.level.
GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9
ZSTD_DEFAULT_LEVEL: Final = 3

DEFAULT_LIMIT: Final = 256 << 20
"""The largest size of a batch in memory: far above any real batch, and safe for any machine."""

GZIP_WINDOW: Final = 31  # zlib's value for a 32 KiB window with gzip header and trailer
GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_STEP: Final = 512  # later members are small, or few
_CHUNK: Final = 1 << 20


class CorruptPayload(UnknownServerError):
    """The codec cannot read the payload."""


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None, magic: int = 2) -> bytes:
    """Compress with the framing of Kafka's Java client. `magic` 0 selects the wrong LZ4 checksum of old clients."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, GZIP_WINDOW)
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, level, magic)
    if codec == ZSTD:
        if level is None or level == ZSTD_DEFAULT_LEVEL:
            return bytes(_zstd.compressor.compress(data))
        return bytes(zstandard.ZstdCompressor(level=level).compress(data))
    raise UnsupportedCompressionType(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int = DEFAULT_LIMIT, magic: int = 2) -> bytes:
    """Decompress a payload. Raises MessageTooLarge as soon as it is known to exceed `limit` bytes."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _gzip_decompress(data, limit)
    if codec == SNAPPY:
        return _snappy_decompress(data, limit)
    if codec == LZ4:
        return _lz4_decompress(data, limit, magic)
    if codec == ZSTD:
        return _zstd_decompress(data, limit)
    # Kafka's codec look-up throws IllegalArgumentException, which no handler catches.
    raise CorruptPayload(f"unknown compression codec {codec}")


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the decompressed records exceed {limit} bytes")


# --- gzip ------------------------------------------------------------------------------------------------------------


def _gzip_decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    piece, used = _gzip_member(view, len(view), limit, limit)
    # Java's reader continues with a concatenated member, and ignores anything else.
    if bytes(view[used : used + 2]) != GZIP_MAGIC:
        return piece
    output = [piece]
    left = limit - len(piece)
    while bytes(view[used : used + 2]) == GZIP_MAGIC:
        piece, size = _gzip_member(view[used:], _GZIP_STEP, left, limit)
        output.append(piece)
        left -= len(piece)
        used += size
    return b"".join(output)


def _gzip_member(data: memoryview, step: int, left: int, limit: int) -> tuple[bytes, int]:
    """The content of the member at the start of `data`, and its compressed size.

    zlib copies input beyond the end of a member, so it gets `step` bytes first, and more after that.
    """
    stream = zlib.decompressobj(GZIP_WINDOW)
    output: list[bytes] = []
    position = 0
    while not stream.eof:
        if position == len(data):
            raise CorruptPayload("gzip: the stream ends early")
        given = data[position : position + step]
        try:
            piece = stream.decompress(given, left + 1)
        except zlib.error as error:
            raise CorruptPayload(f"gzip: {error}") from None
        if len(piece) > left:
            raise _too_large(limit)
        if not stream.eof and stream.unconsumed_tail:
            raise _too_large(limit)
        output.append(piece)
        left -= len(piece)
        position += len(given)
        step *= 2
    return output[0] if len(output) == 1 else b"".join(output), position - len(stream.unused_data)


# --- snappy ----------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK: Final = 32 << 10  # the block size of the Java library; readers size their buffers by it
_SNAPPY_MAX_RATIO: Final = 24  # a three-byte copy element yields at most 64 bytes


def _snappy_compress(data: bytes | bytearray | memoryview) -> bytes:
    return b"".join((XERIAL_HEADER, *snappy_compressed_blocks(data)))


def snappy_compressed_blocks(data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """The compressed blocks after the header."""
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK):
        block = snappy.compress(view[start : start + XERIAL_BLOCK])
        yield len(block).to_bytes(4, "big")
        yield block


def _snappy_block(data: bytes | bytearray | memoryview, limit: int, total_limit: int) -> bytes:
    # The block starts with its uncompressed size: check it before the library allocates that much.
    claimed = 0
    for index, byte in enumerate(data[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptPayload("snappy: no block size")
    if claimed > limit:
        raise _too_large(total_limit)
    if claimed > len(data) * _SNAPPY_MAX_RATIO:
        raise CorruptPayload(f"snappy: {len(data)} bytes cannot hold {claimed}")
    try:
        return bytes(snappy.uncompress(data))
    except snappy.UncompressError as error:
        raise CorruptPayload(f"snappy: {error.__cause__ or error}") from None


def _snappy_decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    output = list(snappy_blocks(memoryview(data), limit))
    return output[0] if len(output) == 1 else b"".join(output)


def snappy_blocks(view: memoryview, limit: int) -> Iterator[bytes]:
    """The content of a payload, block by block. MessageTooLarge before a block that exceeds the total `limit`."""
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield _snappy_block(view, limit, limit)
        return
    size = len(view)
    if size < len(XERIAL_HEADER):
        raise CorruptPayload("snappy: header cut short")
    if int.from_bytes(view[8:12], "big") < 1:
        raise CorruptPayload("snappy: stream version below 1")
    position = len(XERIAL_HEADER)
    left = limit
    while position < size:
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # a concatenated stream, which Java reads too
            position += len(XERIAL_HEADER)
            continue
        if position + 4 > size:
            raise CorruptPayload("snappy: block size cut short")
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if position + length > size:
            raise CorruptPayload("snappy: block cut short")
        if length:
            piece = _snappy_block(view[position : position + length], left, limit)
            left -= len(piece)
            yield piece
        position += length


# --- lz4 -------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_MAX_RATIO: Final = 255
_LZ4_FAST_LEVEL: Final = 0
_XXH_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _xxh32_short(data: bytes) -> int:
    """xxHash-32 of less than 16 bytes, seed 0: enough for LZ4 frame descriptors, so no package is needed."""
    p1, p2, p3, p4, p5 = _XXH_PRIMES
    mask = 0xFFFFFFFF
    value = (p5 + len(data)) & mask
    position = 0
    while position + 4 <= len(data):
        value = (value + int.from_bytes(data[position : position + 4], "little") * p3) & mask
        value = ((value << 17 | value >> 15) & mask) * p4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * p5) & mask
        value = ((value << 11 | value >> 21) & mask) * p1 & mask
    value = (value ^ value >> 15) * p2 & mask
    value = (value ^ value >> 13) * p3 & mask
    return value ^ value >> 16


def is_lz4_frame(data: bytes | bytearray | memoryview) -> bool:
    """Whether `check_lz4_frame` accepts it."""
    return len(data) >= 7 and data[:4] == _LZ4_MAGIC and data[4] & 0xE3 == 0x60


def check_lz4_frame(data: bytes | bytearray | memoryview) -> int:
    """The position of the header checksum. Checks the flags as Kafka's reader does (no dependent blocks)."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise CorruptPayload("lz4: not a frame")
    flags = data[4]
    if flags >> 6 != 1:
        raise CorruptPayload(f"lz4: version {flags >> 6} is unsupported")
    if flags & 0x03:
        raise CorruptPayload("lz4: reserved flag bits are set")
    if not flags & 0x20:
        raise CorruptPayload("lz4: dependent blocks are unsupported")
    return 14 if flags & 0x08 else 6


def _lz4_compress(data: bytes | bytearray | memoryview, level: int | None, magic: int) -> bytes:
    # Kafka's default, 9, selects the fast compressor; other levels select the high one (from 3 up here).
    frame_level = _LZ4_FAST_LEVEL if level is None or level == LZ4_DEFAULT_LEVEL else max(3, min(level, 12))
    frame = bytes(
        lz4_frame.compress(
            data,
            compression_level=frame_level,
            block_size=lz4_frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )
    return frame if magic > 0 else with_old_lz4_checksum(frame)


def with_old_lz4_checksum(frame: bytes) -> bytes:
    """Clients of message format 0 hash the magic number too (KAFKA-3160), and expect the same from others."""
    end = check_lz4_frame(frame)
    return b"".join((frame[:end], bytes((_xxh32_short(frame[:end]) >> 8 & 0xFF,)), frame[end + 1 :]))


def lz4_frame_of(data: bytes | bytearray | memoryview, magic: int) -> bytes | bytearray | memoryview:
    """The frame as the library reads it. Format 0 accepts either checksum, so the correct one is inserted."""
    end = check_lz4_frame(data)
    if magic > 0:
        return data
    descriptor = bytes(data[:end])
    return b"".join((descriptor, bytes((_xxh32_short(descriptor[4:]) >> 8 & 0xFF,)), data[end + 1 :]))


def _lz4_decompress(data: bytes | bytearray | memoryview, limit: int, magic: int) -> bytes:
    end = check_lz4_frame(data)
    if end == 14 and int.from_bytes(data[6:14], "little") > limit:
        raise _too_large(limit)
    data = lz4_frame_of(data, magic)
    try:
        stream = lz4_frame.LZ4FrameDecompressor()
        if len(data) * _LZ4_MAX_RATIO <= limit:
            output = stream.decompress(data)
        else:
            output = stream.decompress(data, max_length=limit + 1)
            if len(output) > limit:
                raise _too_large(limit)
        if not stream.eof:
            raise CorruptPayload("lz4: the frame ends early")
    except (RuntimeError, ValueError, EOFError) as error:
        raise CorruptPayload(f"lz4: {error}") from None
    return bytes(output)


# --- zstd ------------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_MAX_BLOCK: Final = 128 << 10
ZSTD_WINDOW_MAX: Final = 1 << 27  # the maximum of Kafka's decoder


class _ZstdContexts(local):
    """The contexts of a thread, for payloads that are processed in one call.

    A new context costs as much time as a batch of 64 KB. Two threads must not use one context at the same time.
    """

    @cached_property
    def decompressor(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX)

    @cached_property
    def compressor(self) -> zstandard.ZstdCompressor:
        """A context of the default level: contexts of the highest levels take hundreds of megabytes."""
        return zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL)


_zstd: Final = _ZstdContexts()


def _zstd_frame(data: memoryview, position: int, left: int) -> tuple[int, int]:
    """Walk the block headers of the frame at `position` -> (end, maximum size of its content).

    Blocks hold at most 128 KiB, so this is one step per 128 KiB of content and needs no decoding. A truncated frame, or
    a bomb of run-length blocks, is refused before anything is allocated.
    """
    descriptor = data[position + 4]
    position += 5
    single_segment = descriptor & 0x20
    if not single_segment:
        position += 1
    position += (0, 1, 2, 4)[descriptor & 0x03]
    size_flag = descriptor >> 6
    position += (1 if single_segment else 0, 2, 4, 8)[size_flag]
    least = greatest = 0
    while True:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += 3
        block_type = header >> 1 & 0x03
        block_size = header >> 3
        if block_type == 2:
            greatest += _ZSTD_MAX_BLOCK
            position += block_size
        elif block_type == 3:
            raise CorruptPayload("zstd: reserved block type")
        else:
            least += block_size
            greatest += block_size
            if least > left:
                raise _too_large(left)
            position += block_size if block_type == 0 else 1
        if header & 1:
            break
    if descriptor & 0x04:
        position += 4
    if position > len(data):
        raise IndexError
    return position, greatest


def _zstd_decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    left = limit
    output: list[bytes] = []
    for frame, greatest in zstd_frames(memoryview(data), limit):
        piece = zstd_frame_content(frame, left, greatest, limit)
        output.append(piece)
        left -= len(piece)
    return output[0] if len(output) == 1 else b"".join(output)


def zstd_frames(view: memoryview, limit: int) -> Iterator[tuple[memoryview, int]]:
    """The frames of a payload, each with the maximum size of its content."""
    position = 0
    while position < len(view):
        magic = int.from_bytes(view[position : position + 4], "little")
        try:
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
                position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptPayload("zstd: not a frame")
            end, greatest = _zstd_frame(view, position, limit)
        except IndexError:
            raise CorruptPayload("zstd: the frame ends early") from None
        yield view[position:end], greatest
        position = end


def zstd_frame_content(frame: memoryview, left: int, greatest: int, limit: int) -> bytes:
    """The content of a frame from `zstd_frames`. `left` bytes of the payload's `limit` may still follow."""
    try:
        claimed = zstandard.frame_content_size(frame)
        if claimed > left:
            raise _too_large(limit)
        if claimed > greatest:
            raise CorruptPayload("zstd: the content size is larger than its blocks")
        if claimed >= 0 or greatest <= left:
            return bytes(_zstd.decompressor.decompress(frame, max_output_size=greatest))
        reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX).stream_reader(frame)
        pieces: list[bytes] = []
        while piece := reader.read(_CHUNK):
            left -= len(piece)
            if left < 0:
                raise _too_large(limit)
            pieces.append(piece)
        return b"".join(pieces)
    except zstandard.ZstdError as error:
        raise CorruptPayload(f"zstd: {error}") from None
