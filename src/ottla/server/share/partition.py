"""One partition as one share group reads it: handing records out, taking acknowledgements, locks that run out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.clock import Timer
from ottla.coordinator.share_state import StateBatch
from ottla.errors import InvalidRecordState, InvalidRequest, KafkaError
from ottla.server.share.inflight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    DONE,
    NOBODY,
    Acquired,
    InFlight,
    Lock,
    Run,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
_STATE_OF: Final[Mapping[int, int]] = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}

Done = Callable[[KafkaError | None], None]
Range = tuple[int, int]


class Limits(NamedTuple):
    """What a group's settings say of a partition."""

    lock_ms: int = 30_000
    deliveries: int = 5
    records: int = 2000
    """In flight at a time."""


class AcknowledgementBatch(NamedTuple):
    first: int
    last: int
    types: Sequence[int]


class Storage(Protocol):
    """Keeps the state of a share partition; `done` is called at once or later."""

    def write(self, start_offset: int, done_count: int, batches: Sequence[StateBatch], done: Done) -> None: ...


class _Change(NamedTuple):
    """A run that somebody had, and what becomes of it. It may be cut in parts before that is stored."""

    first: int
    last: int
    state: int
    delivery_count: int
    member: str
    lock: Lock | None

    @property
    def done_count(self) -> int:
        return self.last - self.first + 1 if self.state in DONE else 0


