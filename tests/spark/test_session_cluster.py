"""The same session on a standalone Spark cluster: a master, a worker and a driver, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

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


@pytest.fixture
def start_spark(tmp_path: Path, until: Any) -> Iterator[Callable[..., re.Match[str]]]:
    """Starts a part of a cluster and waits for a line of its log."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, pattern: str, *arguments: str) -> re.Match[str]:
        home = Path(pyspark.__file__).parent
        log = tmp_path / f"{name.rpartition('.')[2]}.log"
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as sink:
            running.append(
                subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=sink, stderr=subprocess.STDOUT)
            )
        child = running[-1]

        def found() -> re.Match[str] | None:
            assert child.poll() is None, log.read_text()
            return re.search(pattern, log.read_text())

        match: re.Match[str] = until(found, f"'{pattern}' of {name}", 240)
        return match

    yield start
    for child in reversed(running):
        child.terminate()
        child.wait(60)


def test_a_standalone_cluster(
    broker: Any, make_topic: Any, send: Any, start_spark: Callable[..., re.Match[str]], tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    for partition in (0, 1):
        send(source, [(b"k", b"v")] * 500, partition=partition)
    local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master = start_spark("master.Master", r"Starting Spark master at (spark://\S+)", *local)[1]
    folder = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
    start_spark("worker.Worker", "Successfully registered with master", *local, *folder, master)
    (tmp_path / "driver.py").write_text(DRIVER)
    out = tmp_path / "counts.json"
    command = [sys.executable, str(tmp_path / "driver.py"), master, broker.bootstrap, source, target, str(out)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(out.read_text()) == {"ottla": 1000, "kafka": 1000, "written": 1000}
