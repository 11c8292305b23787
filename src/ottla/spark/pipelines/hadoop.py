"""An Iceberg table without a catalog: its metadata files are numbered, like those of Hadoop's tables.

    OUT/metadata/v7.metadata.json        version 7 of the table
    OUT/metadata/version-hint.text       7

The first writer that creates the next file gets its number. A local disk decides this atomically.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from ottla.spark.pipelines.stores import LocalStore

_HINT: Final = "metadata/version-hint.text"


class HadoopTables(NoopCatalog):
    """The catalog of one folder, which holds one table."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__("hadoop")
        self._store = store

    def _newest(self) -> int:
        """The newest version. After a crash the hint may be one behind."""
        text = self._store.read(_HINT).decode().strip() if self._store.exists(_HINT) else "0"
        number = int(text) if text.isdigit() else 0
        while self._store.exists(_metadata(number + 1)):
            number += 1
        return number

    def _load(self, identifier: Any, number: int) -> Any:
        metadata = TableMetadataUtil.parse_raw(self._store.read(_metadata(number)).decode())
        location = f"{self._store.root}/{_metadata(number)}"
        return Table(identifier, metadata, location, load_file_io(dict(metadata.properties), location), self)

    def load_table(self, identifier: Any) -> Any:
        number = self._newest()
        if not number:
            raise NoSuchTableError(f"there is no table in {self._store.root}")
        return self._load(identifier, number)

    def create_namespace_if_not_exists(self, namespace: Any, properties: Mapping[str, str] | None = None) -> None:
        """Do nothing: folders are the only namespaces."""

    def create_table(
        self,
        identifier: Any,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = None,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        made = new_table_metadata(schema, partition_spec, sort_order, location, dict(properties or {}))
        self._write(1, made)
        return self.load_table(identifier)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        number = self._newest()
        current = self._load(table.name(), number)
        for requirement in requirements:
            requirement.validate(current.metadata)
        changed = update_table_metadata(current.metadata, updates, False, current.metadata_location)
        self._write(number + 1, changed)
        location = f"{self._store.root}/{_metadata(number + 1)}"
        return CommitTableResponse(**{"metadata": changed, "metadata-location": location})

    def _write(self, number: int, metadata: Any) -> None:
        try:
            self._store.write_new(_metadata(number), metadata.model_dump_json(exclude_none=True).encode())
        except FileExistsError:
            raise CommitFailedException(f"version {number} was taken by another writer") from None
        self._store.replace(_HINT, str(number).encode())


def _metadata(number: int) -> str:
    return f"metadata/v{number}.metadata.json"
