"""Position deletes of Iceberg: rows that are deleted from the table while their data files stay unchanged.

pyiceberg reads such delete files but cannot write them. This module adds one to a commit of pyiceberg: a Parquet file
with the path and number of each deleted row, and a manifest for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from ottla.spark.pipelines.stores import ArrowStore

_PATH_ID: Final = 2147483546
_POSITION_ID: Final = 2147483545
"""Reserved by Iceberg for the two columns of a position delete file."""


def write_deletes(store: ArrowStore, path: str, rows: Mapping[str, Sequence[int]], spec_id: int) -> DataFile:
    """Write a delete file for the rows of data files, and describe it."""
    import pyarrow as pa
    from pyarrow import parquet

    def column(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})

    files = sorted(rows)
    paths = [file for file in files for _ in rows[file]]
    positions = [position for file in files for position in sorted(rows[file])]
    schema = pa.schema([column("file_path", pa.string(), _PATH_ID), column("pos", pa.int64(), _POSITION_ID)])
    content = pa.table([paths, positions], schema=schema)
    parquet.write_table(content, store.key(path), filesystem=store.filesystem, use_dictionary=["file_path"])
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"{store.root}/{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=store.size(path),
        lower_bounds={_PATH_ID: files[0].encode()},
        upper_bounds={_PATH_ID: files[-1].encode()},
        spec_id=spec_id,
    )


def read_deletes(table: Any) -> dict[str, Any]:
    """By data file: the numbers of its deleted rows."""
    import numpy as np
    from pyiceberg.io.pyarrow import _read_deletes

    found: dict[str, list[Any]] = {}
    read: dict[str, dict[str, Any]] = {}
    for task in table.scan().plan_files():
        for file in task.delete_files:
            if file.content != DataFileContent.POSITION_DELETES:
                raise ValueError("equality deletes")
            if file.file_path not in read:
                read[file.file_path] = _read_deletes(table.io, file)
            some = read[file.file_path].get(task.file.file_path)
            if some is not None and len(some):
                found.setdefault(task.file.file_path, []).append(some.to_numpy())
    return {path: np.unique(np.concatenate(some)) for path, some in found.items()}


class MergeFiles(_OverwriteFiles):
    """A commit that adds and removes data files, and adds one delete file or drops all existing ones."""

    _added_data_files: list[DataFile]

    def __init__(self, transaction: Any, io: Any, properties: dict[str, str], delete: DataFile | None, drop: bool):
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=properties)
        self._delete = delete
        self._drop = drop

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        if self._drop:
            manifests = [one for one in manifests if one.content == ManifestContent.DATA]
        return manifests if self._delete is None else [*manifests, self._delete_manifest(self._delete)]

    def _delete_manifest(self, file: DataFile) -> ManifestFile:
        spec = self._transaction.table_metadata.spec()
        with _DeleteManifest(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        added = self._added_data_files
        self._added_data_files = added if self._delete is None else [*added, self._delete]
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = added


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
