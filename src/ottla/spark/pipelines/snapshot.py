"""`snapshot`: a changelog as a table with the latest value of each key. Tombstones delete their keys.

Within a partition the greatest offset wins, as in compaction. If a key is in several partitions (because partitions
were added), the newest timestamp wins. A batch that is small compared to the table is merged into it: see `merging`.
Otherwise the whole table is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.arrow import arrow_schema
from ottla.spark.pipelines.archive import fresh_rows
from ottla.spark.pipelines.batches import run_batches
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.envelopes import check_envelope, unwrapped
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.merging import (
    MODES,
    SMALL_BYTES,
    Source,
    find_matches,
    read_rows,
    rewrite,
    sources,
    write_rows,
)
from ottla.spark.pipelines.parquet import read_parquet, write_parquet
from ottla.spark.pipelines.stores import ArrowStore, open_store
from ottla.spark.pipelines.streams import Batch, Summary
from ottla.spark.pipelines.tables import CHECKPOINT, Table
from ottla.spark.pipelines.topics import Offsets
from ottla.spark.sessions import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND: Final = "snapshot"
SCHEMA: Final = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, "
    "offset bigint, timestamp timestamp"
)
_FEW_RECORDS: Final = 200_000
_FEW_BYTES: Final = 64 << 20
"""A batch up to this size is merged by its keys in Arrow, a larger one by a join in Spark."""
_MOST_DELETES: Final = 10
"""Merge-on-read rewrites the files after this many commits, or once this percentage of the rows is deleted."""
_COLUMNS: Final = ("topic", "key", "value", "headers", "partition", "offset", "timestamp")


def snapshot(
    topics: str | Sequence[str],
    out: str,
    *,
    envelope: str = "plain",
    merge: str = MODES[0],
    **options: Unpack[TableOptions],
) -> Summary:
    """Update the table in `out` from the topics. Records without a key are left out.

    Changes are merged in as `copy-on-write`, which rewrites the files that have rows of changed keys, or for Iceberg
    as `merge-on-read`, which marks such rows as deleted and rewrites files only now and then.

    With the envelope `debezium` values are change events in JSON: the table contains the row after the change, as JSON,
    and deletes remove rows.
    """
    check_envelope(envelope)
    if merge not in MODES:
        raise PipelineError(f"merge is one of {', '.join(MODES)}, not '{merge}'")
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    store = open_store(out, job.spark)
    identity: dict[str, Any] = {"cluster": job.cluster.cluster_id(), "envelope": envelope}
    with Table.create_or_open(store, KIND, target, columns(SCHEMA), **identity) as table:
        if (there := table.description.get("envelope", "plain")) != envelope:
            raise PipelineError(f"{store.root} was created with --envelope {there}; use the same --envelope")
        if merge == "merge-on-read" and table.format != "iceberg":
            raise PipelineError(f"merge-on-read is for Iceberg, and {store.root} is {table.format}; leave it out")
        keeper = _Keeper(job, table, envelope, merge)
        summary = run_batches(job, keeper.write, table, job.range()[0])
        keys = keeper.keys()
        if keeper.without_key:
            many = f"{keeper.without_key} records without a key were"
            job.warn(f"{'1 record without a key was' if keeper.without_key == 1 else many} left out")
        summary.details = {"out": store.root, "keys": keys, "without_key": keeper.without_key}
        summary.details |= {"format": table.format, "written": keys, "files": len(table.state.files)}
    return summary


def read_snapshot(out: str, *, spark: SparkSession) -> DataFrame:
    """The committed table."""
    return _rows(spark, Table.open(open_store(out, spark), KIND))


def _rows(spark: SparkSession, table: Table) -> DataFrame:
    store = table.store
    if table.state.rows_deleted and isinstance(store, ArrowStore):
        return read_rows(spark, store, _sources(table), columns(SCHEMA))
    return read_parquet(spark, store, [table.url(file) for file in table.state.files.values()], columns(SCHEMA))


def _sources(table: Table) -> list[Source]:
    deleted = table.log.deleted_rows() if table.state.rows_deleted else {}
    return sources(table.state.files.values(), table.place, deleted)


class _Keeper:
    def __init__(self, job: Job, table: Table, envelope: str, merge: str) -> None:
        self.job = job
        self.table = table
        self.envelope = envelope
        self.merge = merge
        self.without_key = 0

    def keys(self) -> int:
        deleted = self.table.log.deleted_rows() if self.table.state.rows_deleted else {}
        return sum(file.records for file in self.table.state.files.values()) - sum(map(len, deleted.values()))

    def write(self, batch: Batch) -> int:
        from pyspark.sql import functions as F

        table = self.table
        found = fresh_rows(table, batch)
        if found is None:
            return 0
        rows = found[0].select(*_COLUMNS).persist()
        try:
            sizes = F.coalesce(F.sum(F.length("value")), F.lit(0)).alias("bytes")
            counted = rows.agg(F.count("*").alias("all"), F.count("key").alias("keyed"), sizes).collect()[0]
            keyed = unwrapped(rows.where("key is not null"), self.envelope)
            few = counted.keyed <= _FEW_RECORDS and counted.bytes <= _FEW_BYTES
            if table.state.files and few and isinstance(table.store, ArrowStore):
                self._merge_few(keyed, found[1])
            else:
                self._rewrite_all(keyed, found[1], few)
        finally:
            rows.unpersist()
        self.without_key += counted["all"] - counted.keyed
        return int(counted["all"])

    def _rewrite_all(self, keyed: DataFrame, marks: Offsets, few: bool) -> None:
        table = self.table
        previous = _rows(keyed.sparkSession, table) if table.state.files else None
        kept = merged(previous, keyed, few=few).coalesce(parallelism(keyed.sparkSession))
        written = write_parquet(kept, table.store, table.staging())
        files = self._named((one.path, one.records, one.bytes) for one in written)
        table.commit(files, remove=list(table.state.files), marks=marks)

    def _merge_few(self, keyed: DataFrame, marks: Offsets) -> None:
        """Rewrite only the files with rows of these keys, or only mark these rows as deleted."""
        import pyarrow.compute as pc
        from pyspark.sql import functions as F

        table, store = self.table, self.table.store
        assert isinstance(store, ArrowStore)
        spark = keyed.sparkSession
        latest = _latest(keyed).select("row.*", F.col("partitions")).toArrow()
        files = _sources(table)
        matches = find_matches(spark, store, files, latest)
        wins = [number not in matches.older for number in range(len(latest))]
        schema = arrow_schema(columns(SCHEMA))
        fresh = latest.filter(wins).filter(pc.is_valid(pc.field("value"))).select(schema.names).cast(schema)
        staging = table.staging()
        store.prepare(staging)
        written: list[tuple[str, int]] = []
        if len(fresh):
            write_rows(fresh, store, f"{staging}/fresh.parquet")
            written.append(("fresh.parquet", len(fresh)))
        on_read = self.merge == "merge-on-read" and not self._too_many_deletes(files, matches.positions)
        touched = [] if on_read else self._touched(files, matches.positions)
        if touched:
            written += rewrite(spark, store, touched, matches.positions, schema, staging)
        table.commit(
            self._named((f"{staging}/{name}", records, store.size(f"{staging}/{name}")) for name, records in written),
            remove=[file.path for file in touched],
            marks=marks,
            delete_rows=matches.positions if on_read else None,
        )

    def _touched(self, files: list[Source], positions: Mapping[str, Sequence[int]]) -> list[Source]:
        """The files to rewrite: those with rows to remove, and small ones, if there are several to combine."""
        needed = [file for file in files if file.path in positions or len(file.deleted)]
        small = [file for file in files if file.bytes < SMALL_BYTES and file not in needed]
        return needed + small if (needed and small) or len(small) > _MOST_DELETES else needed

    def _too_many_deletes(self, files: list[Source], positions: Mapping[str, Sequence[int]]) -> bool:
        rows = sum(file.records for file in self.table.state.files.values())
        deleted = sum(len(file.deleted) for file in files) + sum(map(len, positions.values()))
        return deleted * 100 > rows * _MOST_DELETES or len(files) > 2 * _MOST_DELETES

    def _named(self, written: Iterable[tuple[str, int, int]]) -> dict[str, DataFile]:
        # This commit removes the old files, so their names must not be used again.
        number = self.table.state.number + 1
        return {
            path: DataFile(f"snapshot-{number:020d}-{index}.parquet", "", -1, -1, -1, records, size)
            for index, (path, records, size) in enumerate(written)
        }


def merged(previous: DataFrame | None, fresh: DataFrame, *, few: bool) -> DataFrame:
    """The table with the records of a batch applied, without the keys that they delete.

    Rows whose keys are not in the batch pass through unchanged: a few changes do not shuffle or sort a large table.
    `few` means that the keys of the batch fit into the memory of every task.
    """
    from pyspark.sql import functions as F

    latest = _latest(fresh)
    if previous is None:
        return latest.select("row.*").where("value is not null")
    place = ["topic", "key"]
    # Leave out the values, which may be large.
    changes = latest.select(*place, "partitions", F.struct("row.timestamp", "row.offset").alias("age"))
    changes = F.broadcast(changes) if few else changes
    # In the same partition the batch is always newer, because its offsets are greater.
    replaced = F.array_contains("partitions", F.col("partition")) | (F.col("age") > F.struct("timestamp", "offset"))
    stays = previous.join(changes, place, "left").where(F.col("age").isNull() | ~replaced).select(*_COLUMNS)
    older = previous.select(*place, "partition", "timestamp", "offset").join(changes, place).where(~replaced)
    new = latest.join(older.select(*place), place, "left_anti").select("row.*").where("value is not null")
    return stays.unionByName(new)


def _latest(rows: DataFrame) -> DataFrame:
    """By topic and key: the winning `row`, and the `partitions` in which the key occurred."""
    from pyspark.sql import functions as F

    by_partition = rows.groupBy("topic", "partition", "key").agg(F.max_by(F.struct(*_COLUMNS), "offset").alias("row"))
    youngest = F.max_by("row", F.struct("row.timestamp", "row.offset"))
    partitions = F.collect_set("partition")
    return by_partition.groupBy("topic", "key").agg(youngest.alias("row"), partitions.alias("partitions"))
