"""Snapshots as MERGE: copy-on-write and merge-on-read, compared with a plain dictionary after every round."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import PipelineError
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table
from support.tables.other_engines import arrow, key_values

WAYS = pytest.mark.parametrize(
    ("name", "merge"),
    [
        ("parquet", "copy-on-write"),
        ("delta", "copy-on-write"),
        ("iceberg", "copy-on-write"),
        ("iceberg", "merge-on-read"),
    ],
)
START_MS = 1_790_000_040_000


def table_of(out: str) -> Table:
    return Table.open(LocalStore(out), "snapshot")


def seen(rows: Any) -> dict[bytes, bytes]:
    found = {bytes(row["key"]): bytes(row["value"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@WAYS
def test_rounds_of_changes(
    name: str, merge: str, spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    topic = make_topic(2, retention_ms=-1)
    chance = random.Random(name + merge)
    wanted: dict[bytes, bytes] = {}
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla", "merge": merge}
    out = str(tmp_path / "kept")
    for number in range(5):
        changes: dict[int, list[tuple[bytes, bytes | None]]] = {0: [], 1: []}
        for _ in range(300 if number == 0 else 6):
            # Every key stays in its partition, as a producer's keys do.
            key = chance.randrange(200)
            value = None if chance.random() < 0.2 else b"%d.%d" % (number, chance.randrange(1000))
            changes[key % 2].append((b"k%d" % key, value))
            wanted[b"k%d" % key] = value  # type: ignore[assignment]
        for partition, some in changes.items():
            send(topic, some, partition, START_MS + number)
        before = set() if number == 0 else set(table_of(out).state.files)
        done = ottla.spark.snapshot(topic, out, format=name, **options)
        alive = {key: value for key, value in wanted.items() if value is not None}
        assert done.details["keys"] == len(alive)
        assert seen(ottla.spark.read_snapshot(out, spark=spark).collect()) == alive
        for rows in key_values(out, name) if name != "parquet" else ():
            assert seen(rows) == alive
        if merge == "merge-on-read" and number == 1:
            assert before < set(table_of(out).state.files), "nothing was to be rewritten"
            assert table_of(out).log.deleted_rows()
    if merge == "merge-on-read":
        # A batch that changes most keys has the deleted rows cleaned out.
        send(topic, [(b"k%d" % key, b"last") for key in range(0, 200, 2)], 0, START_MS + 9)
        ottla.spark.snapshot(topic, out, format=name, **options)
        assert not table_of(out).log.deleted_rows()
        assert sum(row == b"last" for row in seen(arrow(out, name).to_pylist()).values()) == 100


def test_files_without_changed_keys_stay(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.spark.pipelines import snapshot as module

    monkeypatch.setattr(module, "SMALL_BYTES", 0)  # which are put together with others
    topic = make_topic(2)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla", "format": "delta"}
    out = str(tmp_path / "kept")
    for partition in (0, 1):
        send(topic, [(b"k%d-%d" % (partition, n), b"old") for n in range(5)], partition)
        ottla.spark.snapshot(topic, out, **options)
    before = set(table_of(out).state.files)
    assert len(before) == 2
    send(topic, [(b"k1-3", b"new")], 1)
    ottla.spark.snapshot(topic, out, **options)
    assert len(before & set(table_of(out).state.files)) == 1
    found = seen(arrow(out, "delta").to_pylist())
    assert found == {b"k%d-%d" % (p, n): b"new" if (p, n) == (1, 3) else b"old" for p in (0, 1) for n in range(5)}


def test_change_events_and_a_key_that_moves(
    spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """Debezium's envelopes, merged on read; a key of two partitions keeps the younger value."""
    topic = make_topic(2)
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark, "source": "ottla", "format": "iceberg"}
    options |= {"envelope": "debezium", "merge": "merge-on-read"}
    out = str(tmp_path / "kept")

    def event(op: str, **after: Any) -> bytes:
        return json.dumps({"payload": {"op": op, "before": None, "after": after or None}}).encode()

    send(topic, [(b"%d" % n, event("r", id=n)) for n in range(20)], 0, START_MS)
    ottla.spark.snapshot(topic, out, **options)
    send(topic, [(b"3", event("u", id=33)), (b"4", event("d")), (b"4", None)], 0, START_MS + 10)
    send(topic, [(b"5", event("u", id=-5))], 1, START_MS - 10)  # older than what is there
    send(topic, [(b"6", event("u", id=66))], 1, START_MS + 10)
    ottla.spark.snapshot(topic, out, **options)
    found = {key: json.loads(value)["id"] for key, value in seen(arrow(out, "iceberg").to_pylist()).items()}
    assert found == {b"%d" % n: {3: 33, 6: 66}.get(n, n) for n in range(20) if n != 4}


def test_wrong_options_are_refused(spark: Any, broker: Any, make_topic: Any, send: Any, tmp_path: Path) -> None:
    topic = make_topic(1)
    send(topic, [(b"k", b"v")])
    options: dict[str, Any] = {"bootstrap": broker.bootstrap, "spark": spark}
    with pytest.raises(PipelineError, match="merge is one of copy-on-write, merge-on-read, not 'both'"):
        ottla.spark.snapshot(topic, str(tmp_path / "a"), merge="both", **options)
    with pytest.raises(PipelineError, match="merge-on-read is for Iceberg"):
        ottla.spark.snapshot(topic, str(tmp_path / "b"), merge="merge-on-read", format="delta", **options)
