"""Parquet files in a bucket, written and read by Spark's tasks with Arrow: Spark itself needs jars to reach a bucket.

File names are random, so a task that Spark repeats writes different files. Only the files that the successful task
reported become part of a table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.arrow import arrow_schema
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.object_stores import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GROUP_BYTES: Final = 32 << 20
"""How many bytes of rows a file collects before it writes them as a row group."""
_OPEN_FILES: Final = 64
_RESULT: Final = "path string, bytes bigint, records bigint, first bigint, last bigint"
_METADATA: Final = "file_name string, file_path string"


class WrittenFile(NamedTuple):
    """A file below the staging folder. The offsets are -1 if it has no offset column."""

    path: str
    bytes: int
    records: int
    first_offset: int
    last_offset: int


def write_to_bucket(
    frame: DataFrame, store: ObjectStore, staging: str, compression: str, by: Sequence[str]
) -> list[WrittenFile]:
    """Write rows below a staging folder, split by columns. Their values become folder names."""
    from pyspark.sql.types import StructType

    schema = arrow_schema(StructType([one for one in frame.schema.fields if one.name not in by]))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        files: dict[str, _File] = {}
        done: list[WrittenFile] = []
        for batch in batches:
            for folder, rows in _split(batch, by):
                if folder not in files and len(files) >= _OPEN_FILES:
                    done.append(files.pop(next(iter(files))).close())
                path = f"{staging}/{folder}{uuid.uuid4().hex}.parquet"
                file = files.setdefault(folder, _File(store, path, schema, compression))
                file.add(rows)
        done += [file.close() for file in files.values()]
        kinds = [pa.string(), *[pa.int64()] * 4]
        arrays = [pa.array([one[at] for one in done], kind) for at, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, ["path", "bytes", "records", "first", "last"])

    return [WrittenFile(*row) for row in frame.mapInArrow(run, _RESULT).collect()]


def read_from_bucket(
    spark: SparkSession, store: ObjectStore, urls: Sequence[str], schema: StructType, from_folders: Sequence[str] = ()
) -> DataFrame:
    """The rows of files, including the columns that are only in their folder names.

    As in Spark, `_metadata` contains the file of a row.
    """
    from pyspark.sql.types import StructField, StructType

    wanted = arrow_schema(schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import parquet

        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            url = urls[number]
            folders = dict(part.split("=", 1) for part in url.split("/") if "=" in part)
            with store.filesystem.open_input_file(url.partition("://")[2]) as file:
                for some in parquet.ParquetFile(file).iter_batches():
                    table = pa.Table.from_batches([some])
                    for name in from_folders:
                        if name not in table.column_names:
                            value = pa.repeat(pa.scalar(folders[name]), len(table)).cast(wanted.field(name).type)
                            table = table.append_column(name, value)
                    for name in wanted.names:
                        if name not in table.column_names:  # a column that was added after this file
                            table = table.append_column(name, pa.nulls(len(table), wanted.field(name).type))
                    place = {"file_name": url.rpartition("/")[2], "file_path": url}
                    table = table.select(wanted.names).cast(wanted)
                    yield from table.append_column("_metadata", pa.array([place] * len(table))).to_batches()

    whole = StructType([*schema.fields, StructField("_metadata", columns(_METADATA))])
    return spark.range(0, len(urls), 1, max(len(urls), 1)).mapInArrow(run, whole)


# --- in the executors ------------------------------------------------------------------------------------------------


def _split(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows for each folder, without the columns that are in the folder's name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rest = [name for name in batch.schema.names if name not in by]
    if not by:
        yield "", batch
        return
    for values in pa.Table.from_batches([batch]).group_by(list(by)).aggregate([]).to_pylist():
        mask = pa.array([True] * len(batch))
        for name in by:
            mask = pc.and_(mask, pc.equal(batch.column(name), pa.scalar(values[name], batch.schema.field(name).type)))
        yield "".join(f"{name}={values[name]}/" for name in by), batch.filter(mask).select(rest)


class _File:
    """A file that is being written."""

    def __init__(self, store: ObjectStore, path: str, schema: pa.Schema, compression: str) -> None:
        self._store = store
        self._path = path
        self._schema = schema
        self._compression = compression
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._records = 0
        self._offsets: list[int] = []

    def add(self, rows: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        self._waiting.append(rows.cast(self._schema))
        self._bytes += rows.nbytes
        self._records += len(rows)
        if "offset" in rows.schema.names:
            found = pc.min_max(rows.column("offset")).as_py()
            self._offsets += [value for value in found.values() if isinstance(value, int)]
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._writer is None:
            self._writer = parquet.ParquetWriter(
                self._store.key(self._path),
                self._schema,
                filesystem=self._store.filesystem,
                compression=self._compression,
                store_schema=False,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0

    def close(self) -> WrittenFile:
        if self._waiting:
            self._flush()
        self._writer.close()
        least, greatest = (min(self._offsets), max(self._offsets)) if self._offsets else (-1, -1)
        return WrittenFile(self._path, self._store.size(self._path), self._records, least, greatest)
