"""The rows of a query as a table: written once, or appended batch by batch while a stream runs.

The rows of a query have no offsets, so a batch cannot be cut at offsets. Instead, a batch is committed as a whole, with
the offsets that it has read. A batch that Spark repeats after a crash covers the same offsets and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.archive import go_on
from ottla.spark.pipelines.commits import DataFile
from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.formats import Kind, find_log
from ottla.spark.pipelines.jobs import Job
from ottla.spark.pipelines.parquet import write_parquet
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import Batch, Summary, run_stream
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.topics import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KIND: Final = "sql"


def write_result(job: Job, frame: DataFrame, ends: Offsets, out: str, target: Kind | None) -> int | None:
    """Write all rows of a query to a new table. Returns their number, if it is known."""
    store = open_store(out, job.spark)
    if target is None or target.format == "parquet":
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        frame.write.mode("errorifexists").parquet(store.url())
        return None
    if find_log(store) is not None:
        raise PipelineError(f"{store.root} already exists; choose another folder with --out, or continue with --stream")
    with Table.create_or_open(store, KIND, target, frame.schema, cluster=job.cluster.cluster_id()) as table:
        return _append(table, frame, ends)


def append_results(job: Job, read: Callable[[Offsets], DataFrame], starts: Offsets, out: str, target: Kind) -> Summary:
    """Run a query as a stream into a table."""
    store = open_store(out, job.spark)
    schema = read(starts).schema
    with Table.create_or_open(store, KIND, target, schema, cluster=job.cluster.cluster_id()) as table:
        for change in table.evolved:
            job.warn(f"{store.root}: {change}")
        written = 0

        def write(batch: Batch) -> int:
            nonlocal written
            marks = table.state.marks
            if all(end <= marks.get(tp, -1) for tp, end in batch.ends.items()):
                return 0
            repeated = [tp for tp, start in batch.starts.items() if start < marks.get(tp, start)]
            if repeated:
                raise PipelineError(
                    f"the checkpoint does not fit {store.root}: the table is at offset {marks[repeated[0]]} of "
                    f"{repeated[0][0]}-{repeated[0][1]}, and the query at {batch.starts[repeated[0]]}; delete the "
                    "checkpoint, and the query continues from the table's own offsets"
                )
            written += _append(table, batch.frame(), batch.ends)
            return sum(max(end - batch.starts.get(tp, end), 0) for tp, end in batch.ends.items())

        summary = run_stream(job, write, go_on(table, starts), table.id, read)
        summary.details = {"out": store.root, "format": table.format, "written": written}
    return summary


def _append(table: Table, frame: DataFrame, marks: Offsets) -> int:
    found = write_parquet(frame, table.store, table.staging())
    number = table.state.number + 1
    files = {
        one.path: DataFile(f"rows-{number:020d}-{index}.parquet", "", -1, -1, -1, one.records, one.bytes)
        for index, one in enumerate(found)
    }
    table.commit(files, marks=marks)
    return sum(one.records for one in found)
