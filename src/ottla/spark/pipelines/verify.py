"""`verify`: proof that each offset of an archive is in exactly one committed file.

Three things are checked. Every file matches its name and the manifest. No offset is in two files. Offsets
between the first and the last archived one that are in no file are not in the log either: they belong to a transaction
marker, an aborted record, or a record that compaction removed. Offsets that the log has deleted cannot be checked this
way. They are counted as `gone`, or as `lost` if the archive noticed the deletion.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

from ottla.spark.pipelines.archive import KIND, archive_options, read_archive
from ottla.spark.pipelines.commits import MIXED, DataFile
from ottla.spark.pipelines.errors import PipelineError, explain, patient
from ottla.spark.pipelines.jobs import Job, Options, open_job, spark_of
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.streams import recreated
from ottla.spark.pipelines.tables import Table
from ottla.spark.pipelines.topics import Offsets, TopicPartition, flat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class PartitionReport:
    """One archived partition. Covers the offsets from `begin` up to, but not including, `end`."""

    topic: str
    partition: int
    begin: int = 0
    end: int = 0
    files: int = 0
    records: int = 0
    duplicates: int = 0
    missing: int = 0
    """Records that are in the log but in no file."""
    gaps: int = 0
    """Offsets that are neither in a file nor in the log."""
    gone: int = 0
    """Offsets in no file, from before the start of the log."""
    changed: int = 0
    """Records that differ from the log (checked with content=True)."""


@dataclass(slots=True)
class Verification:
    """The verdict, and its evidence."""

    archive: str
    partitions: list[PartitionReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    against_log: bool = True
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Records that were removed before the archive could read them."""
    seconds: float = 0.0

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def ok(self) -> bool:
        return not self.problems


@patient
def verify(archive: str, *, log: bool = True, content: bool = False, **options: Unpack[Options]) -> Verification:
    """Check an archive against itself and, with `log`, against the topics; `content` compares records in full."""
    began = time.monotonic()
    store = open_store(archive, options.get("spark"))
    table = Table.open(store, KIND)
    topics = sorted({topic for topic, _ in table.state.marks})
    merged: Options = {**options, **archive_options(table)}  # type: ignore[typeddict-item]
    job = open_job("verify", topics, {**merged, "group": None}) if log and topics else None
    spark = job.spark if job is not None else spark_of(options)
    found = Verification(store.root, against_log=job is not None, lost=table.state.lost)
    try:
        _check_files(table, found)
        reports = _partitions(table)
        if not found.problems:
            frame = read_archive(spark, table)
            single = _check_contents(frame, table, found)
            if any(file.partition == MIXED for file in table.state.files.values()):
                _count_partitions(frame, reports)
            for report in reports.values():
                report.gaps = report.end - report.begin - report.records
            if not single or not _disjoint(table):
                _check_duplicates(frame, reports, found)
            if job is not None:
                _check_log(job, frame, table, reports, found, content)
    except PipelineError:
        raise
    except Exception as error:
        raise explain(error) from None
    found.partitions = [reports[tp] for tp in sorted(reports)]
    found.seconds = time.monotonic() - began
    return found


def _partitions(table: Table) -> dict[TopicPartition, PartitionReport]:
    begins = flat(table.state.extra.get("begins", {}))
    reports = {
        tp: PartitionReport(*tp, begin=min(begins.get(tp, end), end), end=end) for tp, end in table.state.marks.items()
    }
    for file in table.state.files.values():
        if file.partition == MIXED:
            continue
        report = reports[file.topic, file.partition]
        report.files += 1
        report.records += file.records
        report.begin = min(report.begin, file.first_offset)
    return reports


def _count_partitions(frame: DataFrame, reports: dict[TopicPartition, PartitionReport]) -> None:
    """Count by the records themselves, because other engines may merge files of several partitions."""
    from pyspark.sql import functions as F

    rows = (
        frame.select("topic", "partition", "offset", "_metadata.file_path")
        .groupBy("topic", "partition")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first"),
            F.countDistinct("file_path").alias("files"),
        )
    )
    for row in rows.collect():
        report = reports[row.topic, row.partition]
        report.records, report.files = row.records, row.files
        report.begin = min(report.begin, row["first"])


def _check_files(table: Table, found: Verification) -> None:
    if table.format != "parquet":
        # Readers ignore files that are not in the commit log. Files in the commit log must exist.
        for file in table.state.files.values():
            if not table.store.exists(file.path):
                found.problems.append(f"{file.path} is missing")
        return
    there = {path for path, _ in table.store.walk("") if path.endswith(".parquet") and not path.startswith("_ottla/")}
    for path in sorted(set(table.state.files) - there):
        found.problems.append(f"{path} is missing")
    for path in sorted(there - set(table.state.files)):
        found.problems.append(
            f"{path} is in no manifest: a reader of the folder would see its records twice or too early"
        )


