"""Read and write compressed payloads in pieces.

A batch of a few kilobytes can decompress to hundreds of megabytes. Code that reads records of old client batches (old
fetch versions, offsets by time, compaction) uses these functions: at most a window and one record are in memory, and
the caller can do other work between windows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import InvalidRecord, MessageTooLarge
from ottla.lazy_imports import lazy
from ottla.records import compression
from ottla.records.record import VARINT, Buffer, read_raw, read_varint, read_varlong

if TYPE_CHECKING:
    import zstandard
    from lz4 import frame as lz4_frame
else:
    lz4_frame = lazy("lz4.frame")
    zstandard = lazy("zstandard")

WINDOW_BYTES: Final = 64 << 10
"""How much is decompressed in one step. It holds at most 9,362 records: a few milliseconds of work."""
RECORD_BYTES_MAX: Final = 8 << 20
"""The largest record that may be in memory as a whole, unless RECORD_TIMES_BATCH times its batch's size is more."""
RECORD_TIMES_BATCH: Final = 4


# --- decompressing ---------------------------------------------------------------------------------------------------


def decompressed(codec: int, data: Buffer, magic: int = 2, window_bytes: int = WINDOW_BYTES) -> Iterator[bytes]:
    """The payload in pieces of at most `window_bytes`; errors are those of `compression.decompress`.

    Only snappy yields whole blocks, because the format requires it; a block is at most 24 times its compressed size. A
    total above `compression.DEFAULT_LIMIT` raises MessageTooLarge, which limits the time that a batch takes.
    """
    left = compression.DEFAULT_LIMIT
    for piece in _pieces(codec, memoryview(data), magic, window_bytes):
        left -= len(piece)
        if left < 0:
            raise MessageTooLarge(f"the decompressed records exceed {compression.DEFAULT_LIMIT} bytes")
        yield piece


def _pieces(codec: int, data: memoryview, magic: int, window_bytes: int) -> Iterator[bytes]:
    if codec == compression.NONE:
        return (bytes(data[start : start + window_bytes]) for start in range(0, len(data), window_bytes))
    if codec == compression.GZIP:
        return _gzip_pieces(data, window_bytes)
    if codec == compression.SNAPPY:
        return compression.snappy_blocks(data, compression.DEFAULT_LIMIT)
    if codec == compression.LZ4:
        return _lz4_pieces(compression.lz4_frame_of(data, magic), window_bytes)
    if codec == compression.ZSTD:
        return _zstd_pieces(data, window_bytes)
    raise compression.CorruptPayload(f"unknown compression codec {codec}")


def _gzip_pieces(data: memoryview, window_bytes: int) -> Iterator[bytes]:
    position = 0
    stream = zlib.decompressobj(compression.GZIP_WINDOW)
    while True:
        given: Buffer = stream.unconsumed_tail
        if not given:
            given = data[position : position + window_bytes]
            position += len(given)
            if not given:
                raise compression.CorruptPayload("gzip: the stream ends early")
        try:
            piece = stream.decompress(given, window_bytes)
        except zlib.error as error:
            raise compression.CorruptPayload(f"gzip: {error}") from None
        if piece:
            yield piece
        if stream.eof:
            # Java's reader continues with a concatenated member, and ignores anything else.
            position -= len(stream.unused_data)
            if bytes(data[position : position + 2]) != compression.GZIP_MAGIC:
                return
            stream = zlib.decompressobj(compression.GZIP_WINDOW)


def _lz4_pieces(data: Buffer, window_bytes: int) -> Iterator[bytes]:
    stream = lz4_frame.LZ4FrameDecompressor()
    try:
        piece = stream.decompress(data, max_length=window_bytes)
        while piece:
            yield piece
            piece = b"" if stream.eof else stream.decompress(b"", max_length=window_bytes)
        if not stream.eof:
            raise compression.CorruptPayload("lz4: the frame ends early")
    except (RuntimeError, ValueError, EOFError) as error:
        raise compression.CorruptPayload(f"lz4: {error}") from None


def _zstd_pieces(data: memoryview, window_bytes: int) -> Iterator[bytes]:
    limit = compression.DEFAULT_LIMIT
    for frame, greatest in compression.zstd_frames(data, limit):
        if greatest <= window_bytes:
            yield compression.zstd_frame_content(frame, limit, greatest, limit)
            continue
        decompressor = zstandard.ZstdDecompressor(max_window_size=compression.ZSTD_WINDOW_MAX)
        try:
            reader = decompressor.stream_reader(frame)
            while piece := reader.read(window_bytes):
                yield piece
        except zstandard.ZstdError as error:
            raise compression.CorruptPayload(f"zstd: {error}") from None


# --- records ---------------------------------------------------------------------------------------------------------


def record_bytes_max(batch_size: int) -> int:
    """The largest record of such a batch that may be in memory as a whole."""
    return max(RECORD_BYTES_MAX, batch_size * RECORD_TIMES_BATCH)


