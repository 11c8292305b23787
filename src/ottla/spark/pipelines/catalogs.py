"""Iceberg's catalogs: what knows the current metadata file of a table.

    sql          SQLite in the table's own folder (OUT/_ottla/catalog.db); the default, as it needs no server
    URL          any other database that SQLAlchemy knows: sqlite:///…, postgresql+psycopg2://…
    hadoop       no catalog: numbered metadata files beside the data, as Hadoop's tables have
    http(s)://…  a REST catalog

A pointer in the table's folder names the catalog and the table, so that later runs and readers find both without
options. Options with secrets are written as `${env:NAME}`, and stay that way in the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.spark.pipelines.commits import FOLDER
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.login import client_properties
from ottla.spark.pipelines.stores import LocalStore, read_json

POINTER: Final = f"{FOLDER}/iceberg.json"
NAME: Final = "ottla"
"""Of the catalog; Spark must use the same for the same SQL catalog."""
NAMESPACE: Final = "default"


def check_catalog(catalog: str | None) -> None:
    """Whether this can be a catalog."""
    if catalog not in (None, "sql", "hadoop") and not re.match(r"[a-z][a-z0-9+.]*://", catalog):
        raise PipelineError(
            f"'{catalog}' is no catalog: write sql, hadoop, a database (sqlite:///…, postgresql+psycopg2://…) or the "
            "address of a REST catalog (http://…)"
        )


def declare(store: LocalStore, catalog: str | None, options: Mapping[str, str], table: str | None) -> dict[str, Any]:
    """Write the pointer of a table that is to be made."""
    name = table or f"{NAMESPACE}.{re.sub(r'[^A-Za-z0-9_]', '_', store.root.rstrip('/').rpartition('/')[2])}"
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", name):
        raise PipelineError(f"a table of Iceberg is named NAMESPACE.NAME, not '{name}'")
    pointer = {"catalog": catalog or "sql", "options": dict(options), "table": name}
    store.write_new(POINTER, json.dumps(pointer, indent=1).encode())
    return pointer


def find(store: LocalStore) -> dict[str, Any]:
    found: dict[str, Any] = read_json(store, POINTER)
    return found


def open_catalog(store: LocalStore, pointer: Mapping[str, Any]) -> Any:
    """What pyiceberg uses to load, create and commit tables."""
    named, options = pointer["catalog"], client_properties(pointer["options"])
    if named == "hadoop":
        from ottla.spark.pipelines.hadoop import HadoopTables

        return HadoopTables(store)
    from pyiceberg.catalog import load_catalog

    kind = "rest" if named.startswith(("http://", "https://")) else "sql"
    uri = f"sqlite:///{store.root}/{FOLDER}/catalog.db" if named == "sql" else client_properties({"uri": named})["uri"]
    try:
        return load_catalog(NAME, **{"type": kind, "uri": uri, "warehouse": store.root, **options})
    except Exception as error:  # whatever the database's driver or the HTTP client raises
        raise unreachable(named, error) from None


def unreachable(named: str, error: BaseException) -> PipelineError:
    shown = re.sub(r"//[^/@]*@", "//…@", named)  # no passwords
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return PipelineError(f"the catalog {shown} cannot be used: {reason}")
