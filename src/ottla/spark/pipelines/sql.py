"""`sql`: a query over topics as tables, once over what is there, or as a stream that goes on from its checkpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.cluster import TopicInfo
from ottla.spark.pipelines.decoders import Decoding, load_decoding
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.jobs import Job, Options, cluster_of, open_job
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import check_note, commit_progress, last_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PRINTED: Final = 1000
_META: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(slots=True)
class Answer:
    """The rows of a query that was to be printed, or where they went."""

    topics: list[str]
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    written_to: str | None = None
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
    **options: Unpack[Options],
) -> Answer:
    """Run a query in which topics are tables, and give its rows, or write them to Parquet (`out`) or a topic.

    A topic's table has its name, with `_` for what SQL does not take in a name; `tables` gives other names (name ->
    topic). Columns: key and value as text (as bytes with `binary`), topic, partition, offset, timestamp, headers; with
    a schema for its values (`schemas`, table -> DDL or a file) also the fields of the JSON in them. With `stream` the
    query runs as a stream, which needs a `checkpoint` and a place to write to, and goes on from there the next time.
    """
    began = time.monotonic()
    if out is not None and to_topic is not None:
        raise PipelineError("the rows go either to Parquet or to a topic")
    named = _tables(cluster_of(options).topics(), query, dict(tables or {}))
    decodings = {name: load_decoding("json", text) for name, text in (schemas or {}).items()}
    unknown = sorted(set(decodings) - set(named))
    if unknown:
        raise PipelineError(f"there is a schema for '{unknown[0]}', which is no table of the query")
    if stream and (not options.get("checkpoint") or (out is None and to_topic is None)):
        raise PipelineError("a streaming query needs --checkpoint, and --out or --to-topic")
    job = open_job("sql", sorted(set(named.values())), options)
    answer = Answer(sorted(set(named.values())))
    try:
        views = {name: _view(job, topic, decodings.get(name), binary, stream) for name, topic in named.items()}
        for name, frame in views.items():
            frame.createOrReplaceTempView(f"`{name}`")
        frame = job.spark.sql(query)
        if stream:
            answer.interrupted = _run_stream(job, frame, out, to_topic)
        elif to_topic is not None:
            job.cluster.ensure_topic(to_topic, 1)
            job.write_topic(as_records(frame, to_topic))
        elif out is not None:
            frame.write.mode("errorifexists").parquet(open_store(out, job.spark).url())
        else:
            rows = frame.limit(limit + 1).collect()
            answer.columns = frame.columns
            answer.rows = [row.asDict(recursive=True) for row in rows[:limit]]
            answer.truncated = len(rows) > limit
    except PipelineError:
        raise
    except Exception as error:
        raise _told(error) from None
    answer.written_to = out or to_topic
    answer.seconds = time.monotonic() - began
    return answer


def _tables(known: Mapping[str, TopicInfo], query: str, tables: dict[str, str]) -> dict[str, str]:
    """The tables that the query may mean: topics whose name, or the name made from it, is in the text."""
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


def _view(job: Job, topic: str, decoding: Decoding | None, binary: bool, stream: bool) -> DataFrame:
    from dataclasses import replace

    from pyspark.sql import functions as F

    one = replace(job, topics={topic: job.topics[topic]})
    frame = one.read_stream(one.range()[0]) if stream else one.read_batch(*one.range())
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
    """Rows for a topic: `value` (with `key`, `headers`, `partition`) as it is, other columns as one JSON object."""
    from pyspark.sql import functions as F

    kinds = dict(frame.dtypes)
    if "value" in kinds and set(kinds) <= {"key", "value", "headers", "partition"}:
        columns = [F.col(name).cast("binary") if name in ("key", "value") else F.col(name) for name in kinds]
        return frame.select(F.lit(topic).alias("topic"), *[c.alias(n) for c, n in zip(columns, kinds, strict=True)])
    body = F.to_json(F.struct(*[name for name in kinds if name != "key"]))
    key = [F.col("key").cast("string").cast("binary").alias("key")] if "key" in kinds else []
    return frame.select(F.lit(topic).alias("topic"), *key, body.cast("binary").alias("value"))


def _run_stream(job: Job, frame: DataFrame, out: str | None, to_topic: str | None) -> bool:
    """To Parquet exactly once (Spark's own file sink), to a topic at least once; whether it was interrupted."""
    assert job.checkpoint is not None
    store = open_store(job.checkpoint, job.spark)
    check_note(job, store, out or to_topic or "")
    if to_topic is not None:
        job.cluster.ensure_topic(to_topic, 1)
        sink = as_records(frame, to_topic).writeStream.format(job.format()).options(**job.sink_options())
    else:
        sink = frame.writeStream.format("parquet").option("path", open_store(out or "", job.spark).url())
    sink = sink.option("checkpointLocation", store.url())
    if job.follow:
        sink = sink.trigger(processingTime=f"{job.options.get('interval_s') or 5} seconds")
    else:
        sink = sink.trigger(availableNow=True)
    stop = job.options.get("stop")
    running = sink.start()
    try:
        while not running.awaitTermination(0.5):
            commit_progress(job, last_offsets(store))
            if stop is not None and stop.is_set():
                return True
    except KeyboardInterrupt:
        return True
    finally:
        running.stop()
    commit_progress(job, last_offsets(store))
    return False


def _told(error: Exception) -> PipelineError:
    """Spark's own words about a query are good; its plan and stack are not needed."""
    text = str(error)
    if text.startswith("["):
        return PipelineError(text.splitlines()[0].partition(" SQLSTATE")[0])
    return explain(error)
