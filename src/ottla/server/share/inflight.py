"""The in-flight records of a partition in a share group: which member has them, delivery counts, states.

    AVAILABLE  --acquire-->  ACQUIRED  --accept-->  ACKNOWLEDGED
        ^                       |------reject, gap, delivered too often-->  ARCHIVED
        +--release, lock ran out+

Records that were handed out together stay a batch. It has one state, in one run, until a part of it gets another state;
from then on its records are tracked separately. Offsets outside a run are unknown: not read yet, or read before a
restart. The start offset moves past finished records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.clock import TimerHandle
from ottla.coordinator.share_state.state import StateBatch

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
    """How long a member may keep records."""

    __slots__ = ("handle", "is_over")

    def __init__(self) -> None:
        self.handle: TimerHandle | None = None
        self.is_over = False

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()


class Taken:
    """Records that were handed out together, first and last."""

    __slots__ = ("by_record", "first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.by_record = False
        """Its records have, or may have, different states: each is handled separately now."""

    def __len__(self) -> int:
        return self.last - self.first + 1


class Run:
    __slots__ = ("batch", "count", "first", "is_moving", "last", "lock", "member", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: int,
        count: int,
        batch: Taken,
        member: str = NOBODY,
        lock: Lock | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Deliveries so far."""
        self.batch = batch
        self.member = member
        self.lock = lock
        self.is_moving = False
        """A change of it is being stored; until then it must not change."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        return self.state == AVAILABLE and not self.is_moving

    def is_like(self, after: Run) -> bool:
        """Whether the next run has the same state."""
        return (
            self.last + 1 == after.first
            and self.batch is after.batch
            and (self.state, self.count, self.member) == (after.state, after.count, after.member)
            and self.lock is after.lock
            and self.is_moving == after.is_moving
        )

    def split(self, offset: int) -> Run:
        """Cut before `offset`; the second part is returned."""
        rest = Run(offset, self.last, self.state, self.count, self.batch, self.member, self.lock)
        rest.is_moving = self.is_moving
        self.last = offset - 1
        self.batch.by_record = True
        return rest


class InFlight:
    """The runs of one share partition, in order."""

    __slots__ = ("_hint", "end", "runs", "start")

    def __init__(self, start: int, batches: Sequence[StateBatch] = ()) -> None:
        self.start = start
        self.end = start
        """The first offset that was never read."""
        self.runs: list[Run] = []
        """A member may still have records from before the start."""
        self._hint = start
        """No record below it is available."""
        for first, last, state, count in batches:
            if last >= start:
                first = max(first, start)
                self.runs.append(Run(first, last, state, count, Taken(first, last)))
                self.end = last + 1

    # -- queries

    @property
    def done_count(self) -> int:
        """The number of finished records after the start."""
        start = self.start
        return sum(run.last - max(run.first, start) + 1 for run in self.runs if run.state in DONE and run.last >= start)

    @property
    def acquired_count(self) -> int:
        return sum(map(len, (run for run in self.runs if run.state == ACQUIRED)))

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
        return self.end - self.start if self.runs else 0

    def batches(self, first: int, last: int) -> list[Taken]:
        """The batches with a record in this range."""
        found: list[Taken] = []
        for run in self.runs[self._slot(first) :]:
            if run.first > last:
                break
            if not found or found[-1] is not run.batch:
                found.append(run.batch)
        return found

    # -- changing

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs in this range, split at its ends."""
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

    def runs_of(self, batch: Taken) -> list[Run]:
        found: list[Run] = []
        for run in self.runs[self._slot(batch.first) :]:
            if run.batch is not batch:
                break
            found.append(run)
        return found

    def join(self, batch: Taken) -> None:
        """Merge neighbours with the same state."""
        slot = self._slot(batch.first)
        while slot + 1 < len(self.runs) and self.runs[slot + 1].batch is batch:
            if self.runs[slot].is_like(self.runs[slot + 1]):
                self.runs[slot].last = self.runs.pop(slot + 1).last
            else:
                slot += 1

    def cut(self, run: Run, offset: int) -> None:
        """Split `run` before `offset`."""
        if run.first < offset <= run.last:
            self.runs.insert(self.runs.index(run) + 1, run.split(offset))

    def add(self, run: Run) -> None:
        self.runs.insert(self._slot(run.first), run)
        self.end = max(self.end, run.last + 1)

    def fill(self, first: int, last: int) -> None:
        """There are no records in this range: mark unknown and available offsets as finished."""
        offset = first
        for run in list(self.between(first, last)):
            if run.first > offset:
                self.add(Run(offset, run.first - 1, ARCHIVED, 0, Taken(offset, run.first - 1)))
            if run.is_free:
                run.state = ARCHIVED
            offset = run.last + 1
        if offset <= last:
            self.add(Run(offset, last, ARCHIVED, 0, Taken(offset, last)))

    def advance(self) -> None:
        """Move the start past finished records."""
        gone = 0
        for run in self.runs:
            if run.first > self.start or run.state not in DONE or run.is_moving:
                break
            self.start = max(self.start, run.last + 1)
            gone += 1
        del self.runs[:gone]

    def move_start(self, offset: int) -> None:
        """The log start moved. Available records below it are finished; acquired ones stay with their members."""
        if self.runs:
            for run in [run for run in self.runs if run.first < offset and run.is_free]:
                self.cut(run, offset)
                run.state = ARCHIVED
        self.start = offset
        self.end = max(self.end, offset)
