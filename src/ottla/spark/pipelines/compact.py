"""`compact`: merges many small files of an archive into few large ones, with one commit per round."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Unpack

from ottla.spark.pipelines.archive import KIND, read_archive, write_files
from ottla.spark.pipelines.commits import MIXED, DataFile
from ottla.spark.pipelines.errors import PipelineError, explain
from ottla.spark.pipelines.jobs import Options, spark_of
from ottla.spark.pipelines.stores import open_store
from ottla.spark.pipelines.tables import Table

DEFAULT_TARGET_BYTES: Final = 128 << 20
_PACKS_A_ROUND: Final = 32
"""Limits the work that is repeated after a crash, and the size of Spark's plan."""


@dataclass(slots=True)
class Compaction:
    """The result of a compaction."""

    archive: str
    files_before: int = 0
    files_after: int = 0
    merged: int = 0
    dry_run: bool = False
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0


def compact(
    archive: str,
    *,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    compression: str = "snappy",
    dry_run: bool = False,
    **options: Unpack[Options],
) -> Compaction:
    """Merge neighbouring files of a partition and date until they are about `target_bytes` large.

    A dry run only counts what would be merged, and needs no Spark.
    """
    if target_bytes < 1:
        raise PipelineError("the size to reach must be at least one byte")
    began = time.monotonic()
    store = open_store(archive, options.get("spark"))
    there = Table.open(store, KIND)
    if dry_run:
        return _planned(there, target_bytes)
    spark = spark_of(options)
    with Table.create_or_open(store, KIND) as table:
        result = Compaction(store.root, len(table.state.files), bytes_before=_size(table.state.files.values()))
        packs = choose(table.state.files.values(), target_bytes)
        try:
            for at in range(0, len(packs), _PACKS_A_ROUND):
                result.merged += _merge(spark, table, packs[at : at + _PACKS_A_ROUND], compression)
        except PipelineError:
            raise
        except Exception as error:
            raise explain(error) from None
        result.files_after = len(table.state.files)
        result.bytes_after = _size(table.state.files.values())
    result.seconds = time.monotonic() - began
    return result


def _planned(table: Table, target_bytes: int) -> Compaction:
    files = table.state.files.values()
    packs = choose(files, target_bytes)
    merged = sum(map(len, packs))
    after = len(files) - merged + len(packs)
    size = _size(files)
    return Compaction(table.store.root, len(files), after, merged, True, size, size)


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.bytes for file in files)


def choose(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Groups of files that are adjacent by offset in a folder and partition, up to a size. Large files are left alone.

    Files that another engine has merged are left alone too, because they contain several partitions.
    """
    places: dict[tuple[str, int], list[DataFile]] = {}
    for file in files:
        if file.partition == MIXED:
            continue
        places.setdefault((file.path.rpartition("/")[0], file.partition), []).append(file)
    packs: list[list[DataFile]] = []
    for _, found in sorted(places.items()):
        pack: list[DataFile] = []
        for file in sorted(found, key=lambda file: file.first_offset):
            if pack and _size(pack) + file.bytes > target_bytes:
                packs.append(pack)
                pack = []
            pack.append(file)
        packs.append(pack)
    return [pack for pack in packs if len(pack) > 1]


def _merge(spark: object, table: Table, packs: list[list[DataFile]], compression: str) -> int:
    from pyspark.sql import functions as F

    old = [file for pack in packs for file in pack]
    numbers = {file.path.rpartition("/")[2]: index for index, pack in enumerate(packs) for file in pack}
    frame = read_archive(spark, table, old, decoded=True)
    names = frame.sparkSession.createDataFrame(list(numbers.items()), "file_name string, _pack int")
    rows = frame.select("*", "_metadata.file_name").join(F.broadcast(names), "file_name")
    rows = rows.drop("file_name", "_metadata")
    sorted_rows = rows.repartition(len(packs), "_pack").sortWithinPartitions(
        "topic", "date", "partition", "_pack", "offset"
    )
    new = write_files(sorted_rows, table, compression, group=("_pack",))
    wanted = sorted(
        (min(f.first_offset for f in p), max(f.last_offset for f in p), sum(f.records for f in p)) for p in packs
    )
    if sorted((file.first_offset, file.last_offset, file.records) for file in new.values()) != wanted:
        raise PipelineError(
            f"{table.store.root}: the merged files do not hold what the small ones did; nothing was changed"
        )
    table.commit(new, remove=[file.path for file in old])
    return len(old)
