"""The interface of the log that holds the registry's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .records import Record, StoredRecord

TOPIC = "_schemas"


class SchemaLog(Protocol):
    """One partition of a compacted topic."""

    async def append(self, records: Sequence[Record]) -> list[StoredRecord]:
        """Write all records or none, and return them once they are committed. Raises OSError if that is unknown."""

    async def read(self, offset: int) -> list[StoredRecord]:
        """The committed records from an offset to the end of the log."""
