"""Which segments are past their retention. Each rule counts from the oldest segment and stops at the first to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.log.index import TimeIndex
from ottla.log.segment import LOG_SUFFIX, TIME_INDEX_SUFFIX

if TYPE_CHECKING:
    from ottla.log.files import Disk
    from ottla.log.log import Log
    from ottla.log.options import LogConfig
    from ottla.log.segment import Segment

TIME: Final = "time"
SIZE: Final = "size"
START_OFFSET: Final = "start offset"

NEVER_MS: Final = (1 << 63) - 1


def past_time(log: Log) -> int:
    """Segments whose largest timestamp is older than `retention.ms`."""
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    now_ms = log.clock.now_ms()
    return _count(log, lambda segment, _: now_ms - segment.largest_timestamp > retention_ms)


def past_size(log: Log) -> int:
    """Segments that can be dropped while the log keeps `retention.bytes`."""
    excess = log.size_bytes - log.config.retention_bytes
    if log.config.retention_bytes < 0 or excess < 0:
        return 0

    def is_excess(segment: Segment, _next_base: int | None) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return _count(log, is_excess)


def below_start_offset(log: Log) -> int:
    """Segments whose records are all below the log start offset."""
    return _count(log, lambda _, next_base: next_base is not None and next_base <= log.log_start_offset)


def _count(log: Log, condition: Callable[[Segment, int | None], bool]) -> int:
    """Never counts unreplicated records, or an empty active segment."""
    segments = log.segments
    for slot, segment in enumerate(segments):
        next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
        upper = log.log_end_offset if next_base is None else next_base
        if (next_base is None and not segment.size) or upper > log.high_watermark:
            return slot
        if not condition(segment, next_base):
            return slot
    return len(segments)


def explain(log: Log, segment: Segment, reason: str) -> str:
    """Which segment is deleted, and why, in one line."""
    what = f"{segment.base_offset} (size {segment.size}, largest timestamp {segment.max_timestamp})"
    if reason == TIME:
        by = "record" if segment.max_timestamp >= 0 else "file"
        return f"{what} due to log retention time {log.config.retention_ms}ms breach based on its {by} timestamps"
    if reason == SIZE:
        left = log.size_bytes
        return f"{what} due to log retention size {log.config.retention_bytes} breach (the log has {left} bytes)"
    return f"{what} due to log start offset {log.log_start_offset} breach"


def due_ms(disk: Disk, folder: str, config: LogConfig, log_start_offset: int, now_ms: int) -> int:
    """When an unopened log may lose its first segment, judged by its files. `NEVER_MS` if it cannot.

    Never too late, perhaps too early: opening the log decides.
    """
    sizes = disk.scan(folder)
    names = sorted(name for name in sizes if name.endswith(LOG_SUFFIX))
    if any(name.endswith((".deleted", ".cleaned", ".swap")) for name in sizes):
        return now_ms  # opening it also removes the leftovers of an earlier run
    if not names or (len(names) == 1 and not sizes[names[0]]):
        return NEVER_MS
    if len(names) > 1 and int(names[1].removesuffix(LOG_SUFFIX)) <= log_start_offset:
        return now_ms
    if not config.delete:
        return NEVER_MS
    total = sum(sizes[name] for name in names)
    if config.retention_bytes >= 0 and total - config.retention_bytes >= sizes[names[0]]:
        return now_ms
    if config.retention_ms < 0:
        return NEVER_MS
    return _largest_timestamp(disk, folder, names[0], sizes) + config.retention_ms + 1


def _largest_timestamp(disk: Disk, folder: str, name: str, sizes: dict[str, int]) -> int:
    """The last entry of a closed segment's time index, or the file's modification time if there is none."""
    index = name.removesuffix(LOG_SUFFIX) + TIME_INDEX_SUFFIX
    size = sizes.get(index, 0)
    if size and size % TimeIndex.ENTRY.size == 0:
        file = disk.open(f"{folder}/{index}", size=size)
        timestamp: int = TimeIndex.ENTRY.unpack(file.pread(TimeIndex.ENTRY.size, size - TimeIndex.ENTRY.size))[0]
        file.close()
        return max(timestamp, 0)
    return 0 if size else disk.modified_ms(f"{folder}/{name}")
