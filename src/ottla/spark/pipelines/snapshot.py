"""`snapshot`: a changelog as a table: the latest value of each key. Tombstones take their keys away.

Within a partition the greatest offset wins, as it does for compaction. A key that is in several partitions (their
number was raised) keeps what is youngest by timestamp. Each commit replaces the table as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Unpack

from ottla.spark.pipelines.archive import fresh_rows, go_on
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.jobs import Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.parquet import write_parquet
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Batch, Summary, run_stream
from ottla.spark.pipelines.tables import CHECKPOINT, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND: Final = "snapshot"
SCHEMA: Final = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, "
    "offset bigint, timestamp timestamp"
)
_COLUMNS: Final = ("topic", "key", "value", "headers", "partition", "offset", "timestamp")


def snapshot(topics: str | Sequence[str], out: str, **options: Unpack[TableOptions]) -> Summary:
    """Bring the table below `out` up to date with the topics. Records without a key have no place in it."""
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    store = open_store(out, job.spark)
    with Table.create_or_open(store, KIND, target, columns(SCHEMA), cluster=job.cluster.cluster_id()) as table:
        keeper = _Keeper(job, table)
        summary = run_stream(job, keeper.write, go_on(table, job.range()[0]), table.id)
        keys = sum(file.records for file in table.state.files.values())
        if keeper.without_key:
            job.warn(f"{keeper.without_key} records without a key were left out")
        summary.details = {"out": store.root, "keys": keys, "without_key": keeper.without_key}
        summary.details |= {"format": table.format, "written": keys, "files": len(table.state.files)}
    return summary


def read_snapshot(out: str, *, spark: SparkSession) -> DataFrame:
    """The committed table."""
    return _rows(spark, Table.open(open_store(out, spark), KIND))


def _rows(spark: SparkSession, table: Table) -> DataFrame:
    paths = [table.url(file) for file in table.state.files.values()]
    return spark.read.schema(SCHEMA).parquet(*paths) if paths else spark.createDataFrame([], SCHEMA)


class _Keeper:
    def __init__(self, job: Job, table: Table) -> None:
        self.job = job
        self.table = table
        self.without_key = 0

    def write(self, batch: Batch) -> int:
        from pyspark.sql import functions as F

        table, store = self.table, self.table.store
        found = fresh_rows(table, batch)
        if found is None:
            return 0
        rows = found[0].select(*_COLUMNS).persist()
        try:
            counted = rows.agg(F.count("*").alias("all"), F.count("key").alias("keyed")).collect()[0]
            previous = _rows(rows.sparkSession, table)
            latest = latest_by_key(previous.unionByName(rows.where("key is not null")))
            kept = latest.where("value is not null").coalesce(_parts(rows.sparkSession))
            written = write_parquet(kept, store, table.staging())
        finally:
            rows.unpersist()
        self.without_key += counted["all"] - counted.keyed
        # The old files go with this commit, so their names must not be taken again.
        number = table.state.number + 1
        files = {
            one.path: DataFile(f"snapshot-{number:020d}-{index}.parquet", "", -1, -1, -1, one.records, one.bytes)
            for index, one in enumerate(written)
        }
        table.commit(files, remove=list(table.state.files), marks=found[1])
        return int(counted["all"])


def _parts(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))


def latest_by_key(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    whole = F.struct(*_COLUMNS)
    by_partition = rows.groupBy("topic", "partition", "key").agg(F.max_by(whole, "offset").alias("row"))
    youngest = F.max_by("row", F.struct("row.timestamp", "row.offset"))
    by_key = by_partition.groupBy("topic", "key").agg(youngest.alias("row"))
    return by_key.select("row.*")
