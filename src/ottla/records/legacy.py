"""Message sets of format 0 and 1, which clients before 0.11 send and expect, and which very old log folders hold.

    offset 8, size 4, CRC-32 4, magic 1, attributes 1, [timestamp 8: format 1], key size 4, key, value size 4, value

A compressed set is one message, the wrapper, whose value is a compressed message set. Its offset is that of its last
inner message. Inner offsets are absolute in format 0 and relative to the first in format 1. A wrapper's timestamp is
the largest of its inner ones or, with the append-time bit, the time for all of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from ottla.records import compression, streaming
from ottla.records.batch import (
    APPEND_TIME_FLAG,
    CODEC_MASK,
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MIN_LENGTH,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Batch,
    Buffer,
    Record,
)

HEADER_V0: Final = Struct(">qiIbb")
HEADER_V1: Final = Struct(">qiIbbq")
MIN_SIZE_V1: Final = 22
"""The minimum of the size field in format 1: CRC, magic, attributes, timestamp, two sizes."""
_CRC: Final = Struct(">I")
_SIZE: Final = Struct(">i")
_LAST_OFFSET: Final = Struct(">q")
_EMPTY: Final = "a compressed message set is empty"


class LegacyBatch:
    """One shallow message: a plain one, or the wrapper of a compressed set. Has the interface of `Batch`."""

    __slots__ = ("attributes", "buffer", "crc", "last_offset", "magic", "max_timestamp", "position", "size")

    last_offset: int
    crc: int
    magic: int
    attributes: int
    max_timestamp: int

    leader_epoch: Final = NO_LEADER_EPOCH
    producer_id: Final = NO_PRODUCER_ID
    producer_epoch: Final = NO_PRODUCER_EPOCH
    base_sequence: Final = NO_SEQUENCE
    last_sequence: Final = NO_SEQUENCE
    has_producer_id: Final = False
    is_transactional: Final = False
    is_control: Final = False
    has_delete_horizon: Final = False
    delete_horizon_ms: Final = None

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Read the header. The caller has checked that the message is complete (as in `message_set`)."""
        self.buffer = buffer
        self.position = position
        self.last_offset, size, self.crc, self.magic, self.attributes = HEADER_V0.unpack_from(buffer, position)
        self.size: int = size + LOG_OVERHEAD
        self.max_timestamp = NO_TIMESTAMP
        if self.magic > 0 and size >= MIN_SIZE_V1:
            self.max_timestamp = HEADER_V1.unpack_from(buffer, position)[5]

    def __repr__(self) -> str:
        return f"LegacyBatch(magic={self.magic}, offset={self.last_offset}, size={self.size}, codec={self.codec})"

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def base_offset(self) -> int:
        """The offset of the first inner message. A wrapper must be decompressed, because its header lacks it."""
        if not self.is_compressed:
            return self.last_offset
        return next(self.records()).offset

    @property
    def end_position(self) -> int:
        return self.position + self.size

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.magic > 0 and self.attributes & APPEND_TIME_FLAG else CREATE_TIME

    def view(self) -> memoryview:
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def crc_ok(self) -> bool:
        start = self.position + MAGIC_OFFSET  # the CRC covers everything from the magic on
        return zlib.crc32(memoryview(self.buffer)[start : self.position + self.size]) == self.crc

    def ensure_valid(self) -> None:
        if self.size < MIN_LENGTH + LOG_OVERHEAD:
            raise CorruptMessage(f"a message of {self.size} bytes is too small to hold its CRC")
        if not self.crc_ok():
            raise CorruptMessage(f"stored CRC {self.crc:#010x} of the message at offset {self.last_offset} is wrong")

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """The key and value of the shallow message. A wrapper's value is its compressed set."""
        position = self.position + (HEADER_V1.size if self.magic > 0 else HEADER_V0.size)
        end = self.position + self.size
        try:
            key, position = _sized(self.buffer, position, end)
            value, position = _sized(self.buffer, position, end)
        except StructError:
            raise InvalidRecord("a message ends within its key or value") from None
        return key, value

    def records(self, limit: int | None = None, *, with_headers: bool = True) -> Iterator[Record]:
        """The inner messages, with absolute offsets, as records. They never have headers.

        With a `limit` a wrapper is decompressed at once, and refused at once if it is invalid or larger.
        """
        if not self.is_compressed:
            key, value = self.key_and_value()
            return iter((Record(self.last_offset, self.max_timestamp, key, value),))
        if limit is None:
            windows = self.record_windows()
            # Most errors are raised now, not during iteration.
            return chain(next(windows), chain.from_iterable(windows))
        inner = self.inner(limit)
        base = self._absolute_base(inner[-1].last_offset) if self.magic > 0 else None
        return (_inner_record(message, base, self._append_time) for message in inner)

    def record_windows(self) -> Iterator[Iterator[Record]]:
        """Like `records`, in windows: few of a wrapper's bytes are in memory at once."""
        if not self.is_compressed:
            yield self.records()
            return
        base = None
        if self.magic > 0:
            # Offsets count from the first message, and only that of the last one is known: this takes two passes.
            for messages in self._inner_windows():
                last_inner_offset = messages[-1].last_offset
            base = self._absolute_base(last_inner_offset)
        for messages in self._inner_windows():
            yield (_inner_record(message, base, self._append_time) for message in messages)

    def record_times(self) -> Iterator[list[tuple[int, int]]]:
        """The timestamps and offsets of the records, in windows."""
        for records in self.record_windows():
            yield [(record.timestamp, record.offset) for record in records]

    @property
    def _append_time(self) -> int | None:
        return self.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else None

    def _inner_windows(self) -> Iterator[list[LegacyBatch]]:
        """Like `inner`, in windows. Yields at least one window, and none is empty."""
        largest = streaming.record_bytes_max(self.size)
        pending: list[bytes] = []
        have, needed = 0, LOG_OVERHEAD
        is_empty = True
        for piece in streaming.decompressed(self.codec, self._wrapped(), self.magic):
            pending.append(piece)
            have += len(piece)
            if have < needed:
                continue
            data = b"".join(pending)
            messages = list(message_set(data))
            if messages:
                is_empty = False
                _check_inner(messages)
                yield messages
            end = messages[-1].end_position if messages else 0
            pending, have = [data[end:]], have - end
            needed = LOG_OVERHEAD
            if have >= LOG_OVERHEAD:
                needed = max(_SIZE.unpack_from(data, end + LENGTH_OFFSET)[0] + LOG_OVERHEAD, have + 1)
                if needed > largest:
                    raise MessageTooLarge(f"a message of {needed} bytes is too large to be read; it may have {largest}")
        if is_empty:
            raise InvalidRecord(_EMPTY)

    def _wrapped(self) -> bytes:
        """The compressed set of a wrapper."""
        if self.codec == compression.ZSTD:
            raise InvalidRecord(f"zstd is not a codec of message format {self.magic}")
        value = self.key_and_value()[1]
        if value is None:
            raise InvalidRecord("a compressed message set has a null value")
        return value

    def inner(self, limit: int | None = None, count_max: int | None = None) -> list[LegacyBatch]:
        """The messages of a wrapper as stored, with their own offsets and CRCs. Raises if there are too many."""
        bound = compression.DEFAULT_LIMIT if limit is None else limit
        found = message_set(compression.decompress(self.codec, self._wrapped(), bound, self.magic))
        messages = list(found if count_max is None else islice(found, count_max + 1))
        if count_max is not None and len(messages) > count_max:
            raise MessageTooLarge(f"a compressed message set holds more than {count_max} messages")
        if not messages:
            raise InvalidRecord(_EMPTY)
        _check_inner(messages)
        return messages

    def _absolute_base(self, last_inner_offset: int) -> int:
        # Some librdkafka versions produce wrappers with offset 0: then the inner offsets apply.
        if self.last_offset == 0:
            return 0
        if self.last_offset < last_inner_offset:
            raise InvalidRecord(f"wrapper offset {self.last_offset} is below its last inner offset {last_inner_offset}")
        return self.last_offset - last_inner_offset


