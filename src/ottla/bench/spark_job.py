"""Archives a topic to Parquet in one Spark session, in several ways that take turns. Prints the seconds per turn as
JSON.

Run in a separate process: `python -m ottla.bench.spark_job '{"bootstrap": …, "topic": …, "folder": …, "ways": […]}'`.
All ways share a session and its settings. The first rounds warm up the JVM and are not counted. Every second round
goes through the ways in reverse order, so that none of them always comes first.
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
"""With trigger AvailableNow."""
TRIGGER = ("official-trigger", "files-trigger")
"""A continuous stream, measured until it has caught up."""
WARM_ROUNDS = 2


def options_for(way: str, job: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Format and options of a way; files are read up to the offset that the broker reports."""
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"], "startingOffsets": "earliest"}
    if way.startswith("files"):
        options["path"] = job["folder"]
    return "kafka" if way.startswith("official") else "ottla", options


def archive(spark: Any, way: str, job: dict[str, Any], work: Path) -> float:
    """Seconds to archive all records of the topic to files."""
    form, options = options_for(way, job)
    target, checkpoint = work / "out", work / "checkpoint"
    for folder in (target, checkpoint):
        shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    if way in BATCH:
        spark.read.format(form).options(**options).load().write.parquet(str(target))
        return time.perf_counter() - started
    writer = spark.readStream.format(form).options(**options).load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(checkpoint))
    if way in STREAM:
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        return time.perf_counter() - started
    query = writer.start(str(target))
    try:
        query.processAllAvailable()
        return time.perf_counter() - started
    finally:
        query.stop()


def run(job: dict[str, Any]) -> dict[str, list[float]]:
    import ottla.spark

    seconds: dict[str, list[float]] = {way: [] for way in job["ways"]}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-spark-") as name:
        work = Path(name)
        os.chdir(work)
        spark = ottla.spark.session(
            master="local[2]", app_name="ottla-bench", config={"spark.log.level": "ERROR", "spark.driver.memory": "2g"}
        )
        try:
            for turn in range(WARM_ROUNDS + job["repeats"]):
                for way in job["ways"] if turn % 2 else reversed(job["ways"]):
                    took = archive(spark, way, job, work)
                    print(f"{way}: {took:.2f} s", file=sys.stderr, flush=True)
                    if turn >= WARM_ROUNDS:
                        seconds[way].append(took)
                    found = spark.read.parquet(str(work / "out")).count()
                    if found != job["records"]:
                        raise RuntimeError(f"{way}: {found} records were archived instead of {job['records']}")
        finally:
            spark.stop()
            os.chdir("/")
    return seconds


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
