"""The oldest and the newest Spark that pyproject.toml admits; all other tests run on the one in the middle.

Each version is installed once into the user's cache folder, as PySpark takes minutes to build.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.tables.spark_versions import NEWEST, OLDEST, pyspark_of

ROOT = Path(__file__).resolve().parents[2]

CHILD = """
import json, sys
import pyspark
import ottla.spark

bootstrap, topic, out = sys.argv[1:]
quiet = {"spark.log.level": "ERROR", "spark.driver.memory": "1g"}
spark = ottla.spark.session(master="local[2]", connector=False, config=quiet)
source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
source["includeHeaders"] = "true"
batch = spark.read.format("ottla").options(**source).load()
found = {"version": pyspark.__version__, "rows": [
    [row.partition, row.offset, bytes(row.key).decode(), row.ms, row.headers[0].key] for row in
    batch.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition", "offset").collect()]}
stream = spark.readStream.format("ottla").options(**source).load()
writer = stream.writeStream.format("parquet").option("path", out + "/stream").trigger(availableNow=True)
ottla.spark.await_stream(writer, checkpoint=out + "/checkpoint", timeout_s=300)
found["streamed"] = spark.read.parquet(out + "/stream").count()
sink = {"kafka.bootstrap.servers": bootstrap, "topic": topic + "-copy"}
batch.select("key", "value", "headers", "timestamp").write.format("ottla").mode("append").options(**sink).save()
copied = stream.select("key", "value").writeStream.format("ottla").options(**sink).trigger(availableNow=True)
ottla.spark.await_stream(copied, checkpoint=out + "/checkpoint-of-copy", timeout_s=300)
found["copied"] = spark.read.format("ottla").options(**{**source, "subscribe": topic + "-copy"}).load().count()
options = {"bootstrap": bootstrap, "spark": spark}
found["archived"] = ottla.spark.archive(topic, out + "/archive", **options).records
found["problems"] = ottla.spark.verify(out + "/archive", content=True, **options).problems
found["again"] = ottla.spark.archive(topic, out + "/archive", **options).records
print("FOUND " + json.dumps(found))
spark.stop()
"""


def test_the_versions_that_are_tested_are_those_that_are_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (admitted,) = (one for one in project["optional-dependencies"]["spark"] if one.startswith("pyspark"))
    found = re.fullmatch(r"pyspark>=(\d+\.\d+),<(\d+)\.(\d+)", admitted)
    assert found is not None
    assert OLDEST.startswith(f"{found[1]}.")
    assert NEWEST.startswith(f"{found[2]}.{int(found[3]) - 1}.")


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_source_the_sink_and_a_pipeline(
    version: str, broker: Any, make_topic: Any, send: Any, until: Any, admin: Any, tmp_path: Path
) -> None:
    topic = make_topic(2, retention_ms=-1)
    make_topic(1, name=f"{topic}-copy")
    until(lambda: {topic, f"{topic}-copy"} <= set(admin.list_topics(timeout=60).topics), "the topics")
    for partition in (0, 1):
        send(topic, [(f"k{n}", b"v") for n in range(20)], partition, 1_790_000_000_123, [("h", b"1")])
    environment = {**os.environ, "PYTHONPATH": str(pyspark_of(version))}
    environment.pop("PYSPARK_PYTHON", None)  # names the Python of this process' own Spark
    done = subprocess.run(
        [sys.executable, "-c", CHILD, broker.bootstrap, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.rpartition("FOUND ")[2])
    assert found == {
        "version": version,
        "rows": [[p, n, f"k{n}", 1_790_000_000_123, "h"] for p in (0, 1) for n in range(20)],
        "streamed": 40,
        "copied": 80,
        "archived": 40,
        "problems": [],
        "again": 0,
    }
