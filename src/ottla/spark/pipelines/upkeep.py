"""`upkeep`: removes what a table no longer needs: old versions, and files that no other version uses.

Delta and Iceberg keep the files of earlier versions for time travel. A killed writer leaves files that no commit refers
to. Both are removed once they are older than `expire_ms`. Files that other engines have written but not committed yet
are newer than that. The offsets that record the table's progress are always kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.tables import Table

DEFAULT_EXPIRE_MS: Final = 7 * 24 * 3_600_000
LEAST_EXPIRE_MS: Final = 3_600_000


@dataclass(slots=True)
class Upkeep:
    """The files and versions that were removed, or would be."""

    table: str
    format: str = ""
    dry_run: bool = False
    versions: int = 0
    """Versions that are no longer available for time travel."""
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    seconds: float = 0.0


def upkeep(table: str, *, expire_ms: int = DEFAULT_EXPIRE_MS, dry_run: bool = False) -> Upkeep:
    """Remove versions of a table, and unused files, if they are older than `expire_ms`. Does not need Spark."""
    if expire_ms < LEAST_EXPIRE_MS:
        raise PipelineError(
            "less than an hour is too short: what another engine is about to commit might be removed under its hands"
        )
    return remove_unused(table, time.time_ns() // 1_000_000 - expire_ms, dry_run)


def remove_unused(location: str, before_ms: int, dry_run: bool) -> Upkeep:
    """Like `upkeep`, with an absolute time."""
    began = time.monotonic()
    store = open_store(location, None)
    table = Table.open(store)
    if not dry_run:
        # The lock keeps our own writers out, which put files in place before they commit them.
        table = Table.create_or_open(store, table.description["kind"])
    with table:
        result = Upkeep(store.root, table.format, dry_run)
        result.versions, found = table.log.unused(before_ms, dry_run)
        result.files, result.bytes = sorted(found), sum(found.values())
        if not dry_run:
            for path in found:
                store.delete(path)
    result.seconds = time.monotonic() - began
    return result
