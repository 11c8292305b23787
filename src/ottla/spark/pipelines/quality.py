"""`quality`: finds anomalies in a topic: duplicates, gaps, timestamps out of order, records without a key.

Duplicates are records of one topic with the same key, value and timestamp. They result from a producer that retries
without idempotence. Gaps are offsets without a record; transactions and compaction cause them too. With a checkpoint, a
later run checks only new records, and knows the last record of the previous run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

from ottla.spark.pipelines.errors import PipelineError, explain, patient
from ottla.spark.pipelines.jobs import Options, open_job
from ottla.spark.pipelines.object_stores import is_bucket
from ottla.spark.pipelines.stores import Store, open_store, read_json
from ottla.spark.pipelines.streams import check_note, commit_progress, losses, tell_losses
from ottla.spark.pipelines.topics import Offsets, TopicPartition, flat, nested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS: Final = ("duplicates", "gaps", "out_of_order", "null_keys")
_STATE: Final = "quality.json"
_EXAMPLES: Final = 5


@dataclass(slots=True)
class Findings:
    """The findings in one partition. Each kind counts records; gaps count offsets."""

    topic: str
    partition: int
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    duplicates: int = 0
    gaps: int = 0
    out_of_order: int = 0
    max_step_back_ms: int = 0
    null_keys: int = 0


@dataclass(slots=True)
class Quality:
    """The findings, with some examples of each kind."""

    partitions: list[Findings] = field(default_factory=list)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    seconds: float = 0.0
    written_to: str | None = None

    def total(self, kind: str) -> int:
        return sum(int(getattr(one, kind)) for one in self.partitions)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def findings(self) -> int:
        return sum(self.total(kind) for kind in KINDS)

    def told(self) -> str:
        """The findings in words."""
        found = [f"{self.total(kind)} {kind.replace('_', ' ')}" for kind in KINDS if self.total(kind)]
        return ", ".join(found) or "nothing odd"

    @property
    def clean(self) -> bool:
        return not self.findings


@patient
def quality(topics: str | Sequence[str], *, out: str | None = None, **options: Unpack[Options]) -> Quality:
    """Check topics. With `out`, all findings are written there as Parquet, one row each."""
    began = time.monotonic()
    if options.get("follow"):
        raise PipelineError(
            "quality checks the existing records and stops; to check new ones later, run it again with --checkpoint"
        )
    if out is not None and is_bucket(out):
        raise PipelineError(f"Spark writes the findings of quality, and cannot write to {out}; choose a folder")
    job = open_job("quality", topics, options)
    store = open_store(job.checkpoint, job.spark) if job.checkpoint else None
    if store is not None:
        check_note(job, store)
    state = _load(store)
    starts, ends = job.range()
    done, last_ms = flat(state.get("ends", {})), flat(state.get("last_ms", {}))
    starts = {tp: min(max(start, done.get(tp, start)), ends[tp]) for tp, start in starts.items()}
    result = Quality()
    gone = {tp: at for tp, at in done.items() if tp in starts and at < starts[tp]}
    tell_losses(job, losses(gone, ends, starts))
    try:
        rows = marked(job.read_batch(starts, ends), starts, done, last_ms).persist()
        try:
            result.partitions = _summed(rows, starts)
            odd = findings(rows)
            for kind in KINDS:
                if result.total(kind):
                    found = odd.where(f"kind = '{kind}'").orderBy("topic", "partition", "offset").limit(_EXAMPLES)
                    result.examples[kind] = [row.asDict() for row in found.collect()]
            if out is not None and not result.clean:
                odd.write.mode("append").parquet(open_store(out, job.spark).url())
                result.written_to = out
            newest = {(one["topic"], one["partition"]): one["last_ms"] for one in _last(rows)}
        finally:
            rows.unpersist()
    except Exception as error:
        raise explain(error) from None
    if store is not None:
        kept = {"ends": nested({**done, **ends}), "last_ms": nested({**last_ms, **newest})}
        store.replace(_STATE, json.dumps(kept).encode())
    tell_losses(job, losses(starts, ends, {tp: low for tp, (low, _) in job.bounds().items()}))
    commit_progress(job, ends)
    result.seconds = time.monotonic() - began
    return result


def _load(store: Store | None) -> dict[str, Any]:
    if store is None or not store.exists(_STATE):
        return {}
    found: dict[str, Any] = read_json(store, _STATE)
    return found


def marked(rows: DataFrame, starts: Offsets, done: Offsets, last_ms: Offsets) -> DataFrame:
    """Each record with its anomalies."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def known(values: dict[TopicPartition, int]) -> Any:
        found = F.lit(None).cast("bigint")
        for (topic, partition), value in values.items():
            here = (F.col("topic") == topic) & (F.col("partition") == partition)
            found = F.when(here, F.lit(value).cast("bigint")).otherwise(found)
        return found

    in_order = Window.partitionBy("topic", "partition").orderBy("offset")
    # A first run may begin anywhere in the log. Only a run that continues knows which offset to expect.
    expected = F.coalesce(
        F.lag("offset").over(in_order) + 1, known({tp: at for tp, at in done.items() if tp in starts})
    )
    content = F.xxhash64(F.col("key").isNull(), "key", F.col("value").isNull(), "value", "ms")
    shaped = rows.select("topic", "partition", "offset", "key", "value", F.unix_millis("timestamp").alias("ms"))
    hashed = shaped.select(
        "topic", "partition", "offset", "ms", F.col("key").isNull().alias("null_key"), content.alias("content")
    )
    same = Window.partitionBy("topic", "content").orderBy("partition", "offset")
    before = F.coalesce(F.lag("ms").over(in_order), known(last_ms))
    return hashed.select(
        "topic",
        "partition",
        "offset",
        "ms",
        "null_key",
        (F.row_number().over(same) > 1).alias("duplicate"),
        F.coalesce(F.greatest(F.col("offset") - expected, F.lit(0)), F.lit(0)).alias("gap"),
        F.coalesce(F.greatest(before - F.col("ms"), F.lit(0)), F.lit(0)).alias("step_back"),
    )


