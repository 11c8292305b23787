"""Validation for produce versions 0 to 2, which send message sets. Each set becomes one v2 batch.

Separate from `validation`, because few clients need it, and a broker without such clients never imports it.
"""

from __future__ import annotations

from ottla.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnknownServerError
from ottla.records import compression
from ottla.records.batch import CODEC_MASK, CURRENT_MAGIC, NO_TIMESTAMP, Batch, Buffer, Record
from ottla.records.legacy import LegacyBatch, any_batches
from ottla.records.validation import (
    FIRST_V2_PRODUCE_VERSION,
    InvalidRecords,
    NotOneBatch,
    RecordError,
    Validated,
    ValidationOptions,
    build_validated,
    check_keys_and_timestamps,
)


def validate_message_set(
    buffer: Buffer, options: ValidationOptions, now_ms: int, produce_version: int
) -> Validated | None:
    """Validate a payload that does not start with one complete v2 batch."""
    entries: list[Batch | LegacyBatch] = []
    for entry in any_batches(buffer):
        entries.append(entry)
        if produce_version >= FIRST_V2_PRODUCE_VERSION:
            if entry.magic != CURRENT_MAGIC:
                raise NotOneBatch(f"produce version {produce_version} carries v2 batches only")
            break
    if not entries:
        if produce_version >= FIRST_V2_PRODUCE_VERSION:
            raise NotOneBatch("a partition must carry one record batch")
        return None
    source_codec = _check_shallow(entries, options)
    first = entries[0]
    if source_codec and len(entries) > 1:
        raise InvalidRecord("a compressed message set must be the only one of its partition")
    records: list[Record] = []
    for entry in entries:
        if isinstance(entry, Batch) or entry.magic != first.magic:
            raise InvalidRecord(f"magic {entry.magic} follows magic {first.magic} in one partition")
        batch_records = _records_of(entry, options)
        check_keys_and_timestamps(batch_records, entry.timestamp_type, options, now_ms)
        records += batch_records
    if any(record.timestamp < NO_TIMESTAMP for record in records):
        raise UnknownServerError("a record's timestamp is negative")
    target_codec = source_codec if options.target_codec is None else options.target_codec
    numbered = [record._replace(offset=index) for index, record in enumerate(records)]
    return build_validated(numbered, target_codec, options, now_ms)


def _check_shallow(entries: list[Batch | LegacyBatch], options: ValidationOptions) -> int:
    """Check size and CRC of each shallow message -> the codec in use."""
    source_codec = 0
    for entry in entries:
        if entry.size > options.max_message_bytes:
            raise MessageTooLarge(f"message of {entry.size} bytes exceeds {options.max_message_bytes}")
        if not entry.crc_ok():
            raise CorruptMessage(f"stored CRC {entry.crc:#010x} is wrong")
        codec = entry.attributes & CODEC_MASK
        if codec > compression.ZSTD:
            raise UnknownServerError(f"unknown compression codec {codec}")
        source_codec = codec or source_codec
    return source_codec


def _records_of(entry: LegacyBatch, options: ValidationOptions) -> list[Record]:
    if not entry.is_compressed:
        try:
            return list(entry.records())
        except InvalidRecord as error:
            # Kafka reads the sizes of a plain message outside of its error handling: an index out of bounds.
            raise UnknownServerError(error.message) from None
    strangers: list[RecordError] = []
    for index, message in enumerate(entry.inner(options.decompressed_limit, options.records_max)):
        if message.magic != entry.magic:
            text = f"Magic {message.magic} of an inner message differs from its wrapper's {entry.magic}."
            strangers.append(RecordError(index, text))
        else:
            message.ensure_valid()
    if strangers:
        raise InvalidRecords(strangers)
    return list(entry.records(options.decompressed_limit))
