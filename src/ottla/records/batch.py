"""Record batch v2: a view over the bytes, and the builder.

A batch is a 61-byte header and an opaque payload. The broker reads only headers; `Batch.records()` is for the few
places that need the records (compaction, conversion, coordinator logs, tools). Nothing else here copies a payload.

    offset  8  base offset             rewritten by the leader, outside the CRC
            4  batch length            bytes after this field
            4  partition leader epoch  rewritten by the leader, outside the CRC
            1  magic                   2
            4  CRC-32C                 of everything that follows
            2  attributes              bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
            4  last offset delta
            8  base timestamp          or the delete horizon, when bit 6 is set
            8  max timestamp           or the append time, when bit 3 is set
            8  producer id
            2  producer epoch
            4  base sequence
            4  record count
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.enums import ControlRecordType
from ottla.errors import CorruptMessage, InvalidRecord
from ottla.records import compression, streaming
from ottla.records.checksum import crc32c
from ottla.records.record import Buffer, Headers, Record, decode_records, encode_record, encode_varint

__all__ = [
    "Batch",
    "Buffer",
    "ControlRecord",
    "Headers",
    "Record",
    "batches",
    "build_batch",
    "control_batch",
    "decode_records",
    "encode_record",
    "encode_varint",
    "end_transaction_marker",
    "entry_size",
    "increment_sequence",
    "key_value_batch",
    "pack_batch",
    "parse_control_key",
    "pieces",
    "seal",
    "set_producer",
]

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 61

LOG_OVERHEAD: Final = 12
"""Base offset and length: the bytes before the part that `batch_length` counts."""
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
MIN_LENGTH: Final = 14
"""The smallest value of the length field in any format: that of an empty message of format 0."""
CURRENT_MAGIC: Final = 2

# Offsets of header fields. The first three are the same in formats 0 and 1.
LENGTH_OFFSET: Final = 8
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
FLAGS_OFFSET: Final = 22
"""The low byte of the attributes, which holds the codec and all flags."""
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_OFFSET: Final = 43

# Parts of the header, for readers that need only these.
FRONT: Final = Struct(">qi4xb")
"""Base offset, length and magic. In formats 0 and 1 the offset is that of the last record."""
LOCATOR: Final = Struct(">qi4xb6xi")
"""Base offset, length, magic and last offset delta, which has no meaning in formats 0 and 1."""
TIMESTAMPS: Final = Struct(">qq")
"""Base and max timestamp, at BASE_TIMESTAMP_OFFSET."""
PRODUCER: Final = Struct(">qhi")
"""Producer id, producer epoch and base sequence, at PRODUCER_OFFSET."""

CODEC_MASK: Final = 0x07
APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

MAX_SEQUENCE: Final = 0x7FFFFFFF

_STAMP: Final = Struct(">qii")
_LENGTH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_INT64: Final = Struct(">q")
_CONTROL_KEY: Final = Struct(">hh")
_END_TXN_VALUE: Final = Struct(">hi")


class ControlRecord(NamedTuple):
    """A record of a control batch: the version and type come from its key."""

    offset: int
    timestamp: int
    version: int
    type: int
    value: bytes | None

    @property
    def coordinator_epoch(self) -> int:
        """The coordinator epoch of an end-of-transaction marker, or -1 for other types."""
        if self.type > ControlRecordType.COMMIT or self.value is None or len(self.value) < _END_TXN_VALUE.size:
            return -1
        return int(_END_TXN_VALUE.unpack_from(self.value)[1])


class Batch:
    """One batch inside a buffer: header fields as attributes, payload untouched."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Read the header at `position`. The caller has checked that there are 61 bytes (as in `batches`)."""
        self.buffer = buffer
        self.position = position
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer, position)
        self.size = self.batch_length + LOG_OVERHEAD

    def __repr__(self) -> str:
        return (
            f"Batch(offsets={self.base_offset}..{self.last_offset}, size={self.size}, count={self.record_count}, "
            f"codec={self.codec}, attributes={self.attributes:#x}, producer={self.producer_id}/{self.producer_epoch})"
        )

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

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
        return LOG_APPEND_TIME if self.attributes & APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may be removed (KIP-534). Stored in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def view(self) -> memoryview:
        """The whole batch, without a copy."""
        return memoryview(self.buffer)[self.position : self.position + self.size]

    def payload(self) -> memoryview:
        """The records part as stored, compressed or not, without a copy."""
        return memoryview(self.buffer)[self.position + HEADER_SIZE : self.position + self.size]

    def crc_ok(self) -> bool:
        buffer, position = self.buffer, self.position
        if buffer.__class__ is not memoryview:
            buffer = memoryview(buffer)
        return bool(crc32c(buffer[position + ATTRIBUTES_OFFSET : position + self.size]) == self.crc)

    def ensure_valid(self) -> None:
        if self.batch_length < MIN_BATCH_LENGTH:
            raise CorruptMessage(f"batch size {self.size} is below the overhead of {HEADER_SIZE} bytes")
        if not self.crc_ok():
            raise CorruptMessage(f"stored CRC {self.crc:#010x} of the batch at offset {self.base_offset} is wrong")

    def stamp(self, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> None:
        """Write the leader's values into the buffer in place. Only an append time changes the CRC."""
        try:
            _STAMP.pack_into(self.buffer, self.position, base_offset, self.batch_length, leader_epoch)
        except TypeError:
            self._writable()  # raises a clearer error
            raise
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        if append_time_ms is not None:
            self.set_max_timestamp(LOG_APPEND_TIME, append_time_ms)

    def set_max_timestamp(self, timestamp_type: int, max_timestamp: int) -> None:
        """Set type and maximum in place, and update the CRC if either changed."""
        if self.timestamp_type == timestamp_type and self.max_timestamp == max_timestamp:
            return
        buffer = self._writable()
        if timestamp_type == LOG_APPEND_TIME:
            self.attributes |= APPEND_TIME_FLAG
        else:
            self.attributes &= ~APPEND_TIME_FLAG
        self.max_timestamp = max_timestamp
        _ATTRIBUTES.pack_into(buffer, self.position + ATTRIBUTES_OFFSET, self.attributes)
        _INT64.pack_into(buffer, self.position + MAX_TIMESTAMP_OFFSET, max_timestamp)
        start = self.position + ATTRIBUTES_OFFSET
        self.crc = crc32c(memoryview(buffer)[start : self.position + self.size])
        _CRC.pack_into(buffer, self.position + CRC_OFFSET, self.crc)

    def _writable(self) -> bytearray | memoryview:
        buffer = self.buffer
        if isinstance(buffer, bytes):
            raise TypeError("a batch over bytes cannot be stamped; give a bytearray or a writable memoryview")
        return buffer

    def uncompressed_payload(self, limit: int | None = None) -> bytes:
        """The records part as bytes, decompressed if necessary. `limit` bounds the size of a malicious payload."""
        codec = self.attributes & CODEC_MASK
        if codec == 0:
            return bytes(self.payload())
        return compression.decompress(codec, self.payload(), compression.DEFAULT_LIMIT if limit is None else limit)

    def records(self, limit: int | None = None, *, with_headers: bool = True) -> Iterator[Record]:
        """Decode records one by one. Keys and values are `bytes`. Raises InvalidRecord on a malformed payload.

        Without `with_headers`, headers are skipped: a batch of 4 KB can hold millions of them.
        """
        if self.record_count == 0:
            return iter(())
        append_time = self.max_timestamp if self.attributes & APPEND_TIME_FLAG else None
        data = self.uncompressed_payload(limit)
        return decode_records(
            data, self.record_count, self.base_offset, self.base_timestamp, append_time, with_headers=with_headers
        )

    def record_windows(self) -> Iterator[Iterator[Record]]:
        """The records without their headers, in windows, so that few of a batch's bytes are in memory at once."""
        append_time = self.max_timestamp if self.attributes & APPEND_TIME_FLAG else None
        for data, count in self.payload_windows():
            yield decode_records(data, count, self.base_offset, self.base_timestamp, append_time, with_headers=False)

    def payload_windows(
        self, largest: int | None = None, window_bytes: int = streaming.WINDOW_BYTES
    ) -> Iterator[tuple[bytes, int]]:
        """The bytes of whole records in windows, and their counts. MessageTooLarge if a record is too large."""
        if self.record_count < 0:
            raise InvalidRecord(f"batch has a record count of {self.record_count}")
        pieces = streaming.decompressed(self.codec, self.payload(), window_bytes=window_bytes)
        return streaming.windows(pieces, self.record_count, largest or streaming.record_bytes_max(self.size))

    def record_times(self) -> Iterator[list[tuple[int, int]]]:
        """The timestamps and offsets of the records, in windows. Nothing else is kept in memory."""
        base_offset, base_timestamp = self.base_offset, self.base_timestamp
        append_time = self.max_timestamp if self.attributes & APPEND_TIME_FLAG else None
        for deltas in streaming.record_times(streaming.decompressed(self.codec, self.payload()), self.record_count):
            yield [
                (base_timestamp + delta if append_time is None else append_time, base_offset + offset_delta)
                for delta, offset_delta in deltas
            ]

    def control_records(self) -> Iterator[ControlRecord]:
        for record in self.records():
            version, control_type = parse_control_key(record.key)
            yield ControlRecord(record.offset, record.timestamp, version, control_type, record.value)

    def control_type(self) -> int:
        """The type of the first control record: a marker batch holds exactly one."""
        first = next(self.control_records(), None)
        if first is None:
            raise InvalidRecord("control batch without records")
        return first.type


def entry_size(head: Buffer) -> int:
    """The size of the batch, or of the message of format 0 or 1, that starts with these 12 or more bytes."""
    return int(_LENGTH.unpack_from(head, LENGTH_OFFSET)[0]) + LOG_OVERHEAD


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap to 0 after 2**31-1."""
    return (sequence + increment) & MAX_SEQUENCE


def batches(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[Batch]:
    """Headers of all complete batches, in order. A partial last batch ends the iteration silently, as in Kafka.

    Raises CorruptMessage if the length is impossible for a v2 batch, or if the magic is different.
    """
    stop = len(buffer) if end is None else end
    while stop - position >= HEADER_SIZE:
        batch = Batch(buffer, position)
        if batch.magic != CURRENT_MAGIC:
            raise CorruptMessage(f"magic {batch.magic} at position {position} is not a v2 batch")
        if batch.batch_length < MIN_BATCH_LENGTH:
            raise CorruptMessage(f"batch length {batch.batch_length} at position {position} is too small")
        if position + batch.size > stop:
            return
        yield batch
        position += batch.size


def pieces(batches: Sequence[Batch]) -> list[Buffer]:
    """The bytes to write. Adjacent batches in one buffer become one piece."""
    first = batches[0]
    if len(batches) == 1:
        if first.position == 0 and first.size == len(first.buffer):
            return [first.buffer]
        return [first.view()]
    pieces: list[Buffer] = []
    buffer, start, end = first.buffer, first.position, first.position
    for batch in batches:
        if batch.buffer is not buffer or batch.position != end:
            pieces.append(memoryview(buffer)[start:end])
            buffer, start = batch.buffer, batch.position
        end = batch.position + batch.size
    pieces.append(memoryview(buffer)[start:end])
    return pieces


def parse_control_key(key: bytes | None) -> tuple[int, int]:
    """`(version, type)`. Types of newer brokers are returned, not refused."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecord("control record key is shorter than 4 bytes")
    version, control_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"control record key has version {version}")
    return version, control_type


