"""Tables as engines other than Spark read them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.stores import LocalStore


def arrow(out: Path | str, name: str) -> Any:
    """The table as delta-rs or pyiceberg reads it."""
    if name == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(out)).to_pyarrow_table()
    return iceberg(out).scan().to_arrow()


def iceberg(out: Path | str) -> Any:
    """The table in pyiceberg."""
    from ottla.spark.pipelines.iceberg import IcebergLog

    return IcebergLog.find(LocalStore(str(out))).table()


def key_values(out: Path | str, name: str) -> list[list[dict[str, Any]]]:
    """Keys and values as delta-rs or pyiceberg, DuckDB and Polars see them."""
    import duckdb
    import polars

    found = [arrow(out, name).to_pylist()]
    if name == "delta":
        from deltalake import DeltaTable

        data = DeltaTable(str(out)).to_pyarrow_dataset()  # noqa: F841
        found.append(duckdb.sql("select key, value from data").to_arrow_table().to_pylist())
        found.append(polars.scan_delta(str(out)).select("key", "value").collect().to_dicts())
    else:
        table = iceberg(out)
        rows = table.scan().to_duckdb("data").sql("select key, value from data")
        found.append(rows.to_arrow_table().to_pylist())
        with warnings.catch_warnings():
            # It plans with pyiceberg unless its own package is installed.
            warnings.simplefilter("ignore")
            found.append(polars.scan_iceberg(table).select("key", "value").collect().to_dicts())
    return found
