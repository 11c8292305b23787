"""The leader's checks of one partition's produce payload before the append, with Kafka's error codes.

The result is one v2 batch, ready to be stamped with its offset: the bytes that arrived (a view, changed in place) or,
if the format or the codec must change, new bytes. In Kafka's order:

    no batch, another magic, two batches (produce 3+), base offset not 0   INVALID_RECORD
    zstd below produce 7                                                   UNSUPPORTED_COMPRESSION_TYPE
    impossible size or magic, wrong CRC                                    CORRUPT_MESSAGE
    larger than max.message.bytes, before or after conversion              MESSAGE_TOO_LARGE
    count, offset range, control batch, sequence                           INVALID_RECORD
    unreadable compression, unknown codec                                  UNKNOWN_SERVER_ERROR
    malformed records                                                      INVALID_RECORD
    records without key in a compacted topic                               INVALID_RECORD, with record errors
    timestamps out of bounds                                               INVALID_TIMESTAMP, with record errors

Kafka always decodes every record. Here records are decoded only if that can change the result (compacted topics,
timestamp bounds, recompression), or if it is cheap (`Depth.AUTO`). Otherwise the producer's CRC is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
    UnsupportedCompressionType,
)
from ottla.lazy_imports import lazy
from ottla.records import compression
from ottla.records.batch import (
    APPEND_TIME_FLAG,
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_OFFSET,
    MIN_BATCH_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Batch,
    Buffer,
    Record,
    build_batch,
    decode_records,
    pack_batch,
)
from ottla.records.walk import LEAST_RECORD_SIZE, Walked, plain_record, walk

if TYPE_CHECKING:
    from ottla.records import legacy, legacy_validation
else:
    legacy = lazy("ottla.records.legacy")
    legacy_validation = lazy("ottla.records.legacy_validation")

LATEST_PRODUCE_VERSION: Final = 13
FIRST_V2_PRODUCE_VERSION: Final = 3
FIRST_ZSTD_PRODUCE_VERSION: Final = 7
NO_BOUND_MS: Final = (1 << 63) - 1

# Cost limits of Depth.AUTO. A single check of a record costs 0.5 to 1 µs, one in a run of equal records about 0.1 µs,
# and the header and CRC of 64 KiB 5 µs. So few or large records are all checked. For many small ones, where the check
# would dominate the request, the CRC is trusted.
CHEAP_RECORD_COUNT: Final = 32
CHEAP_RECORD_SIZE: Final = 2048
CHEAP_COMPRESSED_SIZE: Final = 2048
CHEAP_DECOMPRESSED_SIZE: Final = 64 << 10

# Limits for batches in which each record must be checked, because of a setting or an implausible header: the check
# delays all other clients. Kafka has no such limits.
DECOMPRESSED_PER_BYTE: Final = 32
"""A batch may decompress to this many times max.message.bytes. Batches of that size have far lower ratios; small
batches may have any ratio."""
LEAST_DECOMPRESSED_LIMIT: Final = 16 << 20
LEAST_RECORDS_MAX: Final = 100_000
"""A batch may hold this many records, or as many as an uncompressed batch of max.message.bytes could."""


# Larger batches are checked in a thread, so that other clients are served.
LONG_BYTES: Final = 256 << 10
LONG_RECORD_COUNT: Final = 20_000
LONG_LEGACY_BYTES: Final = 16 << 10


class Origin(Enum):
    CLIENT = 0
    COORDINATOR = 1
    """Our own coordinators, which may write control batches and batches without a sequence."""


class Depth(Enum):
    """How thoroughly the records of a batch are checked if no setting requires it."""

    HEADERS = 0
    AUTO = 1
    RECORDS = 2


class RecordError(NamedTuple):
    batch_index: int
    message: str


_KEYLESS: Final = "Compacted topic cannot accept message without key"
_SHOWN_ERRORS: Final = 3


class NotOneBatch(InvalidRecord):
    """The payload is not one batch of the current format. Refused before its log is accessed."""


class InvalidRecords(InvalidRecord):
    """Names the invalid records."""

    def __init__(self, record_errors: Sequence[RecordError]) -> None:
        shown = ", ".join(
            f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
            for error in record_errors[:_SHOWN_ERRORS]
        )
        super().__init__(
            f"One or more records have been rejected due to {len(record_errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        self.record_errors = record_errors


class InvalidTimestamps(InvalidTimestamp):
    """Names the invalid records."""

    def __init__(self, record_errors: Sequence[RecordError]) -> None:
        super().__init__("One or more records have been rejected due to invalid timestamp")
        self.record_errors = record_errors


def placed(error: InvalidRecords | InvalidTimestamps, topic: str, index: int) -> InvalidRecords | InvalidTimestamps:
    """The same error with the partition added, which validation does not know."""
    return type(error)(
        [
            each._replace(message=f"{_KEYLESS} in topic partition {topic}-{index}")
            if each.message == _KEYLESS
            else each
            for each in error.record_errors
        ]
    )


def record_errors_of(error: KafkaError) -> Sequence[RecordError]:
    """The record errors for the produce response. Kafka only sends an error message together with these."""
    return error.record_errors if isinstance(error, InvalidRecords | InvalidTimestamps) else ()


class TopicSettings(Protocol):
    """Any object that supports `settings["compression.type"]`."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(slots=True)
