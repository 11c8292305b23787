"""Iceberg's catalogs, which hold the current metadata file of a table.

    sql          SQLite in the table's own folder (OUT/_ottla/catalog.db); the default, as it needs no server
    URL          any other database that SQLAlchemy knows: sqlite:///…, postgresql+psycopg2://…
    hadoop       no catalog: numbered metadata files next to the data, as in Hadoop's tables
    http(s)://…  a REST catalog

A pointer file in the table's folder contains the catalog and the table, so that later runs and readers find both
without options. Options with secrets are written as `${env:NAME}`, and the pointer keeps that form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.spark.pipelines.commits import FOLDER
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.login import client_properties
from ottla.spark.pipelines.stores import ArrowStore, LocalStore, Store, read_json

POINTER: Final = f"{FOLDER}/iceberg.json"
NAME: Final = "ottla"
"""The name of the catalog. Spark must use the same name for the same SQL catalog."""
NAMESPACE: Final = "default"


def check_catalog(catalog: str | None) -> None:
    """Raise unless this is a valid catalog."""
    if catalog not in (None, "sql", "hadoop") and not re.match(r"[a-z][a-z0-9+.]*://", catalog):
        raise PipelineError(
            f"'{catalog}' is not a catalog: use sql, hadoop, a database (sqlite:///…, postgresql+psycopg2://…) or the "
            "address of a REST catalog (http://…)"
        )


def declare(store: ArrowStore, catalog: str | None, options: Mapping[str, str], table: str | None) -> dict[str, Any]:
    """Write the pointer of a table that is about to be created."""
    name = table or f"{NAMESPACE}.{re.sub(r'[^A-Za-z0-9_]', '_', store.root.rstrip('/').rpartition('/')[2])}"
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", name):
        raise PipelineError(f"an Iceberg table is named NAMESPACE.NAME, not '{name}'")
    if catalog in (None, "sql", "hadoop") and not isinstance(store, LocalStore):
        raise PipelineError(
            f"{store.root} is in a bucket, which has no database and no renames: choose a catalog with --catalog"
        )
    # A pointer to a catalog that was mistyped, or is down, would block the next attempt.
    check_reachable(store, catalog, options)
    pointer = {"catalog": catalog or "sql", "options": dict(options), "table": name}
    store.write_new(POINTER, json.dumps(pointer, indent=1).encode())
    return pointer


def check_reachable(store: Store, catalog: str | None, options: Mapping[str, str]) -> None:
    """Raise unless the catalog of a new table answers. The table's own folder needs no server."""
    if catalog in (None, "sql", "hadoop") or not isinstance(store, ArrowStore):
        return
    from pyiceberg.exceptions import NoSuchTableError

    opened = open_catalog(store, {"catalog": catalog, "options": options})
    try:
        opened.table_exists((NAMESPACE, "ottla"))
    except NoSuchTableError:
        pass
    except Exception as error:  # from the database or HTTP
        raise unreachable(catalog, error) from None


def find(store: ArrowStore) -> dict[str, Any]:
    found: dict[str, Any] = read_json(store, POINTER)
    return found


def open_catalog(store: ArrowStore, pointer: Mapping[str, Any]) -> Any:
    """The catalog object with which pyiceberg loads, creates and commits tables."""
    named, options = pointer["catalog"], client_properties(pointer["options"])
    if named == "hadoop" and isinstance(store, LocalStore):
        from ottla.spark.pipelines.hadoop import HadoopTables

        return HadoopTables(store)
    from pyiceberg.catalog import load_catalog

    kind = "rest" if named.startswith(("http://", "https://")) else "sql"
    uri = f"sqlite:///{store.root}/{FOLDER}/catalog.db" if named == "sql" else client_properties({"uri": named})["uri"]
    try:
        return load_catalog(
            NAME, **{"type": kind, "uri": uri, "warehouse": store.root, **store.iceberg_options(), **options}
        )
    except Exception as error:  # any error of the database driver or the HTTP client
        raise unreachable(named, error) from None


def unreachable(named: str, error: BaseException) -> PipelineError:
    shown = re.sub(r"//[^/@]*@", "//…@", named)  # hide passwords
    # HTTP clients wrap the reason in the names of their classes.
    found = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
    reason = found[1] if found else (str(error).splitlines() or [type(error).__name__])[0][:200]
    return PipelineError(f"the catalog {shown} cannot be used: {reason}")
