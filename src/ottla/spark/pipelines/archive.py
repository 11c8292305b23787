"""`archive`: topics to a table of Parquet files, each offset in exactly one committed file.

Spark writes a micro-batch into a staging folder. The files are checked (first and last offset, count) and committed in
one step; see `commits` for why a crash at any point neither loses nor repeats records. The commit also holds the offset
that each partition has reached. A repeated batch is cut at these marks, so the archive stays correct if Spark repeats a
batch or its checkpoint is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.arrow_files import read_from_bucket
from ottla.spark.pipelines.batches import run_batches
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.copying import Copied, copy_records
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.decoders import Decoding
from ottla.spark.pipelines.decoding import decoded
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import ISOLATIONS, Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.object_stores import ObjectStore
from ottla.spark.pipelines.parquet import COMPRESSIONS, write_parquet
from ottla.spark.pipelines.registered import Registered, registered
from ottla.spark.pipelines.stores import ArrowStore, is_local, open_store
from ottla.spark.pipelines.streams import Batch, Loss, Summary, losses, recreated
from ottla.spark.pipelines.tables import CHECKPOINT, Table
from ottla.spark.pipelines.topics import Offsets, nested

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

KIND: Final = "archive"
SCHEMA: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, topic string, date date"
)
PARTITIONED_BY: Final = ("topic", "date")
ERROR: Final = "value_error"
"""Why a value was not decoded, in archives with --decode."""
_DECODED: Final = "decoded"
_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "topic")
_ALL: Final = (*_COLUMNS, "date")


def archive(
    topics: str | Sequence[str],
    out: str,
    *,
    compression: str = "snappy",
    decode: bool = False,
    registry: str | None = None,
    registry_options: Mapping[str, str] | None = None,
    subject: str | None = None,
    **options: Unpack[TableOptions],
) -> Summary:
    """Copy topics to a table in `out`, by topic and date. The next call continues from there.

    The table is plain Parquet, Delta or Iceberg (`format`). Files are named by topic, partition, first and last offset.
    `verify` proves that each offset is in exactly one of them.

    With `decode` the fields of the values become columns too (`value_FIELD`), with the schemas of a `registry`. If a
    value cannot be decoded, `value_error` contains the reason. The columns follow the newest schema of `subject`
    (`TOPIC-value`).
    """
    if compression not in COMPRESSIONS:
        raise PipelineError(f"compression is one of {', '.join(COMPRESSIONS)}, not '{compression}'")
    if decode != (registry is not None):
        raise PipelineError("values are decoded with the schemas of a registry: add both --decode and --registry")
    target = target_of(options)
    source = None if registry is None else registered(registry, registry_options, subject, topics)
    schema = columns(SCHEMA) if source is None else decoded_schema(source.decoding)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    store = open_store(out, job.spark)
    isolation = options.get("isolation") or ISOLATIONS[0]
    identity = {"cluster": job.cluster.cluster_id(), "topics": {}, "isolation": isolation}
    with Table.create_or_open(store, KIND, target, schema, PARTITIONED_BY, **identity) as table:
        _check_table(job, table, isolation)
        starts = job.range()[0]
        if source is not None:
            if table.format == "parquet":
                raise PipelineError("plain Parquet can have only one schema; --decode needs --format delta or iceberg")
            for change in table.evolved:
                job.warn(f"{store.root}: {change}")
            source.follow(table, job)
        archiver = _Archiver(job, table, compression, starts, source)
        summary = run_batches(job, archiver.write, table, starts)
        files = table.state.files.values()
        summary.details = {
            "out": store.root,
            "format": table.format,
            "files": len(files),
            "bytes": sum(file.bytes for file in files),
            "archived": sum(file.records for file in files),
        }
    return summary


def decoded_schema(decoding: Decoding) -> StructType:
    """The columns of an archive, including those for the fields of the values."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(f"value_{field.name}", field.dataType) for field in decoding.spark_type().fields]
    return StructType([*columns(SCHEMA).fields, *fields, StructField(ERROR, StringType())])


