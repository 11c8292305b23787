"""Tables in every format: each offset once, even if a writer dies or others write; read by other engines.

The writers are small processes without Spark (support/tables/table_writer.py), as the commits are not Spark's either.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.commits import STATE
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.formats import Kind, check_format
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.upkeep import remove_unused, upkeep
from support.tables import table_writer as tables

KINDS = {
    "parquet": Kind("parquet"),
    "delta": Kind("delta"),
    "iceberg": Kind("iceberg"),
    "iceberg-hadoop": Kind("iceberg", "hadoop"),
}
KILLS = 20
ALL = pytest.mark.parametrize("name", list(KINDS))
OPEN = pytest.mark.parametrize("name", [name for name in KINDS if name != "parquet"])


@pytest.fixture(scope="module")
def processes() -> Any:
    """Children that have imported everything, so that killing many of them is cheap."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(
        ["support.tables.table_writer", "pyspark.sql.types", "pyiceberg.catalog.sql", "deltalake"]
    )
    return made


def rows_of(root: str | Path, name: str) -> list[tuple[int, int, bytes, str]]:
    """The rows, read by the format's own library, which does not know pipelines."""
    import pyarrow.dataset

    columns = ["partition", "offset", "value", "topic"]
    if name == "parquet":
        found = pyarrow.dataset.dataset(sorted(map(str, Path(root).glob("topic=*/**/*.parquet"))), format="parquet")
        rows = found.to_table(columns=columns[:3]).to_pylist()
        return sorted((row["partition"], row["offset"], row["value"], tables.TOPIC) for row in rows)
    if name == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(root)).to_pyarrow_table(columns=columns).to_pylist()
    else:
        rows = iceberg_table(root).scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)  # type: ignore[misc]


def iceberg_table(root: str | Path) -> Any:
    from ottla.spark.pipelines.iceberg import IcebergLog

    return IcebergLog.find(LocalStore(str(root))).table()


def wanted(end: int) -> list[tuple[int, int, bytes, str]]:
    return [(p, n, b"%d" % n, tables.TOPIC) for p in range(tables.PARTITIONS) for n in range(end)]


@ALL
def test_a_writer_that_is_killed(name: str, processes: Any, tmp_path: Path) -> None:
    """SIGKILL at random moments, most of which lie within a commit; at least 20 of them hit a writer at work."""
    root, chance = str(tmp_path / "t"), random.Random(name)
    kills, commits, end = 0, Counter[int](), 1_000_000
    deadline = time.monotonic() + 300
    while kills < KILLS:
        assert time.monotonic() < deadline
        here, there = processes.Pipe(duplex=False)
        child = processes.Process(target=tables.write, args=(root, KINDS[name], end, 3, there))
        child.start()
        there.close()
        assert here.poll(60), "the writer did not open the table"
        here.recv()
        # Some die before their first commit, some after a few.
        for _ in range(chance.randint(0, 2)):
            here.poll(60)
            commits[here.recv()] += 1
        time.sleep(chance.random() * 0.06)
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        kills += child.exitcode == -signal.SIGKILL
        while here.poll():
            try:
                commits[here.recv()] += 1
            except EOFError:
                break
        here.close()
    # All records that were confirmed to a writer exist, once.
    assert set(commits.values()) <= {1}
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        reached = table.state.marks[tables.TOPIC, 0]
        assert reached >= max(commits, default=0)
        assert rows_of(root, name) == wanted(reached)
        tables.advance(table, reached + 10, 3)
    assert kills >= KILLS
    assert rows_of(root, name) == wanted(reached + 10)


