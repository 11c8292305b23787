"""The entries of a segment after a crash, up to the first torn or damaged one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.log.files import Chunk
from ottla.log.offset_position import Located
from ottla.records.batch import CURRENT_MAGIC, MAGIC_OFFSET, Batch
from ottla.records.legacy import LegacyBatch

if TYPE_CHECKING:
    from ottla.log.segment import Segment

_SCAN_BYTES: Final = 1 << 20


def valid_entries(segment: Segment) -> Iterator[tuple[Located, Batch | None]]:
    """Every complete entry with a valid checksum. Entries of format 0 and 1 have no batch."""
    for located, chunk in _whole_entries(segment):
        batch = Batch(chunk) if memoryview(chunk)[MAGIC_OFFSET] >= CURRENT_MAGIC else None
        if not (batch.crc_ok() if batch is not None else LegacyBatch(chunk).crc_ok()):
            return
        yield located, batch


def _whole_entries(segment: Segment) -> Iterator[tuple[Located, Chunk]]:
    """Every complete entry with its bytes, read in pieces of a megabyte or more."""
    chunk: Chunk = b""
    start = 0
    for located in segment.locate_from(0):
        inside = located.position - start
        if inside + located.size > len(chunk):
            chunk = segment.log.view(located.position, max(_SCAN_BYTES, located.size))
            start, inside = located.position, 0
        yield located, memoryview(chunk)[inside : inside + located.size]
