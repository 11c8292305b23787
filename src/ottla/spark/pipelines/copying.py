"""Records of Ottla's own source straight to Parquet files: each task reads a range and writes it, all in Arrow.

Spark distributes the ranges and collects the list of written files. The records never pass through the JVM, which would
convert each of them to a row and back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.filters import Pushed
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.pipelines.stores import ArrowStore
from ottla.spark.sessions import parallelism

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.spark.pipelines.jobs import Job
    from ottla.spark.pipelines.topics import Offsets
    from ottla.spark.source import Task

_DAY_US: Final = 86_400_000_000
_GROUP_BYTES: Final = 32 << 20
"""How many bytes of records a file collects before it writes them as a row group."""
_OPEN_FILES: Final = 32
"""For how many days a task keeps files open."""
_TASK_RECORDS: Final = 100_000
"""Fewer records than this do not justify a separate task."""
_RESULT: Final = "path string, topic string, day int, partition int, first bigint, last bigint, records bigint"
_UNORDERED: Final = ("value", "headers")
"""Columns without statistics, because no query searches them by minimum and maximum."""


class Copied(NamedTuple):
    """A file that a task wrote; `day` counts from 1970-01-01."""

    path: str
    topic: str
    day: int
    partition: int
    first_offset: int
    last_offset: int
    records: int


@dataclass(frozen=True)
class Copy:
    """Everything that a task needs."""

    options: SourceOptions
    schema: StructType
    store: ArrowStore
    staging: str
    compression: str
    with_date: bool
    """Whether the files have the day as a column. Otherwise it is in the folder names."""


def copy_records(
    job: Job, starts: Offsets, ends: Offsets, schema: StructType, store: ArrowStore, staging: str, *, compression: str
) -> list[Copied]:
    """Write the records from `starts` up to, but not including, `ends` below a staging folder, by topic, partition and
    day.

    `schema` contains the columns. If `date` is one of them, the files contain it too.
    """
    from pyspark.sql.types import StructType

    from ottla.spark.source import Reader, Task

    options = source_options(job.source_range(starts, ends), streaming=False)
    with_date = "date" in schema.names
    read = StructType([one for one in schema.fields if one.name != "date"])
    copy = Copy(options, read, store, staging, compression, with_date)
    store.prepare(staging)
    shares = deal(
        [task for task in Reader(options, read).partitions() if isinstance(task, Task)], parallelism(job.spark)
    )
    if not shares:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _run(copy, shares[number])

    rows = job.spark.range(0, len(shares), 1, len(shares)).mapInArrow(run, _RESULT).collect()
    return [Copied(f"{staging}/{row[0]}", *row[1:]) for row in rows]


def deal(tasks: Sequence[Task], at_once: int) -> list[list[Task]]:
    """Tasks for Spark: large ranges alone, small ones together, the largest first."""
    total = sum(task.end - task.start for task in tasks)
    count = min(len(tasks), max(at_once, -(-total // _TASK_RECORDS)))
    shares: list[list[Task]] = [[] for _ in range(count)]
    sizes = [0] * count
    for task in sorted(tasks, key=lambda task: task.start - task.end):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(task)
        sizes[smallest] += task.end - task.start
    return shares


# --- in the executors ------------------------------------------------------------------------------------------------


def _run(copy: Copy, tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    found = [one for task in tasks for one in _copy(copy, task)]
    columns = [[one[at] for one in found] for at in range(len(Copied._fields))]
    kinds = [pa.string(), pa.string(), pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.int64()]
    names = ["path", "topic", "day", "partition", "first", "last", "records"]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names)


def _copy(copy: Copy, task: Task) -> list[Copied]:
    from ottla.spark.source import read_task

    files: dict[int, _File] = {}
    done: list[Copied] = []
    for batch in read_task(copy.options, copy.schema, task, Pushed()):
        for day, rows in by_day(batch):
            if day not in files and len(files) >= _OPEN_FILES:
                done.append(files.pop(next(iter(files))).close())
            file = files.setdefault(day, _File(copy, task, day))
            file.add(rows)
    return done + [file.close() for file in files.values()]


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each day (UTC), in order."""
    import numpy as np
    import pyarrow as pa

    times = batch.column(batch.schema.names.index("timestamp")).cast(pa.int64()).to_numpy(zero_copy_only=False)
    days = times // _DAY_US
    if days[0] == days[-1] and (days == days[0]).all():
        yield int(days[0]), batch
        return
    for day in np.unique(days):
        yield int(day), batch.filter(pa.array(days == day))


class _File:
    """A file that is being written."""

    def __init__(self, copy: Copy, task: Task, day: int) -> None:
        self._copy = copy
        self._task = task
        self._day = day
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._first = self._last = -1
        self._records = 0

    def add(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column(rows.schema.names.index("offset"))
        if self._first < 0:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._records += len(rows)
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.Table.from_batches(self._waiting)
        if self._copy.with_date:
            table = table.append_column(
                "date", pa.repeat(pa.scalar(self._day, pa.int32()), len(table)).cast(pa.date32())
            )
        if self._writer is None:
            names = table.schema.names
            self._writer = parquet.ParquetWriter(
                self._copy.store.key(f"{self._copy.staging}/{self._name}"),
                table.schema,
                filesystem=self._copy.store.filesystem,
                compression=self._copy.compression,
                use_dictionary=[name for name in names if name not in ("value", "offset", "timestamp")],
                write_statistics=[name for name in names if name not in _UNORDERED],
                store_schema=False,
            )
        self._writer.write_table(table)
        self._waiting, self._bytes = [], 0

    def close(self) -> Copied:
        if self._waiting:
            self._flush()
        self._writer.close()
        task = self._task
        return Copied(self._name, task.topic, self._day, task.partition, self._first, self._last, self._records)
