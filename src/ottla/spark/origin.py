"""The origin of records: a cluster over the wire, or the segment files of a data folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.spark.errors import SparkSetupError
from ottla.spark.options import SourceOptions, TopicPartition

if TYPE_CHECKING:
    from ottla.records.batch import Batch
    from ottla.records.legacy import LegacyBatch

Lost: TypeAlias = Callable[[int, int], None]
"""Called with the offset of a lost record and the next offset that exists. May raise."""


class SourceError(SparkSetupError):
    """The topics cannot be read with these options."""


class DataLost(SourceError):
    """Offsets that a query should read no longer exist."""


class Bounds(NamedTuple):
    """The first offset, and one past the last readable offset."""

    start: int
    end: int


class Origin(Protocol):
    def topics(self, names: Sequence[str] | None) -> dict[str, list[int]]:
        """The existing partitions of these topics, or of all topics."""

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]: ...

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with this time or a later one, or None if there is none."""

    def byte_size(self, tp: TopicPartition, start: int, end: int) -> int:
        """The approximate size of a range in bytes, or 0 if it is unknown."""

    def offset_within(self, tp: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        """An offset about `max_bytes` after `start`. It is above `start`, unless `start` is the end."""

    def read(self, tp: TopicPartition, start: int, end: int, lost: Lost) -> Iterator[Sequence[Batch | LegacyBatch]]:
        """Data batches that are visible at this isolation level, in groups that are worth decoding together."""

    def close(self) -> None: ...


def open_origin(options: SourceOptions) -> Origin:
    """Files, if a folder is given. If a cluster is given too, it decides which offsets may be read."""
    wire: Origin | None = None
    if options.connection is not None:
        from ottla.spark.wire import WireOrigin

        wire = WireOrigin(options.connection, options.isolation)
    if not options.folders:
        assert wire is not None
        return wire
    from ottla.spark.files import FolderOrigin

    return FolderOrigin(
        options.folders,
        isolation=options.isolation,
        to_log_end=options.to_log_end,
        check_crcs=options.check_crcs,
        cluster=wire,
    )
