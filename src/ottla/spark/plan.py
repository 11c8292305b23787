"""From options to ranges of offsets, and from ranges to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ottla.spark.options import EARLIEST, Position, SourceOptions, TopicPartition
from ottla.spark.origin import Bounds, DataLost, Origin, SourceError
from ottla.spark.wanted import Wanted

Offsets: TypeAlias = dict[TopicPartition, int]


class Range(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


def partitions_of(origin: Origin, options: SourceOptions, *, may_lack: bool = False) -> list[TopicPartition]:
    """The partitions that the options select. A pattern may match none. Named topics must exist, unless `may_lack`."""
    if options.pattern is not None:
        found = origin.topics(None)
        return sorted((topic, index) for topic in found if options.includes(topic) for index in found[topic])
    named = options.topics or tuple(dict.fromkeys(topic for topic, _ in options.assigned))
    found = origin.topics(named)
    if may_lack:
        wanted = options.assigned or [(topic, index) for topic in found for index in found[topic]]
        return sorted((topic, index) for topic, index in wanted if index in found.get(topic, ()))
    for topic in named:
        if topic not in found:
            raise SourceError(f"topic '{topic}' does not exist")
    if options.topics:
        return sorted((topic, index) for topic in named for index in found[topic])
    for topic, index in options.assigned:
        if index not in found[topic]:
            raise SourceError(f"topic '{topic}' has no partition {index}")
    return sorted(options.assigned)


def starts(origin: Origin, options: SourceOptions, bounds: Mapping[TopicPartition, Bounds]) -> Offsets:
    """The first offset of each partition."""
    position = options.starting
    times = _times(position, bounds, "startingOffsetsByTimestamp")
    if times is not None:
        found = origin.offsets_at(times)
        missing = [tp for tp, offset in found.items() if offset is None]
        if missing and not options.no_match_is_latest:
            topic, index = missing[0]
            raise SourceError(
                f"no record of {topic}-{index} is as young as {times[topic, index]} ms; "
                "startingOffsetsByTimestampStrategy=latest begins at the end instead"
            )
        return {tp: bounds[tp].end if offset is None else offset for tp, offset in found.items()}
    return _resolved(position, bounds, "startingOffsets")


def ends(origin: Origin, options: SourceOptions, bounds: Mapping[TopicPartition, Bounds]) -> Offsets:
    """The end of each partition. If no record is as late as the given time, this is the current end."""
    times = _times(options.ending, bounds, "endingOffsetsByTimestamp")
    if times is not None:
        found = origin.offsets_at(times)
        return {tp: bounds[tp].end if offset is None else offset for tp, offset in found.items()}
    return _resolved(options.ending, bounds, "endingOffsets")


def _times(position: Position, bounds: Iterable[TopicPartition], name: str) -> Offsets | None:
    if position.timestamp_ms is not None:
        return dict.fromkeys(bounds, position.timestamp_ms)
    if position.timestamps_ms:
        _same_partitions(position.timestamps_ms, bounds, name)
        return dict(position.timestamps_ms)
    return None


def _resolved(position: Position, bounds: Mapping[TopicPartition, Bounds], name: str) -> Offsets:
    if position.word:
        return {tp: pair.start if position.word == EARLIEST else pair.end for tp, pair in bounds.items()}
    _same_partitions(position.offsets, bounds, name)
    words = {-2: 0, -1: 1}
    return {tp: bounds[tp][words[offset]] if offset in words else offset for tp, offset in position.offsets.items()}


def _same_partitions(given: Iterable[TopicPartition], wanted: Iterable[TopicPartition], name: str) -> None:
    different = set(given) ^ set(wanted)
    if different:
        topic, index = min(different)
        what = "is missing in" if (topic, index) in set(wanted) else "is not read but named in"
        raise SourceError(f"{name} must name every partition that is read: {topic}-{index} {what} it")


def checked(
    options: SourceOptions, begin: Offsets, end: Offsets, bounds: Mapping[TopicPartition, Bounds]
) -> list[Range]:
    """The ranges to read that still exist. Raises DataLost unless losses are allowed."""
    ranges = []
    for (topic, index), last in sorted(end.items()):
        there = bounds.get((topic, index))
        first = begin[topic, index]
        if there is None:
            problem, first, last = "is gone", 0, 0
        elif first < there.start:
            problem, first = f"begins at offset {there.start} now: {first} to {there.start - 1} are gone", there.start
        elif max(first, last) > there.end:
            problem = f"ends at offset {there.end}, before {max(first, last)}: was the topic deleted and created again?"
            first, last = there.start if first > there.end else first, there.end
        else:
            problem = ""
        if problem and options.fail_on_data_loss:
            raise DataLost(f"{topic}-{index} {problem}. Set failOnDataLoss=false to continue with what is there")
        if last > first:
            ranges.append(Range(topic, index, first, last))
    return ranges


def narrowed(origin: Origin, ranges: list[Range], wanted: Wanted) -> list[Range]:
    """Ranges without the parts that a filter excludes by offset or, at the start, by time."""
    found = [one._replace(start=max(one.start, wanted.start), end=min(one.end, wanted.end)) for one in ranges]
    found = [one for one in found if one.end > one.start]
    # Records without a time (-1) cannot be found by time, so a filter that includes them reads everything.
    if wanted.least_ms > 0 and found:
        first = origin.offsets_at({one.tp: wanted.least_ms for one in found})
        for number, one in enumerate(found):
            offset = first[one.tp]
            found[number] = one._replace(start=one.end if offset is None else max(one.start, offset))
    return [one for one in found if one.end > one.start]


def split(origin: Origin, options: SourceOptions, ranges: list[Range]) -> list[Range]:
    """Tasks of about equal size: `minPartitions` and `maxRecordsPerPartition` as in the official connector.

    A range of files that is longer than `maxBytesPerTask` is cut as well.
    """
    total = sum(one.end - one.start for one in ranges)
    tasks = []
    for one in ranges:
        records = one.end - one.start
        parts = 1
        if options.folders:
            parts = -(-origin.byte_size(one.tp, one.start, one.end) // options.task_bytes)
        if options.min_partitions > len(ranges):
            parts = max(parts, round(records / total * options.min_partitions))
        if options.task_records:
            parts = max(parts, -(-records // options.task_records))
        parts = max(1, min(parts, records))
        cuts = [one.start + records * number // parts for number in range(parts + 1)]
        tasks += [one._replace(start=first, end=last) for first, last in pairwise(cuts) if last > first]
    return tasks


def shared(begin: Offsets, end: Offsets, max_records: int) -> Offsets:
    """The ends after at most this many records (0: all), shared among partitions in proportion to their size."""
    found = dict(end)
    waiting = {tp: last - begin[tp] for tp, last in end.items() if last > begin.get(tp, last)}
    total = sum(waiting.values())
    if max_records and total > max_records:
        for tp, count in waiting.items():
            # At least one record, because otherwise a small partition would never make progress.
            found[tp] = begin[tp] + min(count, max(1, count * max_records // total))
    return found


def limited(origin: Origin, begin: Offsets, end: Offsets, max_records: int, max_bytes: int) -> Offsets:
    """The ends within the limits, shared among partitions in proportion to their size."""
    found = shared(begin, end, max_records)
    more = [tp for tp, last in found.items() if last > begin.get(tp, last)]
    if max_bytes and more:
        sizes = {tp: origin.byte_size(tp, begin[tp], found[tp]) for tp in more}
        whole = sum(sizes.values())
        if whole > max_bytes:
            for tp, size in sizes.items():
                share = max(1, size * max_bytes // whole)
                found[tp] = min(found[tp], origin.offset_within(tp, begin[tp], found[tp], share))
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the format that Spark's own source writes to a checkpoint."""
    found: dict[str, dict[str, int]] = {}
    for (topic, index), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(index)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(index)): offset for topic, some in offsets.items() for index, offset in some.items()}
