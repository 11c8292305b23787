"""Where something is in a log."""

from __future__ import annotations

from ottla.plain import NamedTuple


class Located(NamedTuple):
    """A batch in the file."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


class TimestampedOffset(NamedTuple):
    """A record found by time; the epoch is -1 when unknown."""

    timestamp: int
    offset: int
    leader_epoch: int = -1
