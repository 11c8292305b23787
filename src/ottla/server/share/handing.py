"""Which of the read records a member of a share group gets.

Records that were handed out together stay together (KIP-932): a batch that is released completely is handed out as a
batch again, and a partly released one record by record. Records that fail repeatedly are handed out in smaller and
smaller groups, and alone at the last delivery, so that one bad record does not affect others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.server.share.inflight import ACQUIRED, AVAILABLE, Acquired, InFlight, Lock, Run, Taken

Range = tuple[int, int]

_ISOLATING_LIMIT = 2
"""With a limit this low, no deliveries are left to find out which record is bad."""


class Handing:
    """One hand-out: the records so far, and how many more are allowed."""

    __slots__ = (
        "_batch_size",
        "_careful_from",
        "_deliveries",
        "_exact",
        "_in_flight",
        "_left",
        "_lock",
        "_member",
        "acquired",
        "last",
    )

    def __init__(
        self,
        in_flight: InFlight,
        member: str,
        last: int,
        max_records: int,
        batch_size: int,
        deliveries: int,
        lock: Callable[[], Lock],
        *,
        exact: bool,
    ) -> None:
        self._in_flight = in_flight
        self._member = member
        self._left = max_records
        self._batch_size = batch_size
        self._exact = exact
        self._deliveries = deliveries
        self._careful_from = max(2, -(-deliveries // 2))
        self._lock = lock
        self.last = last
        """The last offset that may be handed out."""
        self.acquired: list[Acquired] = []

    def hand_out(self, first: int, batches: Sequence[Range]) -> None:
        """Hand out records of these log batches, from `first` on."""
        in_flight, last = self._in_flight, self.last
        known = in_flight.batches(first, last)
        if not known:
            if in_flight.runs and in_flight.runs[-1].last >= in_flight.start:
                first = max(first, in_flight.start)
            # Otherwise the log start moved into this batch, and Kafka hands out the whole batch.
            self._take_new(first, last, batches)
            return
        unknown = max(first, in_flight.start)
        for batch in known:
            if self._left <= 0:
                return
            if unknown < batch.first:
                self._take_new(unknown, batch.first - 1, batches)
            unknown = batch.last + 1
            if self._left > 0:
                self._take_again(batch, batches[0][0])
        if self._left > 0 and unknown <= last:
            self._take_new(unknown, last, batches)

    # -- records that were never handed out

    def _take_new(self, first: int, last: int, batches: Sequence[Range]) -> None:
        in_flight = self._in_flight
        if not in_flight.runs:
            first = max(first, in_flight.end)
            in_flight.start = in_flight.end = first
        most = self._left
        stop = min(first + most - 1, last)
        # A log batch is handed out as a whole; with an exact limit, the rest of it becomes available.
        end = min(next((high for low, high in batches if low <= stop <= high), stop), last)
        if self._exact:
            taken = Taken(first, end)
            in_flight.add(Run(first, stop, ACQUIRED, 1, taken, self._member, self._lock()))
            if stop < end:
                taken.by_record = True
                in_flight.add(Run(stop + 1, end, AVAILABLE, 0, taken))
                in_flight.freed(stop + 1)
            self.acquired.append(Acquired(first, stop, 1))
            self._left -= stop - first + 1
            return
        for low, high in self._parts(first, end, batches):
            in_flight.add(Run(low, high, ACQUIRED, 1, Taken(low, high), self._member, self._lock()))
            self.acquired.append(Acquired(low, high, 1))
        self._left -= end - first + 1

    def _parts(self, first: int, last: int, batches: Sequence[Range]) -> list[Range]:
        """Split at log batches, so that each part has about as many records as the member wants at once."""
        parts: list[Range] = []
        if last - first + 1 <= self._batch_size:
            return [(first, last)]
        begin = first
        for low, _ in batches:
            if first <= low <= last and low - begin >= self._batch_size:
                parts.append((begin, low - 1))
                begin = low
        return [*parts, (begin, last)]

    # -- records that were in flight before

    def _take_again(self, batch: Taken, first: int) -> None:
        runs = self._in_flight.runs_of(batch)
        is_careful = self._is_careful(batch, runs, first)
        if is_careful and self.acquired:
            self._left = 0
            return
        is_inside = first <= batch.first and batch.last <= self.last
        if not batch.by_record:
            if not runs[0].is_free:
                return
            if is_inside and not is_careful and not (self._exact and len(batch) > self._left):
                self._take(runs[0], self._lock())
                self.acquired.append(Acquired(batch.first, batch.last, runs[0].count))
                self._left -= len(batch)
                return
            batch.by_record = True
        count = self._take_some(batch, runs, first)
        self._left = 0 if is_careful and count else self._left - count

    def _is_careful(self, batch: Taken, runs: Sequence[Run], first: int) -> bool:
        if not batch.by_record:
            return runs[0].count >= self._careful_from
        return any(
            run.count >= self._careful_from
            for run in runs
            if run.state == AVAILABLE and run.last >= first and run.first <= self.last
        )

    def _take_some(self, batch: Taken, runs: Sequence[Run], first: int) -> int:
        """Hand out record by record; returns how many."""
        in_flight, before = self._in_flight, len(self.acquired)
        lock: Lock | None = None
        portion = count = 0
        for run in runs:
            if run.last < first or run.first > self.last or not run.is_free:
                continue
            is_last_time = self._deliveries > _ISOLATING_LIMIT and run.count == self._deliveries - 1
            if is_last_time and count:
                break
            if run.count >= self._careful_from and not portion:
                portion = max(1, len(batch) >> (run.count - self._careful_from + 1))
            most = 1 if is_last_time else min(run.last, self.last) - run.first + 1
            if self._exact:
                most = min(most, self._left - count)
            if portion > count:
                most = min(most, portion - count)
            in_flight.cut(run, run.first + most)
            lock = lock or self._lock()
            self._take(run, lock)
            count += most
            self._tell(run, before)
            if is_last_time or (self._exact and count == self._left) or count == portion:
                break
        in_flight.join(batch)
        return count

    def _take(self, run: Run, lock: Lock) -> None:
        run.state, run.member, run.lock = ACQUIRED, self._member, lock
        run.count += 1

    def _tell(self, run: Run, before: int) -> None:
        """Add the acquired records, merged with the previous ones of the same batch if they are equal."""
        given = self.acquired[-1] if len(self.acquired) > before else None
        if given is not None and (given.last + 1, given.delivery_count) == (run.first, run.count):
            self.acquired[-1] = given._replace(last=run.last)
        else:
            self.acquired.append(Acquired(run.first, run.last, run.count))
