"""Delta Lake tables, committed through delta-rs: no jars, and no dependency on a version of Spark.

    OUT/_delta_log/00000000000000000007.json     commit 7, of ours or of any other engine
    OUT/topic=orders/date=2026-01-31/…           files, named by partition and offsets

Our commits store the marks in their commitInfo, and a transaction number (`txn`) that grows by one. The newest commit
with marks holds the table's progress; commits of other engines (OPTIMIZE, for example) have none. By default delta-rs
retries a commit that conflicts with another. This is turned off: the marks are compared before the next attempt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.commits import (
    DESCRIPTION,
    FOLDER,
    MIXED,
    OFFSETS,
    STATE,
    Change,
    CommitLog,
    Conflict,
    DataFile,
    State,
    check_ours,
    columns_added,
    marked_rows,
    put_in_place,
)
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.parquet import delta_stats
from ottla.spark.pipelines.stores import ArrowStore, read_json

if TYPE_CHECKING:
    from deltalake import DeltaTable

APP: Final = "ottla"
_COPY: Final = f"{FOLDER}/delta-state.json"
_TRIES: Final = 20
"""How often to try a commit that conflicts with other engines' commits, which change no marks."""
_RETENTION: Final = {"delta.logRetentionDuration": "interval 365 days"}


class DeltaLog(CommitLog):
    """The log of a Delta table."""

    format = "delta"

    def __init__(self, store: ArrowStore) -> None:
        self.store = store
        self._serial = -1

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self.store.root, storage_options=self.store.delta_options())
        except DeltaError as error:
            raise PipelineError(f"{self.store.root} cannot be read as a Delta table: {_line(error)}") from None

    def describe(self) -> dict[str, Any] | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.store.root, self.store.delta_options()):
            return None
        text = self._table().metadata().configuration.get(DESCRIPTION)
        return check_ours(text, "a Delta table", self.store.root)

    def create(self, description: Mapping[str, Any], schema: Any, partition_by: tuple[str, ...]) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        try:
            DeltaTable.create(
                self.store.root,
                schema=Schema.from_arrow(schema),
                partition_by=list(partition_by),
                configuration={DESCRIPTION: json.dumps(description), **_RETENTION},
                raise_if_key_not_exists=False,
                storage_options=self.store.delta_options(),
            )
        except (DeltaError, ValueError, TypeError) as error:
            raise PipelineError(f"{self.store.root} cannot become a Delta table: {_line(error)}") from None
        self.store.sync("_delta_log/00000000000000000000.json")

    def evolve(self, schema: Any) -> list[str]:
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        table = self._table()
        wanted = Schema.from_arrow(schema).fields
        added = columns_added(table.schema().fields, wanted, self.store.root)
        if added:
            try:
                table.alter.add_columns(added)
            except DeltaError as error:
                raise PipelineError(f"{self.store.root} cannot get new columns: {_line(error)}") from None
        return [f"column {one.name} ({one.type}) was added" for one in added]

    # --- reading -----------------------------------------------------------------------------------------------------

    def load(self) -> State:
        table = self._table()
        state = State(table.version())
        self._serial = self._newest(table, state)
        state.rows_deleted = bool(_deleted(table))
        for row in _rows(table):
            file = _file(row)
            state.files[file.path] = file
        return state

    def deleted_rows(self) -> dict[str, Any]:
        return _deleted(self._table())

    def _newest(self, table: DeltaTable, state: State) -> int:
        """Load the state of our newest commit. Return its transaction number, or -1 if there is none."""
        if (number := table.transaction_version(APP)) is None:
            return -1
        text = _carried(table)
        if text is not None:
            return state.take(text)
        # Our commits are no longer in the log: after many commits of other engines its old part was cleaned up.
        if self.store.exists(_COPY) and state.take(json.dumps(read_json(self.store, _COPY))) == number:
            return int(number)
        raise PipelineError(
            f"{self.store.root}: the log no longer has the commit that says how far the table is; it was cleaned up. "
            "Begin again with another folder"
        )

    # --- writing -----------------------------------------------------------------------------------------------------

    def recover(self, state: State) -> None:
        """Keep a copy of the marks, in case the log is cleaned up after many commits of other engines."""
        if self._serial >= 0:
            self._copy(state.carried(Change(0, 0, {}, [], {}, [], {}), self._serial))

    def _copy(self, text: str) -> None:
        self.store.replace(_COPY, text.encode())

    def commit(self, change: Change, state: State) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        placed = put_in_place(self.store, change.add)
        text = state.carried(change, self._serial + 1)
        base = state.number
        number = base
        for left in range(_TRIES - 1, -1, -1):
            table = self._table()
            number = table.version() + 1
            if table.version() != base:
                self._check_same(table, change)
            try:
                self._write(table, change, placed, text)
                break
            except CommitFailedError:
                if not left:
                    raise Conflict(self.store.root) from None
            except DeltaError as error:
                raise explain(error) from None
        self.store.sync(f"_delta_log/{number:020d}.json")
        self.store.sync("_delta_log")
        self._serial += 1
        self._copy(text)
        if number == base + 1:
            state.apply(Change(number, change.at_ms, placed, change.remove, change.marks, change.lost, change.extra))
        else:
            fresh = self.load()
            state.number, state.files = fresh.number, fresh.files
            state.marks, state.lost, state.extra = fresh.marks, fresh.lost, fresh.extra
            state.rows_deleted = fresh.rows_deleted

    def unused(self, before_ms: int, dry_run: bool) -> tuple[int, dict[str, int]]:
        from deltalake.exceptions import DeltaError

        hours = max(0, (time.time_ns() // 1_000_000 - before_ms) // 3_600_000)
        try:
            # delta-rs deletes the files itself, and records that it did.
            table = self._table()
            named = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            found = {path: self.store.size(path) for path in named if self.store.exists(path)}
            if found and not dry_run:
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        except DeltaError as error:
            raise explain(error) from None
        old = [entry for entry in table.history() if entry["version"] < table.version()]
        return (sum(entry["timestamp"] < before_ms for entry in old) if found else 0), found

    def _check_same(self, table: DeltaTable, change: Change) -> None:
        """Other writers have committed. That is fine if they did not advance the table and kept our files."""
        number = table.transaction_version(APP)
        if (-1 if number is None else number) != self._serial:
            raise Conflict(self.store.root)
        if change.remove:
            there = {row["path"] for row in _rows(table)}
            if not set(change.remove) <= there:
                raise PipelineError(f"{self.store.root} was changed by another engine meanwhile; run it again")

    def _write(self, table: DeltaTable, change: Change, placed: Mapping[str, DataFile], text: str) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        keys = table.metadata().partition_columns
        if change.remove and not _deleted(table).keys().isdisjoint(change.remove):
            # delta-rs cannot name the vector of a file that it removes, and without it readers would keep the file.
            raise PipelineError(marked_rows(self.store.root))
        offsets = json.dumps(json.loads(text)["marks"])
        # Files that only replace others contain no changes for readers of the change feed.
        is_new = bool(change.marks) or not change.remove
        actions: list[Any] = []
        for file in placed.values():
            stats = json.dumps(delta_stats(self.store, file.path))
            values = _values(file.path, keys)
            actions.append(AddAction(file.path, file.bytes, values, change.at_ms, is_new, stats))
        for path in change.remove:
            actions.append(RemoveAction(path, is_new, change.at_ms, None, _values(path, keys)))
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=keys,
            commit_properties=CommitProperties(
                # Spark's DESCRIBE HISTORY shows userMetadata only.
                custom_metadata={
                    STATE: text,
                    OFFSETS: offsets,
                    "userMetadata": json.dumps({OFFSETS: json.loads(offsets)}),
                },
                max_commit_retries=0,
                app_transactions=[Transaction(APP, self._serial + 1)],
            ),
        )


def _values(path: str, keys: list[str]) -> dict[str, str | None]:
    folders: dict[str, str] = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return {key: folders[key] for key in keys}


def _carried(table: DeltaTable) -> str | None:
    """The state that our newest commit stored. A restored table has the progress of the restored version."""
    newest = table.version()
    for entry in table.history():
        if entry["version"] > newest:
            continue
        if STATE in entry:
            return str(entry[STATE])
        if entry.get("operation") == "RESTORE":
            named = entry.get("operationParameters", {}).get("version")
            newest = int(named) if named is not None else newest
    return None


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    import pyarrow

    found: list[dict[str, Any]] = pyarrow.table(table.get_add_actions(flatten=True)).to_pylist()
    return found


def _deleted(table: DeltaTable) -> dict[str, Any]:
    """By file: the numbers of the rows that another engine has marked as deleted (deletion vectors)."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    import numpy as np
    import pyarrow

    base = table.table_uri.rstrip("/") + "/"
    found: dict[str, Any] = {}
    for row in pyarrow.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().to_pylist():
        found[row["filepath"].removeprefix(base)] = np.flatnonzero(~np.asarray(row["selection_vector"], dtype=bool))
    return found


def _file(row: Mapping[str, Any]) -> DataFile:
    first, last = row.get("min.offset"), row.get("max.offset")
    partition = row.get("min.partition")
    if partition is None:
        partition = -1
    elif partition != row.get("max.partition"):
        partition = MIXED
    topic = row.get("partition.topic") or ""
    records = row["num_records"]
    return DataFile(
        row["path"],
        topic,
        partition,
        -1 if first is None else first,
        -1 if last is None else last,
        -1 if records is None else records,
        row["size_bytes"],
    )


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
