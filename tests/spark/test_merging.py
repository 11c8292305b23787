"""MERGE without Spark: which rows changes replace, rewritten files, and Iceberg's position deletes under kills."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.spark.arrow import arrow_schema
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.formats import Kind
from ottla.spark.pipelines.merging import Source, _match, _rewrite, write_rows
from ottla.spark.pipelines.snapshot import KIND, SCHEMA
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table
from support.tables.other_engines import iceberg, key_values

MOMENT = datetime(2026, 1, 31, tzinfo=UTC)
KEYS = 30
KILLS = 20


def rows(*some: tuple[str, bytes, bytes | None, int, int, int]) -> pa.Table:
    """Topic, key, value, partition, offset and seconds after the moment."""
    made = [
        {
            "topic": topic,
            "key": key,
            "value": value,
            "headers": [],
            "partition": partition,
            "offset": offset,
            "timestamp": MOMENT + timedelta(seconds=seconds),
        }
        for topic, key, value, partition, offset, seconds in some
    ]
    return pa.Table.from_pylist(made, schema=arrow_schema(columns(SCHEMA)))


def changes(table: pa.Table, *partitions: list[int]) -> pa.Table:
    return table.append_column("partitions", pa.array(list(partitions), pa.list_(pa.int32())))


def test_which_rows_are_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    there = rows(
        ("t", b"same partition", b"1", 0, 10, 9),
        ("t", b"younger", b"1", 0, 11, 1),
        ("t", b"older", b"1", 0, 12, 9),
        ("u", b"same partition", b"1", 0, 10, 0),
        ("t", b"not touched", b"1", 0, 13, 0),
        ("t", b"seen here too", b"1", 0, 14, 9),
        ("t", b"deleted before", b"1", 0, 15, 0),
    )
    store = LocalStore(str(tmp_path))
    write_rows(there, store, path)
    fresh = changes(
        rows(
            ("t", b"same partition", b"2", 0, 20, 1),
            ("t", b"younger", b"2", 1, 3, 5),
            ("t", b"older", b"2", 1, 4, 5),
            ("t", b"seen here too", b"2", 1, 5, 5),
            ("t", b"new", b"2", 0, 21, 5),
            ("t", b"deleted before", b"2", 1, 6, -9),
        ),
        [0],
        [1],
        [1],
        [0, 1],
        [0],
        [1],
    )
    positions, lost = _match(store, Source(path, path, 1, deleted=[6]), fresh)
    assert sorted(positions.tolist()) == [0, 1, 5]
    assert lost.tolist() == [2]
    target = str(tmp_path / "b.parquet")
    source = Source(path, path, 1, deleted=[6])
    assert _rewrite(store, [(source, positions.tolist())], arrow_schema(columns(SCHEMA)), target) == 3
    kept = parquet.read_table(target)
    assert kept["key"].to_pylist() == [b"older", b"same partition", b"not touched"]
    assert kept["topic"].to_pylist() == ["t", "u", "t"]


# --- position deletes ------------------------------------------------------------------------------------------------


def open_table(root: str) -> Table:
    return Table.create_or_open(LocalStore(root), KIND, Kind("iceberg"), columns(SCHEMA))


def merge_one(table: Table, number: int) -> None:
    """One key gets another value: its row is marked as deleted, and a file with the new row is added."""
    key = b"%d" % (number % KEYS)
    staging, store = table.staging(), table.store
    assert isinstance(store, LocalStore)
    store.path(staging).mkdir(parents=True)
    staged = f"{staging}/fresh.parquet"
    write_rows(rows(("t", key, b"%d" % number, 0, number, number)), store, staged)
    deleted, found = table.log.deleted_rows(), {}
    for file in table.state.files.values():
        keys = parquet.read_table(table.place(file), columns=["key"])["key"].to_pylist()
        gone = set(deleted.get(file.path, ()))
        at = [index for index, one in enumerate(keys) if one == key and index not in gone]
        if at:
            found[file.path] = at
    made = {staged: DataFile(f"snapshot-{number}.parquet", "", -1, -1, -1, 1, store.size(staged))}
    table.commit(made, marks={("t", 0): number + 1}, delete_rows=found)


def run_merges(root: str, end: int, told: Connection) -> None:
    with open_table(root) as table:
        told.send(-1)
        while (number := table.state.marks.get(("t", 0), 0)) < end:
            merge_one(table, number)
            told.send(number)


def expected(end: int) -> dict[bytes, bytes]:
    return {b"%d" % (number % KEYS): b"%d" % number for number in range(end)}


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["test_merging", "pyspark.sql.types", "pyiceberg.catalog.sql"])
    yield made


def test_position_deletes_are_seen_by_all_engines_and_dropped_with_their_files(tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    with open_table(root) as table:
        for number in range(KEYS + 8):
            merge_one(table, number)
        wanted = expected(KEYS + 8)
        for found in key_values(root, "iceberg"):
            assert {row["key"]: row["value"] for row in found} == wanted
            assert len(found) == len(wanted)
        summary = iceberg(root).current_snapshot().summary
        assert summary["total-position-deletes"] == "8"
        # Rewriting the files that have deleted rows takes their delete files out of the table.
        old = list(table.log.deleted_rows())
        assert len(old) == 8
        table.commit({}, remove=old)
        assert table.log.deleted_rows() == {}
        for found in key_values(root, "iceberg"):
            assert {row["key"]: row["value"] for row in found} == wanted
    assert all(not task.delete_files for task in iceberg(root).scan().plan_files())


def test_merges_that_are_killed(processes: Any, tmp_path: Path) -> None:
    """A row is never there twice or not at all, wherever a merge is cut off."""
    root = str(tmp_path / "t")
    chance = random.Random(23)
    end = killed = 0
    while killed < KILLS:
        ours, theirs = processes.Pipe(False)
        child = processes.Process(target=run_merges, args=(root, 10_000, theirs))
        child.start()
        theirs.close()
        for _ in range(chance.randint(1, 3)):
            assert ours.poll(120)
            ours.recv()
        # Somewhere within the next commit.
        ours.poll(chance.random() * 0.05)
        child.kill()
        child.join(60)
        killed += 1
        end = Table.open(LocalStore(root), KIND).state.marks.get(("t", 0), 0)
        found = iceberg(root).scan().to_arrow().to_pylist()
        assert {row["key"]: row["value"] for row in found} == expected(end)
        assert len(found) == min(end, KEYS)
    assert end >= KILLS // 2, "there was nothing to be cut off"
