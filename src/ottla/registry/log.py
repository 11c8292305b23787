"""The interface of the log that holds the registry's records, and a log in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .records import Record, StoredRecord

TOPIC = "_schemas"


class SchemaLog(Protocol):
    """One partition of a compacted topic."""

    async def append(self, records: Sequence[Record]) -> list[StoredRecord]:
        """Write all records or none, and return them once they are committed. Raises OSError if that is unknown."""

    async def read(self, offset: int) -> list[StoredRecord]:
        """The committed records from an offset to the end of the log."""


class MemoryLog:
    """A log for tests and for registries without storage."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.records: list[StoredRecord] = []
        self.now_ms = now_ms

    async def append(self, records: Sequence[Record]) -> list[StoredRecord]:
        start, now = len(self.records), self.now_ms()
        stored = [StoredRecord(start + index, now, *record) for index, record in enumerate(records)]
        self.records += stored
        return stored

    async def read(self, offset: int) -> list[StoredRecord]:
        return self.records[offset:]
