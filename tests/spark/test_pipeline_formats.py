"""Pipelines into Delta and Iceberg tables: exactly once without a checkpoint, read back by other engines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table
from support.tables.other_engines import arrow, iceberg

FORMATS = pytest.mark.parametrize("name", ["delta", "iceberg"])
START_MS = 1_790_000_040_000


def places(out: Path | str, name: str) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in arrow(out, name).to_pylist())


def forget(out: Path) -> None:
    """Everything in the folder that is not part of the table."""
    shutil.rmtree(out / "_ottla" / "checkpoint")
    (out / "_ottla" / "delta-state.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("delta", {}),
        ("iceberg", {}),
        ("iceberg", {"catalog": "hadoop", "table_name": "lake.orders"}),
    ],
    ids=["delta", "iceberg", "hadoop"],
)
def test_an_archive(
    name: str, more: dict[str, str], spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(2, retention_ms=-1)
    for day in range(3):
        headers = [("h", b"1"), ("none", None)]
        send(topic, [(f"k{n}", b"%d" % n) for n in range(4)], day % 2, START_MS + day * 86_400_000, headers)
    send(topic, [(None, None), (b"", b"")], 1, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    out = tmp_path / "the archive"
    done = ottla.spark.archive(topic, str(out), format=name, max_records=5, **more, **options)
    assert (done.records, done.details["format"], done.details["archived"]) == (14, name, 14)
    assert done.batches > 1
    wanted = [(topic, p, n) for p, count in ((0, 8), (1, 6)) for n in range(count)]
    assert places(out, name) == wanted
    found = {(row["partition"], row["offset"]): row for row in arrow(out, name).to_pylist()}
    first = found[0, 0]
    assert (first["key"], first["value"], first["timestampType"]) == (b"k0", b"0", 0)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]
    assert (first["timestamp"].timestamp(), str(first["date"])) == (START_MS / 1000, "2026-09-21")
    assert (found[1, 4]["key"], found[1, 4]["value"], found[1, 5]["key"]) == (None, None, b"")

    # With all but the table gone nothing is repeated; what came meanwhile is added.
    forget(out)
    assert ottla.spark.archive(topic, str(out), **options).records == 0
    send(topic, [(b"new", b"er")] * 3, 1, START_MS)
    forget(out)
    assert ottla.spark.archive(topic, str(out), **options).records == 3
    wanted += [(topic, 1, n) for n in (6, 7, 8)]
    assert places(out, name) == sorted(wanted)

    assert ottla.spark.verify(str(out), content=True, **options).problems == []
    before = len(Table.open(LocalStore(str(out))).state.files)
    planned = ottla.spark.compact(str(out), dry_run=True)
    assert len(Table.open(LocalStore(str(out))).state.files) == before
    merged = ottla.spark.compact(str(out), spark=spark)
    assert (merged.files_before, merged.files_after) == (before, len(Table.open(LocalStore(str(out))).state.files))
    assert merged.files_after < before
    assert (planned.merged, planned.files_after) == (merged.merged, merged.files_after)
    assert places(out, name) == sorted(wanted)
    assert ottla.spark.verify(str(out), content=True, **options).problems == []
    again = ottla.spark.replay(str(out), to_topic=f"{topic}-again", **options)
    assert again.records == 17


@FORMATS
def test_verify_sees_what_other_engines_do(
    name: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """Files that they merge are fine; rows that they take away or write twice are not."""
    topic = make_topic(2, retention_ms=-1)
    for partition in (0, 1):
        send(topic, [(b"k", b"%d" % n) for n in range(6)], partition, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    out = str(tmp_path / "a")
    ottla.spark.archive(topic, out, format=name, max_records=4, **options)
    rows = arrow(out, name)
    if name == "delta":
        from deltalake import DeltaTable, write_deltalake

        DeltaTable(out).optimize.compact()
        found = ottla.spark.verify(out, content=True, **options)
        assert found.problems == []
        assert [(p.records, p.files) for p in found.partitions] == [(6, 1), (6, 1)]
        DeltaTable(out).delete('partition = 1 and "offset" = 3')
        write_deltalake(out, rows.slice(0, 1), mode="append")
    else:
        from pyiceberg.expressions import And, EqualTo

        from ottla.spark.pipelines.iceberg import IcebergLog

        table = IcebergLog.find(LocalStore(out)).table()
        table.delete(And(EqualTo("partition", 1), EqualTo("offset", 3)))
        table.append(rows.slice(0, 1))
    found = ottla.spark.verify(out, **options)
    twice = (rows.column("partition")[0].as_py(), rows.column("offset")[0].as_py())
    assert f"{topic}-1: 1 records of the log are in no file, first 3" in found.problems
    assert f"{topic}-{twice[0]}: 1 offsets are in more than one file, first {twice[1]}" in found.problems
    # The marks are where they were: the next run repeats nothing.
    assert ottla.spark.archive(topic, out, **options).records == 0


@FORMATS
def test_another_engine_reads_and_merges_during_a_run(
    name: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each batch it sees all that is committed, and puts the files of the table together."""
    from ottla.spark.pipelines.archive import _Archiver

    topic = make_topic(2, retention_ms=-1)
    for partition in (0, 1):
        send(topic, [(b"k", b"%d" % n) for n in range(10)], partition, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla"}
    out = str(tmp_path / "a")
    write, seen = _Archiver.write, []

    def write_and_merge(self: Any, batch: Any) -> int:
        count = write(self, batch)
        assert places(out, name) == [(topic, p, n) for p in (0, 1) for n in range(batch.ends[topic, p])]
        seen.append(merge_all(out, name))
        return count

    monkeypatch.setattr(_Archiver, "write", write_and_merge)
    assert ottla.spark.archive(topic, out, format=name, max_records=8, **options).records == 20
    assert len(seen) == 3
    assert seen[-1] < 6, "files of earlier batches were put together"
    assert places(out, name) == [(topic, p, n) for p in (0, 1) for n in range(10)]
    assert ottla.spark.verify(out, content=True, **options).problems == []
    monkeypatch.undo()
    forget(Path(out))
    assert ottla.spark.archive(topic, out, **options).records == 0


def merge_all(out: str, name: str) -> int:
    """As another engine does it; how many files the table has then."""
    if name == "delta":
        from deltalake import DeltaTable

        DeltaTable(out).optimize.compact()
        return len(DeltaTable(out).file_uris())
    table = iceberg(out)
    table.overwrite(table.scan().to_arrow())
    return len(list(table.scan().plan_files()))


@FORMATS
def test_values_whose_schema_grows(
    name: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(1)
    send(topic, [(b"a", b'{"id": 1, "price": 2.5}'), (b"b", b"no json"), (b"c", None)])
    out = tmp_path / "p"
    told: list[str] = []
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "value_format": "json"}
    options["on_warning"] = told.append
    done = ottla.spark.parse(topic, str(out), schema="id BIGINT, price DOUBLE", format=name, **options)
    assert (done.records, done.details["written"], done.details["bad"]) == (3, 2, 1)
    send(topic, [(b"d", b'{"id": 4, "price": 1, "tags": ["x"], "key": "taken"}')])
    grown = "id BIGINT, price DOUBLE, tags ARRAY<STRING>, key STRING"
    done = ottla.spark.parse(topic, str(out), schema=grown, **options)
    assert done.records == 1
    assert [line.partition(": ")[2].split(" (")[0] for line in told] == ["column tags", "column value_key"]
    rows = sorted(arrow(out, name).to_pylist(), key=lambda row: row["offset"])
    assert [(r["offset"], r["id"], r["price"], r["tags"], r["value_key"]) for r in rows] == [
        (0, 1, 2.5, None, None),
        (2, None, None, None, None),
        (3, 4, 1.0, ["x"], "taken"),
    ]
    with pytest.raises(PipelineError, match="price"):
        ottla.spark.parse(topic, str(out), schema="id BIGINT, price STRING", **options)
    forget(out)
    assert ottla.spark.parse(topic, str(out), schema=grown, **options).records == 0


@FORMATS
def test_a_snapshot_and_windows(name: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1, retention_ms=-1)
    send(topic, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], 0, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "format": name}
    kept, counted = tmp_path / "kept", tmp_path / "counted"
    ottla.spark.snapshot(topic, str(kept), **options)
    ottla.spark.stats(topic, str(counted), window_ms=60_000, delay_ms=0, **options)
    send(topic, [(b"a", b"2"), (b"b", None)], 0, START_MS + 300_000)
    for out in (kept, counted):
        forget(out)
    assert ottla.spark.snapshot(topic, str(kept), **options).records == 2
    assert ottla.spark.stats(topic, str(counted), window_ms=60_000, delay_ms=0, **options).records == 2
    values = {row["key"]: row["value"] for row in arrow(kept, name).to_pylist()}
    assert values == {b"a": b"2", b"c": b"1"}
    assert {bytes(row.key) for row in ottla.spark.read_snapshot(str(kept), spark=spark).collect()} == set(values)
    assert [row["records"] for row in arrow(counted, name).to_pylist()] == [3]
    windows = ottla.spark.read_stats(str(counted), spark=spark).collect()
    assert [(row.records, row.final) for row in windows] == [(3, True), (2, False)]


