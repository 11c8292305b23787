"""Records straight from the segment files of a data folder, Ottla's or Apache Kafka's.

Reads end at the high watermark. If a cluster is given as well as the folder, the cluster reports it exactly. Otherwise
it is the last value in the broker's `replication-offset-checkpoint`: never too high, a few seconds behind while the
broker runs, and exact once it has stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.enums import IsolationLevel
from ottla.errors import KafkaStorageError
from ottla.log.checkpoints import HIGH_WATERMARKS_FILE, LOG_START_OFFSETS_FILE, read_offsets
from ottla.log.files import PosixDisk
from ottla.spark.options import TopicPartition
from ottla.spark.origin import Bounds, Lost, Origin, SourceError
from ottla.spark.segments import AnyBatch, PartitionFolder

_FOLDER_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")


class FolderOrigin:
    """All partitions of one or more log dirs."""

    def __init__(
        self,
        folders: Sequence[str],
        *,
        isolation: int,
        to_log_end: bool = False,
        check_crcs: bool = True,
        cluster: Origin | None = None,
    ) -> None:
        self._roots = [Path(folder.removeprefix("file://")) for folder in folders]
        self._isolation = isolation
        self._to_log_end = to_log_end
        self._check_crcs = check_crcs
        self._cluster = cluster
        for root in self._roots:
            if not root.is_dir():
                raise SourceError(f"there is no data folder {root}")

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _partitions(self) -> dict[TopicPartition, tuple[Path, Path]]:
        """The log dir and the folder of each partition."""
        found: dict[TopicPartition, tuple[Path, Path]] = {}
        for root in self._roots:
            for folder in root.iterdir():
                match = _FOLDER_NAME.fullmatch(folder.name)
                if match is not None and folder.is_dir():
                    found[match[1], int(match[2])] = root, folder
        return found

    def _folder(self, tp: TopicPartition) -> PartitionFolder:
        for root in self._roots:
            folder = root / f"{tp[0]}-{tp[1]}"
            if folder.is_dir():
                return PartitionFolder(folder)
        where = ", ".join(str(root) for root in self._roots)
        raise SourceError(f"partition {tp[1]} of topic '{tp[0]}' has no folder in {where}")

    def topics(self, names: Sequence[str] | None) -> dict[str, list[int]]:
        if self._cluster is not None:
            return self._cluster.topics(names)
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions()):
            if topic in names if names is not None else topic not in _INTERNAL:
                found.setdefault(topic, []).append(partition)
        return found

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        wanted = list(partitions)
        if self._cluster is not None:
            return self._cluster.bounds(wanted)
        marks: dict[Path, tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]] = {}
        for root in self._roots:
            try:
                disk = PosixDisk(root)
                high = read_offsets(disk, HIGH_WATERMARKS_FILE) if disk.exists(HIGH_WATERMARKS_FILE) else None
                marks[root] = read_offsets(disk, LOG_START_OFFSETS_FILE), None if self._to_log_end else high
            except KafkaStorageError as error:
                raise SourceError(f"{root}: {error.message}") from None
        places = self._partitions()
        found = {}
        for tp in wanted:
            if tp not in places:
                self._folder(tp)
            root, path = places[tp]
            starts, high = marks[root]
            found[tp] = self._bounds(
                PartitionFolder(path), starts.get(tp, 0), None if high is None else high.get(tp, 0)
            )
        return found

    def _bounds(self, folder: PartitionFolder, start: int, high_watermark: int | None) -> Bounds:
        end = folder.end_offset()
        if high_watermark is not None:
            end = min(end, high_watermark)
        segments = folder.segments()
        start = max(start, segments[0].base_offset if segments else 0)
        if self._isolation == IsolationLevel.READ_COMMITTED and end > start:
            end = folder.last_stable_offset(end)
        return Bounds(start, max(start, end))

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        limits = self.bounds(times_ms)
        return {
            tp: self._folder(tp).offset_at_time(timestamp, *limits[tp]) if limits[tp].end > limits[tp].start else None
            for tp, timestamp in times_ms.items()
        }

    def byte_size(self, tp: TopicPartition, start: int, end: int) -> int:
        return self._folder(tp).byte_size(start, end)

    def offset_within(self, tp: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        return self._folder(tp).offset_within(start, end, max_bytes)

    def read(self, tp: TopicPartition, start: int, end: int, lost: Lost) -> Iterator[Sequence[AnyBatch]]:
        try:
            folder = self._folder(tp)
        except SourceError:
            lost(start, end)
            return
        aborted: dict[int, list[tuple[int, int]]] = {}
        if self._isolation == IsolationLevel.READ_COMMITTED:
            for entry in folder.aborted(start, end):
                aborted.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
        for batches in folder.read(start, end, lost):
            if self._check_crcs:
                for batch in batches:
                    if not batch.crc_ok():
                        raise SourceError(
                            f"{tp[0]}-{tp[1]}: the batch at offset {batch.base_offset} is damaged (its CRC is wrong)"
                        )
            seen = [
                batch
                for batch in batches
                if not batch.is_control
                and not (aborted and batch.is_transactional and _within(aborted.get(batch.producer_id, ()), batch))
            ]
            if seen:
                yield seen


def _within(spans: Sequence[tuple[int, int]], batch: AnyBatch) -> bool:
    return any(first <= batch.base_offset <= last for first, last in spans)
