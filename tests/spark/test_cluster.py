"""The same session on a standalone Spark cluster: a master, a worker and a driver, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import ottla.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"

DRIVER = """
import json, sys
import ottla.spark
master, bootstrap, topic, target, out = sys.argv[1:]
spark = ottla.spark.session(master=master, config={"spark.driver.host": "127.0.0.1", "spark.ui.enabled": False,
    "spark.executor.memory": "512m", "spark.log.level": "ERROR"})
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
counts = {form: spark.read.format(form).options(**options).load().count() for form in ("ottla", "kafka")}
frame = spark.read.format("ottla").options(**options).load().select("key", "value", "partition")
frame.write.format("ottla").mode("append").options(**{"kafka.bootstrap.servers": bootstrap, "topic": target}).save()
counts["written"] = spark.read.format("ottla").options(**options | {"subscribe": target}).load().count()
open(out, "w").write(json.dumps(counts))
spark.stop()
"""


def test_a_standalone_cluster(broker: Any, make_topic: Any, send: Any, spark_master: str, tmp_path: Path) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    for partition in (0, 1):
        send(source, [(b"k", b"v")] * 500, partition=partition)
    (tmp_path / "driver.py").write_text(DRIVER)
    out = tmp_path / "counts.json"
    command = [sys.executable, str(tmp_path / "driver.py"), spark_master, broker.bootstrap, source, target, str(out)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(out.read_text()) == {"ottla": 1000, "kafka": 1000, "written": 1000}


@pytest.mark.parametrize("script", ["submit-kubernetes.sh", "submit-yarn.sh"])
def test_the_submit_examples(
    script: str,
    spark: Any,
    broker: Any,
    make_topic: Any,
    send: Any,
    spark_master: str,
    compiled_python: str,
    tmp_path: Path,
) -> None:
    """On the standalone master; their settings for the other ones do no harm there."""
    topic = make_topic(2, retention_ms=-1)
    for partition in (0, 1):
        send(topic, [(b"k", b"v")] * 30, partition)
    bin_folder = Path(pyspark.__file__).parent / "bin"
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_GATEWAY_PORT"}
    environment |= {"PATH": f"{bin_folder}:{os.environ['PATH']}", "MASTER": spark_master, "DEPLOY_MODE": "client"}
    environment |= {
        "ENVIRONMENT": "",
        "MEMORY": "512m",
        "PYSPARK_PYTHON": compiled_python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    out = str(tmp_path / "archive")
    command = [str(EXAMPLES / script), topic, "--bootstrap", broker.bootstrap, "--out", out, "--format", "delta"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"archived 60 records to {out}" in done.stdout
    assert ottla.spark.verify(out, content=True, bootstrap=broker.bootstrap, spark=spark).problems == []