@FORMATS
def test_a_query(name: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    send(topic, [(b"a", b"%d" % n) for n in range(4)])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "tables": {"t": topic}, "format": name}
    once = str(tmp_path / "once")
    assert ottla.spark.sql("select key, count(*) as n from t group by key", out=once, **options).written == 1
    assert arrow(once, name).to_pylist() == [{"key": "a", "n": 4}]
    with pytest.raises(PipelineError, match="already exists"):
        ottla.spark.sql("select key from t", out=once, **options)

    out, checkpoint = tmp_path / "stream", tmp_path / "c"
    query = "select int(value) as n, timestamp from t where int(value) % 2 = 0"
    stream = {"out": str(out), "stream": True, "checkpoint": str(checkpoint), **options}
    assert ottla.spark.sql(query, **stream).written == 2
    shutil.rmtree(checkpoint)
    send(topic, [(b"a", b"%d" % n) for n in range(4, 8)])
    assert ottla.spark.sql(query, **stream).written == 2
    assert ottla.spark.sql(query, **stream).written == 0
    assert sorted(row["n"] for row in arrow(out, name).to_pylist()) == [0, 2, 4, 6]
    with pytest.raises(PipelineError, match="a format is that of the table"):
        ottla.spark.sql("select 1 from t", **options)


def test_from_the_command_line(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from ottla.cli.main import main

    topic = make_topic(1)
    send(topic, [(b"k", b"v")] * 3)
    common = ["-b", broker.bootstrap]
    out = str(tmp_path / "a")
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    words = ["pipeline", "archive", topic, "--out", out, "--format", "iceberg", "--catalog", catalog, *common]
    assert main([*words, "--table-name", "lake.orders", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["details"]["format"] == "iceberg"
    from pyiceberg.catalog.sql import SqlCatalog

    assert SqlCatalog("ottla", uri=catalog).load_table("lake.orders").scan().to_arrow().num_rows == 3
    assert main(["pipeline", "verify", out, *common]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "each offset is in exactly one file"
    assert main(["pipeline", "archive", topic, "--out", out, "--format", "delta", *common]) == 1
    assert "was created with --format iceberg" in capfd.readouterr().err
    assert main(["pipeline", "archive", topic, "--out", f"{out}2", "--format", "orc", *common]) == 1
    assert "format is one of parquet, delta, iceberg, not 'orc'" in capfd.readouterr().err