def _summed(rows: DataFrame, starts: Offsets) -> list[Findings]:
    from pyspark.sql import functions as F

    found = rows.groupBy("topic", "partition").agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.sum(F.col("duplicate").cast("bigint")).alias("duplicates"),
        F.sum("gap").alias("gaps"),
        F.sum((F.col("step_back") > 0).cast("bigint")).alias("out_of_order"),
        F.max("step_back").alias("max_step_back_ms"),
        F.sum(F.col("null_key").cast("bigint")).alias("null_keys"),
    )
    by_partition = {(row.topic, row.partition): Findings(**row.asDict()) for row in found.collect()}
    return [by_partition.get(tp) or Findings(*tp) for tp in sorted(starts)]


def findings(rows: DataFrame) -> DataFrame:
    """One row per finding: kind, position and amount."""
    from pyspark.sql import functions as F

    none = F.lit(None).cast("struct<kind: string, amount: bigint>")

    def one(kind: str, when: Any, amount: Any) -> Any:
        return F.when(when, F.struct(F.lit(kind).alias("kind"), amount.cast("bigint").alias("amount"))).otherwise(none)

    kinds = F.array(
        one("duplicates", F.col("duplicate"), F.lit(1)),
        one("gaps", F.col("gap") > 0, F.col("gap")),
        one("out_of_order", F.col("step_back") > 0, F.col("step_back")),
        one("null_keys", F.col("null_key"), F.lit(1)),
    )
    each = rows.select(
        "topic", "partition", "offset", "ms", F.explode(F.filter(kinds, lambda kind: kind.isNotNull())).alias("it")
    )
    return each.select("it.kind", "topic", "partition", "offset", F.col("ms").alias("timestamp_ms"), "it.amount")


def _last(rows: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    found = rows.groupBy("topic", "partition").agg(F.max_by("ms", "offset").alias("last_ms"))
    return [row.asDict() for row in found.collect()]
