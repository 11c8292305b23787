"""`snapshot`: a changelog as a table: the latest value of each key. Tombstones take their keys away.

Within a partition the greatest offset wins, as it does for compaction. A key that is in several partitions (their
number was raised) keeps what is youngest by timestamp. Each commit replaces the files of the table as a whole, so that
readers never pay for changes that came later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.archive import fresh_rows, go_on
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.envelopes import check_envelope, unwrapped
from ottla.spark.pipelines.errors import PipelineError
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
_FEW: Final = 200_000
"""Records of a batch whose keys every task can hold."""
_COLUMNS: Final = ("topic", "key", "value", "headers", "partition", "offset", "timestamp")


def snapshot(
    topics: str | Sequence[str], out: str, *, envelope: str = "plain", **options: Unpack[TableOptions]
) -> Summary:
    """Bring the table below `out` up to date with the topics. Records without a key have no place in it.

    With the envelope `debezium` values are change events in JSON: the table has the row after the change, as JSON, and
    deletes take rows away.
    """
    check_envelope(envelope)
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    store = open_store(out, job.spark)
    identity: dict[str, Any] = {"cluster": job.cluster.cluster_id(), "envelope": envelope}
    with Table.create_or_open(store, KIND, target, columns(SCHEMA), **identity) as table:
        if (there := table.description.get("envelope", "plain")) != envelope:
            raise PipelineError(f"{store.root} was begun with --envelope {there}; go on with that")
        keeper = _Keeper(job, table, envelope)
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
    def __init__(self, job: Job, table: Table, envelope: str) -> None:
        self.job = job
        self.table = table
        self.envelope = envelope
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
            keyed = unwrapped(rows.where("key is not null"), self.envelope)
            previous = _rows(rows.sparkSession, table) if table.state.files else None
            latest = merged(previous, keyed, few=counted.keyed <= _FEW)
            kept = latest.coalesce(_parts(rows.sparkSession))
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


def merged(previous: DataFrame | None, fresh: DataFrame, *, few: bool) -> DataFrame:
    """The table with the records of a batch in it, without the keys that they take away.

    Rows whose keys the batch does not have pass through as they are: nothing of a large table is shuffled or sorted for
    the sake of a few changes. `few` says that the keys of the batch fit into the memory of every task.
    """
    from pyspark.sql import functions as F

    latest = _latest(fresh)
    if previous is None:
        return latest.select("row.*").where("value is not null")
    place = ["topic", "key"]
    # Without the values, which may be large.
    changes = latest.select(*place, "partitions", F.struct("row.timestamp", "row.offset").alias("age"))
    changes = F.broadcast(changes) if few else changes
    # Of the same partition the batch is newer in any case, as its offsets are greater.
    replaced = F.array_contains("partitions", F.col("partition")) | (F.col("age") > F.struct("timestamp", "offset"))
    stays = previous.join(changes, place, "left").where(F.col("age").isNull() | ~replaced).select(*_COLUMNS)
    older = previous.select(*place, "partition", "timestamp", "offset").join(changes, place).where(~replaced)
    new = latest.join(older.select(*place), place, "left_anti").select("row.*").where("value is not null")
    return stays.unionByName(new)


def _latest(rows: DataFrame) -> DataFrame:
    """By topic and key: the `row` that wins, and the `partitions` that the key was seen in."""
    from pyspark.sql import functions as F

    by_partition = rows.groupBy("topic", "partition", "key").agg(F.max_by(F.struct(*_COLUMNS), "offset").alias("row"))
    youngest = F.max_by("row", F.struct("row.timestamp", "row.offset"))
    partitions = F.collect_set("partition")
    return by_partition.groupBy("topic", "key").agg(youngest.alias("row"), partitions.alias("partitions"))
