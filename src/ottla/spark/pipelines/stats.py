"""`stats`: counts, rates, sizes, keys and lateness of topics by windows of event time, with watermarks.

Windows are kept between micro-batches as mergeable sums and sketches, in a table whose commits carry them, so a batch
that is repeated after a crash is counted once. A record is late if its timestamp is more than a threshold behind the
greatest earlier one in its partition. The watermark of a topic is the greatest timestamp minus the delay. Windows that
end before it are final, and records that arrive for them later are counted as dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.archive import fresh_rows
from ottla.spark.pipelines.batches import run_batches
from ottla.spark.pipelines.commits import FOLDER, DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.jobs import Job, TableOptions, open_job, target_of
from ottla.spark.pipelines.parquet import Written, read_parquet, write_parquet
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Batch, Summary
from ottla.spark.pipelines.tables import CHECKPOINT, Table
from ottla.spark.pipelines.topics import Offsets, flat, nested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND: Final = "stats"
OPEN: Final = f"{FOLDER}/open"
LATE_AFTER_MS: Final = 1000
"""Timestamps of several producers often step back a little. That does not count as late."""
_SKETCH_BITS: Final = 12
"""4096 registers: key counts within about 1.6 %."""
_SUMS: Final = ("records", "key_bytes", "value_bytes", "header_count", "null_keys", "tombstones", "late", "lateness_ms")
_OPEN_SCHEMA: Final = (
    "topic string, window_ms bigint, " + ", ".join(f"{name} bigint" for name in _SUMS) + ", max_lateness_ms bigint, "
    "first_timestamp_ms bigint, last_timestamp_ms bigint, max_bytes bigint, keys binary"
)
WINDOW_SCHEMA: Final = (
    "topic string, window_start timestamp, window_end timestamp, records bigint, records_per_second double, "
    "bytes bigint, bytes_per_second double, average_bytes double, max_bytes bigint, distinct_keys bigint, "
    "null_keys bigint, tombstones bigint, late bigint, average_lateness_ms double, max_lateness_ms bigint, "
    "final boolean"
)
"""The columns of the table."""


def stats(
    topics: str | Sequence[str],
    out: str,
    *,
    window_ms: int = 60_000,
    delay_ms: int = 600_000,
    late_after_ms: int | None = None,
    to_topic: str | None = None,
    report: str | None = None,
    **options: Unpack[TableOptions],
) -> Summary:
    """Keep a table of windows in `out`. With `to_topic`, also send each changed window to that topic, as JSON.

    A record counts as late if its timestamp is more than `late_after_ms` (by default one second) before the greatest
    earlier timestamp. `report` is a file for a drawing of the windows: .html or .png. `read_stats` returns the table,
    including the windows that are still open.
    """
    if window_ms < 1 or delay_ms < 0 or (late_after_ms or 0) < 0:
        raise PipelineError("a window lasts at least a millisecond, and delay and late_after are not negative")
    from ottla.spark.pipelines.report import check_report

    check_report(report)
    target = target_of(options)
    job = open_job(KIND, topics, options, checkpoint=f"{out.rstrip('/')}/{CHECKPOINT}")
    if to_topic is not None:
        if to_topic in job.topics:
            raise PipelineError(f"the topic '{to_topic}' cannot be counted and written to at the same time")
        job.cluster.ensure_topic(to_topic, 1, {"cleanup.policy": "compact"})
    store = open_store(out, job.spark)
    choices: dict[str, Any] = {"window_ms": window_ms, "delay_ms": delay_ms, "late_after_ms": late_after_ms}
    if late_after_ms is None:
        choices["late_after_ms"] = LATE_AFTER_MS
    with Table.create_or_open(store, KIND, target, columns(WINDOW_SCHEMA), **choices) as table:
        late_after = _late_after(table)
        if late_after_ms is None:
            choices["late_after_ms"] = late_after
        for name, value in choices.items():
            there = late_after if name == "late_after_ms" else table.description[name]
            if there != value:
                raise PipelineError(f"{store.root} was created with {name} {there}; choose another folder")
        counter = _Counter(job, table, window_ms, delay_ms, late_after, to_topic)
        summary = run_batches(job, counter.write, table, job.range()[0])
        extra = table.state.extra
        dropped = extra.get("dropped", {})
        summary.details = {"out": store.root, "dropped": dropped, "to_topic": to_topic}
        summary.details |= {"format": table.format, "written": counter.windows, "files": len(table.state.files)}
        if report is not None:
            from ottla.spark.pipelines.report import write_report

            windows = [row.asDict() for row in _windows(job.spark, table).collect()]
            write_report(report, windows, dropped, window_ms=window_ms, late_after_ms=late_after)
            summary.details["report"] = report
    return summary


def _late_after(table: Table) -> int:
    """Tables from before the threshold existed count any record that steps back."""
    return int(table.description.get("late_after_ms", 0))


def read_stats(out: str, *, spark: SparkSession) -> DataFrame:
    """All windows, final or not."""
    return _windows(spark, Table.open(open_store(out, spark), KIND))


def _windows(spark: SparkSession, table: Table) -> DataFrame:
    final = [table.url(file) for file in table.state.files.values()]
    frame = read_parquet(spark, table.store, final, columns(WINDOW_SCHEMA))
    still_open = finished(_open_windows(spark, table), int(table.description["window_ms"]), {})
    return frame.unionByName(still_open).orderBy("topic", "window_start")


def _open_windows(spark: SparkSession, table: Table) -> DataFrame:
    folder = table.state.extra.get("open")
    if not folder:
        return spark.createDataFrame([], _OPEN_SCHEMA)
    urls = [table.store.url(path) for path, _ in table.store.walk(folder) if path.endswith(".parquet")]
    return read_parquet(spark, table.store, urls, columns(_OPEN_SCHEMA))


class _Counter:
    def __init__(
        self, job: Job, table: Table, window_ms: int, delay_ms: int, late_after_ms: int, to_topic: str | None
    ) -> None:
        self.job = job
        self.table = table
        self.window_ms = window_ms
        self.delay_ms = delay_ms
        self.late_after_ms = late_after_ms
        self.to_topic = to_topic
        self.windows = 0
        """Windows that became final."""

    def write(self, batch: Batch) -> int:
        """Merge a batch into the open windows. Windows that become final move to the table."""
        table = self.table
        found = fresh_rows(table, batch)
        if found is None:
            return 0
        rows, marks = found
        extra = table.state.extra
        greatest = flat(extra.get("greatest", {}))
        watermarks: dict[str, int] = extra.get("watermarks", {})
        dropped: dict[str, int] = dict(extra.get("dropped", {}))
        parts = _partial(rows, greatest, watermarks, self.window_ms, self.late_after_ms).persist()
        try:
            records = 0
            for row in parts.groupBy("topic", "partition").agg(*_outcome()).collect():
                tp = (row.topic, row.partition)
                records += row.records
                dropped[row.topic] = dropped.get(row.topic, 0) + row.dropped
                greatest[tp] = max(greatest.get(tp, row.greatest), row.greatest)
            marked = dict(watermarks)
            for (topic, _), moment in greatest.items():
                marked[topic] = max(marked.get(topic, moment - self.delay_ms), moment - self.delay_ms)
            previous = _open_windows(parts.sparkSession, table)
            merged = _merged(previous.unionByName(parts.where("not too_late").select(*previous.columns))).persist()
            try:
                self._commit(merged, marked, {"greatest": nested(greatest), "dropped": dropped}, marks)
            finally:
                merged.unpersist()
        finally:
            parts.unpersist()
        return records

    def _commit(self, merged: DataFrame, watermarks: dict[str, int], extra: dict[str, Any], marks: Offsets) -> None:
        from pyspark.sql import functions as F

        table, store = self.table, self.table.store
        final = F.col("window_ms") + self.window_ms <= _by_topic(watermarks, F.col("topic"))
        # A unique name: without locks, another writer may be working on the same commit.
        staging, still_open = table.staging(), f"{OPEN}/{table.state.number + 1:020d}-{uuid.uuid4().hex[:12]}"
        done = finished(merged.where(final), self.window_ms, watermarks)
        written = write_parquet(done.coalesce(1), store, staging)
        write_parquet(merged.where(~F.coalesce(final, F.lit(False))).coalesce(1), store, still_open)
        if self.to_topic is not None:
            self.job.write_topic(_messages(finished(merged, self.window_ms, watermarks), self.to_topic))
        files = _table_files(written, table.state.number + 1)
        self.windows += sum(one.records for one in written)
        table.commit(files, marks=marks, extra={**extra, "watermarks": watermarks, "open": still_open})
        for name in store.names(OPEN):
            if f"{OPEN}/{name}" != still_open:
                store.delete(f"{OPEN}/{name}")


def _table_files(written: Sequence[Written], number: int) -> dict[str, DataFile]:
    """Windows have no partition and no offsets."""
    return {
        one.path: DataFile(f"windows-{number:020d}-{index}.parquet", "", -1, -1, -1, one.records, one.bytes)
        for index, one in enumerate(written)
    }


def _by_topic(values: Mapping[str, int], topic: Any) -> Any:
    from pyspark.sql import functions as F

    found = F.lit(None).cast("bigint")
    for name, value in values.items():
        found = F.when(topic == name, F.lit(value).cast("bigint")).otherwise(found)
    return found


def _partial(
    rows: DataFrame, greatest: Offsets, watermarks: Mapping[str, int], window_ms: int, late_after_ms: int
) -> DataFrame:
    """Sums and sketches of a batch by topic, partition and window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    before = Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    seen = F.lit(None).cast("bigint")
    for (topic, partition), moment in greatest.items():
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        seen = F.when(here, F.lit(moment).cast("bigint")).otherwise(seen)
    ms = F.col("ms")
    behind = F.greatest(F.max("ms").over(before), F.col("seen")) - ms
    shaped = rows.select(
        "topic",
        "partition",
        "offset",
        "key",
        F.unix_millis("timestamp").alias("ms"),
        seen.alias("seen"),
        F.coalesce(F.length("key"), F.lit(0)).cast("bigint").alias("key_length"),
        F.coalesce(F.length("value"), F.lit(0)).cast("bigint").alias("value_length"),
        F.col("value").isNull().cast("bigint").alias("tombstone"),
        F.coalesce(F.size("headers"), F.lit(0)).cast("bigint").alias("headers_here"),
    )
    timed = shaped.withColumn("behind", F.greatest(F.coalesce(behind, F.lit(0)), F.lit(0))).withColumn(
        "window_ms", ms - F.pmod(ms, F.lit(window_ms))
    )
    too_late = F.coalesce(F.col("window_ms") + window_ms <= _by_topic(watermarks, F.col("topic")), F.lit(False))
    return (
        timed.withColumn("too_late", too_late)
        .groupBy("topic", "partition", "window_ms", "too_late")
        .agg(
            F.count("*").alias("records"),
            F.sum("key_length").alias("key_bytes"),
            F.sum("value_length").alias("value_bytes"),
            F.sum("headers_here").alias("header_count"),
            F.sum(F.col("key").isNull().cast("bigint")).alias("null_keys"),
            F.sum("tombstone").alias("tombstones"),
            F.sum((F.col("behind") > late_after_ms).cast("bigint")).alias("late"),
            F.sum("behind").alias("lateness_ms"),
            F.max("behind").alias("max_lateness_ms"),
            F.min("ms").alias("first_timestamp_ms"),
            F.max("ms").alias("last_timestamp_ms"),
            F.max(F.col("key_length") + F.col("value_length")).alias("max_bytes"),
            F.hll_sketch_agg("key", F.lit(_SKETCH_BITS)).alias("keys"),
        )
    )


