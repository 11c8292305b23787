"""Decodes keys and values with the schemas in a broker's `_schemas` topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.embedded.unknown_names import NotFoundError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.embedded.records import Record
    from ottla.registry import log
    from ottla.registry import records as stored_records
    from ottla.registry.serde import decoder as serde
    from ottla.registry.serde import stored
    from ottla.registry.serde.decoder import Decoder
else:
    log = lazy("ottla.registry.log")
    stored_records = lazy("ottla.registry.records")
    serde = lazy("ottla.registry.serde.decoder")
    stored = lazy("ottla.registry.serde.stored")


class TopicDecoder:
    """Reads the topic when the first value is decoded. If it changes later, the next `records()` reads it again."""

    def __init__(self, records_of: Callable[[str], Iterable[Record]]) -> None:
        self._records_of = records_of
        self._decoder: Decoder | None = None

    def decode(self, data: bytes, headers: Iterable[tuple[str, bytes | None]], *, is_key: bool) -> Any:
        """Decode a key or a value. Raises ValueError if it has no schema or does not match its schema."""
        if self._decoder is None:
            try:
                records = self._records_of(log.TOPIC)
            except NotFoundError as error:
                raise ValueError(f"there are no schemas: this broker has no topic {log.TOPIC}") from error
            found = (
                stored_records.StoredRecord(each.offset, each.timestamp_ms, each.key, each.value) for each in records
            )
            self._decoder = serde.Decoder(stored.StoredSchemas(found).find)
        try:
            return self._decoder.decode(data, headers, is_key=is_key)
        except LookupError as error:
            raise ValueError(str(error)) from error
