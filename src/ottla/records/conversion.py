"""Between record formats: down for old fetchers, up for old producers.

What a format cannot say is dropped: headers below v2, timestamps below v1, control batches below v2. Offsets and the
codec stay. Batches that are old enough already are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import UnsupportedCompressionType
from ottla.records import compression
from ottla.records.batch import (
    CURRENT_MAGIC,
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Batch,
    Buffer,
    Record,
    build_batch,
)
from ottla.records.legacy import LegacyBatch, any_batches, build_message_set


def down_convert(buffer: Buffer, to_magic: int, first_offset: int = 0) -> bytes:
    """Whole batches as message format `to_magic`; a partial last batch is left out.

    Records below `first_offset` are dropped from uncompressed batches only: some librdkafka versions need the former,
    and a wrapper must stay whole for its offsets to be right.
    """
    output: list[bytes | memoryview] = []
    for batch in any_batches(buffer):
        if to_magic < CURRENT_MAGIC:
            if batch.is_control:
                continue
            if batch.codec == compression.ZSTD:
                raise UnsupportedCompressionType("zstd batches cannot be down-converted")
        if batch.magic <= to_magic:
            output.append(batch.view())
            continue
        records = [record for record in batch.records() if batch.is_compressed or record.offset >= first_offset]
        if records:
            output.append(_old_format(batch, records, to_magic))
    return b"".join(output)


def _old_format(batch: Batch | LegacyBatch, records: Sequence[Record], to_magic: int) -> bytes:
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    return build_message_set(records, to_magic, batch.codec, append_time_ms=append_time)


def up_convert(buffer: Buffer, leader_epoch: int = NO_LEADER_EPOCH) -> bytearray:
    """Each batch or run of plain messages as v2, offsets kept; v2 batches are copied unchanged.

    Neighbouring uncompressed messages share one batch. A wrapper becomes one batch of the same codec.
    """
    output = bytearray()
    run: list[Record] = []
    run_append_time: int | None = None

    def flush() -> None:
        nonlocal run
        if run:
            output.extend(build_batch(run, None, append_time_ms=run_append_time, leader_epoch=leader_epoch))
            run = []

    for batch in any_batches(buffer):
        if isinstance(batch, Batch):
            flush()
            output += batch.view()
            continue
        append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
        records = [_checked(record) for record in batch.records()]
        if batch.is_compressed:
            flush()
            output += build_batch(records, None, batch.codec, append_time_ms=append_time, leader_epoch=leader_epoch)
            continue
        if run and (append_time != run_append_time or records[0].offset <= run[-1].offset):
            flush()
        run_append_time = append_time
        run += records
    flush()
    return output


def _checked(record: Record) -> Record:
    """A negative timestamp other than -1 cannot be kept: it is none."""
    return record if record.timestamp >= NO_TIMESTAMP else record._replace(timestamp=NO_TIMESTAMP)
