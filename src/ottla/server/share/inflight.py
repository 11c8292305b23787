"""Records of a partition that a share group has in hand: who has them, how often they were delivered, what is done.

    AVAILABLE  --acquire-->  ACQUIRED  --accept-->  ACKNOWLEDGED
        ^                       |------reject, gap, delivered too often-->  ARCHIVED
        +--release, lock ran out+

Neighbours with the same fate are one run; a run is split when a part of it meets another fate. What is not in a run is
unknown: not read yet, or read before a restart and not told about since. The start offset moves over what is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.clock import TimerHandle
from ottla.coordinator.share_state import StateBatch

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4
DONE: Final = frozenset({ACKNOWLEDGED, ARCHIVED})

NOBODY = ""


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class Lock:
    """For how long somebody may keep records to himself."""

    __slots__ = ("handle", "is_over")

    def __init__(self) -> None:
        self.handle: TimerHandle | None = None
        self.is_over = False

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()


class Run:
    __slots__ = ("batch", "count", "first", "is_moving", "last", "lock", "member", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: int,
        count: int,
        batch: tuple[int, int],
        member: str = NOBODY,
        lock: Lock | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Deliveries so far."""
        self.batch = batch
        """The records that were acquired together, first and last."""
        self.member = member
        self.lock = lock
        self.is_moving = False
        """A change of it is being stored; until then nobody may touch it."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_whole(self) -> bool:
        return (self.first, self.last) == self.batch

    @property
    def is_free(self) -> bool:
        return self.state == AVAILABLE and not self.is_moving

    def is_like(self, after: Run) -> bool:
        """Whether the next run is in no way different."""
        return (
            self.last + 1 == after.first
            and self.batch == after.batch
            and (self.state, self.count, self.member) == (after.state, after.count, after.member)
            and self.lock is after.lock
            and self.is_moving == after.is_moving
        )

    def split(self, offset: int) -> Run:
        """Cut before `offset`; the second part is returned."""
        rest = Run(offset, self.last, self.state, self.count, self.batch, self.member, self.lock)
        rest.is_moving = self.is_moving
        self.last = offset - 1
        return rest


class InFlight:
    """The runs of one share partition, in order."""

    __slots__ = ("_hint", "done_count", "end", "runs", "start")

    def __init__(self, start: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start = start
        self.end = start
        """The first offset that was never read."""
        self.runs: list[Run] = []
        self.done_count = 0
        """Of records from the start on."""
        self._hint = start
        """Nothing below it is free."""
        for first, last, state, count in batches:
            if last >= start:
                first = max(first, start)
                self.runs.append(Run(first, last, state, count, (first, last)))
                self.end = last + 1
                if state in DONE:
                    self.done_count += last - first + 1

    # -- looking

    def next_offset(self) -> int:
        """The first record that may be handed out."""
        offset = max(self._hint, self.start)
        for run in self.runs[self._slot(offset) :]:
            if run.first > offset or run.is_free:
                break
            offset = run.last + 1
        self._hint = offset
        return offset

    def freed(self, offset: int) -> None:
        self._hint = min(self._hint, offset)

    def _slot(self, offset: int) -> int:
        """The position of the run that holds `offset`, or of the first one after it."""
        slot = bisect_right(self.runs, offset, key=lambda run: run.first)
        return slot - 1 if slot and self.runs[slot - 1].last >= offset else slot

    @property
    def size(self) -> int:
        return self.end - self.start

    # -- changing

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs in this range, cut at its edges when they are reached."""
        slot = self._slot(first)
        while slot < len(self.runs) and self.runs[slot].first <= last:
            run = self.runs[slot]
            if run.first < first:
                self.runs.insert(slot + 1, run.split(first))
                slot += 1
                run = self.runs[slot]
            if run.last > last:
                self.runs.insert(slot + 1, run.split(last + 1))
            yield run
            slot += 1

    def at(self, offset: int) -> Run | None:
        """The run that holds `offset`, from there on; neighbours with the same fate are joined to it."""
        slot = self._slot(offset)
        if slot == len(self.runs) or self.runs[slot].first > offset:
            return None
        run = self.runs[slot]
        if run.first < offset:
            slot += 1
            self.runs.insert(slot, run.split(offset))
            run = self.runs[slot]
        while slot + 1 < len(self.runs) and run.is_like(self.runs[slot + 1]):
            run.last = self.runs.pop(slot + 1).last
        return run

    def unknown_until(self, first: int, last: int) -> int:
        """The end of what is in no run, of the range that begins at `first`."""
        slot = self._slot(first)
        return min(last, self.runs[slot].first - 1) if slot < len(self.runs) else last

    def cut(self, run: Run, offset: int) -> None:
        """Let `run` end before `offset`; the rest is a run of its own."""
        if run.first < offset <= run.last:
            self.runs.insert(self.runs.index(run) + 1, run.split(offset))

    def add(self, run: Run) -> None:
        self.runs.insert(self._slot(run.first), run)
        self.end = max(self.end, run.last + 1)
        if run.state in DONE:
            self.done_count += len(run)

    def fill(self, first: int, last: int) -> None:
        """There are no records in this range: whatever of it is unknown or free is done with."""
        offset = first
        for run in list(self.between(first, last)):
            if run.first > offset:
                self.add(Run(offset, run.first - 1, ARCHIVED, 0, (offset, run.first - 1)))
            if run.is_free:
                run.state = ARCHIVED
                self.done_count += len(run)
            offset = run.last + 1
        if offset <= last:
            self.add(Run(offset, last, ARCHIVED, 0, (offset, last)))

    def advance(self) -> None:
        """Move the start over what is done."""
        gone = 0
        for run in self.runs:
            if run.first > self.start or run.state not in DONE or run.is_moving:
                break
            self.start = run.last + 1
            self.done_count -= len(run)
            gone += 1
        del self.runs[:gone]

    def move_start(self, offset: int, dropped: Callable[[Run], None]) -> None:
        """The log begins later than before: what is below is gone."""
        for run in list(self.between(self.start, offset - 1)):
            if run.state in DONE:
                self.done_count -= len(run)
            dropped(run)
            self.runs.remove(run)
        self.start = offset
        self.end = max(self.end, offset)
        self.advance()
