"""A Spark with Delta's and Iceberg's own jars, in a process that knows nothing of pipelines.

Reads one request per line from standard input, settings and a statement of SQL, and prints its rows as JSON. Each set
of settings has its own session, because the catalogs of a session do not change.
"""

from __future__ import annotations

import json
import sys
from typing import Any

EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
ANSWER = "answer: "
"""Marks each answer, because Spark prints other lines too."""
SETTINGS = {
    "spark.sql.extensions": ",".join(EXTENSIONS),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",  # the number of tasks of a vacuum
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


def plain(value: Any) -> Any:
    """Values for JSON: bytes and times become text."""
    return bytes(value).decode() if isinstance(value, bytes | bytearray) else str(value)


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    sessions: dict[str, SparkSession] = {}
    print(ANSWER + json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        name = json.dumps(request["settings"])
        if name not in sessions:
            sessions[name] = spark.newSession()
            for key, value in request["settings"].items():
                sessions[name].conf.set(key, value)
        try:
            answer: dict[str, Any] = {
                "rows": [row.asDict(True) for row in sessions[name].sql(request["sql"]).collect()]
            }
        except Exception as error:  # the test shows it
            answer = {"error": str(error)}
        print(ANSWER + json.dumps(answer, default=plain), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
