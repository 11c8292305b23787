"""Runs pipelines in one Spark session and prints seconds, CPU seconds and peak memory in MB of each, as JSON.

It runs in a separate process: `python -m ottla.bench.pipelines_job '{"what": "tables", "bootstrap": …, …}'`. The CPU
time includes this process, Spark's JVM and its Python processes, but not the broker.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from ottla.bench.proc import cpu_seconds, resident_mb

FORMATS = ("parquet", "delta", "iceberg")
MERGES: dict[str, dict[str, Any]] = {
    "delta": {"format": "delta"},
    "iceberg": {"format": "iceberg"},
    "iceberg-on-read": {"format": "iceberg", "merge": "merge-on-read"},
}
WARM_ROUNDS = 2
_SAMPLE_S = 0.2


def measured(work: Callable[[], Any]) -> list[float]:
    """Seconds, CPU seconds and peak memory of a function."""
    peak, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_S):
            with suppress(OSError):  # the process has just ended
                peak = max(peak, resident_mb(os.getpid()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu, began = cpu_seconds(os.getpid()), perf_counter()
    try:
        work()
        return [perf_counter() - began, cpu_seconds(os.getpid()) - cpu, peak]
    finally:
        done.set()
        watcher.join()


def archive(spark: Any, job: dict[str, Any], out: Path, **more: Any) -> None:
    """Archive all records of the topic from the broker's files."""
    import ottla.spark

    shutil.rmtree(out, ignore_errors=True)
    options = {"bootstrap": job["bootstrap"], "spark": spark, "source": "ottla", "group": None}
    found = ottla.spark.archive(job["topic"], str(out), source_options={"path": job["folder"]}, **options, **more)
    if found.records != job["records"]:
        raise RuntimeError(f"{found.records} records were archived instead of {job['records']}")


def official(spark: Any, job: dict[str, Any], out: Path) -> None:
    """Spark's own connector, to plain Parquet."""
    shutil.rmtree(out, ignore_errors=True)
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"], "startingOffsets": "earliest"}
    spark.read.format("kafka").options(**options).load().write.parquet(str(out))


def tables(spark: Any, job: dict[str, Any], work: Path) -> dict[str, list[list[float]]]:
    """The official connector to Parquet and the pipeline to each format, in turns."""
    ways: dict[str, Callable[[], None]] = {"official": lambda: official(spark, job, work / "out")}
    for name in FORMATS:
        ways[name] = lambda name=name: archive(spark, job, work / name, format=name)  # type: ignore[misc]
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    for turn in range(WARM_ROUNDS + job["repeats"]):
        for way in ways if turn % 2 else reversed(ways):
            took = measured(ways[way])
            print(f"{way}: {took[0]:.2f} s, {took[1]:.2f} CPU s", file=sys.stderr, flush=True)
            if turn >= WARM_ROUNDS:
                found[way].append(took)
    return found


def batches(spark: Any, job: dict[str, Any], work: Path) -> dict[str, list[list[float]]]:
    """Twenty micro-batches in a session that has just started."""
    return {"parquet": [measured(lambda: archive(spark, job, work / "out", max_records=job["records"] // 20))]}


def large(spark: Any, job: dict[str, Any], work: Path) -> dict[str, list[list[float]]]:
    """One run over everything."""
    return {"delta": [measured(lambda: archive(spark, job, work / "out", format="delta"))]}


def upserts(spark: Any, job: dict[str, Any], work: Path) -> dict[str, list[list[float]]]:
    """Each round changes 1 % of the keys: once merged into tables, once by rewriting the whole table with Spark."""
    import asyncio

    import ottla.spark
    from ottla.bench.lines.pipelines import change_keys

    options: dict[str, Any] = {"bootstrap": job["bootstrap"], "spark": spark, "group": None}
    found: dict[str, list[list[float]]] = {way: [] for way in (*MERGES, "rewrite")}

    def merge(way: str) -> None:
        ottla.spark.snapshot(job["topic"], str(work / way), **options, **MERGES[way])

    rewriter = _Rewriter(spark, job, work)
    for turn in range(1 + WARM_ROUNDS + job["repeats"]):
        if turn:
            asyncio.run(change_keys(job["bootstrap"], job["topic"], job["records"], job["records"] // 100, turn))
        for way in found:
            took = measured(rewriter.run if way == "rewrite" else lambda way=way: merge(way))  # type: ignore[misc]
            print(f"{way}: {took[0]:.2f} s, {took[1]:.2f} CPU s", file=sys.stderr, flush=True)
            if turn > WARM_ROUNDS:
                found[way].append(took)
    return found


class _Rewriter:
    """Keeps the latest value of each key by grouping the table with the new records and writing everything."""

    def __init__(self, spark: Any, job: dict[str, Any], work: Path) -> None:
        self._spark = spark
        self._job = job
        self._work = work
        self._number = 0
        self._end = "earliest"

    def run(self) -> None:
        from pyspark.sql import functions as F

        options = {"kafka.bootstrap.servers": self._job["bootstrap"], "subscribe": self._job["topic"]}
        options |= {"startingOffsets": self._end, "includeHeaders": "true"}
        rows = self._spark.read.format("ottla").options(**options).load().persist()
        names = ["topic", "key", "value", "headers", "partition", "offset", "timestamp"]
        ends = rows.groupBy("partition").agg(F.max("offset").alias("last")).collect()
        merged = rows.select(*names)
        if self._number:
            merged = self._spark.read.parquet(str(self._work / f"rewrite-{self._number}")).unionByName(merged)
        # The highest offset wins within a partition, the latest timestamp between partitions.
        within = merged.groupBy("topic", "partition", "key").agg(F.max_by(F.struct(*names), "offset").alias("row"))
        latest = within.groupBy("topic", "key").agg(
            F.max_by("row", F.struct("row.timestamp", "row.offset")).alias("row")
        )
        self._number += 1
        latest.select("row.*").write.parquet(str(self._work / f"rewrite-{self._number}"))
        rows.unpersist()
        known = {} if self._end == "earliest" else json.loads(self._end)[self._job["topic"]]
        self._end = json.dumps({self._job["topic"]: {**known, **{str(row.partition): row.last + 1 for row in ends}}})


def run(job: dict[str, Any]) -> dict[str, list[list[float]]]:
    import ottla.spark

    with tempfile.TemporaryDirectory(prefix="ottla-bench-pipelines-") as name:
        os.chdir(name)
        spark = ottla.spark.session(
            master="local[2]", app_name="ottla-bench", config={"spark.log.level": "ERROR", "spark.driver.memory": "2g"}
        )
        try:
            work = {"tables": tables, "batches": batches, "large": large, "upserts": upserts}[job["what"]]
            return work(spark, job, Path(name))
        finally:
            spark.stop()
            os.chdir("/")


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
