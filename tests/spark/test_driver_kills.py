"""Whole Spark drivers under SIGKILL, 20 of them. Each is at work on an archive of every format when it is killed.

Most of the time goes into starting them. So one driver, of `ottla pipeline run`, follows a topic into three archives,
and its JVM takes its classes from a shared archive (CDS) that an earlier run has left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import ottla.spark
from support.tables.other_engines import arrow

KILLS = {"ottla": 12, "kafka": 8}
"""By source, which decides what writes the files: Ottla's tasks, or Spark."""
SENT = 1000
"""For each driver and partition: more than it can do before it is killed."""
AT_ONCE = 60
LOGS = {"parquet": "_ottla/manifests", "delta": "_delta_log", "iceberg": "metadata"}
COMMAND = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run"]


class Driver:
    """A separate process with all of its children."""

    def __init__(self, file: Path, master: str, classes: str) -> None:
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} {classes}"}
        environment.pop("SPARK_CONF_DIR", None)  # of other tests: no archive is made with a folder in the class path
        self.log = file.with_suffix(".log")
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [*COMMAND, str(file), "--master", master, "--json"],
                cwd=file.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> bool:
        """Checks that it has not ended by itself."""
        assert self._child.poll() is None, self.log.read_text()
        return True

    def kill(self) -> int:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        return self._child.wait(60)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(120)


def declared(folder: Path, bootstrap: str, topic: str, source: str) -> Path:
    """The file of the pipelines."""
    entries = [
        {"name": name, "pipeline": "archive", "topics": topic, "out": str(folder / name), "format": name}
        for name in LOGS
    ]
    common = {"source": source, "max_records": AT_ONCE, "interval": "1ms", "follow": True}
    path = folder / "pipelines.yaml"
    path.write_text(yaml.safe_dump({"bootstrap": bootstrap, "pipelines": [{**one, **common} for one in entries]}))
    return path


def commits(folder: Path) -> dict[str, int]:
    return {name: len(list((folder / name / log).glob("*.json"))) for name, log in LOGS.items()}


def shared_classes(folder: Path, start: Any, until: Any) -> str:
    """The option that has a JVM take its classes from an archive. The first test that needs the archive makes it."""
    path = folder / "spark-classes.jsa"
    if not path.exists():
        driver = start(f"-XX:ArchiveClassesAtExit={path}")
        driver.stop()
        until(path.exists, lambda: f"the archive of classes:\n{driver.log.read_text()}")
    return f"-XX:SharedArchiveFile={path}"


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """The started drivers. They end with the test, even if it fails."""
    found: list[Driver] = []
    yield found
    for driver in found:
        driver.kill()


@pytest.mark.parametrize("source", list(KILLS))
def test_drivers_that_are_killed(
    source: str,
    spark: Any,
    broker: Any,
    make_topic: Any,
    send: Any,
    until: Any,
    drivers: list[Driver],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = make_topic(2, retention_ms=-1)
    file = declared(tmp_path, broker.bootstrap, topic, source)
    chance = random.Random(source)
    sent = 0

    def start(classes: str) -> Driver:
        """Started, and at work on all three: each has committed since, and has more to do."""
        nonlocal sent
        for partition in (0, 1):
            send(topic, [(b"k%d" % n, b"%d" % n) for n in range(sent, sent + SENT)], partition)
        sent += SENT
        before = commits(tmp_path)
        driver = Driver(file, "local[2]", classes)
        drivers.append(driver)
        until(lambda: driver.check() and all(now > before[name] for name, now in commits(tmp_path).items()), "commits")
        return driver

    classes = shared_classes(tmp_path_factory.getbasetemp(), start, until)
    kills = 0
    while kills < KILLS[source]:
        driver = start(classes)
        reached = sum(commits(tmp_path).values()) + chance.randint(0, 5)
        until(lambda: driver.check() and sum(commits(tmp_path).values()) >= reached, "commits")  # noqa: B023
        time.sleep(chance.random() * 0.5)  # somewhere in the next batch of each
        driver.check()
        kills += driver.kill() == -signal.SIGKILL
        if chance.random() < 0.3:  # the tables alone say how far they are
            for name in LOGS:
                shutil.rmtree(tmp_path / name / "_ottla" / "checkpoint")

    wanted = [(p, n, b"%d" % n) for p in (0, 1) for n in range(sent)]
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": source}
    for name in LOGS:
        out = tmp_path / name
        assert ottla.spark.archive(topic, str(out), **options).records > 0, "it had nothing to do when it was killed"
        if name == "parquet":
            import pyarrow.dataset

            rows = pyarrow.dataset.dataset(str(out), format="parquet").to_table().to_pylist()
        else:
            rows = arrow(out, name).to_pylist()
        assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == wanted
        assert ottla.spark.verify(str(out), **options).problems == []
