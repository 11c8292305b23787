"""The format of an existing or a new table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.spark.pipelines.commits import CommitLog
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.manifests import TABLE, ManifestLog
from ottla.spark.pipelines.object_stores import ObjectStore
from ottla.spark.pipelines.stores import ArrowStore, Store

FORMATS: Final = ("parquet", "delta", "iceberg")
DEFAULT_FORMAT: Final = "parquet"
_PACKAGES: Final = {"delta": ("deltalake",), "iceberg": ("pyiceberg", "sqlalchemy")}


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of table to create: a format and, for Iceberg, the catalog, its options, and the table's name in it."""

    format: str
    catalog: str | None = None
    catalog_options: Mapping[str, str] = field(default_factory=dict)
    table_name: str | None = None


def check_format(
    format: str | None,
    catalog: str | None = None,
    catalog_options: Mapping[str, str] | None = None,
    table_name: str | None = None,
) -> Kind | None:
    """The requested kind, or None. Raises PipelineError before Spark starts if it cannot be created."""
    asked = catalog is not None or bool(catalog_options) or table_name is not None
    if format is None and not asked:
        return None
    if format is not None and format not in FORMATS:
        raise PipelineError(f"format is one of {', '.join(FORMATS)}, not '{format}'{_hint(format)}")
    if asked and format != "iceberg":
        raise PipelineError("only Iceberg has a catalog and a table name: add --format iceberg")
    assert format is not None
    _check_packages(format)
    if format == "iceberg":
        from ottla.spark.pipelines.catalogs import check_catalog

        check_catalog(catalog)
    return Kind(format, catalog, dict(catalog_options or {}), table_name)


def _hint(format: str) -> str:
    values = ("json", "avro", "protobuf")
    return f"; to choose the format of the values, use --value-format {format}" if format in values else ""


def _check_packages(format: str) -> None:
    from importlib.util import find_spec

    missing = [name for name in _PACKAGES.get(format, ()) if find_spec(name) is None]
    if missing:
        raise PipelineError(f"--format {format} needs the package {missing[0]}: pip install 'ottla[spark,{format}]'")


def log_for(store: Store, kind: Kind) -> CommitLog:
    """The log of a table that is about to be created."""
    if kind.format == "parquet":
        if isinstance(store, ObjectStore):
            raise PipelineError(
                f"plain Parquet is committed by renames, and {store.root} has none; add --format delta or iceberg"
            )
        return ManifestLog(store)
    if not isinstance(store, ArrowStore):
        raise PipelineError(
            f"--format {kind.format} needs a local folder or s3://BUCKET/PATH, and {store.root} is neither"
        )
    _check_packages(kind.format)
    if kind.format == "delta":
        from ottla.spark.pipelines.delta import DeltaLog

        return DeltaLog(store)
    from ottla.spark.pipelines.iceberg import IcebergLog

    return IcebergLog.declare(store, kind.catalog, kind.catalog_options, kind.table_name)


def find_log(store: Store) -> CommitLog | None:
    """The log of the existing table, or None if there is none."""
    if store.exists(TABLE):
        return ManifestLog(store)
    if not isinstance(store, ArrowStore):
        return None
    if store.exists("_delta_log"):
        _check_packages("delta")
        from ottla.spark.pipelines.delta import DeltaLog

        return DeltaLog(store)
    from ottla.spark.pipelines.catalogs import POINTER

    if store.exists(POINTER):
        _check_packages("iceberg")
        from ottla.spark.pipelines.iceberg import IcebergLog

        return IcebergLog.find(store)
    return None