class Full(LocalStore):
    """A disk on which one operation finds no space."""

    def __init__(self, root: str, fails_at: int) -> None:
        super().__init__(root)
        self.left = fails_at

    def _spend(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write_new(self, path: str, content: bytes) -> None:
        self._spend()
        super().write_new(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self._spend()
        super().replace(path, content)

    def move(self, source: str, target: str) -> None:
        self._spend()
        super().move(source, target)

    def sync(self, path: str) -> None:
        self._spend()
        super().sync(path)


@OPEN
def test_a_disk_that_is_full_at_any_operation(name: str, tmp_path: Path) -> None:
    """Each operation of a first commit fails in its own table, and the next writer continues where that table is."""
    fails_at, failed = 1, True
    while failed:
        root = str(tmp_path / str(fails_at))
        try:
            with tables.open_table(Full(root, fails_at), KINDS[name]) as table:
                tables.advance(table, 2, 2)
            failed = False
        except OSError as error:
            assert error.errno == errno.ENOSPC
        except PipelineError as error:
            assert str(error).startswith("there is no space left on the disk")
        with tables.open_table(LocalStore(root), KINDS[name]) as table:
            tables.advance(table, 4, 2)
        assert rows_of(root, name) == wanted(4)
        fails_at += 1
    assert fails_at > 6


@OPEN
def test_two_writers_without_a_lock(name: str, processes: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    tables.open_table(LocalStore(root), KINDS[name]).close()
    children = [
        processes.Process(target=tables.write_with_others, args=(root, KINDS[name], 40, 2, seed)) for seed in (1, 2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(280)
    assert [child.exitcode for child in children] == [0, 0]
    assert rows_of(root, name) == wanted(40)


@OPEN
def test_a_writer_with_an_old_view_is_turned_away(name: str, tmp_path: Path) -> None:
    """Its records may already be in the table; readers do not see what it had moved into place."""
    root = str(tmp_path / "t")
    with tables.open_table(tables.Unlocked(root), KINDS[name]) as one:
        tables.advance(one, 4, 2)
        with tables.open_table(tables.Unlocked(root), KINDS[name]) as two:
            tables.advance(two, 6, 2)
        with pytest.raises(PipelineError, match="another process writes to"):
            tables.advance(one, 6, 2)
    assert rows_of(root, name) == wanted(6)


@OPEN
def test_the_table_alone_says_how_far_it_is(name: str, tmp_path: Path) -> None:
    root = tmp_path / "t"
    with tables.open_table(LocalStore(str(root)), KINDS[name]) as table:
        tables.advance(table, 4, 2)
        table.commit({}, marks={(tables.TOPIC, 0): 9}, extra={"a": 1}, lost=[{"first": 4, "end": 9}])
    if name == "delta":
        from deltalake import DeltaTable

        newest = DeltaTable(str(root)).history(1)[0]
        shutil.rmtree(root / "_ottla")
    else:
        newest = dict(iceberg_table(root).current_snapshot().summary.additional_properties)
    assert json.loads(newest["ottla.offsets"]) == {tables.TOPIC: {"0": 9, "1": 4}}
    assert json.loads(newest[STATE])["extra"] == {"a": 1}
    with tables.open_table(LocalStore(str(root)), KINDS[name]) as table:
        assert table.state.marks == {(tables.TOPIC, 0): 9, (tables.TOPIC, 1): 4}
        assert (table.state.extra, table.state.lost) == ({"a": 1}, [{"first": 4, "end": 9}])
        assert sorted((f.partition, f.first_offset, f.last_offset, f.records) for f in table.state.files.values()) == [
            (p, n, n + 1, 2) for p in (0, 1) for n in (0, 2)
        ]
        assert {f.topic for f in table.state.files.values()} == {tables.TOPIC}


def test_other_engines_compact_while_a_delta_table_grows(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        tables.advance(table, 12, 2)
        DeltaTable(root).optimize.compact()
        tables.advance(table, 16, 2)
        assert len(table.state.files) < 2 * 8
    assert rows_of(root, "delta") == wanted(16)
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        assert table.state.marks[tables.TOPIC, 1] == 16
        DeltaTable(root).optimize.compact()
    DeltaTable(root).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert rows_of(root, "delta") == wanted(16)


def test_a_delta_log_that_was_cleaned_up(tmp_path: Path) -> None:
    """After many commits of other engines: the copy next to the table is used, if it is the newest."""
    from deltalake import DeltaTable

    root = tmp_path / "t"
    with tables.open_table(LocalStore(str(root)), KINDS["delta"]) as table:
        tables.advance(table, 8, 2)
    DeltaTable(str(root)).optimize.compact()
    DeltaTable(str(root)).create_checkpoint()
    for number in range(5):
        (root / "_delta_log" / f"{number:020d}.json").unlink()
    with tables.open_table(LocalStore(str(root)), KINDS["delta"]) as table:
        tables.advance(table, 10, 2)
    assert rows_of(root, "delta") == wanted(10)
    copy = root / "_ottla" / "delta-state.json"
    copy.write_text(json.dumps({**json.loads(copy.read_text()), "serial": 1}))
    for entry in (root / "_delta_log").glob("*.json"):
        if STATE in entry.read_text():
            DeltaTable(str(root)).create_checkpoint()
            entry.unlink()
    with pytest.raises(PipelineError, match="the log no longer has the commit that says how far the table is"):
        tables.open_table(LocalStore(str(root)), KINDS["delta"])


def test_a_delta_table_that_was_restored(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        tables.advance(table, 8, 2)
    DeltaTable(root).restore(2)
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        assert table.state.marks[tables.TOPIC, 0] == 4
        tables.advance(table, 10, 2)
    assert rows_of(root, "delta") == wanted(10)


@pytest.mark.parametrize("name", ["iceberg", "iceberg-hadoop"])
def test_an_iceberg_table_whose_snapshots_expire_and_roll_back(name: str, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 6, 2)
    found = iceberg_table(root)
    with found.manage_snapshots() as manage:
        manage.rollback_to_snapshot(found.metadata.snapshots[1].snapshot_id)
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        assert table.state.marks[tables.TOPIC, 0] == 4
        tables.advance(table, 10, 2)
    found = iceberg_table(root)
    old = [
        one.snapshot_id for one in found.metadata.snapshots if one.snapshot_id != found.current_snapshot().snapshot_id
    ]
    found.maintenance.expire_snapshots().by_ids(old).commit()
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 12, 2)
    assert rows_of(root, name) == wanted(12)


@OPEN
def test_files_trade_places(name: str, tmp_path: Path) -> None:
    """As compaction commits them: readers see the rows once, and the offsets stay."""
    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 6, 1)
        old = [file.path for file in table.state.files.values()]
        table.commit(tables.stage(table, 0, 6), remove=old)
        assert len(table.state.files) == 2
        tables.advance(table, 8, 1)
    assert rows_of(root, name) == wanted(8)
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        assert len(table.state.files) == 2 + 4
        assert table.state.marks[tables.TOPIC, 1] == 8


@OPEN
def test_columns_that_come_later(name: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyspark.sql import types as T

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 2, 2)
        assert table.evolved == []
    with tables.open_table(LocalStore(root), KINDS[name], (("price", T.DoubleType()),)) as table:
        assert len(table.evolved) == 1
        assert table.evolved[0].startswith("column price")
        files = tables.stage(table, 2, 4, price=pa.array([1.5, 2.5]))
        table.commit(files, marks={(tables.TOPIC, p): 4 for p in (0, 1)})
    with tables.open_table(LocalStore(root), KINDS[name], (("price", T.DoubleType()),)) as table:
        assert table.evolved == []
    with tables.open_table(LocalStore(root), KINDS[name]) as table:  # a schema that lost a column: it is null there
        tables.advance(table, 6, 2)
    for kind in (T.StringType(), T.BooleanType()):
        with pytest.raises(PipelineError, match="price"):
            tables.open_table(LocalStore(root), KINDS[name], (("price", kind),))
    if name == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(root).to_pyarrow_table()
    else:
        found = iceberg_table(root).scan().to_arrow()
    prices = sorted((row["offset"], row["price"] or 0) for row in found.to_pylist() if row["partition"] == 0)
    assert prices == [(0, 0), (1, 0), (2, 1.5), (3, 2.5), (4, 0), (5, 0)]


@OPEN
def test_other_engines_read_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb
    import polars

    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 9, 2)
    if name == "delta":
        from deltalake import DeltaTable

        lazy = polars.scan_delta(root)
        rows = DeltaTable(root).to_pyarrow_dataset()
    else:
        lazy = polars.scan_iceberg(iceberg_table(root))
        rows = iceberg_table(root).scan().to_arrow()
    some = lazy.filter((polars.col("offset") >= 5) & (polars.col("topic") == tables.TOPIC)).collect()
    assert sorted(some["offset"].to_list()) == [5, 5, 6, 6, 7, 7, 8, 8]
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = 'select count(*), count(distinct (partition, "offset")), min(date), max(topic) from rows'
        assert connection.execute(query).fetchall() == [(18, 18, date(2026, 1, 31), tables.TOPIC)]


@OPEN
def test_a_folder_with_a_space_in_its_name(name: str, tmp_path: Path) -> None:
    root = str(tmp_path / "with a space")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 4, 2)
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        assert len(table.state.files) == 4
        assert all(Path(root, file.path).exists() for file in table.state.files.values())
    assert rows_of(root, name) == wanted(4)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("orc",), "format is one of parquet, delta, iceberg, not 'orc'"),
        (("json",), "to choose the format of the values, use --value-format json"),
        (("delta", "hadoop"), "only Iceberg has a catalog and a table name"),
        (("iceberg", "nowhere"), "'nowhere' is not a catalog"),
    ],
)
def test_invalid_formats_are_refused(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        check_format(*arguments)


@OPEN
def test_tables_of_other_programs_are_refused(name: str, tmp_path: Path) -> None:
    import pyarrow as pa

    root = tmp_path / "t"
    if name == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(root), pa.table({"a": [1]}))
        problem = "is a Delta table that no pipeline wrote"
    else:
        with tables.open_table(LocalStore(str(root)), KINDS[name]):
            pass
        with iceberg_table(root).transaction() as transaction:
            transaction.remove_properties("ottla.table")
        problem = "is an Iceberg table .* that no pipeline wrote"
    with pytest.raises(PipelineError, match=problem):
        tables.open_table(LocalStore(str(root)), KINDS[name])
    with pytest.raises(PipelineError, match=problem):
        Table.open(LocalStore(str(root)))


