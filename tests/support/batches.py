"""Makes record batches for Produce requests and reads them from Fetch responses."""

import time
from collections.abc import Iterator
from typing import Any

from ottla.enums import ControlRecordType
from ottla.records.batch import Batch, Record, batches, build_batch

FIXED_MS = 1_700_000_000_000


def batch(*values: bytes | None, timestamp: int | None = None, key: bytes | None = None, **more: Any) -> bytearray:
    """One batch with a record for each value. All records have the same timestamp, by default the current time."""
    at = now_ms() if timestamp is None else timestamp
    return build_batch([Record(i, at, key, value, ()) for i, value in enumerate(values)], **more)


def fixed_batch(*values: bytes | None, timestamp: int = FIXED_MS, **more: Any) -> bytearray:
    """The same bytes on every run, for brokers whose time a test sets."""
    return batch(*values, timestamp=timestamp, **more)


def now_ms() -> int:
    return int(time.time() * 1000)


def batches_of(answer: Any) -> list[Batch]:
    """The complete batches of a fetched partition."""
    return list(batches(memoryview(bytes(answer.records or b""))))


def records_of(answer: Any) -> list[Record]:
    """The records of all complete batches of a fetched partition."""
    return [record for one in batches_of(answer) for record in one.records()]


def visible_batches(answer: Any, isolation_level: int) -> Iterator[Batch]:
    """The batches whose records a consumer passes to its application: no markers, no aborted transactions."""
    aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or [])
    skipping: set[int] = set()
    for one in batches_of(answer):
        while aborted and aborted[0][0] <= one.last_offset:
            skipping.add(aborted.pop(0)[1])
        if one.is_control:
            if one.control_type() == ControlRecordType.ABORT:
                skipping.discard(one.producer_id)
        elif not (isolation_level and one.is_transactional and one.producer_id in skipping):
            yield one
