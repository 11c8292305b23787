"""Archives a topic to Parquet in one Spark, in several ways by turns, and prints the records/s of each as JSON.

A process of its own: `python -m ottla.bench.spark_job '{"bootstrap": …, "topic": …, "folder": …, "ways": […]}'`.
The first round warms the JVM and is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH = ("official", "files", "wire")
STREAM = ("official-stream", "files-stream", "wire-stream")


def options_for(way: str, job: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Format and options of a way; the files are read up to what the broker says."""
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"], "startingOffsets": "earliest"}
    if way.startswith("files"):
        options["path"] = job["folder"]
    return "kafka" if way.startswith("official") else "ottla", options


def archive(spark: Any, way: str, job: dict[str, Any], work: Path) -> float:
    """Seconds for all records of the topic, from nothing to files."""
    form, options = options_for(way, job)
    target, checkpoint = work / "out", work / "checkpoint"
    for folder in (target, checkpoint):
        shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    if way.endswith("stream"):
        query = (
            spark.readStream.format(form)
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(target))
        )
        query.awaitTermination()
    else:
        spark.read.format(form).options(**options).load().write.parquet(str(target))
    return time.perf_counter() - started


def run(job: dict[str, Any]) -> dict[str, list[float]]:
    import ottla.spark

    rates: dict[str, list[float]] = {way: [] for way in job["ways"]}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-spark-") as name:
        work = Path(name)
        os.chdir(work)
        spark = ottla.spark.session(
            master="local[2]", app_name="ottla-bench", config={"spark.log.level": "ERROR", "spark.driver.memory": "2g"}
        )
        try:
            for turn in range(job["repeats"] + 1):
                for way in job["ways"]:
                    seconds = archive(spark, way, job, work)
                    print(f"{way}: {seconds:.2f} s", file=sys.stderr, flush=True)
                    if turn:
                        rates[way].append(job["records"] / seconds)
            found = spark.read.parquet(str(work / "out")).count()
            if found != job["records"]:
                raise RuntimeError(f"{found} records were archived instead of {job['records']}")
        finally:
            spark.stop()
            os.chdir("/")
    return rates


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