def windows(pieces: Iterable[bytes], count: int, largest: int) -> Iterator[tuple[bytes, int]]:
    """Whole records in windows: their bytes and their number. `count` is the number that the batch declares.

    A record of more than `largest` bytes raises MessageTooLarge. The reader must check the content of the records, and
    also their number if one piece holds all of them.
    """
    rest = iter(pieces)
    first, second = next(rest, None), next(rest, None)
    if first and second is None and len(first) <= largest:
        yield first, count  # everything, as in most batches: nothing to split
        return
    pending: list[bytes] = []
    have, needed = 0, 1
    for piece in chain(filter(None, (first, second)), rest):
        pending.append(piece)
        have += len(piece)
        if have < needed:
            continue
        data = pending[0] if len(pending) == 1 else b"".join(pending)
        end, whole, needed = _whole_records(data, count)
        if needed > largest:
            raise MessageTooLarge(f"a record of {needed} bytes is too large to be read; it may have {largest}")
        if whole:
            yield data[:end], whole
        pending = [data[end:]]
        have -= end
        count -= whole
        if have and not count:
            raise InvalidRecord("bytes follow the last declared record")
    if count > 0 or have:
        raise InvalidRecord("records end before the declared count")


def _whole_records(data: bytes, count: int) -> tuple[int, int, int]:
    """The end of the last whole record, the number of whole records, and the bytes that complete the next one."""
    size = len(data)
    position = whole = 0
    while whole < count:
        if position < size and (raw := data[position]) < 0x80:
            end = position + 1 + (raw >> 1)
        elif position + 1 < size and (second := data[position + 1]) < 0x80:
            raw = raw & 0x7F | second << 7
            end = position + 2 + (raw >> 1)
        else:
            try:
                raw, end = read_raw(data, position, VARINT)
            except IndexError:
                return position, whole, size - position + 1
            end += raw >> 1
        if raw & 1:
            raise InvalidRecord("a record's size is negative")
        if end > size:
            return position, whole, end - position
        position = end
        whole += 1
    return position, whole, 1


def record_times(pieces: Iterable[bytes], count: int) -> Iterator[list[tuple[int, int]]]:
    """The timestamp and offset deltas of all records, in windows. Keys and values are not kept."""
    rest = b""
    skip = 0
    for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
            yield []
            continue
        data = rest + piece[skip:]
        size = len(data)
        skip = position = 0
        found: list[tuple[int, int]] = []
        try:
            while count and position < size:
                if (raw := data[position]) < 0x80:
                    start = position + 1
                else:
                    raw, start = read_raw(data, position, VARINT)
                if raw & 1:
                    raise InvalidRecord("a record's size is negative")
                timestamp_delta, after = read_varlong(data, start + 1)
                offset_delta, after = read_varint(data, after)
                position = start + (raw >> 1)
                if after > position:
                    raise InvalidRecord("a record ends before its offset")
                found.append((timestamp_delta, offset_delta))
                count -= 1
        except IndexError:
            pass  # the rest of its first fields is in the next piece
        rest = data[position:]
        skip = max(position - size, 0)
        if rest and not count:
            raise InvalidRecord("bytes follow the last declared record")
        yield found
    if count > 0 or skip or rest:
        raise InvalidRecord("records end before the declared count")


# --- compressing -----------------------------------------------------------------------------------------------------


class Compressor:
    """A payload that is compressed while it grows."""

    def __init__(self, codec: int, magic: int = 2, at_once: int = compression.XERIAL_BLOCK) -> None:
        """`at_once` bytes are compressed in one call, and so is a payload that is smaller."""
        self._codec = codec
        self._magic = magic
        self._at_once = at_once
        self._output: list[bytes] = []
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._stream: Any = None

    def _start(self) -> None:
        codec = self._codec
        if codec == compression.GZIP:
            self._stream = zlib.compressobj(compression.GZIP_DEFAULT_LEVEL, zlib.DEFLATED, compression.GZIP_WINDOW)
        elif codec == compression.LZ4:
            self._stream = lz4_frame.LZ4FrameCompressor(block_size=lz4_frame.BLOCKSIZE_MAX64KB, block_linked=False)
            self._output.append(self._stream.begin())
        elif codec == compression.ZSTD:
            self._stream = zstandard.ZstdCompressor(level=compression.ZSTD_DEFAULT_LEVEL).compressobj()
        elif codec == compression.SNAPPY:
            self._output.append(compression.XERIAL_HEADER)

    def write(self, data: bytes) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= self._at_once:
            if not self._output:
                self._start()
            self._drain(b"".join(self._pending), final=False)

    def _drain(self, data: bytes, *, final: bool) -> None:
        self._pending, self._pending_bytes = [], 0
        codec = self._codec
        if codec == compression.SNAPPY:
            whole = len(data) if final else len(data) - len(data) % compression.XERIAL_BLOCK
            self._output.extend(compression.snappy_compressed_blocks(data[:whole]))
            self._pending, self._pending_bytes = [data[whole:]], len(data) - whole
        elif self._stream is not None:
            self._output.append(self._stream.compress(data))
        else:
            self._output.append(data)

    def finish(self) -> bytes:
        """The whole payload."""
        rest = b"".join(self._pending)
        if not self._output:
            return compression.compress(self._codec, rest, magic=self._magic)
        self._drain(rest, final=True)
        if self._stream is not None:
            self._output.append(self._stream.flush())
        payload = b"".join(self._output)
        if self._codec == compression.LZ4 and self._magic == 0:
            return compression.with_old_lz4_checksum(payload)
        return payload
