"""`parse`: values to typed columns by a schema; what does not fit goes to a dead-letter topic and holds up nothing.

The table is committed like an archive, so every record is in it once. Dead letters are written before the commit: after
a crash in between they are written again, and the origin in their headers tells which are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.archive import PARTITIONED_BY, dated, fresh_rows, go_on, write_files
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.decoders import Decoding, load_decoding
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Batch, Summary, run_stream
from ottla.spark.pipelines.tables import CHECKPOINT, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KIND: Final = "parse"
_ORIGIN: Final = ("topic", "partition", "offset", "timestamp", "key", "headers", "value")
_TAKEN: Final = {"topic", "partition", "offset", "timestamp", "key", "date", "_partition"}
_CORRUPT: Final = "_ottla_corrupt"
_LARGEST: Final = str(64 << 20)


def parse(
    topics: str | Sequence[str],
    out: str,
    *,
    value_format: str,
    schema: str,
    message: str = "",
    framing: str = "plain",
    writer_schemas: Mapping[Any, str] | None = None,
    dead_letters: str | None = None,
    **options: Unpack[TableOptions],
) -> Summary:
    """Write a table of typed columns (and topic, partition, offset, timestamp, key) below `out`.

    It is plain Parquet, Delta or Iceberg (`format`). The latter two take a schema with more columns later on.

    Records that do not fit go to the topic `dead_letters` (by default the first topic's name with `.dead-letters`),
    with key, value and headers as they were and headers `ottla.origin.*` and `ottla.error` added. Tombstones stay, as
    rows whose columns are null. A column whose name is taken is called `value_…`. Avro values that were written with
    other versions of the schema are read by `writer_schemas` (the id in front of the value -> schema).
    """
    decoding = load_decoding(value_format, schema, message=message, framing=framing, writer_schemas=writer_schemas)
    if decoding.format == "json" and framing != "plain":
        raise PipelineError("the framing 'confluent' is for Avro and Protobuf")
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
            raise PipelineError(f"{store.root} was begun with another schema; name another folder with --out")
        parser = _Parser(job, table, decoding, letters)
        summary = run_stream(job, parser.write, go_on(table, job.range()[0]), table.id)
        summary.details = {"out": store.root, "dead_letters": letters, "bad": parser.bad, "good": parser.good}
        summary.details |= {"format": table.format, "columns_added": table.evolved}
        summary.details |= {"written": parser.good, "files": len(table.state.files)}
    return summary


class _Parser:
    def __init__(self, job: Job, table: Table, decoding: Decoding, letters: str) -> None:
        self.job = job
        self.table = table
        self.decoding = decoding
        self.letters = letters
        self.good = 0
        self.bad = 0

    def write(self, batch: Batch) -> int:
        fresh = fresh_rows(self.table, batch)
        if fresh is None:
            return 0
        rows = decoded(fresh[0], self.decoding).persist()
        try:
            bad = rows.where("error is not null")
            many = bad.count()
            if many:
                self.job.write_topic(dead_letters(bad, self.letters, KIND))
            files = write_files(_flat(rows.where("error is null")), self.table)
            self.table.commit(files, marks=fresh[1])
        finally:
            rows.unpersist()
        good = sum(file.records for file in files.values())
        self.good += good
        self.bad += many
        return good + int(many)


def decoded(frame: DataFrame, decoding: Decoding) -> DataFrame:
    """Adds `data` (a struct, null where the value is) and `error` (null where it fits)."""
    rows = frame.select(*_ORIGIN)
    if decoding.format == "json":
        return _decoded_json(rows, decoding)
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    result = StructType([StructField("data", decoding.spark_type()), StructField("error", StringType())])

    @F.udf(result, useArrow=False)  # type: ignore[untyped-decorator]
    def decode(value: bytearray | None) -> tuple[Any, str | None]:
        from ottla.spark.pipelines.decoders import explained

        return explained(decoding, value)

    # Deterministic as it is, Spark would call it once for each of its two fields.
    both = rows.withColumn("_both", decode.asNondeterministic()("value"))
    return both.select(*_ORIGIN, "_both.data", "_both.error")


def _decoded_json(rows: DataFrame, decoding: Decoding) -> DataFrame:
    """Spark parses; only what it cannot parse is looked at by Python, for the reason."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    schema = decoding.spark_type()
    loose = StructType([StructField(f.name, f.dataType, True) for f in schema.fields])
    wide = StructType([*loose.fields, StructField(_CORRUPT, StringType())])
    parsed = F.from_json(
        F.col("value").cast("string"), wide, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    )
    read = rows.withColumn("data", parsed)
    wrong = F.col(f"data.{_CORRUPT}").isNotNull() | F.col("data").isNull()
    for field in schema.fields:
        if not field.nullable:
            wrong = wrong | F.col(f"data.`{field.name}`").isNull()
    bad = F.col("value").isNotNull() & wrong
    reason = F.when(bad, _reasons(decoding)(F.col("value")))
    kept = F.struct(*[F.col(f"data.`{field.name}`").alias(field.name) for field in schema.fields])
    return read.select(*_ORIGIN, F.when(F.col("value").isNotNull() & ~bad, kept).alias("data"), reason.alias("error"))


def _reasons(decoding: Decoding) -> Any:
    from pyspark.sql import functions as F

    @F.udf("string", useArrow=False)  # type: ignore[untyped-decorator]
    def reason(value: bytearray | None) -> str | None:
        from ottla.spark.pipelines.decoders import explained

        return explained(decoding, value)[1]

    return reason


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
    """Rows for a dead-letter topic: all bytes as they were, the origin and the error in headers."""
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
