"""The registry's log in memory, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.registry.records import Record, StoredRecord


class MemoryLog:
    """Implements `SchemaLog`."""

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
