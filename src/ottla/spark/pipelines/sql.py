"""`sql`: a query over topics as tables, once over the existing records, or as a stream with a checkpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.decoders import Decoding, load_decoding
from ottla.spark.pipelines.encoders import encoding_for, framed
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.jobs import Job, TableOptions, cluster_of, open_job, target_of
from ottla.spark.pipelines.object_stores import is_bucket
from ottla.spark.pipelines.registry import Registry
from ottla.spark.pipelines.results import append_results, write_result
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import (
    Loss,
    Watch,
    check_note,
    commit_progress,
    last_offsets,
    losses,
    planned_offsets,
    tell_losses,
    triggered,
)
from ottla.spark.pipelines.topics import Offsets, TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PRINTED: Final = 1000
_META: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(slots=True)
class Answer:
    """The rows of a query that is printed, or the place where they were written."""

    topics: list[str]
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    written_to: str | None = None
    written: int | None = None
    """The number of rows written, if it is known."""
    seconds: float = 0.0
    interrupted: bool = False


def sql(
    query: str,
    *,
    tables: Mapping[str, str] | None = None,
    schemas: Mapping[str, str] | None = None,
    binary: bool = False,
    out: str | None = None,
    to_topic: str | None = None,
    limit: int = _PRINTED,
    stream: bool = False,
    registry: str | None = None,
    registry_options: Mapping[str, str] | None = None,
    subject: str | None = None,
    **options: Unpack[TableOptions],
) -> Answer:
    """Run a query in which topics are tables, and return its rows, or write them to a table (`out`) or a topic.

    The table of a topic has the name of the topic, with `_` for characters that SQL does not allow in a name; `tables`
    sets other names (name -> topic). Columns: key and value as text (as bytes with `binary`), topic, partition, offset,
    timestamp, headers; with a schema for its values (`schemas`, table -> DDL or a file) also the fields of their JSON.
    With `stream` the query runs as a stream. It needs a `checkpoint` and an output, and the next run continues from
    there. If rows are written, a group shows the progress; a printed query has a group only if you choose one. With a
    `registry`, rows for a topic are written with the newest schema of `subject` (`TOPIC-value`) in its framing. If the
    subject has no schema, an Avro schema of the query's columns becomes its first version.
    """
    began = time.monotonic()
    named, decodings = check_query(
        query, tables=tables, schemas=schemas, out=out, to_topic=to_topic, stream=stream, **options
    )
    if registry is not None and to_topic is None:
        raise PipelineError("a registry frames the values of a topic: add --to-topic")
    job = open_job("sql", sorted(set(named.values())), options)
    answer = Answer(sorted(set(named.values())))
    target = target_of(options)

    def records(frame: DataFrame, topic: str) -> DataFrame:
        if registry is None:
            return as_records(frame, topic)
        at = Registry.at(registry, registry_options)
        return framed(frame, topic, encoding_for(at, subject or f"{topic}-value", frame.schema))

    def result(starts: Offsets, ends: Offsets | None) -> DataFrame:
        for name, topic in named.items():
            _view(job, topic, decodings.get(name), binary, starts, ends).createOrReplaceTempView(f"`{name}`")
        return job.spark.sql(query)

    try:
        starts, ends = job.range()
        if stream and out is not None and target is not None and target.format != "parquet":
            summary = append_results(job, lambda begin: result(begin, None), starts, out, target)
            answer.interrupted, answer.written = summary.interrupted, summary.details["written"]
        elif stream:
            answer.interrupted = _run_stream(job, result(starts, None), starts, out, to_topic, records)
        elif to_topic is not None:
            job.cluster.ensure_topic(to_topic, 1)
            job.write_topic(records(result(starts, ends), to_topic))
        elif out is not None:
            answer.written = write_result(job, result(starts, ends), ends, out, target)
        else:
            frame = result(starts, ends)
            rows = frame.limit(limit + 1).collect()
            answer.columns = frame.columns
            answer.rows = [row.asDict(recursive=True) for row in rows[:limit]]
            answer.truncated = len(rows) > limit
        if not stream:
            # Checked afterwards: rows that were removed while the query ran may be missing from the result.
            tell_losses(job, losses(starts, ends, {tp: low for tp, (low, _) in job.bounds().items()}))
            if out or to_topic or options.get("group"):
                commit_progress(job, ends)
    except PipelineError:
        raise
    except Exception as error:
        raise _told(error) from None
    answer.written_to = out or to_topic
    answer.seconds = time.monotonic() - began
    return answer


def check_query(
    query: str,
    *,
    tables: Mapping[str, str] | None = None,
    schemas: Mapping[str, str] | None = None,
    out: str | None = None,
    to_topic: str | None = None,
    stream: bool = False,
    **options: Unpack[TableOptions],
) -> tuple[dict[str, str], dict[str, Decoding]]:
    """The topics of the query's tables and the schemas of their values. Runs all checks that need no Spark."""
    if out is not None and to_topic is not None:
        raise PipelineError("the rows go either to a table or to a topic")
    if target_of(options) is not None and out is None:
        raise PipelineError("a format is that of the table which --out names")
    target = target_of(options)
    if out is not None and is_bucket(out) and (target is None or target.format == "parquet"):
        raise PipelineError(f"a query writes to {out} with --format delta or iceberg only")
    if is_bucket(options.get("checkpoint") or ""):
        raise PipelineError("Spark writes the checkpoint of a query, and cannot write to s3://; choose a folder")
    decodings = {name: load_decoding("json", text) for name, text in (schemas or {}).items()}
    named = _tables(cluster_of(options).topics(), query, dict(tables or {}))
    unknown = sorted(set(decodings) - set(named))
    if unknown:
        raise PipelineError(f"there is a schema for '{unknown[0]}', which is not a table of the query")
    if options.get("follow") and not stream:
        raise PipelineError("only a streaming query can follow its topics: add --stream and --checkpoint")
    if stream and (not options.get("checkpoint") or (out is None and to_topic is None)):
        raise PipelineError("a streaming query needs --checkpoint, and --out or --to-topic")
    if to_topic is not None and to_topic in named.values():
        raise PipelineError(f"the topic '{to_topic}' cannot be read and written to by the same query")
    return named, decodings


