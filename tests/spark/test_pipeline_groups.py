"""How far a pipeline is, `ottla groups` and Apache Kafka's own tool can see."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def test_every_pipeline_shows_its_progress(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(2)
    send(topic, [(b"k%d" % n, b'{"n": 1}') for n in range(7)], partition=1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}

    def out(name: str) -> str:
        return str(tmp_path / name)

    tables = {"tables": {"t": topic}}
    stream = {**tables, "stream": True, "checkpoint": out("checkpoint"), "out": out("rows")}
    ottla.spark.archive(topic, out("archive"), **options)
    ottla.spark.stats(topic, out("stats"), **options)
    ottla.spark.parse(topic, out("parse"), value_format="json", schema="n INT", **options)
    ottla.spark.snapshot(topic, out("snapshot"), **options)
    ottla.spark.quality(topic, **options)
    ottla.spark.sql("select key, value from t", to_topic=f"{topic}-copy", **tables, **options)
    ottla.spark.sql("select n from t", schemas={"t": "n INT"}, group=f"stream-{topic}", **stream, **options)
    replayed = ottla.spark.replay(out("archive"), to_topic=f"{topic}-again", **options).group
    assert replayed is not None
    ottla.spark.sql("select 1 from t", **tables, **options)  # is printed, and no progress of anything
    read = [f"ottla-{kind}-{topic}" for kind in ("archive", "stats", "parse", "snapshot", "quality", "sql")]
    read.append(f"stream-{topic}")
    send(topic, [(b"k", b"{}")] * 3, partition=1)  # a lag of three for all that read
    wanted = {(group, topic, 0): (0, 0) for group in read} | {(group, topic, 1): (7, 3) for group in read}
    # The replay's is what it wrote: seven records and the marker of their transaction.
    wanted |= {(replayed, f"{topic}-again", 0): (0, 0), (replayed, f"{topic}-again", 1): (8, 0)}

    capfd.readouterr()
    assert main(["groups", "describe", *read, replayed, "-b", broker.bootstrap, "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert _of_ottla(shown) == wanted
    jars = subprocess.run([str(ROOT / "scripts" / "kafka-jars")], capture_output=True, text=True, check=True)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars.stdout.strip()}/*", tool, "--describe"]
    command += ["--bootstrap-server", broker.bootstrap]
    for group in (*read, replayed):
        command += ["--group", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    rows = [line for line in lines if len(line) >= 6 and line[0] in {*read, replayed}]
    assert {(line[0], line[1], int(line[2])): (int(line[3]), int(line[5])) for line in rows} == wanted


def _of_ottla(shown: Any) -> dict[tuple[str, str, int], tuple[int, int]]:
    return {
        (group["group"], row["topic"], row["partition"]): (row["offset"], row["lag"])
        for group in shown
        for row in group["offsets"]
    }
