"""Merges a few changes into a table of Parquet files, in Arrow: finds the replaced rows, and rewrites or marks them.

Tasks read the keys of the table's files. Copy-on-write rewrites the files with rows to replace, and leaves the others
alone. Merge-on-read rewrites nothing: it only records which rows of which file are deleted. In both cases the new rows
go into a separate file, which a later merge combines with others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.arrow import arrow_schema
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.stores import ArrowStore
from ottla.spark.sessions import parallelism

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MODES: Final = ("copy-on-write", "merge-on-read")
SMALL_BYTES: Final = 8 << 20
"""Smaller files are combined with the files that are rewritten."""
_TARGET_BYTES: Final = 128 << 20
_READ_ROWS: Final = 64 * 1024
_KEY: Final = ("topic", "key", "partition", "timestamp", "offset")
_FOUND: Final = "path string, positions array<bigint>, older array<int>"
_WRITTEN: Final = "path string, records bigint"


@dataclass(frozen=True)
class Source:
    """A file of the table, and its rows that are already deleted."""

    path: str
    url: str
    bytes: int
    deleted: Any = ()


@dataclass(slots=True)
class Matches:
    """The rows in the table that the changes affect."""

    positions: dict[str, list[int]] = field(default_factory=dict)
    """By file: the rows that are replaced or deleted."""
    older: set[int] = field(default_factory=set)
    """Changes that lose, because the table has a newer row."""


def sources(files: Iterable[DataFile], url: Callable[[DataFile], str], deleted: Mapping[str, Any]) -> list[Source]:
    return [Source(file.path, url(file), file.bytes, deleted.get(file.path, ())) for file in files]


def find_matches(spark: SparkSession, store: ArrowStore, files: Sequence[Source], changes: pa.Table) -> Matches:
    """`changes` contains, by topic and key, the `partitions` with the key, and the winner's timestamp and offset."""
    keys = changes.select(["topic", "key", "partitions", "timestamp", "offset"])
    shares = _deal(files, parallelism(spark))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for number in _numbers(batches):
            for file in shares[number]:
                positions, older = _match(store, file, keys)
                if len(positions) or len(older):
                    found = [[file.path], [positions.tolist()], [older.tolist()]]
                    kinds = [pa.string(), pa.list_(pa.int64()), pa.list_(pa.int32())]
                    arrays = [pa.array(one, kind) for one, kind in zip(found, kinds, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, ["path", "positions", "older"])

    result = Matches()
    for row in _each(spark, len(shares)).mapInArrow(run, _FOUND).collect():
        if row.positions:
            result.positions[row.path] = row.positions
        result.older.update(row.older)
    return result


def rewrite(
    spark: SparkSession,
    store: ArrowStore,
    files: Sequence[Source],
    positions: Mapping[str, Sequence[int]],
    schema: pa.Schema,
    folder: str,
) -> list[tuple[str, int]]:
    """Write the rows of these files, except some, to a folder. Returns the names and counts of the new files."""
    shares = [[(file, positions.get(file.path, ())) for file in share] for share in _deal(files, parallelism(spark))]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for number in _numbers(batches):
            name = f"{uuid.uuid4().hex}.parquet"
            records = _rewrite(store, shares[number], schema, f"{folder}/{name}")
            if records:
                yield pa.RecordBatch.from_arrays([pa.array([name]), pa.array([records])], ["path", "records"])

    rows = _each(spark, len(shares)).mapInArrow(run, _WRITTEN).collect()
    return [(row.path, row.records) for row in rows]


def read_rows(spark: SparkSession, store: ArrowStore, files: Sequence[Source], schema: StructType) -> DataFrame:
    """All rows of files, except the deleted ones."""
    shares = _deal(files, parallelism(spark))
    wanted = arrow_schema(schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            for file in shares[number]:
                yield from _kept(store, file, (), wanted)

    return _each(spark, len(shares)).mapInArrow(run, schema)


def write_rows(rows: pa.Table, store: ArrowStore, path: str) -> None:
    with _writer(store, path, rows.schema) as writer:
        writer.write_table(rows)


def _each(spark: SparkSession, count: int) -> DataFrame:
    """A frame with one row in each of this many tasks."""
    return spark.range(0, max(count, 1), 1, max(count, 1))


def _deal(files: Sequence[Source], at_once: int) -> list[list[Source]]:
    """Files for tasks: shares of about equal size, each at most about as large as a large file."""
    total = sum(file.bytes for file in files)
    count = max(1, min(len(files), max(at_once, -(-total // _TARGET_BYTES))))
    shares: list[list[Source]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: -file.bytes):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += file.bytes
    return shares


# --- in the executors ------------------------------------------------------------------------------------------------


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _writer(store: ArrowStore, path: str, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(
        store.key(path),
        schema,
        filesystem=store.filesystem,
        compression="snappy",
        use_dictionary=[name for name in schema.names if name in ("topic", "partition", "headers")],
        write_statistics=[name for name in schema.names if name not in ("value", "headers")],
        store_schema=False,
    )


def _open(store: ArrowStore, file: Source) -> Any:
    from pyarrow import parquet

    place = file.url.partition("://")[2] or file.url
    # Early versions of Ottla let Spark write INT96.
    return parquet.ParquetFile(store.filesystem.open_input_file(place), coerce_int96_timestamp_unit="us")


def _match(store: ArrowStore, file: Source, changes: pa.Table) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The rows that changes replace, and the changes that are older than the table's row."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = _open(store, file).read(columns=list(_KEY))
    # The index in `changes` of each row's key, or -1.
    at: np.ndarray[Any, Any] = np.full(len(rows), -1, dtype=np.int64)
    for topic in pc.unique(changes["topic"]):
        mine = np.flatnonzero(pc.equal(changes["topic"], topic).to_numpy())
        found = pc.index_in(rows["key"], value_set=changes["key"].take(pa.array(mine)).combine_chunks())
        here = pc.if_else(pc.equal(rows["topic"], topic), found, None)
        places = pc.fill_null(here, -1).to_numpy()
        at = np.where(places >= 0, mine[places], at)
    if len(file.deleted):
        at[np.asarray(file.deleted)] = -1
    met = np.flatnonzero(at >= 0)
    if not len(met):
        return met, met
    there, fresh = rows.take(pa.array(met)), changes.take(pa.array(at[met]))
    # In the same partition a change is always newer, because its offset is greater.
    same = np.array(
        [one in some for one, some in zip(there["partition"].to_pylist(), fresh["partitions"].to_pylist(), strict=True)]
    )
    (old_time, old_offset), (new_time, new_offset) = _age(there), _age(fresh)
    wins = same | (new_time > old_time) | ((new_time == old_time) & (new_offset > old_offset))
    return met[wins], at[met[~wins]]


def _age(rows: pa.Table) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    import pyarrow as pa

    return rows["timestamp"].cast(pa.int64()).to_numpy(), rows["offset"].to_numpy()


def _kept(store: ArrowStore, file: Source, positions: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in their order, except some."""
    import numpy as np
    import pyarrow as pa

    opened = _open(store, file)
    keep = np.ones(opened.metadata.num_rows, dtype=bool)
    for some in (file.deleted, positions):
        if len(some):
            keep[np.asarray(some)] = False
    at = 0
    for batch in opened.iter_batches(_READ_ROWS, columns=schema.names):
        mask = keep[at : at + len(batch)]
        at += len(batch)
        kept = batch if mask.all() else batch.filter(pa.array(mask))
        yield kept.select(schema.names).cast(schema)


def _rewrite(store: ArrowStore, files: Sequence[tuple[Source, Sequence[int]]], schema: pa.Schema, path: str) -> int:
    writer: Any = None
    records = 0
    waiting: list[pa.RecordBatch] = []
    size = 0

    def flush() -> None:
        nonlocal writer, waiting, size
        import pyarrow as pa

        table = pa.Table.from_batches(waiting, schema)
        if writer is None:
            writer = _writer(store, path, schema)
        writer.write_table(table)
        waiting, size = [], 0

    for file, positions in files:
        for batch in _kept(store, file, positions, schema):
            if not len(batch):
                continue
            waiting.append(batch)
            records += len(batch)
            size += batch.nbytes
            if size >= _TARGET_BYTES // 4:
                flush()
    if waiting:
        flush()
    if writer is not None:
        writer.close()
    return records
