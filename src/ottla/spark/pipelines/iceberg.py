"""Apache Iceberg tables, committed through pyiceberg: no jars, and no dependency on a version of Spark.

    OUT/data/topic=orders/date=2026-01-31/…      files, named by partition and offsets
    OUT/metadata/                                Iceberg's own
    OUT/_ottla/iceberg.json                      the catalog and the name of the table; see `catalogs`

Our commits store the marks in the summary of the snapshot and in a table property, which remains when snapshots expire.
By default pyiceberg retries a commit that conflicts with another, so two writers could both succeed. This is turned
off: the marks are compared before the next attempt.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ottla.spark.pipelines import catalogs
from ottla.spark.pipelines.commits import (
    DESCRIPTION,
    MIXED,
    OFFSETS,
    STATE,
    Change,
    CommitLog,
    Conflict,
    DataFile,
    State,
    check_ours,
    put_in_place,
)
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.stores import ArrowStore

DATA: Final = "data/"
_TRIES: Final = 20
"""How often to try a commit that conflicts with other engines' commits, which change no marks."""
_NO_RETRIES: Final = "commit.retry.num-retries"


class IcebergLog(CommitLog):
    """The log of an Iceberg table."""

    format = "iceberg"

    def __init__(self, store: ArrowStore, pointer: Mapping[str, Any]) -> None:
        self.store = store
        self._pointer = pointer
        self._opened: Any = None
        self._serial = -1

    @classmethod
    def declare(
        cls, store: ArrowStore, catalog: str | None, options: Mapping[str, str], table_name: str | None
    ) -> IcebergLog:
        return cls(store, catalogs.declare(store, catalog, options, table_name))

    @classmethod
    def find(cls, store: ArrowStore) -> IcebergLog:
        return cls(store, catalogs.find(store))

    @property
    def _catalog(self) -> Any:
        if self._opened is None:
            self._opened = catalogs.open_catalog(self.store, self._pointer)
        return self._opened

    @property
    def name(self) -> str:
        return str(self._pointer["table"])

    def table(self) -> Any:
        """The current table, or None if the catalog has no table of this name."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._catalog.load_table(tuple(self.name.split(".")))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except PipelineError:
            raise
        except Exception as error:  # from the database, HTTP or the file system
            raise catalogs.unreachable(self._pointer["catalog"], error) from None

    def _present(self) -> Any:
        table = self.table()
        if table is None:
            raise PipelineError(f"the catalog {self._pointer['catalog']} no longer has the table {self.name}")
        return table

    def describe(self) -> dict[str, Any] | None:
        table = self.table()
        if table is None:
            return None
        return check_ours(table.properties.get(DESCRIPTION), f"an Iceberg table ({self.name})", self.store.root)

    def create(self, description: Mapping[str, Any], schema: Any, partition_by: tuple[str, ...]) -> None:
        try:
            namespace = tuple(self.name.split(".")[:-1])
            columns = _with_ids(schema)
            self._catalog.create_namespace_if_not_exists(namespace)
            self._catalog.create_table(
                tuple(self.name.split(".")),
                schema=columns,
                location=self.store.root,
                partition_spec=_spec(columns, partition_by),
                properties={DESCRIPTION: json.dumps(description), "format-version": "2"},
            )
        except (PipelineError, OSError):
            raise
        except Exception as error:  # types that Iceberg has no match for, or the catalog
            raise PipelineError(f"{self.store.root} cannot become an Iceberg table: {_line(error)}") from None

    def evolve(self, schema: Any) -> list[str]:
        table = self._present()
        known = {field.name for field in table.schema().fields}
        try:
            with table.update_schema() as update:
                update.union_by_name(_with_ids(schema))
        except Exception as error:  # pyiceberg has no specific class for this
            raise PipelineError(f"{self.store.root} cannot take the new schema: {_line(error)}") from None
        return [f"column {field.name} ({field.type}) was added" for field in schema if field.name not in known]

    # --- reading -----------------------------------------------------------------------------------------------------

    def load(self) -> State:
        table = self._present()
        state = State(table.metadata.last_sequence_number)
        text = _carried(table)
        self._serial = -1 if text is None else state.take(text)
        for task in table.scan().plan_files():
            state.rows_deleted |= bool(task.delete_files)
            file = self._file(table, task.file)
            state.files[file.path] = file
        return state

    def deleted_rows(self) -> dict[str, Any]:
        from ottla.spark.pipelines.iceberg_deletes import read_deletes

        try:
            found = read_deletes(self._present())
        except ValueError:
            raise PipelineError(
                f"{self.store.root}: another engine has deleted rows by their values, which is not read here; have it "
                "rewrite the files first (rewrite_data_files)"
            ) from None
        return {self._relative(path): rows for path, rows in found.items()}

    def recover(self, state: State) -> None:
        """Do nothing: an existing commit is complete."""

    def _relative(self, path: str) -> str:
        plain = path.removeprefix("file://")
        return plain.removeprefix(f"{self.store.root}/") if plain.startswith(f"{self.store.root}/") else path

    def _file(self, table: Any, file: Any) -> DataFile:
        partition, offset = (_bounds(table.schema(), file, name) for name in ("partition", "offset"))
        keys = [field.name for field in table.specs()[file.spec_id].fields]
        topic = str(file.partition[keys.index("topic")]) if "topic" in keys else ""
        same = partition is not None and partition[0] == partition[1]
        return DataFile(
            self._relative(file.file_path),
            topic,
            -1 if partition is None else partition[0] if same else MIXED,
            -1 if offset is None else offset[0],
            -1 if offset is None else offset[1],
            file.record_count,
            file.file_size_in_bytes,
        )

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, change: Change, state: State) -> None:
        from pyiceberg.exceptions import CommitFailedException

        placed = put_in_place(self.store, change.add, DATA)
        text = state.carried(change, self._serial + 1)
        base = state.number
        for left in range(_TRIES - 1, -1, -1):
            table = self._present()
            if _serial_of(table) != self._serial:
                raise Conflict(self.store.root)
            try:
                self._write(table, change, placed, text)
                break
            except CommitFailedException:
                if not left:
                    raise Conflict(self.store.root) from None
            except Exception as error:
                # The response of a catalog can be lost although the commit succeeded.
                if _carried(self._present()) == text:
                    break
                raise explain(error) from None
        self._serial += 1
        fresh = self._present()
        self._sync(fresh)
        if fresh.metadata.last_sequence_number == base + 1:
            files = Change(base + 1, change.at_ms, placed, change.remove, change.marks, change.lost, change.extra)
            state.apply(files)
            state.rows_deleted |= bool(change.delete_rows)
        else:
            again = self.load()
            state.number, state.files = again.number, again.files
            state.marks, state.lost, state.extra = again.marks, again.lost, again.extra
            state.rows_deleted = again.rows_deleted

    def unused(self, before_ms: int, dry_run: bool) -> tuple[int, dict[str, int]]:
        """Expire old snapshots that no branch or tag needs. Then find the files that no other snapshot refers to."""
        table = self._present()
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [
            one.snapshot_id
            for one in table.metadata.snapshots
            if one.timestamp_ms < before_ms and one.snapshot_id not in heads
        ]
        if old and not dry_run:
            table.maintenance.expire_snapshots().by_ids(old).commit()
            table = self._present()
        needed = {self._relative(path) for path in _named(table, set(old))}
        found = {
            path: size
            for folder in (DATA.rstrip("/"), "metadata")
            for path, size in self.store.walk(folder)
            if path not in needed and path != "metadata/version-hint.text" and self.store.changed_ms(path) < before_ms
        }
        return len(old), found

    def _write(self, table: Any, change: Change, placed: Mapping[str, DataFile], text: str) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file
        from pyiceberg.table import TableProperties

        # Changes only this copy of the metadata: another writer's commit must be checked before the next attempt.
        table.metadata.properties[_NO_RETRIES] = "0"
        carried = {STATE: text, OFFSETS: json.dumps(json.loads(text)["marks"])}
        with table.transaction() as transaction:
            names = {TableProperties.DEFAULT_NAME_MAPPING: table.metadata.schema().name_mapping.model_dump_json()}
            transaction.set_properties({STATE: text, **names})
            with self._update(table, transaction, change, carried) as snapshot:
                for file in self._files_of(table, change.remove):
                    snapshot.delete_data_file(file)
                for one in placed.values():
                    path = f"{self.store.root}/{one.path}"
                    with _without_remarks():
                        made = parquet_file_to_data_file(table.io, transaction.table_metadata, path)
                    snapshot.append_data_file(made)

    def _update(self, table: Any, transaction: Any, change: Change, carried: dict[str, str]) -> Any:
        """The kind of commit that a change needs."""
        deleted = self.deleted_rows() if change.remove else {}
        if not change.delete_rows and not deleted:
            update = transaction.update_snapshot(snapshot_properties=carried)
            return update.overwrite() if change.remove else update.fast_append()
        from ottla.spark.pipelines.iceberg_deletes import MergeFiles, write_deletes

        file = None
        if change.delete_rows:
            paths = {self._relative(one.file.file_path): one.file.file_path for one in table.scan().plan_files()}
            if not set(change.delete_rows) <= set(paths):
                raise PipelineError(f"{self.store.root} was changed by another engine meanwhile; run it again")
            path = f"{DATA}deletes-{uuid.uuid4().hex}.parquet"
            rows = {paths[name]: some for name, some in change.delete_rows.items()}
            file = write_deletes(self.store, path, rows, table.metadata.default_spec_id)
            self.store.sync(path)
        # If a commit removes all data files that have delete files, the delete files are no longer needed.
        drop = bool(deleted) and set(deleted) <= set(change.remove)
        return MergeFiles(transaction, table.io, carried, file, drop)

    def _files_of(self, table: Any, paths: Iterable[str]) -> list[Any]:
        wanted = set(paths)
        if not wanted:
            return []
        found = [task.file for task in table.scan().plan_files() if self._relative(task.file.file_path) in wanted]
        if len(found) != len(wanted):
            raise PipelineError(f"{self.store.root} was changed by another engine meanwhile; run it again")
        return found

    def _sync(self, table: Any) -> None:
        """The catalog is already on disk. Sync the files that it refers to."""
        snapshot = table.current_snapshot()
        names = [table.metadata_location, snapshot.manifest_list]
        names += [
            one.manifest_path for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id
        ]
        for name in names:
            path = self._relative(name)
            if "://" not in path and self.store.exists(path):  # a server may keep them elsewhere
                self.store.sync(path)


@contextmanager
def _without_remarks() -> Iterator[None]:
    """pyiceberg logs every column without a minimum and maximum, which is normal for keys and values."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _with_ids(schema: Any) -> Any:
    """The Iceberg columns for Arrow columns."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import assign_fresh_schema_ids

    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))


def _spec(columns: Any, partition_by: tuple[str, ...]) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    fields = [
        PartitionField(columns.find_field(name).field_id, 1000 + index, IdentityTransform(), name)
        for index, name in enumerate(partition_by)
    ]
    return PartitionSpec(*fields)


def _carried(table: Any) -> str | None:
    """The state that our newest commit stored. Snapshots come first, because the table may have been rolled back to
    one.

    The property is used if the snapshots with this state have expired.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and STATE in snapshot.summary.additional_properties:
            return str(snapshot.summary.additional_properties[STATE])
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
    found = table.properties.get(STATE)
    return None if found is None else str(found)


def _named(table: Any, expired: set[int]) -> Iterator[str]:
    """Every file that the table needs for its remaining snapshots."""
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for one in table.metadata.statistics:
        yield one.statistics_path
    seen: set[str] = set()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id in expired:
            continue
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for item in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield item.data_file.file_path


def _serial_of(table: Any) -> int:
    text = _carried(table)
    return -1 if text is None else int(json.loads(text)["serial"])


def _bounds(schema: Any, file: Any, name: str) -> tuple[Any, Any] | None:
    """The lowest and highest value of a column in a file, or None if unknown."""
    from pyiceberg.conversions import from_bytes

    try:
        field = schema.find_field(name)
    except ValueError:
        return None
    low, high = (file.lower_bounds or {}).get(field.field_id), (file.upper_bounds or {}).get(field.field_id)
    if low is None or high is None:
        return None
    return from_bytes(field.field_type, low), from_bytes(field.field_type, high)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
