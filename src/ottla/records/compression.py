"""The codecs of record payloads, each with a bound on what a payload may grow to.

Codec numbers are the low three attribute bits: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Codec packages are imported
on first use, so a broker that sees no snappy never loads it.

Errors are what Kafka answers: a payload that a codec cannot read is UNKNOWN_SERVER_ERROR there, as an exception escapes
from the codec's stream. The bound is ours: MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

import zlib
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
"""One batch may not grow beyond this in memory: far above any real batch, far below what hurts a machine."""

_GZIP_WINDOW: Final = 31  # zlib's way to say: 32 KiB window, gzip header and trailer
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_STEP: Final = 512  # members that follow another are small, or few
_CHUNK: Final = 1 << 20


class CorruptPayload(UnknownServerError):
    """The codec cannot read the payload."""


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None, magic: int = 2) -> bytes:
    """Compress as Kafka's Java client frames it; `magic` 0 selects the broken LZ4 header checksum of old clients."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WINDOW)
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, level, magic)
    if codec == ZSTD:
        compressor = zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL if level is None else level)
        return bytes(compressor.compress(data))
    raise UnsupportedCompressionType(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int = DEFAULT_LIMIT, magic: int = 2) -> bytes:
    """Decompress a payload; MessageTooLarge as soon as it is known to exceed `limit` bytes."""
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
    # Kafka's lookup of the codec throws IllegalArgumentException, which no handler knows.
    raise CorruptPayload(f"unknown compression codec {codec}")


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the decompressed records exceed {limit} bytes")


# --- gzip ------------------------------------------------------------------------------------------------------------


def _gzip_decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    piece, used = _gzip_member(view, len(view), limit, limit)
    # Java's reader goes on with a concatenated member, and ignores anything else that follows.
    if bytes(view[used : used + 2]) != _GZIP_MAGIC:
        return piece
    output = [piece]
    left = limit - len(piece)
    while bytes(view[used : used + 2]) == _GZIP_MAGIC:
        piece, size = _gzip_member(view[used:], _GZIP_STEP, left, limit)
        output.append(piece)
        left -= len(piece)
        used += size
    return b"".join(output)


def _gzip_member(data: memoryview, step: int, left: int, limit: int) -> tuple[bytes, int]:
    """The content of the member that `data` begins with, and its size there.

    zlib copies what it was given beyond the end of a member, so it is given `step` bytes at first, and then more.
    """
    stream = zlib.decompressobj(_GZIP_WINDOW)
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
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 << 10  # the Java library's block size; readers size their buffers by it
_SNAPPY_MAX_RATIO: Final = 24  # a three-byte copy element yields at most 64 bytes


def _snappy_compress(data: bytes | bytearray | memoryview) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK])
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _snappy_block(data: bytes | bytearray | memoryview, limit: int, total_limit: int) -> bytes:
    # The block starts with its uncompressed size: check the claim before the library allocates it.
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
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit, limit)
    size = len(view)
    if size < len(_XERIAL_HEADER):
        raise CorruptPayload("snappy: header cut short")
    if int.from_bytes(view[8:12], "big") < 1:
        raise CorruptPayload("snappy: stream version below 1")
    position = len(_XERIAL_HEADER)
    left = limit
    output: list[bytes] = []
    while position < size:
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # a concatenated stream, as Java reads it
            position += len(_XERIAL_HEADER)
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
            output.append(piece)
        position += length
    return output[0] if len(output) == 1 else b"".join(output)


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
    """Whether `check_lz4_frame` has nothing to say."""
    return len(data) >= 7 and data[:4] == _LZ4_MAGIC and data[4] & 0xE3 == 0x60


def check_lz4_frame(data: bytes | bytearray | memoryview) -> int:
    """Position of the header checksum; checks the flags as Kafka's reader does (no dependent blocks)."""
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
    # Kafka's default, 9, means the fast compressor; every other level the high one (which starts at 3 here).
    frame_level = _LZ4_FAST_LEVEL if level is None or level == LZ4_DEFAULT_LEVEL else max(3, min(level, 12))
    frame = lz4_frame.compress(
        data,
        compression_level=frame_level,
        block_size=lz4_frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic > 0:
        return bytes(frame)
    # Clients of message format 0 hashed the magic number too (KAFKA-3160), and expect the same of others.
    end = check_lz4_frame(frame)
    return b"".join((frame[:end], bytes((_xxh32_short(frame[:end]) >> 8 & 0xFF,)), frame[end + 1 :]))


def _lz4_decompress(data: bytes | bytearray | memoryview, limit: int, magic: int) -> bytes:
    end = check_lz4_frame(data)
    if end == 14 and int.from_bytes(data[6:14], "little") > limit:
        raise _too_large(limit)
    if magic == 0:  # either checksum is taken: put the right one in front of the library
        descriptor = bytes(data[:end])
        data = b"".join((descriptor, bytes((_xxh32_short(descriptor[4:]) >> 8 & 0xFF,)), data[end + 1 :]))
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
_ZSTD_MAX_WINDOW_LOG: Final = 27  # what Kafka's decoder accepts


def _zstd_frame(data: memoryview, position: int, left: int) -> tuple[int, int]:
    """Walk the block headers of the frame at `position` -> (end, greatest size of its content).

    Blocks hold at most 128 KiB, so this is one step per 128 KiB of content, and it needs no decoding: a frame that
    is cut short, or a bomb of run-length blocks, is refused before anything is allocated.
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
    view = memoryview(data)
    position = 0
    left = limit
    output: list[bytes] = []
    while position < len(view):
        magic = int.from_bytes(view[position : position + 4], "little")
        try:
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
                position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptPayload("zstd: not a frame")
            end, greatest = _zstd_frame(view, position, left)
        except IndexError:
            raise CorruptPayload("zstd: the frame ends early") from None
        piece = _zstd_frame_content(view[position:end], left, greatest, limit)
        output.append(piece)
        left -= len(piece)
        position = end
    return output[0] if len(output) == 1 else b"".join(output)


def _zstd_frame_content(frame: memoryview, left: int, greatest: int, limit: int) -> bytes:
    try:
        claimed = zstandard.frame_content_size(frame)
        if claimed > left:
            raise _too_large(limit)
        if claimed > greatest:
            raise CorruptPayload("zstd: the content size is larger than its blocks")
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_MAX_WINDOW_LOG)
        if claimed >= 0 or greatest <= left:
            return bytes(decompressor.decompress(frame, max_output_size=greatest))
        reader = decompressor.stream_reader(frame)
        pieces: list[bytes] = []
        while piece := reader.read(_CHUNK):
            left -= len(piece)
            if left < 0:
                raise _too_large(limit)
            pieces.append(piece)
        return b"".join(pieces)
    except zstandard.ZstdError as error:
        raise CorruptPayload(f"zstd: {error}") from None