def _decoded_columns(table: Table) -> list[StructField]:
    from pyspark.sql.types import StructType

    text = table.state.extra.get(_DECODED)
    return [] if text is None else list(StructType.fromJson(json.loads(text)).fields)


def go_on(table: Table, starts: Offsets) -> Offsets:
    """The offsets at which to begin without a checkpoint: after the last offset in the table."""
    return {tp: table.state.marks.get(tp, start) for tp, start in starts.items()}


def _check_table(job: Job, table: Table, isolation: str) -> None:
    there = table.description
    if there["cluster"] != job.cluster.cluster_id():
        raise PipelineError(f"{table.store.root} is an archive of another cluster; choose another folder with --out")
    if there["isolation"] != isolation:
        raise PipelineError(
            f"{table.store.root} was created with --isolation {there['isolation']}; use the same --isolation"
        )
    for name, topic_id in table.state.extra.get("topic_ids", {}).items():
        if topic_id and name in job.topics and job.topics[name].topic_id != topic_id:
            raise PipelineError(recreated(name, table.store.root))


class _Archiver:
    def __init__(
        self, job: Job, table: Table, compression: str, begins: Offsets, source: Registered | None = None
    ) -> None:
        self.job = job
        self.source = source
        self.table = table
        self.compression = compression
        self.begins = begins

    def write(self, batch: Batch) -> int:
        """Commit all records of a batch that are not archived yet."""
        table = self.table
        marks = table.state.marks
        files = self._files(batch)
        for file in files.values():
            mark = marks.get((file.topic, file.partition), 0)
            if file.first_offset < mark:
                raise PipelineError(
                    f"{file.topic}-{file.partition}: offset {file.first_offset} was read again after {mark} had been "
                    "reached; was the topic deleted and created again?"
                )
        known = {**table.state.extra.get("begins", {})}
        begins = {tp: start for tp, start in self.begins.items() if str(tp[1]) not in known.get(tp[0], {})}
        for topic, inner in nested(begins).items():
            known[topic] = {**known.get(topic, {}), **inner}
        ids = {topic.name: topic.topic_id for topic in self.job.topics.values()}
        table.commit(
            files,
            marks=batch.ends,
            lost=[asdict(loss) for loss in self._lost(batch, files.values())],
            extra={"begins": known, "topic_ids": {**table.state.extra.get("topic_ids", {}), **ids}, **self._decoded()},
        )
        return sum(file.records for file in files.values())

    def _files(self, batch: Batch) -> dict[str, DataFile]:
        """Stage the files: entirely in Arrow with our own source, otherwise with Spark's writer."""
        table, store = self.table, self.table.store
        if self.source is not None:
            self.source.renew(table, self.job, decoded_schema)
            rows = decoded(batch.frame(), self.source.decoding, _COLUMNS)
            fields = rows.schema["data"].dataType.fieldNames()
            data = [f"data.`{name}` as `value_{name}`" for name in fields]
            return write_files(
                dated(rows).selectExpr(*_COLUMNS, "date", *data, f"error as {ERROR}"), table, self.compression
            )
        if self.job.format() != "ottla" or not isinstance(store, ArrowStore):
            return write_files(dated(batch.frame()).select(*_COLUMNS, "date"), table, self.compression)
        from pyspark.sql.types import StructType

        # Iceberg's files hold all columns. Files of the other formats omit the columns that are in their folder names.
        left_out = () if table.format == "iceberg" else PARTITIONED_BY
        schema = StructType([one for one in columns(SCHEMA).fields if one.name not in left_out])
        staging = table.staging()
        found = copy_records(self.job, batch.starts, batch.ends, schema, store, staging, compression=self.compression)
        return {one.path: _copied_file(one, store.size(one.path)) for one in found}

    def _decoded(self) -> dict[str, Any]:
        """The data for the commit: the schema that decoded the values, and all columns so far."""
        from pyspark.sql.types import StructType

        if self.source is None:
            return {}
        known = _decoded_columns(self.table)
        now = StructType([one for one in decoded_schema(self.source.decoding).fields if one.name not in _ALL])
        more = [one for one in known if one.name not in now.names]
        return {**self.source.noted(), _DECODED: StructType([*now.fields, *more]).json()}

    def _lost(self, batch: Batch, files: Iterable[DataFile]) -> list[Loss]:
        """The lost records. Checked after reading, because retention may have removed some before that."""
        firsts: Offsets = {}
        for file in files:
            tp = (file.topic, file.partition)
            firsts[tp] = min(firsts.get(tp, file.first_offset), file.first_offset)
        starts = {tp: max(start, self.table.state.marks.get(tp, start)) for tp, start in batch.starts.items()}
        log_starts = {tp: min(low, firsts.get(tp, low)) for tp, (low, _) in self.job.bounds().items()}
        return losses(starts, batch.ends, log_starts)