class ValidationOptions:
    """The topic's settings, built once and used for every append."""

    target_codec: int | None = None
    """None keeps the producer's codec (`compression.type=producer`)."""
    level: int | None = None
    compacted: bool = False
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = NO_BOUND_MS
    timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    depth: Depth = Depth.AUTO
    decompressed_limit: int = 0
    """The largest decompressed size of a batch that is read. 0 derives the limit from `max_message_bytes`."""
    records_max: int = field(init=False, compare=False, repr=False)
    """The most records of a batch that is read."""
    rewrites: bool = field(init=False, compare=False, repr=False)
    """Whether a batch may be stored in a different form."""
    takes_unread: bool = field(init=False, compare=False, repr=False)
    """Whether no setting can make a record invalid, so that the records do not have to be read."""

    def __post_init__(self) -> None:
        if not self.decompressed_limit:
            by_size = max(self.max_message_bytes * DECOMPRESSED_PER_BYTE, LEAST_DECOMPRESSED_LIMIT)
            self.decompressed_limit = min(by_size, compression.DEFAULT_LIMIT)
        self.records_max = max(self.max_message_bytes // LEAST_RECORD_SIZE, LEAST_RECORDS_MAX)
        self.rewrites = self.target_codec is not None or self.timestamp_type == LOG_APPEND_TIME
        self.takes_unread = (
            self.depth is not Depth.RECORDS
            and not self.compacted
            and not self.rewrites
            and self.timestamp_before_max_ms == NO_BOUND_MS
        )

    @classmethod
    def from_topic_config(cls, config: TopicSettings, depth: Depth = Depth.AUTO) -> ValidationOptions:
        codec_name = config["compression.type"]
        policies = config["cleanup.policy"]
        level = config[f"compression.{codec_name}.level"] if codec_name in ("gzip", "lz4", "zstd") else None
        return cls(
            target_codec=None if codec_name == "producer" else compression.BY_NAME[codec_name],
            level=level,
            compacted="compact" in (policies.split(",") if isinstance(policies, str) else policies),
            timestamp_type=LOG_APPEND_TIME if config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME,
            timestamp_before_max_ms=config["message.timestamp.before.max.ms"],
            timestamp_after_max_ms=config["message.timestamp.after.max.ms"],
            max_message_bytes=config["max.message.bytes"],
            depth=depth,
        )


class Validated:
    """A batch to append. Stamp it (`batch.stamp(base_offset, leader_epoch)`) and write `data`."""

    __slots__ = ("append_time_ms", "batch", "converted", "max_timestamp", "record_count")

    def __init__(self, batch: Batch, append_time_ms: int, converted: bool = False) -> None:
        self.batch = batch
        self.record_count = batch.record_count
        self.max_timestamp = batch.max_timestamp
        self.append_time_ms = append_time_ms
        """The value for the produce response: -1 unless the topic has LogAppendTime."""
        self.converted = converted

    @property
    def data(self) -> memoryview:
        return self.batch.view()


def validate(
    buffer: Buffer,
    options: ValidationOptions,
    now_ms: int,
    produce_version: int = LATEST_PRODUCE_VERSION,
    origin: Origin = Origin.CLIENT,
) -> Validated | None:
    """Check one partition's records. `buffer` must be writable, because the batch is stamped in it.

    None: produce below version 3 sent no complete message. Kafka then responds without an error and with offset -1.
    """
    size = len(buffer)
    if size >= HEADER_SIZE and buffer[MAGIC_OFFSET] == CURRENT_MAGIC:
        batch = Batch(buffer)
        if batch.batch_length >= MIN_BATCH_LENGTH and batch.size <= size:
            if batch.size != size:
                _check_zstd(batch, produce_version)
                _refuse_more_batches(buffer, batch.size)
            return validate_batch(batch, options, now_ms, produce_version, origin)
    return legacy_validation.validate_message_set(buffer, options, now_ms, produce_version)


def _refuse_more_batches(buffer: Buffer, position: int) -> None:
    """A partial batch at the end is dropped silently. A complete one is an error."""
    for _ in legacy.any_batches(buffer, position):
        raise NotOneBatch("a partition may carry one record batch only")


def shape_error(buffer: Buffer, produce_version: int) -> KafkaError | None:
    """Errors in the shape of a payload, which `validate` finds first, before any log is accessed."""
    if produce_version < FIRST_V2_PRODUCE_VERSION:
        return None
    entries = legacy.any_batches(buffer)
    try:
        first = next(entries, None)
        if not isinstance(first, Batch):
            return NotOneBatch("a partition must carry one record batch of the current format")
        _check_zstd(first, produce_version)
        _refuse_more_batches(buffer, first.position + first.size)
    except KafkaError as error:
        return error
    return None


def may_store_as_is(batch: Batch, options: ValidationOptions, now_ms: int) -> bool:
    """Whether a client's batch can be stored unchanged: the fast path of `validate_batch`.

    For settings that accept unread records. False for all other batches, both invalid ones and those that need more
    checks. Most batches of a busy broker have many records or a single one, and need only these comparisons.
    """
    count, attributes, max_timestamp = batch.record_count, batch.attributes, batch.max_timestamp
    return (
        (count == 1 or (count > CHEAP_RECORD_COUNT and batch.size < count * CHEAP_RECORD_SIZE))
        and batch.last_offset_delta == count - 1
        and batch.base_offset == 0
        and batch.size <= options.max_message_bytes
        and batch.base_timestamp <= max_timestamp <= now_ms + options.timestamp_after_max_ms
        and (not attributes or attributes == TRANSACTIONAL_FLAG or _is_readable(batch))
        and (batch.producer_id < 0 or batch.base_sequence >= 0)
        and batch.crc_ok()
        # A plain record has the batch's base timestamp.
        and (count > 1 or (batch.base_timestamp == max_timestamp and plain_record(batch.payload()) is not None))
    )


def _is_readable(batch: Batch) -> bool:
    """Whether this is a large compressed batch, of which only the start would be checked."""
    attributes = batch.attributes
    if attributes & ~(CODEC_MASK | TRANSACTIONAL_FLAG) or batch.size - HEADER_SIZE <= CHEAP_COMPRESSED_SIZE:
        return False
    codec = attributes & CODEC_MASK
    if codec == compression.LZ4:
        return compression.is_lz4_frame(batch.payload())
    return codec == compression.GZIP or codec == compression.SNAPPY


def validate_batch(
    batch: Batch,
    options: ValidationOptions,
    now_ms: int,
    produce_version: int = LATEST_PRODUCE_VERSION,
    origin: Origin = Origin.CLIENT,
) -> Validated:
    """Check a complete and writable batch of the current format."""
    attributes = batch.attributes
    source_codec = attributes & CODEC_MASK
    if produce_version < FIRST_ZSTD_PRODUCE_VERSION:
        _check_zstd(batch, produce_version)
    from_client = origin is Origin.CLIENT
    if from_client and batch.base_offset != 0:
        raise InvalidRecord(f"base offset must be 0, not {batch.base_offset}")
    if batch.size > options.max_message_bytes:
        raise MessageTooLarge(f"batch of {batch.size} bytes exceeds max.message.bytes {options.max_message_bytes}")
    if not batch.crc_ok():
        raise CorruptMessage(f"stored CRC {batch.crc:#010x} is wrong")
    if source_codec > compression.ZSTD:
        raise UnknownServerError(f"unknown compression codec {source_codec}")
    if from_client:
        _check_client_header(batch)
    target_codec = options.target_codec
    if target_codec is None or target_codec == source_codec or (attributes & CONTROL_FLAG and not source_codec):
        walked = _walk_in_place(batch, options, now_ms)
        if walked is not None and source_codec and not walked.sequential:
            # Kafka would rebuild the batch from records that it read without keys and values, and fails.
            raise UnknownServerError("offset deltas of a compressed batch are not 0, 1, 2, …")
        if options.timestamp_type == LOG_APPEND_TIME:
            batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
            return Validated(batch, now_ms)
        if attributes & APPEND_TIME_FLAG:
            batch.set_max_timestamp(CREATE_TIME, batch.max_timestamp)
        elif walked is not None and batch.base_timestamp + walked.max_delta != batch.max_timestamp:
            batch.set_max_timestamp(CREATE_TIME, max(NO_TIMESTAMP, batch.base_timestamp + walked.max_delta))
        return Validated(batch, NO_TIMESTAMP)
    return _recompress(batch, target_codec, options, now_ms)


def _check_zstd(batch: Batch, produce_version: int) -> None:
    if (
        batch.attributes & CODEC_MASK == compression.ZSTD
        and FIRST_V2_PRODUCE_VERSION <= produce_version < FIRST_ZSTD_PRODUCE_VERSION
    ):
        raise UnsupportedCompressionType(f"zstd needs produce version 7, not {produce_version}")


def _check_client_header(batch: Batch) -> None:
    count = batch.record_count
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise InvalidRecord(f"record count {count} does not fit last offset delta {batch.last_offset_delta}")
    if batch.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients may not write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecord(f"sequence {batch.base_sequence} of producer {batch.producer_id} is negative")


def _walk_in_place(batch: Batch, options: ValidationOptions, now_ms: int) -> Walked | None:
    """Check the records if it is necessary or cheap. None if the header was trusted."""
    if batch.record_count == 0:
        return None
    codec = batch.attributes & CODEC_MASK
    if _must_walk(batch, options, now_ms):
        data: Buffer = _readable_payload(batch, options)
        walked = walk(data, batch.record_count)
    else:
        if codec == compression.LZ4:
            compression.check_lz4_frame(batch.payload())
        if options.depth is Depth.HEADERS or (codec and batch.size - HEADER_SIZE > CHEAP_COMPRESSED_SIZE):
            return None
        count = batch.record_count
        if count > CHEAP_RECORD_COUNT and batch.size < count * CHEAP_RECORD_SIZE:
            return None
        data = batch.payload()
        if codec:
            try:
                data = compression.decompress(codec, data, CHEAP_DECOMPRESSED_SIZE)
            except MessageTooLarge:
                return None
        walked = walk(data, count, check_sequence=codec != 0)
    _check_records(batch, walked, data, options, now_ms)
    return walked


def bytes_to_check(buffer: Buffer, options: ValidationOptions, now_ms: int) -> int:
    """How many decompressed bytes must be read before the records are stored. LONG_BYTES + 1 means more."""
    if len(buffer) >= HEADER_SIZE and buffer[MAGIC_OFFSET] == CURRENT_MAGIC:
        return batch_bytes_to_check(Batch(buffer), options, now_ms)
    # Message sets are always read, and may be compressed.
    return len(buffer) if len(buffer) <= LONG_LEGACY_BYTES else LONG_BYTES + 1


def batch_bytes_to_check(batch: Batch, options: ValidationOptions, now_ms: int) -> int:
    """Like `bytes_to_check`, for a batch of the current format."""
    codec = batch.attributes & CODEC_MASK
    rewritten = options.target_codec is not None and options.target_codec != codec
    if not (rewritten or _must_walk(batch, options, now_ms)):
        return 0
    if batch.record_count > LONG_RECORD_COUNT:
        return LONG_BYTES + 1
    if not codec:
        return min(batch.size, LONG_BYTES + 1) if rewritten else 0
    try:
        return len(compression.decompress(codec, batch.payload(), LONG_BYTES))
    except MessageTooLarge:
        return LONG_BYTES + 1
    except KafkaError:
        return 0  # the check itself reports the error


def _readable_payload(batch: Batch, options: ValidationOptions) -> bytes:
    """The records of a batch that must all be checked. MessageTooLarge if there are too many."""
    if batch.record_count > options.records_max:
        raise MessageTooLarge(f"{batch.record_count} records in one batch are more than {options.records_max}")
    return batch.uncompressed_payload(options.decompressed_limit)


def _must_walk(batch: Batch, options: ValidationOptions, now_ms: int) -> bool:
    if options.compacted or options.depth is Depth.RECORDS:
        return True
    if options.timestamp_type == LOG_APPEND_TIME:
        return batch.attributes & APPEND_TIME_FLAG != 0
    return (
        options.timestamp_before_max_ms != NO_BOUND_MS
        or batch.max_timestamp - now_ms > options.timestamp_after_max_ms
        # The first record alone proves that the header's maximum is wrong.
        or batch.max_timestamp < batch.base_timestamp
        or batch.attributes & APPEND_TIME_FLAG != 0
    )


def _check_records(batch: Batch, walked: Walked, data: Buffer, options: ValidationOptions, now_ms: int) -> None:
    """Check keys and timestamps. Records are only decoded one by one if the walk found a possible error."""
    base_timestamp = batch.base_timestamp
    suspicious = (
        batch.attributes & APPEND_TIME_FLAG
        or (options.compacted and walked.null_keys)
        or (
            options.timestamp_type == CREATE_TIME
            and (
                base_timestamp + walked.max_delta - now_ms > options.timestamp_after_max_ms
                or now_ms - (base_timestamp + walked.min_delta) > options.timestamp_before_max_ms
            )
        )
    )
    if suspicious:
        append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_FLAG else None
        records = decode_records(
            bytes(data),
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            append_time,
            with_headers=False,
        )
        check_keys_and_timestamps(records, batch.timestamp_type, options, now_ms)


def check_keys_and_timestamps(
    records: Iterable[Record], batch_timestamp_type: int, options: ValidationOptions, now_ms: int
) -> None:
    """Raise an error for all invalid records, each with its index in the batch."""
    errors: list[RecordError] = []
    bad_timestamp = False
    earliest = now_ms - options.timestamp_before_max_ms
    latest = now_ms + options.timestamp_after_max_ms
    for index, record in enumerate(records):
        timestamp = record.timestamp
        if options.compacted and record.key is None:
            errors.append(RecordError(index, _KEYLESS))
        elif options.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                bad_timestamp = True
                text = (
                    f"Timestamp {timestamp} of message with offset {record.offset} is out of range. "
                    f"The timestamp should be within [{earliest}, {latest}]"
                )
                errors.append(RecordError(index, text))
        elif batch_timestamp_type == LOG_APPEND_TIME:
            bad_timestamp = True
            errors.append(RecordError(index, "A producer must not set the timestamp type to LogAppendTime."))
    if bad_timestamp:
        raise InvalidTimestamps(errors)
    if errors:
        raise InvalidRecords(errors)


def _recompress(batch: Batch, target_codec: int, options: ValidationOptions, now_ms: int) -> Validated:
    """Convert to the topic's codec. The bytes of the records stay, unless their offset deltas must be corrected."""
    data = _readable_payload(batch, options)
    walked = walk(data, batch.record_count)
    _check_records(batch, walked, data, options, now_ms)
    if batch.base_timestamp + walked.min_delta < NO_TIMESTAMP:
        raise UnknownServerError("a record's timestamp is negative")
    if not walked.sequential or batch.attributes & APPEND_TIME_FLAG:
        if not walked.saw_all_headers:
            raise MessageTooLarge("the batch has to be rebuilt, and has too many headers for that")
        decoded = batch.records(options.decompressed_limit)
        records = [record._replace(offset=index) for index, record in enumerate(decoded)]
        return build_validated(records, target_codec, options, now_ms, batch)
    append_time = options.timestamp_type == LOG_APPEND_TIME
    attributes = batch.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) | target_codec
    new = pack_batch(
        compression.compress(target_codec, data, options.level),
        batch.record_count,
        base_offset=0,
        leader_epoch=batch.leader_epoch,
        attributes=attributes | (APPEND_TIME_FLAG if append_time else 0),
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=now_ms if append_time else max(NO_TIMESTAMP, batch.base_timestamp + walked.max_delta),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    return _checked_size(Batch(new), options, now_ms)


def build_validated(
    records: Sequence[Record], codec: int, options: ValidationOptions, now_ms: int, source: Batch | None = None
) -> Validated:
    """A new batch from decoded records."""
    new = build_batch(
        records,
        codec=codec,
        producer_id=NO_PRODUCER_ID if source is None else source.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if source is None else source.producer_epoch,
        base_sequence=NO_SEQUENCE if source is None else source.base_sequence,
        level=options.level if options.target_codec is not None else None,
        append_time_ms=now_ms if options.timestamp_type == LOG_APPEND_TIME else None,
        transactional=source is not None and source.is_transactional,
    )
    return _checked_size(Batch(new), options, now_ms)


def _checked_size(batch: Batch, options: ValidationOptions, now_ms: int) -> Validated:
    if batch.size > options.max_message_bytes:
        raise MessageTooLarge(
            f"converted batch of {batch.size} bytes exceeds max.message.bytes {options.max_message_bytes}"
        )
    return Validated(batch, now_ms if options.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP, converted=True)
