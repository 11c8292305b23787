"""Tables of the pipelines in Delta's and Iceberg's own Spark: what it reads, and what it may do to them.

All tests of a process share that Spark, which is another version than the pipelines'.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table
from support.tables.lakehouse import Lakehouse, LakeTable
from support.tables.spark_versions import OLDEST

WAYS = pytest.mark.parametrize("way", ["delta", "iceberg"])
START_MS = 1_790_000_040_000
ROWS = (
    "select topic, partition, offset, cast(key as string) as key, cast(value as string) as value from {} order by 2, 3"
)


@pytest.fixture(scope="module")
def lakehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lakehouse]:
    with Lakehouse(tmp_path_factory.mktemp("lakehouse")) as found:
        assert found.version == OLDEST
        yield found


class Way:
    """A format and a catalog: the options of a pipeline, and its table in that Spark."""

    def __init__(self, name: str, lakehouse: Lakehouse, folder: Path) -> None:
        format, _, catalog = name.partition("-")
        self.format = format
        self.out = folder / "my data" / "lake" / "orders"
        self.options: dict[str, Any] = {"format": format}
        if catalog:
            self.options["catalog"] = catalog
        self._lakehouse, self._catalog = lakehouse, catalog or "sql"

    @property
    def table(self) -> LakeTable:
        return LakeTable(self._lakehouse, self.out, self.format, self._catalog)

    def records(self) -> list[tuple[int, int, str | None, str | None]]:
        return [(row["partition"], row["offset"], row["key"], row["value"]) for row in self.table.sql(ROWS)]

    def forget(self) -> None:
        """Keep only the table."""
        shutil.rmtree(self.out / "_ottla" / "checkpoint")
        (self.out / "_ottla" / "delta-state.json").unlink(missing_ok=True)

    def files(self) -> int:
        return len(Table.open(LocalStore(str(self.out))).state.files)


@pytest.fixture
def kind(way: str, lakehouse: Lakehouse, tmp_path: Path) -> Way:
    return Way(way, lakehouse, tmp_path)


def sent(partition: int, first: int, end: int) -> list[tuple[int, int, str | None, str | None]]:
    return [(partition, n, f"k{n}", f"{n}") for n in range(first, end)]


def values(first: int, end: int) -> list[tuple[str, bytes]]:
    return [(f"k{n}", b"%d" % n) for n in range(first, end)]


@WAYS
def test_an_archive_that_both_change(kind: Way, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    """That Spark reads every commit, and merges, deletes and expires; the pipelines continue, and repeat nothing."""
    topic = make_topic(2, retention_ms=-1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla"}
    out = str(kind.out)
    send(topic, values(0, 6), 0, START_MS, [("h", b"1"), ("none", None)])
    send(topic, [*values(0, 4), (None, None), (b"", b"")], 1, START_MS + 86_400_000)
    ottla.spark.archive(topic, out, max_records=5, **kind.options, **options)
    wanted = [*sent(0, 0, 6), *sent(1, 0, 4), (1, 4, None, None), (1, 5, "", "")]
    assert kind.records() == wanted
    table = kind.table
    (first,) = table.sql("select * from {} where partition = 0 and offset = 0")
    assert first["headers"] == [{"key": "h", "value": "1"}, {"key": "none", "value": None}]
    assert (first["topic"], first["timestampType"], first["date"]) == (topic, 0, "2026-09-21")
    assert first["timestamp"] == "2026-09-21 14:14:00"
    # Its statistics and partitions are right: they decide which files are read.
    assert table.sql("select count(*) as n from {} where date = date'2026-09-22'") == [{"n": 6}]
    assert table.sql("select count(*) as n from {} where offset > 3 and partition = 0") == [{"n": 2}]
    assert table.sql("select count(*) as n from {} where timestamp < timestamp'2026-09-22'") == [{"n": 6}]
    assert carried(kind) == {topic: {"0": 6, "1": 6}}

    # The pipelines merge files, then that Spark does.
    assert ottla.spark.compact(out, spark=spark).merged > 0
    assert kind.records() == wanted
    send(topic, values(6, 9), 0, START_MS)
    ottla.spark.archive(topic, out, max_records=1, **options)
    wanted = sorted([*wanted, *sent(0, 6, 9)], key=lambda row: row[:2])
    before = kind.files()
    if kind.format == "delta":
        table.sql("optimize {}")
    else:
        table.sql(
            f"call ottla.system.rewrite_data_files(table => '{table.name}', options => map('min-input-files', '2'))"
        )
    assert kind.files() < before
    assert kind.records() == wanted
    assert ottla.spark.verify(out, content=True, **options).problems == []
    kind.forget()
    send(topic, values(9, 10), 0, START_MS)
    assert ottla.spark.archive(topic, out, **options).records == 1
    wanted = sorted([*wanted, *sent(0, 9, 10)], key=lambda row: row[:2])
    assert kind.records() == wanted

    # It cleans up as far as it can; the offsets stay.
    if kind.format == "delta":
        table.sql("set spark.databricks.delta.retentionDurationCheck.enabled = false")
        table.sql("vacuum {} retain 0 hours")
    else:
        now = "timestamp '2100-01-01'"
        table.sql(f"call ottla.system.expire_snapshots(table => '{table.name}', older_than => {now}, retain_last => 1)")
        table.sql(f"call ottla.system.remove_orphan_files(table => '{table.name}')")
    kind.forget()
    assert ottla.spark.archive(topic, out, **options).records == 0
    assert kind.records() == wanted
    assert ottla.spark.verify(out, content=True, **options).problems == []


def carried(kind: Way) -> Any:
    """The offsets that the newest commit shows to people."""
    if kind.format == "delta":
        history = kind.table.sql("describe history {} limit 1")
        return json.loads(history[0]["userMetadata"])["ottla.offsets"]
    rows = kind.table.sql(f"select summary from {kind.table.name}.snapshots order by committed_at desc limit 1")
    return json.loads(rows[0]["summary"]["ottla.offsets"])


@pytest.mark.parametrize("way", ["delta", "iceberg-hadoop"])
def test_rows_that_it_deletes(kind: Way, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    """As marks beside the files: deletion vectors, or position deletes. The archive grows; what reads files waits."""
    topic = make_topic(1, retention_ms=-1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla"}
    out, table = str(kind.out), kind.table
    send(topic, values(0, 10), 0, START_MS)
    ottla.spark.archive(topic, out, **kind.options, **options)
    if kind.format == "delta":
        table.sql("alter table {} set tblproperties ('delta.enableDeletionVectors' = true)")
    else:
        table.sql("alter table {} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    # A table that may have such rows, and has none, is like any other.
    assert ottla.spark.verify(out, content=True, **options).problems == []
    table.sql("delete from {} where offset in (2, 3)")
    wanted = [*sent(0, 0, 2), *sent(0, 4, 10)]
    assert kind.records() == wanted
    with pytest.raises(PipelineError, match="another engine has marked rows as deleted"):
        ottla.spark.verify(out, **options)
    kind.forget()
    send(topic, values(10, 12), 0, START_MS)
    assert ottla.spark.archive(topic, out, **options).records == 2
    wanted += sent(0, 10, 12)
    assert kind.records() == wanted
    # Once it has rewritten the files, they can be read again, and `verify` says what is missing.
    if kind.format == "delta":
        table.sql("reorg table {} apply (purge)")
    else:
        rewrite = "options => map('rewrite-all', 'true', 'delete-file-threshold', '1')"
        table.sql(f"call ottla.system.rewrite_data_files(table => '{table.name}', {rewrite})")
    assert kind.records() == wanted
    assert ottla.spark.verify(out, **options).problems == [f"{topic}-0: 2 records of the log are in no file, first 2"]
    assert ottla.spark.archive(topic, out, **options).records == 0


@pytest.mark.parametrize(
    ("way", "merge"),
    [
        ("delta", "copy-on-write"),
        ("iceberg-hadoop", "copy-on-write"),
        ("iceberg", "merge-on-read"),
    ],
)
def test_upserts(kind: Way, merge: str, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    topic = make_topic(1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla", "merge": merge}
    wanted: dict[str, str] = {}

    def change(*some: tuple[str, str | None]) -> None:
        send(topic, some, 0, START_MS)
        for key, value in some:
            wanted.pop(key, None)
            if value is not None:
                wanted[key] = value
        ottla.spark.snapshot(topic, str(kind.out), **kind.options, **options)
        found = kind.table.sql("select cast(key as string) as key, cast(value as string) as value from {}")
        assert sorted((row["key"], row["value"]) for row in found) == sorted(wanted.items())

    change(*((f"k{n}", "old") for n in range(40)))
    change(("k3", "new"), ("k4", None), ("more", "1"))
    deletes = 0
    if kind.format == "iceberg":
        deletes = len(kind.table.sql(f"select * from {kind.table.name}.delete_files"))
    assert (deletes > 0) == (merge == "merge-on-read")
    change(("k3", None), ("k4", "back"), ("k5", "new"))
    change(*((f"k{n}", f"all {n}") for n in range(0, 40, 2)))


@pytest.mark.parametrize("way", ["delta"])
def test_a_key_that_it_deletes(kind: Way, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    """It is gone for readers of a snapshot, too, and does not come back with the next change."""
    topic = make_topic(1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla"}
    out, table = str(kind.out), kind.table
    send(topic, [("a", b"1"), ("b", b"1"), ("c", b"1")])
    ottla.spark.snapshot(topic, out, **kind.options, **options)
    table.sql("alter table {} set tblproperties ('delta.enableDeletionVectors' = true)")
    table.sql("delete from {} where key = binary('b')")

    def keys() -> tuple[set[str], set[str]]:
        mine = {bytes(row.key).decode() for row in ottla.spark.read_snapshot(out, spark=spark).collect()}
        return mine, {row["key"] for row in table.sql("select cast(key as string) as key from {}")}

    assert keys() == ({"a", "c"}, {"a", "c"})
    send(topic, [("c", b"2"), ("d", b"2")])
    with pytest.raises(PipelineError, match="another engine has marked rows as deleted"):
        ottla.spark.snapshot(topic, out, **options)
    assert keys() == ({"a", "c"}, {"a", "c"})
    table.sql("reorg table {} apply (purge)")
    assert ottla.spark.snapshot(topic, out, **options).details["keys"] == 3
    assert keys() == ({"a", "c", "d"}, {"a", "c", "d"})


@WAYS
def test_columns_that_come_later(kind: Way, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    topic = make_topic(1)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "value_format": "json"}
    options |= {"on_warning": lambda _: None}
    send(topic, [(b"a", b'{"id": 1, "at": "2026-01-31T10:00:00Z", "price": 2.50}')])
    schema = "id BIGINT, at TIMESTAMP, price DECIMAL(9, 2)"
    ottla.spark.parse(topic, str(kind.out), schema=schema, **kind.options, **options)
    send(topic, [(b"b", b'{"id": 2, "tags": ["x"], "more": {"n": 1}}')])
    schema += ", tags ARRAY<STRING>, more STRUCT<n: INT>"
    ottla.spark.parse(topic, str(kind.out), schema=schema, **options)
    rows = kind.table.sql("select id, at, price, tags, more from {} order by id")
    assert rows == [
        {"id": 1, "at": "2026-01-31 10:00:00", "price": "2.50", "tags": None, "more": None},
        {"id": 2, "at": None, "price": None, "tags": ["x"], "more": {"n": 1}},
    ]
