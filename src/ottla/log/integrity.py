"""Detects missing parts of a partition's folder: a segment in the middle, or a file that is a folder instead.

Neither would be noticed otherwise: a reader skips such a gap like one from compaction. So a log with a gap refuses to
read there, and a partition whose files cannot be opened stays offline.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaStorageError
from ottla.log.files import Disk
from ottla.log.index import CorruptIndex
from ottla.log.options import LogConfig
from ottla.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, Segment

if TYPE_CHECKING:
    from ottla.answers import Steps
    from ottla.log.log import Log
    from ottla.log.manager import LogManager

logger = logging.getLogger(__name__)

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
A_FOLDER: Final = -1
"""The size that a scan reports for a folder."""


_MARKERS_CHECKED: Final = 500
"""How many entries of a transaction index are compared with the log when it is opened."""
_INSPECTION_BYTES: Final = 8 << 10
"""The approximate cost of inspecting a log that is not open."""


class MissingSegment(KafkaStorageError):
    """The offset was in a segment whose file is missing."""


def segment_offset(name: str) -> int:
    """The offset in a file's name, or -1 for other names."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else -1


def is_segment_file(name: str) -> bool:
    return name.endswith(SEGMENT_SUFFIXES) and segment_offset(name) >= 0


def check_files(folder: str, sizes: Mapping[str, int]) -> None:
    """Refuse a partition that has a folder in place of a segment's file."""
    for name, size in sorted(sizes.items()):
        if size == A_FOLDER and is_segment_file(name):
            raise KafkaStorageError(
                f"{folder}/{name} is a folder, and should be a file of a segment; the partition stays offline. "
                "Stop the broker, move the folder away, restore the file from a backup, and start again"
            )


def missing_ranges(segments: Sequence[Segment], orphans: Iterable[int], *, compacted: bool) -> list[tuple[int, int]]:
    """Offsets from .. to (exclusive) that are in no segment and that compaction did not remove.

    `orphans` are the offsets of index files without a log file after a clean stop, which cannot have interrupted a
    deletion.
    """
    bases = [segment.base_offset for segment in segments]
    ranges = []
    for before, after in pairwise(segments):
        lost = [offset for offset in orphans if before.base_offset < offset < after.base_offset]
        if compacted and not lost:
            continue
        end = before.next_offset()
        if end < after.base_offset and (lost or not _was_compacted(segments, after.base_offset)):
            ranges.append((max(end, min(lost, default=end)) if compacted else end, after.base_offset))
    first = [offset for offset in orphans if bases and offset < bases[0]]
    return [(min(first), bases[0]), *ranges] if first else ranges


def _was_compacted(segments: Sequence[Segment], up_to_offset: int) -> bool:
    """Whether records before this offset were removed by compaction under an earlier policy."""
    for segment in segments:
        if segment.base_offset >= up_to_offset:
            return False
        expected = segment.base_offset
        for batch in segment.batches():
            if batch.base_offset > expected or batch.record_count <= batch.last_offset_delta:
                return True
            expected = batch.next_offset
    return False


def looks_incomplete(disk: Disk, folder: str, config: LogConfig) -> bool:
    """Whether opening the partition would report missing data. Reads names, and the end of each segment."""
    sizes = disk.scan(folder)
    names = [name for name in sizes if is_segment_file(name)]
    bases = sorted(segment_offset(name) for name in names if name.endswith(LOG_SUFFIX))
    orphans = {segment_offset(name) for name in names} - set(bases)
    if orphans or any(sizes[name] == A_FOLDER for name in names):
        return True
    if config.compact or len(bases) < 2:
        return False
    segments = [Segment(disk, folder, base, config, 0, sizes=sizes) for base in bases]
    try:
        return bool(missing_ranges(segments, (), compacted=False))
    finally:
        for segment in segments:
            segment.release()


def open_or_report(logs: LogManager, topic: str, partition: int, *, only_incomplete: bool = False) -> None:
    """A partition that cannot be opened does not stop the others from starting. Its requests get the error."""
    folder = f"{topic}-{partition}"
    try:
        if not only_incomplete or looks_incomplete(logs.disk, folder, logs.config_for(topic)):
            logs.get(topic, partition)
    except (KafkaStorageError, OSError) as error:
        logger.error("%s: %s", folder, error)


def inspecting(logs: LogManager) -> Steps[None]:
    """Inspect every log that a clean start left unopened. Opening an incomplete one reports the problem."""
    for topic, partition in list(logs.unopened):
        if (topic, partition) in logs.unopened:
            open_or_report(logs, topic, partition, only_incomplete=True)
            yield _INSPECTION_BYTES


def check_txn_index(segment: Segment, size: int, *, compacted: bool) -> None:
    """Compare the index of aborted transactions with their markers. Raises CorruptIndex if it is wrong.

    If an entry were missing, readers would get the records of an aborted transaction. A transaction that is missing
    from the index completely is only found by reading the whole segment (`ottla verify`).
    """
    entries = segment.txn_index.check(segment.base_offset, size)
    if compacted:
        return  # compaction may have removed markers
    for entry in entries[:: max(1, len(entries) // _MARKERS_CHECKED)]:
        found = segment.find(entry.last_offset)
        marker = next(segment.batches(found[0], found[0] + found[1]), None) if found is not None else None
        if (
            marker is None
            or not marker.is_control
            or (marker.base_offset, marker.producer_id) != (entry.last_offset, entry.producer_id)
        ):
            raise CorruptIndex(f"{segment.txn_index.path} is damaged: no marker ends {tuple(entry)}")


def report(name: str, missing: Sequence[tuple[int, int]]) -> None:
    for start, end in missing:
        logger.error(
            "%s: offsets %d to %d are missing: the file of a segment is gone. Reads there get KAFKA_STORAGE_ERROR. "
            "Stop the broker and restore the segment's files from a backup; or accept the loss: "
            "`ottla topics alter %s --delete-records-before %s:%d`",
            name,
            start,
            end - 1,
            *name.rsplit("-", 1),
            end,
        )


def check_range(log: Log, first: int, end: int) -> None:
    """Refuse to read from `first` up to `end` if a segment in between is missing."""
    for missing, missing_end in log.missing:
        if missing < end and first < missing_end:
            raise MissingSegment(
                f"offset {max(missing, first)} is in a segment whose file is missing ({missing} to {missing_end - 1})"
            )
