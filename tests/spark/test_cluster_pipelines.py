"""Pipelines on a standalone Spark cluster, declared in a file, that follow their topics until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ottla.spark
from ottla.spark.pipelines.topics import BlockingClient

JSON = {"value_format": "json", "schema": "n INT"}


def test_a_file_of_pipelines_on_a_master_and_a_worker(
    spark: Any,
    spark_master: str,
    compiled_python: str,
    broker: Any,
    make_topic: Any,
    send: Any,
    until: Any,
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        send(topic, [(b"k%d" % n, b'{"n": %d}' % n) for n in range(50)], partition)
    archive, parsed, stats = (str(tmp_path / name) for name in ("archive", "parsed", "stats"))
    entries: list[dict[str, Any]] = [
        {"name": "counts", "pipeline": "stats", "topics": topic, "out": stats},
        {"name": "copy", "pipeline": "archive", "topics": topic, "out": archive, "source": "ottla"},
        {"name": "again", "pipeline": "replay", "archive": archive, "to_topic": f"{topic}-again"},
        {
            "name": "live",
            "pipeline": "parse",
            "topics": topic,
            "out": parsed,
            **JSON,
            "follow": True,
            "interval_s": 0.2,
        },
    ]
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    conf |= {"spark.sql.shuffle.partitions": "2"}
    file = tmp_path / "pipelines.yaml"
    file.write_text(json.dumps({"bootstrap": broker.bootstrap, "conf": conf, "pipelines": entries}))
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(file), "--master", spark_master, "--json"]
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as sink, err.open("wb") as words:
        child = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": compiled_python},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=words,
            start_new_session=True,
        )
    cluster = BlockingClient(broker.bootstrap, {})

    def reached(end: int) -> bool:
        assert child.poll() is None, err.read_text()
        found = cluster.committed(f"ottla-parse-{topic}")
        return [found[topic, p].offset for p in (0, 1) if (topic, p) in found] == [end, end]

    try:
        until(lambda: reached(50), "the first records", 900)
        for partition in (0, 1):
            send(topic, [(b"new", b'{"n": -1}')] * 10, partition)
        until(lambda: reached(60), "the new records", 900)
        # As a terminal does it: to every process of the group.
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(300) == 130, err.read_text()
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
    assert "interrupted; run the same command to continue from here" in err.read_text()
    done = {one["name"]: one for one in json.loads(out.read_text())}
    assert {name: (one["records"], one["lag"], one["interrupted"]) for name, one in done.items()} == {
        "counts": (100, 0, False),
        "copy": (100, 0, False),
        "again": (100, 0, False),
        "live": (120, 0, True),
    }
    options = {"bootstrap": broker.bootstrap, "spark": spark}
    assert ottla.spark.verify(archive, content=True, **options).problems == []
    assert spark.read.parquet(parsed).count() == 120
    assert sum(row.records for row in ottla.spark.read_stats(stats, spark=spark).collect()) == 100
    # The checkpoint is whole: there is nothing to do again.
    assert ottla.spark.parse(topic, parsed, **JSON, **options).records == 0
