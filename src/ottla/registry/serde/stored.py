"""The schemas of a `_schemas` topic, for programs that read the topic instead of asking a registry."""

from __future__ import annotations

from collections.abc import Iterable

from ..catalog import Catalog
from ..names import DEFAULT_CONTEXT
from ..operations.lookup import by_guid
from ..records import CorruptRecord, StoredRecord
from ..state import ContextId, State
from .decoder import Writer


class StoredSchemas:
    """Finds schemas in the records of the topic. Skips unreadable records, as the registry does."""

    def __init__(self, records: Iterable[StoredRecord]) -> None:
        self._state = State()
        for record in records:
            try:
                self._state.replay(record)
            except CorruptRecord:
                continue
        self._catalog = Catalog(self._state)

    def find(self, schema: int | str) -> Writer:
        if isinstance(schema, int):
            entry = self._state.by_id(ContextId(DEFAULT_CONTEXT, schema))
            if entry is None:  # an id of another context also works if only one context has it
                known = [self._state.by_id(ContextId(context, schema)) for context in self._state.contexts]
                found = [each for each in known if each is not None]
                entry = found[0] if len(found) == 1 else None
        else:
            ids = by_guid(self._state, schema)
            entry = self._state.by_id(ids[0]) if ids else None
        if entry is None:
            raise LookupError(f"the registry has no schema {schema}")
        return Writer(entry.schema_type, self._catalog.source_of(entry))
