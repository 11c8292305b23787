"""The results of an append and of a read."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.files import FileRegion


class AppendInfo:
    """The position of an append. For a duplicate, that of the original."""

    __slots__ = ("append_time_ms", "duplicate", "first_offset", "last_offset", "log_start_offset")

    def __init__(
        self, first_offset: int, last_offset: int, append_time_ms: int, log_start_offset: int, duplicate: bool = False
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"AppendInfo({self.first_offset}..{self.last_offset}, duplicate={self.duplicate})"


class ReadResult(NamedTuple):
    """A part of one segment. `segment_base_offset` shows whether two reads came from the same segment."""

    records: FileRegion | bytes
    segment_base_offset: int