class SharePartition:
    __slots__ = ("_limits", "_storage", "_timer", "in_flight", "is_closed", "on_free")

    def __init__(self, in_flight: InFlight, limits: Callable[[], Limits], storage: Storage, timer: Timer) -> None:
        self.in_flight = in_flight
        self._limits = limits
        self._storage = storage
        self._timer = timer
        self.is_closed = False
        self.on_free: Callable[[], None] = lambda: None
        """Told when records may be handed out again, or more of them."""
        in_flight.advance()

    # -- handing out

    @property
    def can_acquire(self) -> bool:
        in_flight = self.in_flight
        return in_flight.next_offset() < in_flight.end or in_flight.size < self._limits().records

    def acquire(
        self, member: str, offset: int, batches: Sequence[Range], max_records: int, batch_size: int, *, exact: bool
    ) -> list[Acquired]:
        """Give the member records of what was read at `offset`: first and last of each batch of the log.

        The limit is a soft one, as batches are not parted, unless it is meant to be `exact` (KIP-1206).
        """
        if not batches or max_records <= 0:
            return []
        in_flight, limits = self.in_flight, self._limits()
        first, last = max(batches[0][0], offset, in_flight.start), batches[-1][1]
        if not in_flight.runs:
            in_flight.start = in_flight.end = first
        elif first > offset:
            in_flight.fill(offset, first - 1)  # compaction left nothing there
        handing = _Handing(self, member, limits, max_records, batch_size, exact)
        while first <= last and handing.goes_on:
            run = in_flight.at(first)
            if run is None:
                first = handing.take_new(first, in_flight.unknown_until(first, last), batches)
            else:
                first = handing.take_again(run, last)
        in_flight.advance()
        return handing.acquired

    def locked(self, limits: Limits) -> Lock:
        lock = Lock()
        lock.handle = self._timer.schedule(limits.lock_ms, lambda: self._run_out(lock))
        return lock

    # -- acknowledging

    def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch], done: Done) -> None:
        """All of it or nothing; `done` is called when it is stored."""
        changes: list[_Change] = []
        renewed: list[Run] = []
        try:
            for batch in batches:
                self._acknowledge(member, batch, changes, renewed)
        except KafkaError as error:
            self._take_back(changes)
            done(error)
            return
        limits = self._limits()
        for run in renewed:
            run.lock = self.locked(limits)
        self._store(changes, done)

    def _acknowledge(
        self, member: str, batch: AcknowledgementBatch, changes: list[_Change], renewed: list[Run]
    ) -> None:
        in_flight = self.in_flight
        first, last, types = batch
        if last < in_flight.start:
            return  # done with already
        runs = in_flight.runs
        if not runs or (last < runs[0].first and first < runs[0].first):
            raise InvalidRecordState("Batch record not found. The request batch offsets are not found in the cache.")
        if first >= in_flight.end:
            raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
        if last >= in_flight.end:
            raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
        for low, high, kind in _pieces(batch):
            for run in in_flight.between(max(low, in_flight.start), high):
                whole = run.is_whole and first <= run.first and run.last <= last and len(types) == 1
                _check_owner(run, member, whole=whole)
                if kind == RENEW:
                    renewed.append(run)
                else:
                    changes.append(self._change(run, _STATE_OF[kind]))

    def _change(self, run: Run, state: int) -> _Change:
        """Let a run that somebody has go; too many deliveries make an end of it."""
        if state == AVAILABLE and run.count >= self._limits().deliveries:
            state = ARCHIVED
        change = _Change(run.first, run.last, state, run.count, run.member, run.lock)
        run.state = state
        run.member = NOBODY
        run.is_moving = True
        return change

    def _take_back(self, changes: Sequence[_Change]) -> None:
        for change in changes:
            for run in self.in_flight.between(change.first, change.last):
                run.state, run.member, run.lock = ACQUIRED, change.member, change.lock
                run.is_moving = False

    def _store(self, changes: Sequence[_Change], done: Done) -> None:
        if not changes:
            done(None)
            return
        in_flight = self.in_flight
        in_flight.done_count += sum(change.done_count for change in changes)
        moved: list[StateBatch] = []
        for change in sorted(changes):
            if moved and moved[-1].last + 1 == change.first and moved[-1][2:] == (change.state, change.delivery_count):
                moved[-1] = moved[-1]._replace(last=change.last)
            else:
                moved.append(StateBatch(change.first, change.last, change.state, change.delivery_count))

        def stored(error: KafkaError | None) -> None:
            if self.is_closed:
                done(error)
                return
            if error is not None:
                in_flight.done_count -= sum(change.done_count for change in changes)
                self._take_back(changes)
                done(error)
                self._let_go([run for run in in_flight.runs if run.lock is not None and run.lock.is_over])
                return
            self._settle(changes)
            done(None)

        self._storage.write(in_flight.start, in_flight.done_count, moved, stored)

    def _settle(self, changes: Sequence[_Change]) -> None:
        """The changes are stored: what is free may be handed out, the start may move."""
        in_flight = self.in_flight
        for change in changes:
            for run in in_flight.between(change.first, change.last):
                run.is_moving = False
                run.lock = None
            if change.state == AVAILABLE:
                in_flight.freed(change.first)
        held = {run.lock for run in in_flight.runs}
        for change in changes:
            if change.lock is not None and change.lock not in held:
                change.lock.cancel()
        in_flight.advance()
        self.on_free()

    # -- letting go

    def _run_out(self, lock: Lock) -> None:
        lock.is_over = True
        self._let_go([run for run in self.in_flight.runs if run.lock is lock])

    def release(self, member: str, done: Done) -> None:
        """The member goes: what it has is there for others."""
        held = [run for run in self.in_flight.runs if run.state == ACQUIRED and run.member == member]
        self._store([self._change(run, AVAILABLE) for run in held if not run.is_moving], done)

    def _let_go(self, runs: Sequence[Run]) -> None:
        """Time has run out for these, whether that can be stored now or not."""
        changes = [self._change(run, AVAILABLE) for run in runs if run.state == ACQUIRED and not run.is_moving]
        if not changes:
            return

        def stored(error: KafkaError | None) -> None:
            if error is None or self.is_closed:
                return
            for change in changes:
                for run in self.in_flight.between(change.first, change.last):
                    run.state, run.member = change.state, NOBODY
            self.in_flight.done_count += sum(change.done_count for change in changes)
            self._settle(changes)

        self._store(changes, stored)

    def archive(self, ranges: Sequence[Range], acquired: Sequence[Acquired]) -> list[Acquired]:
        """Take what belongs to aborted transactions out of what was just handed out."""
        in_flight = self.in_flight
        rest: list[Acquired] = []
        for given in acquired:
            first = given.first
            for low, high in ranges:
                low, high = max(low, first), min(high, given.last)
                if low > high:
                    continue
                if low > first:
                    rest.append(given._replace(first=first, last=low - 1))
                first = high + 1
                for run in in_flight.between(low, high):
                    run.state, run.member, run.lock = ARCHIVED, NOBODY, None
                    in_flight.done_count += len(run)
            if first <= given.last:
                rest.append(given._replace(first=first))
        in_flight.advance()
        return rest

    def log_starts_at(self, offset: int) -> None:
        if offset > self.in_flight.start:
            self.in_flight.move_start(offset, lambda run: None)

    def close(self) -> None:
        """Nobody reads it here any more: no timer is left."""
        self.is_closed = True
        for run in self.in_flight.runs:
            if run.lock is not None:
                run.lock.cancel()