def test_a_table_keeps_its_format(tmp_path: Path) -> None:
    with tables.open_table(LocalStore(str(tmp_path)), KINDS["delta"]):
        pass
    with pytest.raises(PipelineError, match="was created with --format delta"):
        tables.open_table(LocalStore(str(tmp_path)), KINDS["iceberg"])
    with Table.create_or_open(LocalStore(str(tmp_path)), "archive") as table:
        assert table.format == "delta"


def test_catalogs_that_are_down(tmp_path: Path) -> None:
    for catalog in ("http://127.0.0.1:1", "sqlite:////nowhere/c.db", "postgresql+nosuchdriver://u:secret@h/d"):
        root = tmp_path / str(abs(hash(catalog)))
        with pytest.raises(PipelineError, match=r"^the catalog .* cannot be used: ") as caught:
            tables.open_table(LocalStore(str(root)), Kind("iceberg", catalog))
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)
        # The folder is as it was, for another attempt.
        with tables.open_table(LocalStore(str(root)), KINDS["iceberg"]) as table:
            tables.advance(table, 2, 2)


def test_a_rest_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to a commit may be lost: what is there is not written again. Secrets stay in the environment."""
    from support.tables.rest_catalog import RestCatalog

    monkeypatch.setenv("LAKE_TOKEN", "s3cret")
    root = str(tmp_path / "t")
    with RestCatalog() as catalog:
        kind = Kind("iceberg", catalog.address, {"token": "${env:LAKE_TOKEN}"}, "lake.orders")
        with tables.open_table(LocalStore(root), kind) as table:
            tables.advance(table, 4, 2)
            catalog.lost_answers = 1
            tables.advance(table, 8, 2)
        assert catalog.lost_answers == 0
        with tables.open_table(tables.Unlocked(root), kind) as one:
            with tables.open_table(tables.Unlocked(root), kind) as two:
                tables.advance(two, 10, 2)
            with pytest.raises(PipelineError, match="another process writes to"):
                tables.advance(one, 10, 2)
        assert rows_of(root, "iceberg") == wanted(10)
        assert catalog.tokens[-1] == "Bearer s3cret"
        assert "s3cret" not in Path(root, "_ottla", "iceberg.json").read_text()
    with pytest.raises(PipelineError, match=r"^the catalog http://127\.0\.0\.1:\d+ cannot be used: "):
        Table.open(LocalStore(root))


# --- upkeep ----------------------------------------------------------------------------------------------------------


@ALL
def test_vacuum_removes_old_versions_and_stray_files(name: str, tmp_path: Path) -> None:
    """Earlier versions and the files of a writer that was killed go; the table and its offsets stay."""
    root = str(tmp_path / "t")
    now_ms = time.time_ns() // 1_000_000
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 6, 1)
        old = [file.path for file in table.state.files.values()]
        table.commit(tables.stage(table, 0, 6), remove=old)
        tables.advance(table, 8, 1)
        needed = {file.path for file in table.state.files.values()}
        left = tables.stage(table, 8, 9)  # staged, and then killed
    lost = "topic=orders.v1/date=2026-01-31/lost.parquet"
    lost = f"data/{lost}" if name.startswith("iceberg") else lost
    if name != "parquet":
        shutil.copy(Path(root, next(iter(left))), Path(root, lost))
    with pytest.raises(PipelineError, match="less than an hour is too short"):
        upkeep(root, expire_ms=1000)
    assert upkeep(root, dry_run=True).files == []
    assert all(Path(root, staged).exists() for staged in left)
    assert upkeep(root).files == []  # nothing is a week old
    assert not any(Path(root, staged).exists() for staged in left)  # no writer can need it any more
    if name == "parquet":
        return
    time.sleep(0.01)
    before = rows_of(root, name)
    for entry in Path(root).rglob("*.parquet"):
        os.utime(entry, (entry.stat().st_mtime - 10, entry.stat().st_mtime - 10))
    would = remove_unused(root, now_ms + 600_000, dry_run=True)
    assert rows_of(root, name) == before == wanted(8)
    data = {path for path in would.files if path.endswith(".parquet")}
    assert data == {*old, lost}
    done = remove_unused(root, now_ms + 600_000, dry_run=False)
    assert set(would.files) <= set(done.files)
    assert done.bytes >= would.bytes > 0
    assert not any(Path(root, path).exists() for path in done.files)
    assert all(Path(root, path).exists() for path in needed)
    assert rows_of(root, name) == wanted(8)
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        assert table.state.marks[tables.TOPIC, 1] == 8
        tables.advance(table, 10, 1)
    assert rows_of(root, name) == wanted(10)


@pytest.mark.parametrize("name", ["iceberg", "iceberg-hadoop"])
def test_rows_that_another_engine_marked_as_deleted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table still grows; what reads its files says that they are not the table."""
    from ottla.spark.pipelines.iceberg import IcebergLog

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 4, 2)
    load = IcebergLog.load

    def with_deletes(self: Any) -> Any:
        state = load(self)
        state.rows_deleted = True
        return state

    monkeypatch.setattr(IcebergLog, "load", with_deletes)
    with tables.open_table(LocalStore(root), KINDS[name]) as table:
        tables.advance(table, 6, 2)
        with pytest.raises(PipelineError, match="another engine has marked rows as deleted"):
            table.url(next(iter(table.state.files.values())))
    assert rows_of(root, name) == wanted(6)


