"""Tables that change only by atomic commits, so that a crash at any point leaves each record in the table once.

    OUT/_ottla/staging/          files being written
    OUT/_ottla/checkpoint/       Spark's, with our note
    OUT/_ottla/lock              keeps a second writer out, on local disks

Spark writes new files below `staging`. How they become part of the table is up to its format: `manifests` (plain
Parquet), `delta` or `iceberg`; see `commits` for their common parts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.commits import FOLDER, Change, CommitLog, DataFile, State, marked_rows
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.formats import DEFAULT_FORMAT, Kind, find_log, log_for
from ottla.spark.pipelines.stores import Store, is_local, open_store
from ottla.spark.pipelines.topics import Offsets

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = 1
STAGING: Final = f"{FOLDER}/staging"
CHECKPOINT: Final = f"{FOLDER}/checkpoint"


class Table:
    """Open one with `Table.open`. Close it to let other writers in."""

    def __init__(self, store: Store, log: CommitLog, description: dict[str, Any], lock: Any) -> None:
        self.store = store
        self.log = log
        self.description = description
        self.state = State()
        self.evolved: list[str] = []
        """The changes to its columns when it was opened, in words."""
        self._lock = lock
        self._staged: list[str] = []

    @classmethod
    def create_or_open(
        cls,
        store: Store,
        kind: str,
        target: Kind | None = None,
        schema: StructType | None = None,
        partition_by: tuple[str, ...] = (),
        **identity: Any,
    ) -> Table:
        """Open for writing: keeps other writers out, and finishes the steps that a crash left unfinished.

        `target` is the format of a new table; without it, the existing format is used. A Delta or Iceberg table gets
        the columns of `schema`.
        """
        try:
            lock = store.lock()
        except OSError as error:
            raise explain(error) from None
        try:
            log = find_log(store)
            if log is None:
                _refuse_foreign(store)
                log = log_for(store, target or Kind(DEFAULT_FORMAT))
            _refuse_other_format(store, log, target)
            if log.describe() is None:
                made = {"format": FORMAT, "kind": kind, "id": uuid.uuid4().hex, **identity}
                log.create(made, _arrow(schema), partition_by)
            table = cls(store, log, _description(store, log, kind), lock)
            if schema is not None:
                table.evolved = log.evolve(_arrow(schema))
            table.load()
            log.recover(table.state)
            # Without a lock another writer may be working there. Plain Parquet allows only one writer in any case.
            if lock is not None or log.format == DEFAULT_FORMAT:
                store.delete(STAGING)
        except BaseException as error:
            if lock is not None:
                lock.close()
            if isinstance(error, OSError):
                raise explain(error) from None
            raise
        return table

    @classmethod
    def open(cls, store: Store, kind: str | None = None) -> Table:
        """Open for reading."""
        log = find_log(store)
        if log is None or log.describe() is None:
            raise PipelineError(f"{store.root} is not a folder that `ottla pipeline {kind or 'archive'}` wrote")
        table = cls(store, log, _description(store, log, kind), None)
        table.load()
        return table

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return str(self.description["id"])

    @property
    def format(self) -> str:
        return self.log.format

    def evolve(self, schema: StructType) -> list[str]:
        """Add the columns that the table lacks. Returns the changes in words."""
        changes = self.log.evolve(_arrow(schema))
        if changes:
            self.load()
        return changes

    def load(self) -> None:
        self.state = self.log.load()

    def url(self, file: DataFile) -> str:
        """The URL where Spark reads a file. Other engines may have put their files elsewhere."""
        if self.state.rows_deleted:
            raise PipelineError(marked_rows(self.store.root))
        return self.place(file)

    def place(self, file: DataFile) -> str:
        """The path of a file, even if some of its rows are deleted."""
        return file.path if "://" in file.path or file.path.startswith("/") else self.store.url(file.path)

    def staging(self) -> str:
        """A new folder to write into, until the next commit."""
        self._staged.append(f"{STAGING}/{uuid.uuid4().hex}")
        return self._staged[-1]

    def commit(
        self,
        add: Mapping[str, DataFile],
        *,
        remove: Iterable[str] = (),
        marks: Offsets | None = None,
        lost: Iterable[dict[str, Any]] = (),
        extra: Mapping[str, Any] | None = None,
        delete_rows: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Add staged files (staged path -> file), remove others, and mark rows as deleted, atomically."""
        for staged in add:
            self.store.sync(staged)
        change = Change(
            self.state.number + 1,
            time.time_ns() // 1_000_000,
            dict(add),
            list(remove),
            dict(marks or {}),
            list(lost),
            dict(extra or {}),
            dict(delete_rows or {}),
        )
        self.log.commit(change, self.state)
        while self._staged:
            self.store.delete(self._staged[-1])
            self._staged.pop()


def _arrow(schema: StructType | None) -> Any:
    """All columns are nullable, because tombstones have no values."""
    if schema is None:
        return None
    import pyarrow

    from ottla.spark.arrow import arrow_schema

    return pyarrow.schema([field.with_nullable(True) for field in arrow_schema(schema)])


def check_target(location: str, kind: str, target: Kind | None) -> None:
    """Check before Spark starts that a pipeline can write there. Only local folders can be checked this early."""
    if not is_local(location):
        return
    store = open_store(location, None)
    log = find_log(store)
    if log is None:
        _refuse_foreign(store)
        if target is not None and target.format == "iceberg":
            from ottla.spark.pipelines.catalogs import check_reachable

            check_reachable(store, target.catalog, target.catalog_options)
        return
    _refuse_other_format(store, log, target)
    if log.describe() is not None:
        _description(store, log, kind)


def _refuse_other_format(store: Store, log: CommitLog, target: Kind | None) -> None:
    if target is not None and target.format != log.format:
        raise PipelineError(
            f"{store.root} was created with --format {log.format}; use that format, or choose another folder"
        )


def _refuse_foreign(store: Store) -> None:
    foreign = [name for name in store.names("") if not name.startswith((".", "_"))]
    if foreign:
        raise PipelineError(f"{store.root} holds files that no pipeline wrote ({foreign[0]}); name an empty folder")


def _description(store: Store, log: CommitLog, kind: str | None) -> dict[str, Any]:
    found = log.describe()
    assert found is not None
    if found["format"] != FORMAT:
        raise PipelineError(f"{store.root} was written by another version of Ottla (format {found['format']})")
    if kind is not None and found["kind"] != kind:
        raise PipelineError(f"{store.root} was written by the pipeline '{found['kind']}'; choose another folder")
    return found
