"""Writes a table as pipelines do, without Spark. test_formats.py kills it, or runs a second writer against it.

pyarrow writes the files in the layout that Spark uses; everything else is the pipelines' own code.
"""

from __future__ import annotations

import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ottla.spark.pipelines.commits import Conflict, DataFile
from ottla.spark.pipelines.formats import Kind
from ottla.spark.pipelines.stores import LocalStore
from ottla.spark.pipelines.tables import Table

TOPIC = "orders.v1"
PARTITIONS = 2
DAYS = ("2026-01-31", "2026-02-01")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FIELDS = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("headers", HEADERS),
    ("topic", pa.string()),
    ("date", pa.date32()),
]


class Unlocked(LocalStore):
    """A store that behaves like an object store: no lock keeps a second writer out."""

    def lock(self) -> Any:
        return None


def spark_schema(more: tuple[tuple[str, Any], ...] = ()) -> Any:
    from pyspark.sql import types as T

    header = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
    kinds: list[tuple[str, Any]] = [
        ("key", T.BinaryType()),
        ("value", T.BinaryType()),
        ("partition", T.IntegerType()),
        ("offset", T.LongType()),
        ("timestamp", T.TimestampType()),
        ("headers", T.ArrayType(header)),
        ("topic", T.StringType()),
        ("date", T.DateType()),
        *more,
    ]
    return T.StructType([T.StructField(name, kind) for name, kind in kinds])


def open_table(store: LocalStore, kind: Kind, more: tuple[tuple[str, Any], ...] = ()) -> Table:
    return Table.create_or_open(store, "archive", kind, spark_schema(more), ("topic", "date"), cluster="c")


def stage(table: Table, first: int, end: int, **more: pa.Array) -> dict[str, DataFile]:
    """Files of all partitions for offsets from `first` to before `end`."""
    from datetime import UTC, date, datetime

    staging, files = table.staging(), {}
    for partition in range(PARTITIONS):
        day = DAYS[first % 2]
        moment = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
        count = end - first
        columns = {
            "key": [b"k"] * count,
            "value": [b"%d" % offset for offset in range(first, end)],
            "partition": [partition] * count,
            "offset": list(range(first, end)),
            "timestamp": [moment] * count,
            "headers": [[{"key": "h", "value": b"1"}]] * count,
            "topic": [TOPIC] * count,
            "date": [date.fromisoformat(day)] * count,
        }
        rows = pa.table(columns, schema=pa.schema(FIELDS))
        for name, values in more.items():
            rows = rows.append_column(name, values)
        if table.format != "iceberg":
            rows = rows.drop_columns(["topic", "date"])  # as the folders have them
        staged = f"{staging}/part-{partition}.parquet"
        path = Path(table.store.root, staged)
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(rows, path)
        name = f"topic={TOPIC}/date={day}/{TOPIC}-{partition}-{first:020d}-{end - 1:020d}.parquet"
        files[staged] = DataFile(name, TOPIC, partition, first, end - 1, count, path.stat().st_size)
    return files


def advance(table: Table, end: int, step: int, told: Connection | None = None) -> None:
    """Commit batches up to an offset, from where the table is."""
    while (mark := table.state.marks.get((TOPIC, 0), 0)) < end:
        upto = min(mark + step, end)
        table.commit(stage(table, mark, upto), marks={(TOPIC, p): upto for p in range(PARTITIONS)})
        if told is not None:
            told.send(upto)


def write(root: str, kind: Kind, end: int, step: int, told: Connection) -> None:
    """The main function of a process that can be killed at any time."""
    with open_table(LocalStore(root), kind) as table:
        told.send(-1)
        advance(table, end, step, told)


def write_with_others(root: str, kind: Kind, end: int, step: int, seed: int) -> None:
    """One of several processes without a lock: the one that loses reads the table again, and continues after the
    existing records."""
    chance = random.Random(seed)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            with open_table(Unlocked(root), kind) as table:
                advance(table, end, step)
            return
        except Conflict:
            time.sleep(chance.random() * 0.05)
    raise AssertionError("the writers kept each other out")
