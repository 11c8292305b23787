"""Every pipeline over Spark Connect: the session is in one process, Spark in another.

A process has either kind of session, so these run in a child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

START_MS = 1_790_000_040_000

CHILD = """
import json, sys
import ottla.spark
from ottla.spark.sessions import is_remote

bootstrap, topic, out, url = sys.argv[1:]
if url == "local":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]").config("spark.log.level", "ERROR")
    builder.config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark = ottla.spark.session(master=None if url == "local" else url)
options = {"bootstrap": bootstrap, "spark": spark}
found = {"remote": is_remote(spark)}
for name in ("parquet", "delta", "iceberg"):
    done = ottla.spark.archive(topic, f"{out}/{name}", format=name, max_records=15, **options)
    again = ottla.spark.archive(topic, f"{out}/{name}", **options)
    problems = ottla.spark.verify(f"{out}/{name}", content=True, **options).problems
    merged = ottla.spark.compact(f"{out}/{name}", spark=spark).files_after
    found[name] = [done.records, done.batches, again.records, problems, merged]
found["replayed"] = ottla.spark.replay(f"{out}/delta", to_topic=topic + "-again", **options).records
source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic + "-again"}
found["there"] = spark.read.format("ottla").options(**source).load().count()
for merge in ("copy-on-write", "merge-on-read"):
    kept = ottla.spark.snapshot(topic, f"{out}/{merge}", format="iceberg", merge=merge, max_records=20, **options)
    rows = ottla.spark.read_snapshot(f"{out}/{merge}", spark=spark).count()
    found[merge] = [kept.batches, kept.details["keys"], rows]
counted = ottla.spark.stats(topic, f"{out}/stats", **options)
found["stats"] = [counted.records, ottla.spark.read_stats(f"{out}/stats", spark=spark).count()]
parsed = ottla.spark.parse(topic, f"{out}/parse", value_format="json", schema="n BIGINT NOT NULL", **options)
found["parse"] = [parsed.details["good"], parsed.details["bad"]]
found["sql"] = ottla.spark.sql("select count(*) as n from t", tables={"t": topic}, **options).rows
stream = {"stream": True, "checkpoint": f"{out}/c", "out": f"{out}/rows", "tables": {"t": topic}}
ottla.spark.sql("select key from t", **stream, **options)
found["stream"] = spark.read.parquet(f"{out}/rows").count()
found["quality"] = ottla.spark.quality(topic, **options).records
print("FOUND " + json.dumps(found))
spark.stop()
"""


def run(*arguments: str, cwd: Path, python: str) -> dict[str, Any]:
    left_out = {key for key in os.environ if key.startswith(("SPARK", "PYSPARK")) and not key.endswith("_OPTS")}
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment["PYSPARK_PYTHON"] = python  # of the server, which the session starts
    command = [sys.executable, "-c", CHILD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.rpartition("FOUND ")[2])
    return found


def test_every_pipeline(broker: Any, make_topic: Any, send: Any, compiled_python: str, tmp_path: Path) -> None:
    topic = make_topic(2, retention_ms=-1)
    for partition in (0, 1):
        send(topic, [(f"k{partition}-{n % 5}", b'{"n": %d}' % n) for n in range(20)], partition, START_MS)
    found = run(broker.bootstrap, topic, str(tmp_path), "local", cwd=tmp_path, python=compiled_python)
    archived = [40, 3, 0, [], 2]
    assert found == {
        "remote": True,
        "parquet": archived,
        "delta": archived,
        "iceberg": archived,
        "replayed": 40,
        "there": 40,
        "copy-on-write": [2, 10, 10],
        "merge-on-read": [2, 10, 10],
        "stats": [40, 1],
        "parse": [40, 0],
        "sql": [{"n": 40}],
        "stream": 40,
        "quality": 40,
    }
