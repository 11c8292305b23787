"""`archive`: topics to a table of Parquet files, each offset in exactly one committed file.

A micro-batch is written by Spark into a staging folder, looked at once more (first and last offset, count), and
committed in one step; see `commits` for why a crash at any point loses and repeats nothing. The commit also holds how
far each partition is archived, and a batch that comes again is cut at those marks: so the archive stays right when
Spark repeats a batch, and when its checkpoint is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import ISOLATIONS, Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.parquet import COMPRESSIONS, write_parquet
from ottla.spark.pipelines.stores import is_local, open_store
from ottla.spark.pipelines.streams import Batch, Loss, Summary, losses, recreated, run_stream
from ottla.spark.pipelines.tables import CHECKPOINT, Table
from ottla.spark.pipelines.topics import Offsets, nested

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KIND: Final = "archive"
SCHEMA: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, topic string, date date"
)
PARTITIONED_BY: Final = ("topic", "date")
_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic")


def archive(
    topics: str | Sequence[str], out: str, *, compression: str = "snappy", **options: Unpack[TableOptions]
) -> Summary:
    """Copy topics to a table below `out`, by topic and date, and go on from there when called again.

    The table is plain Parquet, Delta or Iceberg (`format`). Files are named by topic, partition, first and last offset.
    `verify` proves that each offset is in exactly one of them.
    """
    if compression not in COMPRESSIONS:
        raise PipelineError(f"compression is one of {', '.join(COMPRESSIONS)}, not '{compression}'")
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    store = open_store(out, job.spark)
    isolation = options.get("isolation") or ISOLATIONS[0]
    identity = {"cluster": job.cluster.cluster_id(), "topics": {}, "isolation": isolation}
    with Table.create_or_open(store, KIND, target, columns(SCHEMA), PARTITIONED_BY, **identity) as table:
        _check_table(job, table, isolation)
        starts = job.range()[0]
        archiver = _Archiver(job, table, compression, starts)
        # A checkpoint that is gone is no loss: the table knows how far each partition is archived.
        summary = run_stream(job, archiver.write, go_on(table, starts), table.id)
        files = table.state.files.values()
        summary.details = {
            "out": store.root,
            "format": table.format,
            "files": len(files),
            "bytes": sum(file.bytes for file in files),
            "archived": sum(file.records for file in files),
        }
    return summary


def go_on(table: Table, starts: Offsets) -> Offsets:
    """Where to begin without a checkpoint: behind what the table has."""
    return {tp: table.state.marks.get(tp, start) for tp, start in starts.items()}


def _check_table(job: Job, table: Table, isolation: str) -> None:
    there = table.description
    if there["cluster"] != job.cluster.cluster_id():
        raise PipelineError(f"{table.store.root} is an archive of another cluster; name another folder with --out")
    if there["isolation"] != isolation:
        raise PipelineError(f"{table.store.root} was begun with --isolation {there['isolation']}; go on with the same")
    for name, topic_id in table.state.extra.get("topic_ids", {}).items():
        if topic_id and name in job.topics and job.topics[name].topic_id != topic_id:
            raise PipelineError(recreated(name, table.store.root))


class _Archiver:
    def __init__(self, job: Job, table: Table, compression: str, begins: Offsets) -> None:
        self.job = job
        self.table = table
        self.compression = compression
        self.begins = begins

    def write(self, batch: Batch) -> int:
        """Everything of a batch that is not archived yet, in one commit."""
        table = self.table
        marks = table.state.marks
        found = fresh_rows(table, batch)
        if found is None:
            return 0
        rows, fresh = found
        files = write_files(dated(rows).select(*_COLUMNS, "date"), table, self.compression)
        for file in files.values():
            mark = marks.get((file.topic, file.partition), 0)
            if file.first_offset < mark:
                raise PipelineError(
                    f"{file.topic}-{file.partition}: offset {file.first_offset} came again after {mark} was reached; "
                    "was the topic deleted and created again?"
                )
        known = {**table.state.extra.get("begins", {})}
        begins = {tp: start for tp, start in self.begins.items() if str(tp[1]) not in known.get(tp[0], {})}
        for topic, inner in nested(begins).items():
            known[topic] = {**known.get(topic, {}), **inner}
        ids = {topic.name: topic.topic_id for topic in self.job.topics.values()}
        table.commit(
            files,
            marks=fresh,
            lost=[asdict(loss) for loss in self._lost(batch, files.values())],
            extra={"begins": known, "topic_ids": {**table.state.extra.get("topic_ids", {}), **ids}},
        )
        return sum(file.records for file in files.values())

    def _lost(self, batch: Batch, files: Iterable[DataFile]) -> list[Loss]:
        """Looked at after the records were read: retention may have struck before they were."""
        firsts: Offsets = {}
        for file in files:
            tp = (file.topic, file.partition)
            firsts[tp] = min(firsts.get(tp, file.first_offset), file.first_offset)
        starts = {tp: max(start, self.table.state.marks.get(tp, start)) for tp, start in batch.starts.items()}
        log_starts = {tp: min(low, firsts.get(tp, low)) for tp, (low, _) in self.job.bounds().items()}
        return losses(starts, batch.ends, log_starts)


def fresh_rows(table: Table, batch: Batch) -> tuple[DataFrame, Offsets] | None:
    """What of a batch the table does not have yet, and the marks to reach; None if it has all of it."""
    marks = table.state.marks
    fresh = {tp: end for tp, end in batch.ends.items() if end > marks.get(tp, -1)}
    if not fresh:
        return None
    repeated = {tp: mark for tp, mark in marks.items() if tp in batch.ends and batch.starts.get(tp, -1) < mark}
    return _not_before(batch.frame, repeated), fresh


def _not_before(frame: DataFrame, marks: Offsets) -> DataFrame:
    """Without the records below a partition's mark."""
    from pyspark.sql import functions as F

    done: Column | None = None
    for (topic, partition), mark in marks.items():
        one = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") < mark)
        done = one if done is None else done | one
    return frame if done is None else frame.where(~done)


