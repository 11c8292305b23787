"""The interface through which all table formats commit, and their shared view of a table.

A commit adds files that are already written, removes others, and stores the offset that each partition has reached
(the marks). It is atomic, so the table alone records its progress. A batch that Spark repeats after a crash is cut at
the marks, and nothing is repeated if the checkpoint is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.topics import Offsets, flat, nested

if TYPE_CHECKING:
    from ottla.spark.pipelines.stores import Store

FOLDER: Final = "_ottla"
MIXED: Final = -2
"""The partition of a file with records of several partitions, as other engines write when they compact."""
STATE: Final = "ottla.state"
"""The name under which a Delta or Iceberg commit stores everything that the next run needs, including the marks."""
OFFSETS: Final = "ottla.offsets"
"""The marks alone, for people and other programs."""
DESCRIPTION: Final = "ottla.table"
"""The property of a Delta or Iceberg table that contains the pipeline to which it belongs."""


class Conflict(PipelineError):
    """Another writer has committed, and its records may be the same."""

    def __init__(self, where: str) -> None:
        super().__init__(f"another process writes to {where}; wait for it, or stop it")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file. Covers one partition of one topic and one date, if the table has these columns."""

    path: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a commit. The keys of `add` are the staged paths of the new files."""

    number: int
    at_ms: int
    add: dict[str, DataFile]
    remove: list[str]
    marks: Offsets
    lost: list[dict[str, Any]]
    extra: dict[str, Any]
    delete_rows: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By file: the rows to mark as deleted, if the format supports it (Iceberg)."""


@dataclass(slots=True)
class State:
    """A fold over the commits."""

    number: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    marks: Offsets = field(default_factory=dict)
    lost: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    rows_deleted: bool = False
    """Whether another engine has marked rows as deleted. Then the files alone are not the table."""

    def apply(self, change: Change) -> None:
        self.number = change.number
        for file in change.add.values():
            self.files[file.path] = file
        for path in change.remove:
            self.files.pop(path, None)
        self.marks |= change.marks
        self.lost += change.lost
        self.extra |= change.extra

    def carried(self, change: Change, serial: int) -> str:
        """Everything besides its files that a commit must store, so that the newest commit alone is enough."""
        after = {
            "serial": serial,
            "marks": nested({**self.marks, **change.marks}),
            "lost": [*self.lost, *change.lost],
            "extra": {**self.extra, **change.extra},
        }
        return json.dumps(after, sort_keys=True)

    def take(self, text: str) -> int:
        """Load the state that a commit stored, and return its serial number."""
        found = json.loads(text)
        self.marks, self.lost, self.extra = flat(found["marks"]), found["lost"], found["extra"]
        return int(found["serial"])


class CommitLog(Protocol):
    """The log of one table."""

    format: str

    def describe(self) -> dict[str, Any] | None:
        """Which pipeline the table belongs to, or None if there is no table. A table of another program is an error."""

    def create(self, description: Mapping[str, Any], schema: Any, partition_by: tuple[str, ...]) -> None:
        """Create an empty table with these columns (an Arrow schema)."""

    def evolve(self, schema: Any) -> list[str]:
        """Add the columns that the table lacks, and describe the additions. A changed type is an error."""

    def load(self) -> State: ...

    def deleted_rows(self) -> dict[str, Any]:
        """By file: the numbers of the rows that are marked as deleted, as arrays."""
        return {}

    def recover(self, state: State) -> None:
        """Finish the steps that a crash left unfinished."""

    def unused(self, before_ms: int, dry_run: bool) -> tuple[int, dict[str, int]]:
        """Drop versions before a moment, unless it is a dry run. Return how many, and the files that become unused."""

    def commit(self, change: Change, state: State) -> None:
        """Commit atomically and update `state`. Raises Conflict if another writer has advanced the table."""


def put_in_place(store: Store, add: Mapping[str, DataFile], folder: str = "") -> dict[str, DataFile]:
    """Move staged files to unique names, safely on disk. No reader sees them before the commit.

    The name of a file of a failed batch is never used again, so it cannot replace a committed file.
    """
    placed: dict[str, DataFile] = {}
    folders: set[str] = set()
    for staged, file in add.items():
        path = f"{folder}{file.path.removesuffix('.parquet')}-{uuid4().hex[:12]}.parquet"
        store.move(staged, path)
        folders.add(path.rpartition("/")[0])
        placed[staged] = replace(file, path=path)
    for one in folders:
        store.sync(one)
    return placed


def check_ours(text: str | None, what: str, where: str) -> dict[str, Any]:
    """The description of a table, which must have been written by a pipeline."""
    if text is None:
        raise PipelineError(f"{where} is {what} that no pipeline wrote; choose another folder")
    found: dict[str, Any] = json.loads(text)
    return found


def marked_rows(where: str) -> str:
    return (
        f"{where}: another engine has marked rows as deleted, which the files do not show; have it rewrite them first "
        "(OPTIMIZE, REORG or rewrite_data_files)"
    )


def columns_added(there: Iterable[Any], wanted: Iterable[Any], where: str) -> list[Any]:
    """The fields (with `name` and `type`) that a table lacks. A column with a different type is an error."""
    known = {one.name: one.type for one in there}
    added = []
    for one in wanted:
        if one.name not in known:
            added.append(one)
        elif str(known[one.name]) != str(one.type):
            raise PipelineError(
                f"{where}: column {one.name} is {known[one.name]} in the table and {one.type} in the new schema, which "
                "cannot be the same column; choose another folder with --out"
            )
    return added
