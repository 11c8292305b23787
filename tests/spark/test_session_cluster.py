"""The same session on a standalone Spark cluster: a master, a worker and a driver, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