class _Handing:
    """One hand-out: how much more may be given, and what was."""

    __slots__ = (
        "_batch_size",
        "_exact",
        "_last_batch",
        "_left",
        "_limits",
        "_member",
        "_partition",
        "acquired",
        "goes_on",
    )

    def __init__(
        self, partition: SharePartition, member: str, limits: Limits, max_records: int, batch_size: int, exact: bool
    ) -> None:
        self._partition = partition
        self._member = member
        self._limits = limits
        self._left = max_records
        self._batch_size = batch_size
        self._exact = exact
        self._last_batch: Range | None = None
        self.acquired: list[Acquired] = []
        self.goes_on = True

    def take_new(self, first: int, last: int, batches: Sequence[Range]) -> int:
        """Records that nobody had; where to go on."""
        in_flight, limits = self._partition.in_flight, self._limits
        most = self._left
        if first >= in_flight.end:
            most = min(most, limits.records - in_flight.size)
        if most <= 0:
            self.goes_on = False
            return first
        stop = min(first + most - 1, last)
        batch_end = next((high for low, high in batches if low <= stop <= high), stop)
        batch_end = min(batch_end, last)
        if not self._exact:
            stop = batch_end
        for low, high in self._parts(first, stop, batches):
            if low <= high:
                run = Run(low, high, ACQUIRED, 1, (low, high), self._member, self._partition.locked(limits))
                in_flight.add(run)
            self.acquired.append(Acquired(low, high, 1))
        if stop < batch_end:
            # The rest of the batch is known now; it is the next to go.
            in_flight.add(Run(stop + 1, batch_end, AVAILABLE, 0, (first, batch_end)))
            in_flight.freed(stop + 1)
        self._took(stop - first + 1)
        return stop + 1

    def _parts(self, first: int, last: int, batches: Sequence[Range]) -> list[Range]:
        """Cut at batches of the log, so that each part has about as many records as the member wants together."""
        parts: list[Range] = []
        if self._exact or last - first + 1 <= self._batch_size:
            return [(first, last)]
        begin = first
        for low, _ in batches:
            if first <= low <= last and low - begin >= self._batch_size:
                parts.append((begin, low - 1))
                begin = low
        return [*parts, (begin, last)]

    def take_again(self, run: Run, last: int) -> int:
        """A run that was in flight before, if it is free; where to go on."""
        if not run.is_free or run.first > last:
            self._may_end(run)
            return run.last + 1
        if not self._exact:
            self._may_end(run)
            if not self.goes_on:
                return run.first
        self._last_batch = run.batch
        in_flight = self._partition.in_flight
        most = self._left if self._exact else len(run)
        careful = self._careful(run)
        if careful is not None:
            most = min(most, careful)
            self.goes_on = False
        in_flight.cut(run, run.first + most)
        run.state, run.member = ACQUIRED, self._member
        run.count += 1
        run.lock = self._partition.locked(self._limits)
        self.acquired.append(Acquired(run.first, run.last, run.count))
        self._took(len(run), ends=self._exact)
        return run.last + 1

    def _may_end(self, run: Run) -> None:
        if self._left <= 0 and run.batch != self._last_batch:
            self.goes_on = False

    def _took(self, count: int, *, ends: bool = True) -> None:
        self._left -= count
        if ends and self._left <= 0:
            self.goes_on = False

    def _careful(self, run: Run) -> int | None:
        """Fewer and fewer of what fails again and again, so that one bad record does not take others with it."""
        limit = self._limits.deliveries
        threshold = max(2, -(-limit // 2))
        if run.count < threshold:
            return None
        if run.count >= limit - 1:
            return 1
        return max(1, (run.batch[1] - run.batch[0] + 1) >> (run.count - threshold + 1))


def _pieces(batch: AcknowledgementBatch) -> list[tuple[int, int, int]]:
    first, last, types = batch
    if len(types) == 1:
        return [(first, last, types[0])]
    pieces: list[tuple[int, int, int]] = []
    for position, kind in enumerate(types):
        if pieces and pieces[-1][2] == kind:
            pieces[-1] = (pieces[-1][0], first + position, kind)
        else:
            pieces.append((first + position, first + position, kind))
    return pieces


def _check_owner(run: Run, member: str, *, whole: bool) -> None:
    if run.state != ACQUIRED or run.is_moving:
        if whole:
            raise InvalidRecordState("The batch cannot be acknowledged. The batch is not in the acquired state.")
        raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
    if run.member != member:
        raise InvalidRecordState(f"Member is not the owner of {'batch record' if whole else 'offset'}")