def _check_contents(frame: DataFrame, table: Table, found: Verification) -> bool:
    """Compare each file with its manifest entry and its name. Returns whether no file contains an offset twice."""
    from pyspark.sql import functions as F

    if not table.state.files:
        return True
    rows = (
        frame.select("topic", "partition", "offset", "_metadata.file_name")
        .groupBy("file_name")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.countDistinct("offset").alias("different"),
            F.min("partition").alias("partition"),
            F.max("partition").alias("partition_too"),
        )
        .collect()
    )
    by_name = {row.file_name: row for row in rows}
    for file in table.state.files.values():
        row = by_name.get(file.path.rpartition("/")[2])
        wanted = (file.first_offset, file.last_offset, file.records)
        if row is None or (row["first"], row["last"], row.records) != wanted or not _same_partition(file, row):
            what = "manifest" if table.format == "parquet" else "log"
            found.problems.append(f"{file.path} does not hold what the {what} says")
    return all(row.different == row.records for row in rows if row.partition == row.partition_too)


def _same_partition(file: DataFile, row: Any) -> bool:
    return file.partition == MIXED or (row.partition, row.partition_too) == (file.partition, file.partition)


def _disjoint(table: Table) -> bool:
    """Whether the file names alone show that no offset is in two files."""
    if any(file.partition == MIXED for file in table.state.files.values()):
        return False
    files = sorted(table.state.files.values(), key=lambda file: (file.topic, file.partition, file.first_offset))
    return all(
        (one.topic, one.partition) != (two.topic, two.partition) or one.last_offset < two.first_offset
        for one, two in pairwise(files)
    )


def _check_duplicates(frame: DataFrame, reports: dict[TopicPartition, PartitionReport], found: Verification) -> None:
    """Check each offset. Needed if dates interleave, because then the offset ranges of files do too."""
    from pyspark.sql import functions as F

    twice = frame.groupBy("topic", "partition", "offset").count().where("count > 1")
    rows = (
        twice.groupBy("topic", "partition")
        .agg(F.count("*").alias("many"), F.min("offset").alias("first"), F.sum(F.col("count") - 1).alias("surplus"))
        .collect()
    )
    for row in rows:
        report = reports[row.topic, row.partition]
        report.duplicates = row.many
        report.gaps += row.surplus
        found.problems.append(
            f"{row.topic}-{row.partition}: {row.many} offsets are in more than one file, first {row['first']}"
        )


def _check_log(
    job: Job,
    frame: DataFrame,
    table: Table,
    reports: dict[TopicPartition, PartitionReport],
    found: Verification,
    content: bool,
) -> None:
    from pyspark.sql import functions as F

    for name, topic_id in table.state.extra.get("topic_ids", {}).items():
        if topic_id and job.topics[name].topic_id != topic_id:
            raise PipelineError(recreated(name, table.store.root))
    starts: Offsets = {}
    ends: Offsets = {}
    for tp, (low, high) in job.bounds().items():
        report = reports.get(tp)
        starts[tp] = ends[tp] = high
        if report is not None and (report.gaps or content):
            starts[tp] = min(max(low, report.begin), high)
            ends[tp] = max(min(report.end, high), starts[tp])
            report.gone = _below(frame, tp, report, low)
            report.gaps -= report.gone
    if all(starts[tp] == ends[tp] for tp in starts):
        return
    log = job.read_batch(starts, ends)
    place = ["topic", "partition", "offset"]
    missing = log.select(*place).join(frame.select(*place), place, "left_anti")
    rows = (
        missing.groupBy("topic", "partition").agg(F.count("*").alias("many"), F.min("offset").alias("first")).collect()
    )
    for row in rows:
        report = reports[row.topic, row.partition]
        report.missing = row.many
        report.gaps -= row.many
        found.problems.append(
            f"{row.topic}-{row.partition}: {row.many} records of the log are in no file, first {row['first']}"
        )
    if content:
        _compare(log, frame, reports, found)


def _below(frame: DataFrame, tp: TopicPartition, report: PartitionReport, log_start: int) -> int:
    """Offsets in no file, from before the start of the log."""
    from pyspark.sql import functions as F

    edge = min(log_start, report.end)
    if edge <= report.begin:
        return 0
    mine = frame.where((F.col("topic") == tp[0]) & (F.col("partition") == tp[1]) & (F.col("offset") < edge))
    return edge - report.begin - int(mine.select("offset").distinct().count())


def _compare(
    log: DataFrame, frame: DataFrame, reports: dict[TopicPartition, PartitionReport], found: Verification
) -> None:
    """Compare the full content of each record that is in both."""
    from pyspark.sql import functions as F

    def digest(rows: DataFrame, name: str) -> DataFrame:
        whole = F.xxhash64("key", "value", F.unix_millis("timestamp"), "timestampType", "headers")
        kinds = F.struct(F.col("key").isNull(), F.col("value").isNull())
        return rows.select("topic", "partition", "offset", F.struct(whole, kinds).alias(name))

    both = digest(log, "there").join(digest(frame, "here"), ["topic", "partition", "offset"])
    different: Counter[TopicPartition] = Counter()
    for row in both.where("there != here").groupBy("topic", "partition").count().collect():
        different[row.topic, row.partition] = row["count"]
    for tp, many in different.items():
        reports[tp].changed = many
        found.problems.append(f"{tp[0]}-{tp[1]}: {many} records differ from the log's")


def as_dict(found: Verification) -> dict[str, Any]:
    return {"ok": found.ok, **asdict(found)}