def test_a_delta_table_that_may_have_deletion_vectors(tmp_path: Path) -> None:
    """As long as it has none, it is read like any other; test_lakehouse.py has tables with some."""
    from deltalake import DeltaTable

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        tables.advance(table, 4, 2)
    features = {"reader": ["deletionVectors"], "writer": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {f"{kind}Features": names for kind, names in features.items()}  # type: ignore[dict-item,misc]
    number = DeltaTable(root).version() + 1
    Path(root, "_delta_log", f"{number:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        tables.advance(table, 6, 2)
        assert not table.state.rows_deleted
        assert all(Path(table.url(file).removeprefix("file://")).exists() for file in table.state.files.values())
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        assert table.state.marks[tables.TOPIC, 0] == 6


def test_upkeep_as_people_run_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from ottla.cli.main import main

    root = str(tmp_path / "t")
    with tables.open_table(LocalStore(root), KINDS["delta"]) as table:
        tables.advance(table, 4, 2)
    assert main(["pipeline", "upkeep", root, "--dry-run"]) == 0
    assert capfd.readouterr().out == "0 versions and 0 files (0 B) would be removed\n"
    assert main(["pipeline", "upkeep", root, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["format"] == "delta"
    assert main(["pipeline", "upkeep", str(tmp_path / "nowhere")]) == 1
    assert "is not a folder that `ottla pipeline archive` wrote" in capfd.readouterr().err
    assert main(["pipeline", "upkeep", root, "--expire", "5m"]) == 1
    assert len(capfd.readouterr().err.splitlines()) == 1
