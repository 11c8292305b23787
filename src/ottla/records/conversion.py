"""Conversion of newer record formats to older ones, for old fetchers.

Features that a format lacks are dropped: headers below v2, timestamps below v1, control batches below v2. Offsets and
the codec stay. Batches in an old enough format pass unchanged.

Batches are streamed, both when reading and when writing compressed ones, so a small batch that decompresses to a large
size is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.answers import Steps, finished
from ottla.errors import UnsupportedCompressionType
from ottla.records import compression
from ottla.records.batch import (
    APPEND_TIME_FLAG,
    CURRENT_MAGIC,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Batch,
    Buffer,
    Record,
)
from ottla.records.legacy import LegacyBatch, any_batches, encode_message
from ottla.records.streaming import WINDOW_BYTES, Compressor


def down_convert(buffer: Buffer, to_magic: int, first_offset: int = 0) -> bytes:
    """Complete batches as message format `to_magic`. A partial last batch is left out.

    Records below `first_offset` are dropped from uncompressed batches only: some librdkafka versions need that, and a
    wrapper must stay whole to keep its offsets correct.
    """
    return finished(down_converting(buffer, to_magic, first_offset))


def down_converting(
    buffer: Buffer, to_magic: int, first_offset: int = 0, enough_bytes: int | None = None
) -> Steps[bytes]:
    """Like `down_convert`, in steps. Ends with the batch that reaches `enough_bytes`; the client fetches the rest."""
    output: list[bytes | memoryview] = []
    size = 0
    for batch in any_batches(buffer):
        if to_magic < CURRENT_MAGIC:
            if batch.is_control:
                continue
            if batch.codec == compression.ZSTD:
                raise UnsupportedCompressionType("zstd batches cannot be down-converted")
        if batch.magic <= to_magic:
            converted: bytes | memoryview = batch.view()
        else:
            converted = yield from _old_format(batch, to_magic, first_offset)
        output.append(converted)
        size += len(converted)
        if enough_bytes is not None and size >= enough_bytes:
            break
        yield batch.size
    return b"".join(output)


def _append_time(batch: Batch | LegacyBatch) -> int | None:
    return batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None


def _old_format(batch: Batch | LegacyBatch, to_magic: int, first_offset: int) -> Steps[bytes]:
    append_time = _append_time(batch)
    append_flag = APPEND_TIME_FLAG if append_time is not None and to_magic > 0 else 0
    wrapped = Compressor(batch.codec, to_magic)
    base_offset = last_offset = -1
    highest = NO_TIMESTAMP
    for records in batch.record_windows():
        for record in _from(records, 0 if batch.is_compressed else first_offset):
            if base_offset < 0:
                base_offset = record.offset if batch.is_compressed and to_magic > 0 else 0
            last_offset = record.offset
            highest = max(highest, record.timestamp)
            wrapped.write(
                encode_message(
                    record.offset - base_offset, to_magic, append_flag, record.timestamp, record.key, record.value
                )
            )
        yield WINDOW_BYTES
    if last_offset < 0:
        return b""
    payload = wrapped.finish()
    if not batch.is_compressed:
        return payload
    return encode_message(last_offset, to_magic, batch.codec | append_flag, highest, None, payload)


def _from(records: Iterator[Record], first_offset: int) -> Iterator[Record]:
    return (record for record in records if record.offset >= first_offset)