def _outcome() -> list[Any]:
    from pyspark.sql import functions as F

    return [
        F.sum("records").alias("records"),
        F.sum(F.when(F.col("too_late"), F.col("records")).otherwise(0)).alias("dropped"),
        F.max("last_timestamp_ms").alias("greatest"),
    ]


def _merged(windows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return windows.groupBy("topic", "window_ms").agg(
        *[F.sum(name).alias(name) for name in _SUMS],
        F.max("max_lateness_ms").alias("max_lateness_ms"),
        F.min("first_timestamp_ms").alias("first_timestamp_ms"),
        F.max("last_timestamp_ms").alias("last_timestamp_ms"),
        F.max("max_bytes").alias("max_bytes"),
        F.hll_union_agg("keys").alias("keys"),
    )


def finished(windows: DataFrame, window_ms: int, watermarks: Mapping[str, int]) -> DataFrame:
    """The windows in their published form."""
    from pyspark.sql import functions as F

    seconds = window_ms / 1000
    size = F.col("key_bytes") + F.col("value_bytes")
    end = F.col("window_ms") + window_ms
    return windows.select(
        "topic",
        F.timestamp_millis("window_ms").alias("window_start"),
        F.timestamp_millis(end).alias("window_end"),
        "records",
        (F.col("records") / seconds).alias("records_per_second"),
        size.alias("bytes"),
        (size / seconds).alias("bytes_per_second"),
        (size / F.col("records")).alias("average_bytes"),
        "max_bytes",
        F.hll_sketch_estimate("keys").alias("distinct_keys"),
        "null_keys",
        "tombstones",
        "late",
        (F.col("lateness_ms") / F.col("records")).alias("average_lateness_ms"),
        "max_lateness_ms",
        F.coalesce(end <= _by_topic(watermarks, F.col("topic")), F.lit(False)).alias("final"),
    )


def _messages(windows: DataFrame, topic: str) -> DataFrame:
    """Keyed by topic and window, so that a compacted topic keeps the newest state of each."""
    from pyspark.sql import functions as F

    start = F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss.SSSX")
    return windows.select(
        F.lit(topic).alias("topic"),
        F.concat_ws(" ", "topic", start).cast("binary").alias("key"),
        F.to_json(F.struct(*windows.columns)).cast("binary").alias("value"),
    )