# --- writing batches -------------------------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record],
    base_offset: int | None = 0,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    *,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytearray:
    """Encode records into one batch (a bytearray, so that it can be stamped).

    Offsets come from the records (as deltas to `base_offset`; None means the first record's). `append_time_ms` makes it
    a LogAppendTime batch; as in Kafka, the deltas keep the producer's times. Compaction keeps the old
    `last_offset_delta` and, in an empty batch, `max_timestamp`.
    """
    entries = list(records)
    if base_offset is None:
        base_offset = entries[0].offset if entries else 0
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    else:
        base_timestamp = entries[0].timestamp if entries else NO_TIMESTAMP
    highest = NO_TIMESTAMP
    parts: list[bytes] = []
    for record in entries:
        if record.timestamp > highest:
            highest = record.timestamp
        parts.append(encode_record(record, record.offset - base_offset, record.timestamp - base_timestamp))
    if append_time_ms is not None:
        highest = append_time_ms
    if last_offset_delta is None:
        last_offset_delta = entries[-1].offset - base_offset if entries else -1
    if not entries:
        codec = 0  # nothing to compress; Kafka writes an empty batch without a codec
    attributes = (
        codec
        | (APPEND_TIME_FLAG if append_time_ms is not None else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
    )
    payload = b"".join(parts)
    if codec:
        payload = compression.compress(codec, payload, level)
    return pack_batch(
        payload,
        len(entries),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=highest if max_timestamp is None else max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def pack_batch(
    payload: Buffer,
    record_count: int,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """Put a header with its CRC before a finished payload."""
    out = bytearray(HEADER_SIZE)
    out += payload
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - LOG_OVERHEAD,
        leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    seal(out)
    return out


def seal(batch: bytearray) -> None:
    """Set the CRC of a batch that is otherwise complete."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))


def set_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set the producer of a batch in place."""
    PRODUCER.pack_into(batch, PRODUCER_OFFSET, producer_id, producer_epoch, base_sequence)
    seal(batch)


def key_value_batch(
    pairs: Iterable[tuple[bytes | None, bytes | None]], timestamp_ms: int, codec: int = 0, level: int | None = None
) -> bytearray:
    """A batch of keys and values with one timestamp, from offset 0, as coordinators write them."""
    records = [Record(offset, timestamp_ms, key, value) for offset, (key, value) in enumerate(pairs)]
    return build_batch(records, codec=codec, level=level)


def control_batch(
    control_type: int,
    value: bytes,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    key_version: int = 0,
) -> bytearray:
    """A batch with one control record, never compressed."""
    record = Record(base_offset, timestamp_ms, _CONTROL_KEY.pack(key_version, control_type), value)
    return build_batch(
        [record],
        base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
        leader_epoch=leader_epoch,
    )


def end_transaction_marker(
    commit: bool,
    coordinator_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that commits or aborts a producer's transaction in a partition (EndTxnMarker v0)."""
    return control_batch(
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        _END_TXN_VALUE.pack(0, coordinator_epoch),
        timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        leader_epoch=leader_epoch,
    )