def _tables(known: Mapping[str, TopicInfo], query: str, tables: dict[str, str]) -> dict[str, str]:
    """The tables that the query may use: topics whose name, or its SQL form, is in the text."""
    for topic in tables.values():
        if topic not in known:
            raise PipelineError(f"there is no topic '{topic}'; `ottla topics list` shows what there is")
    words = {word.lower() for word in re.findall(r"[A-Za-z0-9_]+", query)}
    found = {table_name(topic): topic for topic in known if table_name(topic).lower() in words}
    found.update(tables)
    if not found:
        raise PipelineError("the query names no topic; a topic's table has its name, with _ for . and -")
    return found


def table_name(topic: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


def _view(
    job: Job, topic: str, decoding: Decoding | None, binary: bool, starts: Offsets, ends: Offsets | None
) -> DataFrame:
    """The table of a topic. It is a stream if there is no end."""
    from dataclasses import replace

    from pyspark.sql import functions as F

    one = replace(job, topics={topic: job.topics[topic]})
    mine = {tp: at for tp, at in starts.items() if tp[0] == topic}
    if ends is None:
        frame = one.read_stream(mine)
    else:
        frame = one.read_batch(mine, {tp: at for tp, at in ends.items() if tp[0] == topic})
    kind = "binary" if binary else "string"
    key, value = F.col("key").cast(kind).alias("key"), F.col("value").cast(kind).alias("value")
    if decoding is None:
        return frame.select(key, value, *_META)
    schema = decoding.spark_type()
    parsed = frame.withColumn("_data", F.from_json(F.col("value").cast("string"), schema))
    taken = {"key", "value", *(name.lower() for name in _META)}
    fields = [
        F.col(f"_data.`{name}`").alias(f"value_{name}" if name.lower() in taken else name) for name in schema.names
    ]
    return parsed.select(*fields, key, value, *_META)


def as_records(frame: DataFrame, topic: str) -> DataFrame:
    """Rows for a topic: `value` (with `key`, `headers`, `partition`) unchanged, other columns as one JSON object."""
    from pyspark.sql import functions as F

    kinds = dict(frame.dtypes)
    if "value" in kinds and set(kinds) <= {"key", "value", "headers", "partition"}:
        columns = [F.col(name).cast("binary") if name in ("key", "value") else F.col(name) for name in kinds]
        return frame.select(F.lit(topic).alias("topic"), *[c.alias(n) for c, n in zip(columns, kinds, strict=True)])
    body = F.to_json(F.struct(*[name for name in kinds if name != "key"]))
    key = [F.col("key").cast("string").cast("binary").alias("key")] if "key" in kinds else []
    return frame.select(F.lit(topic).alias("topic"), *key, body.cast("binary").alias("value"))


def _run_stream(
    job: Job,
    frame: DataFrame,
    starts: Offsets,
    out: str | None,
    to_topic: str | None,
    records: Callable[[DataFrame, str], DataFrame],
) -> bool:
    """To Parquet exactly once (Spark's own file sink), to a topic at least once. Returns whether it was interrupted."""
    assert job.checkpoint is not None
    store = open_store(job.checkpoint, job.spark)
    check_note(job, store, out or to_topic or "")
    if to_topic is not None:
        job.cluster.ensure_topic(to_topic, 1)
        sink = records(frame, to_topic).writeStream.format(job.format()).options(**job.sink_options())
    else:
        sink = frame.writeStream.format("parquet").option("path", open_store(out or "", job.spark).url())
    watch = _Watch(job, store, {**starts, **last_offsets(store)})
    watch.look()
    try:
        watch.watch(triggered(job, sink.option("checkpointLocation", store.url())).start())
    except KeyboardInterrupt:
        watch.summary.interrupted = True
    return watch.finish().interrupted


class _Watch(Watch):
    """Spark's sinks do not call us before a batch, so losses before its planning are reported when they are noticed."""

    def look(self) -> None:
        super().look()
        planned = {**self.starts, **planned_offsets(self.store)}
        lows = {tp: low for tp, (low, _) in self._bounds.items()}
        gone = [Loss(*tp, at, lows[tp]) for tp, at in planned.items() if lows.get(tp, at) > at]
        known = {(one.topic, one.partition, one.end) for one in self.summary.lost}
        fresh = [one for one in gone if (one.topic, one.partition, one.end) not in known]
        tell_losses(self.job, fresh)
        self.summary.lost += fresh


def _told(error: Exception) -> PipelineError:
    """Spark's own error text for a query, without its plan and stack."""
    text = str(error)
    if text.startswith("["):
        return PipelineError(text.splitlines()[0].partition(" SQLSTATE")[0])
    return explain(error)
