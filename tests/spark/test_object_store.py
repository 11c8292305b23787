"""Tables in a bucket: an S3 server of this machine, commits that two writers cannot both make, and readers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.archive import PARTITIONED_BY, SCHEMA
from ottla.spark.pipelines.commits import Conflict
from ottla.spark.pipelines.ddl import columns
from ottla.spark.pipelines.formats import Kind
from ottla.spark.pipelines.object_stores import ObjectStore
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.upkeep import remove_unused
from support.ports import free_ports

FORMATS = pytest.mark.parametrize("name", ["delta", "iceberg"])
START_MS = 1_790_000_040_000


@pytest.fixture(scope="module")
def server(until: Any) -> Iterator[str]:
    """In a process of its own: delta-rs does not let other threads run while it waits for an answer."""
    (port,) = free_ports()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert child.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers, "the object store")
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(60)


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, unique: Any) -> str:
    settings = {"AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for name, value in {**settings, "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    name = unique("b").lower()
    import boto3

    boto3.client("s3", endpoint_url=server).create_bucket(Bucket=name)
    return f"s3://{name}"


def catalog(name: str, folder: Path) -> dict[str, Any]:
    return {"catalog": f"sqlite:///{folder}/catalog.db"} if name == "iceberg" else {}


def table_of(out: str, name: str) -> Any:
    """As the format's own reader gives it."""
    store = ObjectStore(out)
    if name == "delta":
        from deltalake import DeltaTable

        return DeltaTable(out, storage_options=store.delta_options()).to_pyarrow_table()
    from ottla.spark.pipelines.iceberg import IcebergLog

    return IcebergLog.find(store).table().scan().to_arrow()


def rows(out: str, name: str) -> list[Any]:
    found = table_of(out, name).to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in found)


