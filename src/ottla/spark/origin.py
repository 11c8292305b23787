"""Where records come from: a cluster over the wire, or the segment files of a data folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.spark.errors import SparkSetupError
from ottla.spark.options import SourceOptions, TopicPartition

if TYPE_CHECKING:
    from ottla.records.batch import Batch
    from ottla.records.legacy import LegacyBatch

Lost: TypeAlias = Callable[[int, int], None]
"""Called with an offset that is gone and the next one there is; may raise."""


class SourceError(SparkSetupError):
    """The topics cannot be read as asked."""


class DataLost(SourceError):
    """Offsets that a query should read are not there any more."""


class Bounds(NamedTuple):
    """First offset, and one past the last that may be read."""

    start: int
    end: int


class Origin(Protocol):
    def topics(self, names: Sequence[str] | None) -> dict[str, list[int]]:
        """Partitions of these topics that exist, or of all."""

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]: ...

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a time at or after the given one; None if there is none."""

    def byte_size(self, tp: TopicPartition, start: int, end: int) -> int:
        """About how many bytes a range has; 0 when it cannot be told."""

    def offset_within(self, tp: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        """An offset up to which about `max_bytes` are read; above `start` unless that is the end."""

    def read(self, tp: TopicPartition, start: int, end: int, lost: Lost) -> Iterator[Sequence[Batch | LegacyBatch]]:
        """Data batches that a reader of this isolation may see, in groups that are worth decoding together."""

    def close(self) -> None: ...


def open_origin(options: SourceOptions) -> Origin:
    """Files where a folder is named; the cluster then tells what may be read, if it is named too."""
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
