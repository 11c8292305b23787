"""Parquet files: how they are written to a staging folder, described, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.arrow_files import read_from_bucket, write_to_bucket
from ottla.spark.pipelines.object_stores import ObjectStore
from ottla.spark.pipelines.stores import ArrowStore, LocalStore, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "none")
_OPEN_FILES: Final = 64
"""How many files a task keeps open. With more dates or partitions than that, Spark sorts the rows first."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written. Its path is relative to the store. The offsets are -1 if it has no offset column."""

    path: str
    bytes: int
    records: int
    first_offset: int = -1
    last_offset: int = -1

    @property
    def folders(self) -> dict[str, str]:
        """The values of the `name=value` folders in its path."""
        return dict(part.split("=", 1) for part in self.path.split("/")[:-1] if "=" in part)


def write_parquet(
    frame: DataFrame, store: Store, staging: str, *, compression: str = "snappy", by: Sequence[str] = ()
) -> list[Written]:
    """Write rows below a staging folder, split by columns, and describe the files. Empty files are left out."""
    if isinstance(store, ObjectStore):
        return [Written(*one) for one in write_to_bucket(frame, store, staging, compression, by) if one.records]
    settings = frame.sparkSession.conf
    settings.set("spark.sql.maxConcurrentOutputFileWriters", str(_OPEN_FILES))
    # Spark's default is INT96, which has no statistics for skipping, and which Iceberg and Delta do not accept.
    settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    writer = frame.write.option("compression", compression)
    (writer.partitionBy(*by) if by else writer).parquet(store.url(staging))
    sizes = {path: size for path, size in store.walk(staging) if path.endswith(".parquet")}
    if isinstance(store, LocalStore):
        found = [_from_footer(store, path, size) for path, size in sorted(sizes.items())]
    else:
        found = _read_back(frame.sparkSession, store, staging, sizes, "offset" in frame.columns)
    return [one for one in found if one.records]


def read_parquet(spark: SparkSession, store: Store, urls: Sequence[str], schema: StructType) -> DataFrame:
    """The rows of files of a store."""
    if not urls:
        return spark.createDataFrame([], schema)
    if isinstance(store, ObjectStore):
        return read_from_bucket(spark, store, urls, schema).drop("_metadata")
    return spark.read.schema(schema).parquet(*urls)


def _from_footer(store: Store, path: str, size: int) -> Written:
    from pyarrow import parquet

    footer = parquet.read_metadata(store.url(path).removeprefix("file://"))
    spans = [span for group in range(footer.num_row_groups) if (span := _offsets(footer.row_group(group))) is not None]
    if not spans:
        return Written(path, size, footer.num_rows)
    return Written(path, size, footer.num_rows, min(low for low, _ in spans), max(high for _, high in spans))


def _offsets(group: Any) -> tuple[int, int] | None:
    """The lowest and highest value of the column `offset`."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset" and column.statistics is not None and column.statistics.has_min_max:
            return int(column.statistics.min), int(column.statistics.max)
    return None


def _read_back(
    spark: SparkSession, store: Store, staging: str, sizes: dict[str, int], with_offsets: bool
) -> list[Written]:
    """If only Hadoop reaches the files, Spark counts their rows."""
    from pyspark.sql import functions as F

    if not sizes:
        return []
    rows = spark.read.schema("offset bigint").parquet(store.url(staging)).select("offset", "_metadata.file_path")
    counted = rows.groupBy("file_path").agg(
        F.count("*").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    found: list[Written] = []
    for row in counted.collect():
        path = f"{staging}/{row.file_path.partition(staging + '/')[2]}"
        offsets = (row["first"], row["last"]) if with_offsets and row["first"] is not None else (-1, -1)
        found.append(Written(path, sizes[path], row.records, *offsets))
    return found


# --- what Delta keeps about a file -----------------------------------------------------------------------------------

_LONGEST_TEXT: Final = 32


def delta_stats(store: ArrowStore, path: str) -> dict[str, Any]:
    """Count, minimum, maximum and nulls of a file's plain columns, from its footer, in the form of Delta's log."""
    from pyarrow import parquet

    footer = parquet.read_metadata(store.key(path), filesystem=store.filesystem)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None:
                continue
            if found.has_null_count:
                nulls[name] = nulls.get(name, 0) + found.null_count
            if not found.has_min_max:
                # All values in this group are null, or the column has no order.
                unknown |= set() if found.null_count == row_group.num_rows else {name}
                continue
            least[name] = min(least.get(name, found.min), found.min)
            greatest[name] = max(greatest.get(name, found.max), found.max)
    kept = {name for name in least if name not in unknown and _shown(least[name], False) is not None}
    kept = {name for name in kept if _shown(greatest[name], True) is not None}
    return {
        "numRecords": footer.num_rows,
        "minValues": {name: _shown(least[name], False) for name in sorted(kept)},
        "maxValues": {name: _shown(greatest[name], True) for name in sorted(kept)},
        "nullCount": nulls,
    }


def _shown(value: Any, up: bool) -> Any:
    """The JSON value, or None for types that Delta does not order. Times are in ms, so a maximum is rounded up."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return None
        moment = value.astimezone(UTC)
        rest = moment.microsecond % 1000
        moment += timedelta(microseconds=(1000 - rest if up and rest else -rest))
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
