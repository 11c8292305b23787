"""Filters that Spark pushes down (4.1 and later), if they are about topic, partition, offset or time."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ottla.spark.wanted import EVERYTHING, Wanted

_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Pushed:
    """The records that remain to be read after the pushed filters."""

    topics: frozenset[str] | None = None
    partitions: tuple[tuple[str, Any], ...] = ()
    wanted: Wanted = field(default=EVERYTHING)

    def includes(self, topic: str, partition: int) -> bool:
        if self.topics is not None and topic not in self.topics:
            return False
        return all(_compare(kind, partition, value) for kind, value in self.partitions)


def _compare(kind: str, number: int, value: Any) -> bool:
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return bool(number == value)
        case "In":
            return number in value
        case "GreaterThan":
            return bool(number > value)
        case "GreaterThanOrEqual":
            return bool(number >= value)
        case "LessThan":
            return bool(number < value)
    return bool(number <= value)


_COMPARISONS: Final = {
    "EqualTo",
    "EqualNullSafe",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
}


def push(filters: Iterable[Any]) -> tuple[Pushed, list[Any]]:
    """The records that remain to be read, and the filters that Spark must still apply itself."""
    pushed, left = Pushed(), []
    for one in filters:
        narrower = _narrower(pushed, one)
        if narrower is None:
            left.append(one)
        else:
            pushed = narrower
    return pushed, left


def _narrower(pushed: Pushed, one: Any) -> Pushed | None:
    """None if the filter is not supported, or if reading cannot apply it exactly."""
    kind = type(one).__name__
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None
    column = path[0]
    if kind == "IsNotNull":
        return pushed if column in _NEVER_NULL else None
    value: Any = getattr(one, "value", None)
    if kind not in _COMPARISONS and kind != "In":
        return None
    if column == "topic" and kind in ("EqualTo", "EqualNullSafe", "In"):
        names = frozenset(value if kind == "In" else [value])
        if not all(isinstance(name, str) for name in names):
            return None
        return replace(pushed, topics=names if pushed.topics is None else pushed.topics & names)
    if column == "partition" and _is_number(value if kind != "In" else 0):
        return replace(pushed, partitions=(*pushed.partitions, (kind, value)))
    if column == "offset" and kind != "In" and _is_number(value):
        return replace(pushed, wanted=_by_offset(pushed.wanted, kind, int(value)))
    if column == "timestamp" and kind != "In" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return replace(pushed, wanted=_by_time(pushed.wanted, kind, _microseconds(value)))
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _microseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _limits(kind: str, value: int) -> tuple[int | None, int | None]:
    """The lowest value, and one past the highest."""
    match kind:
        case "GreaterThan":
            return value + 1, None
        case "GreaterThanOrEqual":
            return value, None
        case "LessThan":
            return None, value
        case "LessThanOrEqual":
            return None, value + 1
    return value, value + 1


def _by_offset(wanted: Wanted, kind: str, value: int) -> Wanted:
    least, before = _limits(kind, value)
    return wanted._replace(
        start=wanted.start if least is None else max(wanted.start, least),
        end=wanted.end if before is None else min(wanted.end, before),
    )


def _by_time(wanted: Wanted, kind: str, value_us: int) -> Wanted:
    """Times of records are whole milliseconds, so the limits in microseconds are rounded up."""
    least, before = _limits(kind, value_us)
    return wanted._replace(
        least_ms=wanted.least_ms if least is None else max(wanted.least_ms, -(-least // 1000)),
        before_ms=wanted.before_ms if before is None else min(wanted.before_ms, -(-before // 1000)),
    )