def _check_inner(messages: Sequence[LegacyBatch]) -> None:
    if any(message.is_compressed for message in messages):
        raise InvalidRecord("inner messages must not be compressed")


def _inner_record(message: LegacyBatch, base: int | None, append_time: int | None) -> Record:
    key, value = message.key_and_value()
    offset = message.last_offset if base is None else base + message.last_offset
    timestamp = append_time if append_time is not None and message.magic > 0 else message.max_timestamp
    return Record(offset, timestamp, key, value)


def _sized(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(buffer, position)
    position += _SIZE.size
    if size < 0:
        return None, position
    if position + size > end:
        raise InvalidRecord(f"a field of {size} bytes runs past the end of its message")
    return bytes(buffer[position : position + size]), position + size


def message_set(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[LegacyBatch]:
    """All complete shallow messages. A partial last one ends the iteration, as old clients expect from a fetch."""
    for entry in any_batches(buffer, position, end):
        if not isinstance(entry, LegacyBatch):
            raise InvalidRecord("a v2 batch stands in a message set")
        yield entry


def any_batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[Batch | LegacyBatch]:
    """Batches of any format. Impossible sizes and magics raise CorruptMessage, as in Kafka."""
    stop = len(buffer) if end is None else end
    while stop - position >= LOG_OVERHEAD:
        (size,) = _SIZE.unpack_from(buffer, position + LENGTH_OFFSET)
        if size < MIN_LENGTH:
            raise CorruptMessage(f"record size {size} is below the least overhead of {MIN_LENGTH} bytes")
        if stop - position <= MAGIC_OFFSET:
            return
        magic = buffer[position + MAGIC_OFFSET]
        if magic > CURRENT_MAGIC:
            raise CorruptMessage(f"unknown magic {magic}")
        following = position + size + LOG_OVERHEAD
        if following > stop:
            return
        if magic == CURRENT_MAGIC:
            if size + LOG_OVERHEAD < HEADER_SIZE:
                raise CorruptMessage(f"a batch of {size + LOG_OVERHEAD} bytes is smaller than its header")
            yield Batch(buffer, position)
        else:
            yield LegacyBatch(buffer, position)
        position = following


def encode_message(
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
) -> bytes:
    """One message of format 0 or 1 with its CRC."""
    body = b"".join(
        (
            bytes((magic, attributes)),
            timestamp.to_bytes(8, "big", signed=True) if magic > 0 else b"",
            _SIZE.pack(-1 if key is None else len(key)),
            key or b"",
            _SIZE.pack(-1 if value is None else len(value)),
            value or b"",
        )
    )
    return b"".join((_LAST_OFFSET.pack(offset), _SIZE.pack(len(body) + 4), _CRC.pack(zlib.crc32(body)), body))


def build_message_set(
    records: Iterable[Record],
    magic: int,
    codec: int = 0,
    level: int | None = None,
    append_time_ms: int | None = None,
) -> bytes:
    """Encode records (without their headers) as message format 0 or 1, in one wrapper if compressed."""
    if codec == compression.ZSTD:
        raise UnsupportedCompressionType(f"zstd is not a codec of message format {magic}")
    entries = list(records)
    append_flag = APPEND_TIME_FLAG if append_time_ms is not None and magic > 0 else 0
    base_offset = entries[0].offset if entries and codec and magic > 0 else 0
    messages: list[bytes] = []
    highest = NO_TIMESTAMP
    for record in entries:
        timestamp = record.timestamp if append_time_ms is None else append_time_ms
        highest = max(highest, timestamp)
        messages.append(
            encode_message(record.offset - base_offset, magic, append_flag, timestamp, record.key, record.value)
        )
    payload = b"".join(messages)
    if not codec or not entries:
        return payload
    value = compression.compress(codec, payload, level, magic)
    return encode_message(entries[-1].offset, magic, codec | append_flag, highest, None, value)