def dated(frame: DataFrame) -> DataFrame:
    """With the day of the timestamp in UTC, whatever the session's time zone is."""
    from pyspark.sql import functions as F

    day = F.expr("date_from_unix_date(cast(floor(unix_millis(timestamp) / 86400000D) as int))")
    return frame.withColumn("date", day)


def write_files(
    frame: DataFrame, table: Table, compression: str = "snappy", *, group: Sequence[str] = ()
) -> dict[str, DataFile]:
    """Stage rows for a table, a file for each topic, date and partition (and `group`) of a task."""
    from pyspark.sql import functions as F

    # Iceberg's files hold all columns; those of the other formats leave out what their folders say.
    names = ("_topic", "_date") if table.format == "iceberg" else PARTITIONED_BY
    rows = frame.withColumn("_partition", F.col("partition"))
    for name, column in zip(names, PARTITIONED_BY, strict=True):
        rows = rows.withColumn(name, F.col(column))
    found: dict[str, DataFile] = {}
    by = (*names, "_partition", *group)
    for one in write_parquet(rows, table.store, table.staging(), compression=compression, by=by):
        topic, date, partition = one.folders[names[0]], one.folders[names[1]], int(one.folders["_partition"])
        path = file_path(topic, date, partition, one.first_offset, one.last_offset)
        found[one.path] = DataFile(path, topic, partition, one.first_offset, one.last_offset, one.records, one.bytes)
    return found


def file_path(topic: str, date: str, partition: int, first_offset: int, last_offset: int) -> str:
    return f"topic={topic}/date={date}/{topic}-{partition}-{first_offset:020d}-{last_offset:020d}.parquet"


def read_archive(spark: SparkSession, table: Table, files: Iterable[DataFile] | None = None) -> DataFrame:
    """The committed records, or those of some files."""
    chosen = table.state.files.values() if files is None else files
    paths = [table.url(file) for file in chosen]
    if not paths:
        return spark.createDataFrame([], SCHEMA)
    reader = spark.read.schema(SCHEMA)
    if table.format != "iceberg":  # topic and date are in the names of the folders
        reader = reader.option("basePath", table.store.url())
    return reader.parquet(*paths)


def check_archive(location: str) -> None:
    """Before Spark starts, whether there is an archive; what only Spark can reach is looked at later."""
    if is_local(location):
        Table.open(open_store(location, None), KIND)


def archive_options(table: Table) -> dict[str, Any]:
    """What `verify` needs to read the log as the archive did."""
    return {"isolation": table.description["isolation"]}