def fresh_rows(table: Table, batch: Batch) -> tuple[DataFrame, Offsets] | None:
    """The rows of a batch that the table lacks, and the marks to reach. None if it has all of them."""
    marks = table.state.marks
    fresh = {tp: end for tp, end in batch.ends.items() if end > marks.get(tp, -1)}
    if not fresh:
        return None
    repeated = {tp: mark for tp, mark in marks.items() if tp in batch.ends and batch.starts.get(tp, -1) < mark}
    return _not_before(batch.frame(), repeated), fresh


def _not_before(frame: DataFrame, marks: Offsets) -> DataFrame:
    """The rows without the records below their partition's mark."""
    from pyspark.sql import functions as F

    done: Column | None = None
    for (topic, partition), mark in marks.items():
        one = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") < mark)
        done = one if done is None else done | one
    return frame if done is None else frame.where(~done)


def dated(frame: DataFrame) -> DataFrame:
    """The rows with the day of their timestamp in UTC, regardless of the session's time zone."""
    from pyspark.sql import functions as F

    day = F.expr("date_from_unix_date(cast(floor(unix_millis(timestamp) / 86400000D) as int))")
    return frame.withColumn("date", day)


def write_files(
    frame: DataFrame, table: Table, compression: str = "snappy", *, group: Sequence[str] = ()
) -> dict[str, DataFile]:
    """Stage rows for a table: one file for each topic, date and partition (and `group`) of a task."""
    from pyspark.sql import functions as F

    # Iceberg's files hold all columns. Files of the other formats omit the columns that are in their folder names.
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


def _copied_file(one: Copied, size: int) -> DataFile:
    day = (date(1970, 1, 1) + timedelta(days=one.day)).isoformat()
    path = file_path(one.topic, day, one.partition, one.first_offset, one.last_offset)
    return DataFile(path, one.topic, one.partition, one.first_offset, one.last_offset, one.records, size)


def file_path(topic: str, date: str, partition: int, first_offset: int, last_offset: int) -> str:
    return f"topic={topic}/date={date}/{topic}-{partition}-{first_offset:020d}-{last_offset:020d}.parquet"


def read_archive(
    spark: SparkSession, table: Table, files: Iterable[DataFile] | None = None, *, decoded: bool = False
) -> DataFrame:
    """The committed records, or those of some files. With `decoded`, also the columns that --decode added."""
    from pyspark.sql.types import StructType

    schema = StructType([*columns(SCHEMA).fields, *(_decoded_columns(table) if decoded else ())])
    chosen = list(table.state.files.values() if files is None else files)
    paths = [table.url(file) for file in chosen]
    if not paths:
        return spark.createDataFrame([], schema)
    if isinstance(table.store, ObjectStore):
        return read_from_bucket(spark, table.store, paths, schema, PARTITIONED_BY)
    reader = spark.read.schema(schema)
    if table.format != "iceberg":  # topic and date are in the folder names
        reader = reader.option("basePath", table.store.url())
    return reader.parquet(*paths)


def check_archive(location: str) -> None:
    """Check before Spark starts that there is an archive. A location that only Spark can reach is checked later."""
    if is_local(location):
        Table.open(open_store(location, None), KIND)


def archive_options(table: Table) -> dict[str, Any]:
    """The options that `verify` needs to read the log as the archive did."""
    return {"isolation": table.description["isolation"]}
