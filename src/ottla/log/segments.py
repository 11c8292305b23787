"""The segments of one log, ordered by offset (Kafka's LogSegments)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.log.files import FileRegion
from ottla.log.index import AbortedTransaction
from ottla.log.results import ReadResult
from ottla.log.segment import Segment
from ottla.records.batch import Batch

SWAP_SUFFIX: Final = ".swap"
_PIECE_BYTES: Final = 1 << 20


class LogSegments:
    """Holds at least one segment. The last one is active and receives appends. The log removes the files."""

    __slots__ = ("_bases", "active", "all")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._bases[0]

    def has_base(self, offset: int) -> bool:
        """Whether a segment starts there."""
        return offset in self._bases

    def holding(self, offset: int) -> Sequence[Segment]:
        """The segment that holds an offset, or the first one, and those after it."""
        return self.all[self._slot(offset) :]

    def _slot(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    # --- changes -----------------------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Add a new active segment. It replaces the last one if that starts at the same offset."""
        if self._bases and self._bases[-1] == segment.base_offset:
            self.all[-1] = segment
        else:
            self.all.append(segment)
            self._bases.append(segment.base_offset)
        self.active = segment

    def base_after(self, count: int) -> int:
        """The base offset of the segment after the first `count`."""
        return self._bases[count]

    def drop_first(self, count: int) -> None:
        del self.all[:count], self._bases[:count]

    def drop_after(self, offset: int) -> Sequence[Segment]:
        """Remove the segments that start after an offset. The one that holds it becomes active."""
        keep = bisect_right(self._bases, offset)
        dropped = self.all[keep:]
        del self.all[keep:], self._bases[keep:]
        self.active = self.all[-1]
        return dropped

    def drop_all(self) -> Sequence[Segment]:
        """Remove all segments. One must be added before anything else happens."""
        dropped = self.all[:]
        self.all.clear()
        self._bases.clear()
        return dropped

    def replace(self, replaced: Sequence[Segment], cleaned: Segment) -> None:
        """Replace segments with the compacted segment built from them."""
        slot = self.all.index(replaced[0])
        count = len(replaced)
        if self.all[slot : slot + count] != list(replaced) or self.active in replaced:
            raise AssertionError("segments changed while they were compacted")
        cleaned.change_suffix(SWAP_SUFFIX)
        self.all[slot : slot + count] = [cleaned]
        self._bases[slot : slot + count] = [cleaned.base_offset]

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, limit: int, end: int, min_one: bool) -> ReadResult:
        """A part of one segment, from the batch that holds `offset` on and below `limit`.

        `end` is the end of the log. If `limit` equals it, the position of `limit` does not have to be searched.
        """
        slot = len(self._bases) - 1 if offset >= self.active.base_offset else self._slot(offset)
        while slot < len(self.all):
            segment = self.all[slot]
            if segment.base_offset >= limit:
                break
            if limit == end or (slot + 1 < len(self._bases) and self._bases[slot + 1] <= limit):
                max_position = segment.log.size
            else:
                max_position = segment.position_of(limit)
            region = segment.read(offset, max_bytes, max_position, min_one)
            if region is not None:
                return ReadResult(region, segment.base_offset)
            slot += 1  # compaction left a gap up to the next segment
        return ReadResult(b"", self.active.base_offset)

    def batches(self, offset: int, limit: Callable[[], int]) -> Iterator[Batch]:
        """Batches from `offset` on and below `limit`, with their bytes.

        Reads in pieces and searches the start of each, because the log may roll or be cleaned in between.
        """
        while True:
            until = limit()
            slot = self._slot(offset)
            segment = self.all[slot]
            if segment.base_offset >= until:
                return
            next_offset = offset
            if (found := segment.find(offset)) is not None:
                position, size = found
                for batch in segment.batches(position, position + max(_PIECE_BYTES, size)):
                    if batch.base_offset >= until:
                        return
                    yield batch
                    next_offset = max(next_offset, batch.next_offset)
                if next_offset == offset:  # batches of older formats are skipped: newer ones may follow
                    newer = next(segment.batches(position), None)
                    next_offset = offset if newer is None else newer.base_offset
            if next_offset <= offset:
                if slot + 1 >= len(self._bases):
                    return
                next_offset = self._bases[slot + 1]
            offset = next_offset

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [fetch_offset, upper_bound)."""
        found: list[AbortedTransaction] = []
        for segment in self.holding(fetch_offset):
            if segment.aborted(fetch_offset, upper_bound, found):
                break
        return found

    def upper_bound_offset(self, result: ReadResult, end: int) -> int:
        """An offset past everything in `result`. `end` is the end of the log."""
        slot = bisect_right(self._bases, result.segment_base_offset) - 1
        if slot + 1 < len(self._bases):
            end = self._bases[slot + 1]
        region = result.records
        if not isinstance(region, FileRegion):
            return end
        return self.all[slot].offset_after_position(region.position + len(region), end)
