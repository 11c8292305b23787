"""From newer record formats to older ones, for old fetchers.

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
    Batch,
    Buffer,
    Record,
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
        # Headers are lost anyway.
        found = batch.records(with_headers=False)
        records = [record for record in found if batch.is_compressed or record.offset >= first_offset]
        if records:
            output.append(_old_format(batch, records, to_magic))
    return b"".join(output)


def _old_format(batch: Batch | LegacyBatch, records: Sequence[Record], to_magic: int) -> bytes:
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    return build_message_set(records, to_magic, batch.codec, append_time_ms=append_time)
