"""The Spark data source `ottla`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"
