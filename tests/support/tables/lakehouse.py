"""Spark with Delta's and Iceberg's own jars, which reads and changes the tables of pipelines with SQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.tables import lakehouse_child
from support.tables.lakehouse_child import ANSWER
from support.tables.spark_versions import OLDEST, jars_of, pyspark_of

# Iceberg has no runtime for Spark 4.2, with which the other tests run.
JARS = {
    "io.delta:delta-spark_2.13": "4.0.0",
    "io.delta:delta-storage": "",
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13": "1.11.0",
    "org.xerial:sqlite-jdbc": "3.46.1.3",
}
CATALOG = "spark.sql.catalog.ottla"


class Lakehouse:
    """Use as a context manager. A missing jar or PySpark is an error, not a reason to skip."""

    def __init__(self, folder: Path) -> None:
        jars = ",".join(map(str, jars_of("lakehouse-jars-4.0", JARS)))
        environment = {**os.environ, "PYTHONPATH": str(pyspark_of(OLDEST))}
        environment.pop("PYSPARK_PYTHON", None)  # is set for the Spark of this process
        self._log = (folder / "lakehouse.log").open("w+b")
        self._child = subprocess.Popen(
            [sys.executable, str(lakehouse_child.__file__), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=folder,
            text=True,
        )
        self.version = self._answer()["version"]

    def __enter__(self) -> Lakehouse:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(60)
        finally:
            self._child.kill()
            self._child.wait(60)
            self._child.stdout.close()
            self._log.close()

    def sql(self, text: str, settings: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """The rows of a statement, with binary columns and times as text."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"sql": text, "settings": settings or {}}) + "\n")
        self._child.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, answer["error"]
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith(ANSWER):
                found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return found
        self._log.seek(0)
        raise AssertionError(f"Spark ended: {self._log.read().decode(errors='replace')[-3000:]}")


class LakeTable:
    """One table of a pipeline in that Spark."""

    def __init__(self, lakehouse: Lakehouse, out: Path, format: str, catalog: str = "sql") -> None:
        self._lakehouse = lakehouse
        self.settings: dict[str, str] = {}
        if format == "delta":
            self.name = f"delta.`{out}`"
            return
        # As docs/pipelines.md says. With its cache, Spark does not see the commits of other writers for half a minute.
        self.settings = {CATALOG: "org.apache.iceberg.spark.SparkCatalog", f"{CATALOG}.cache-enabled": "false"}
        if catalog == "hadoop":
            self.settings |= {f"{CATALOG}.type": "hadoop", f"{CATALOG}.warehouse": str(out.parent.parent)}
            self.name = f"ottla.{out.parent.name}.{out.name}"
        else:
            database = f"jdbc:sqlite:{out}/_ottla/catalog.db"
            self.settings |= {f"{CATALOG}.type": "jdbc", f"{CATALOG}.uri": database, f"{CATALOG}.warehouse": str(out)}
            self.name = f"ottla.default.{out.name}"

    def sql(self, text: str) -> list[dict[str, Any]]:
        """`{}` in the statement is the table."""
        return self._lakehouse.sql(text.replace("{}", self.name), self.settings)
