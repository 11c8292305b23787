"""`parse`: values to typed columns with a schema. Values that do not fit go to a dead-letter topic and block nothing.

The table is committed like an archive, so it holds every record once. Dead letters are written before the commit. After
a crash in between they are written again; the origin in their headers shows which ones are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.archive import PARTITIONED_BY, dated, fresh_rows, write_files
from ottla.spark.pipelines.batches import run_batches
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.decoders import Decoding, load_decoding
from ottla.spark.pipelines.decoding import decoded
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.registered import Registered, registered
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Batch, Summary
from ottla.spark.pipelines.tables import CHECKPOINT, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KIND: Final = "parse"
_TAKEN: Final = {"topic", "partition", "offset", "timestamp", "key", "date", "_partition"}
_LARGEST: Final = str(64 << 20)


def parse(
    topics: str | Sequence[str],
    out: str,
    *,
    value_format: str = "",
    schema: str = "",
    message: str = "",
    framing: str = "plain",
    writer_schemas: Mapping[Any, str] | None = None,
    registry: str | None = None,
    registry_options: Mapping[str, str] | None = None,
    subject: str | None = None,
    dead_letters: str | None = None,
    **options: Unpack[TableOptions],
) -> Summary:
    """Write a table of typed columns (and topic, partition, offset, timestamp, key) in `out`.

    It is plain Parquet, Delta or Iceberg (`format`). In the latter two, a later schema may add columns.

    Records that do not fit go to the topic `dead_letters` (by default the first topic's name with `.dead-letters`),
    with unchanged key, value and headers, and additional headers `ottla.origin.*` and `ottla.error`. Tombstones stay,
    as rows whose columns are null. A column whose name is taken is called `value_…`. Avro values that were written with
    other versions of the schema are read with `writer_schemas` (the id at the start of the value -> schema).

    With a `registry` the newest schema of `subject` (`TOPIC-value`) determines the columns, and each value is read
    with the schema whose id is at its start. A newer version adds its columns to the table, even during a run.
    """
    if registry is not None:
        if value_format or schema or writer_schemas:
            raise PipelineError("with a registry the schemas come from there: leave out the format and the schema")
        source = registered(registry, registry_options, subject, topics, message)
        decoding = source.decoding
    elif not value_format or not schema:
        raise PipelineError("parse needs --value-format and --schema, or --registry")
    else:
        source = None
        decoding = load_decoding(value_format, schema, message=message, framing=framing, writer_schemas=writer_schemas)
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    letters = dead_letters or f"{next(iter(job.topics))}.dead-letters"
    if letters in job.topics:
        raise PipelineError(f"the dead-letter topic '{letters}' is one of the topics that are read")
    most = max(topic.partitions for topic in job.topics.values())
    job.cluster.ensure_topic(letters, 1 if len(job.topics) > 1 else most, {"max.message.bytes": _LARGEST})
    store = open_store(out, job.spark)
    described = decoding.spark_type().json()
    identity = {"described": described, "cluster": job.cluster.cluster_id()}
    with Table.create_or_open(store, KIND, target, _table_schema(decoding), PARTITIONED_BY, **identity) as table:
        for change in table.evolved:
            job.warn(f"{store.root}: {change}")
        there = table.description.get("described") or table.description.get("schema")
        if table.format == "parquet" and there != described:
            raise PipelineError(f"{store.root} was created with another schema; choose another folder with --out")
        if source is not None:
            source.follow(table, job)
        parser = _Parser(job, table, decoding, letters, source)
        summary = run_batches(job, parser.write, table, job.range()[0])
        summary.details = {"out": store.root, "dead_letters": letters, "bad": parser.bad, "good": parser.good}
        summary.details |= {"format": table.format, "columns_added": table.evolved}
        summary.details |= {"written": parser.good, "files": len(table.state.files)}
    return summary


class _Parser:
    def __init__(
        self, job: Job, table: Table, decoding: Decoding, letters: str, source: Registered | None = None
    ) -> None:
        self.job = job
        self.table = table
        self.decoding = decoding
        self.letters = letters
        self.source = source
        self.good = 0
        self.bad = 0

    def write(self, batch: Batch) -> int:
        fresh = fresh_rows(self.table, batch)
        if fresh is None:
            return 0
        if self.source is not None and self.source.renew(self.table, self.job, _table_schema):
            self.decoding = self.source.decoding
        rows = decoded(fresh[0], self.decoding).persist()
        try:
            bad = rows.where("error is not null")
            many = bad.count()
            if many:
                self.job.write_topic(dead_letters(bad, self.letters, KIND))
            files = write_files(_flat(rows.where("error is null")), self.table)
            extra = {} if self.source is None else self.source.noted()
            self.table.commit(files, marks=fresh[1], extra=extra)
        finally:
            rows.unpersist()
        good = sum(file.records for file in files.values())
        self.good += good
        self.bad += many
        return good + int(many)


def _flat(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    fields = [F.col(f"data.`{name}`").alias(_column(name)) for name in rows.schema["data"].dataType.fieldNames()]
    origin = ["topic", "partition", "offset", "timestamp", "key"]
    return dated(rows).select(*origin, "date", *fields)


def _column(field: str) -> str:
    return f"value_{field}" if field.lower() in _TAKEN else field


def _table_schema(decoding: Decoding) -> StructType:
    from pyspark.sql.types import StructField, StructType

    origin = columns("topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, date DATE")
    fields = [StructField(_column(field.name), field.dataType) for field in decoding.spark_type().fields]
    return StructType([*origin.fields, *fields])


def dead_letters(bad: DataFrame, topic: str, pipeline: str) -> DataFrame:
    """Rows for a dead-letter topic: all bytes unchanged, with the origin and the error in headers."""
    from pyspark.sql import functions as F

    def header(name: str, value: Any) -> Any:
        return F.struct(F.lit(f"ottla.{name}").alias("key"), value.cast("string").cast("binary").alias("value"))

    added = F.array(
        header("pipeline", F.lit(pipeline)),
        header("origin.topic", F.col("topic")),
        header("origin.partition", F.col("partition")),
        header("origin.offset", F.col("offset")),
        header("origin.timestamp", F.unix_millis("timestamp")),
        header("error", F.col("error")),
    )
    none = F.array().cast("array<struct<key: string, value: binary>>")
    headers = F.concat(F.coalesce(F.col("headers"), none), added)
    return bad.select(F.lit(topic).alias("topic"), "key", "value", headers.alias("headers"))