@pytest.mark.parametrize(("name", "source"), [("delta", "kafka"), ("iceberg", "ottla")])
def test_an_archive(
    name: str, source: str, bucket: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(2, retention_ms=-1)
    for partition in (0, 1):
        send(topic, [(b"k", b"%d" % n) for n in range(10)], partition, START_MS, [("h", b"1")])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": source}
    out = f"{bucket}/lake/orders"
    more = {"format": name, **catalog(name, tmp_path)}
    assert ottla.spark.archive(topic, out, max_records=8, **more, **options).records == 20
    wanted = [(topic, p, n, b"%d" % n) for p in (0, 1) for n in range(10)]
    assert rows(out, name) == wanted
    # The table alone says how far it is.
    ObjectStore(out).delete("_ottla/checkpoint")
    send(topic, [(b"k", b"new")], 1, START_MS)
    assert ottla.spark.archive(topic, out, **options).records == 1
    assert rows(out, name) == sorted([*wanted, (topic, 1, 10, b"new")])
    assert ottla.spark.verify(out, content=True, **options).problems == []
    merged = ottla.spark.compact(out, **options)
    assert (merged.files_before > 2, merged.files_after) == (True, 2)
    found = ottla.spark.verify(out, content=True, **options)
    assert (found.problems, found.records) == ([], 21)
    assert ottla.spark.replay(out, to_topic=f"{topic}-again", **options).records == 21
    assert not list(ObjectStore(out).walk("_ottla/staging")), "nothing is left over"
    unused = remove_unused(out, time.time_ns() // 1_000_000 + 60_000, dry_run=False)
    assert len(unused.files) >= merged.merged, "the small files are of older versions"
    assert ottla.spark.verify(out, **options).problems == []


def test_parsed_values_windows_and_queries(bucket: str, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    topic = make_topic(1, retention_ms=-1)
    send(topic, [(b"a", b'{"id": 1}'), (b"b", b'{"id": 2}'), (b"c", b"no json")], 0, START_MS)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "format": "delta"}
    parsing: dict[str, Any] = {"value_format": "json", "schema": "id BIGINT", **options}
    windows: dict[str, Any] = {"window_ms": 60_000, "delay_ms": 0, **options}
    parsed, counted, asked = f"{bucket}/parsed", f"{bucket}/windows", f"{bucket}/rows"
    assert ottla.spark.parse(topic, parsed, **parsing).details["bad"] == 1
    assert ottla.spark.stats(topic, counted, **windows).records == 3
    send(topic, [(b"a", b'{"id": 3}')], 0, START_MS + 300_000)
    assert ottla.spark.parse(topic, parsed, **parsing).details["good"] == 1
    assert ottla.spark.stats(topic, counted, **windows).records == 1
    assert sorted(row["id"] for row in table_of(parsed, "delta").to_pylist()) == [1, 2, 3]
    shown = ottla.spark.read_stats(counted, spark=spark).collect()
    assert [(row.records, row.final) for row in shown] == [(3, True), (1, False)]
    query: dict[str, Any] = {"tables": {"t": topic}, "out": asked, **options}
    assert ottla.spark.sql("select key, count(*) as n from t group by key", **query).written == 3
    assert sorted((row["key"], row["n"]) for row in table_of(asked, "delta").to_pylist()) == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
    ]


@pytest.mark.parametrize(("name", "merge"), [("delta", "copy-on-write"), ("iceberg", "merge-on-read")])
def test_a_snapshot(
    name: str, merge: str, bucket: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(1)
    send(topic, [(b"%d" % n, b"1") for n in range(40)])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "format": name, **catalog(name, tmp_path)}
    out = f"{bucket}/kept"
    ottla.spark.snapshot(topic, out, merge=merge, **options)
    send(topic, [(b"0", b"2"), (b"1", None), (b"new", b"1")])
    assert ottla.spark.snapshot(topic, out, merge=merge, **options).details["keys"] == 40
    wanted = {b"%d" % n: b"1" for n in range(2, 40)} | {b"0": b"2", b"new": b"1"}
    assert {row["key"]: row["value"] for row in table_of(out, name).to_pylist()} == wanted
    read = ottla.spark.read_snapshot(out, spark=spark).collect()
    assert {bytes(row.key): bytes(row.value) for row in read} == wanted


@FORMATS
def test_two_writers(name: str, bucket: str, tmp_path: Path) -> None:
    """There is no lock: the second one is turned away at its commit, and what it wrote is in no version."""
    out = f"{bucket}/two"
    more = catalog(name, tmp_path)
    kind = Kind(name, more.get("catalog"))

    def opened() -> Table:
        return Table.create_or_open(
            ObjectStore(out), "archive", kind, columns(SCHEMA), PARTITIONED_BY, cluster="c", topics={}, isolation="i"
        )

    first, second = opened(), opened()
    first.commit({}, marks={("t", 0): 5})
    with pytest.raises(Conflict):
        second.commit({}, marks={("t", 0): 7})
    assert opened().state.marks == {("t", 0): 5}


def test_wrong_options_are_refused(bucket: str, spark: Any, broker: Any, make_topic: Any, send: Any) -> None:
    topic = make_topic(1)
    send(topic, [(b"k", b"v")])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    with pytest.raises(PipelineError, match="add --format delta or iceberg"):
        ottla.spark.archive(topic, f"{bucket}/a", **options)
    with pytest.raises(PipelineError, match="choose a catalog"):
        ottla.spark.archive(topic, f"{bucket}/a", format="iceberg", **options)
    with pytest.raises(PipelineError, match="with --format delta or iceberg only"):
        ottla.spark.sql("select 1 from t", tables={"t": topic}, out=f"{bucket}/a", **options)
    with pytest.raises(PipelineError, match="Spark writes the checkpoint of a query, and cannot write to s3://"):
        ottla.spark.sql("select 1 from t", tables={"t": topic}, checkpoint=f"{bucket}/c", **options)
    with pytest.raises(PipelineError, match="Spark writes the findings of quality, and cannot write to s3://"):
        ottla.spark.quality(topic, out=f"{bucket}/a", **options)
    assert list(ObjectStore(bucket).walk("")) == []
