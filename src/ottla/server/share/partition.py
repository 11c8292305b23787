"""One partition as one share group reads it: handing out records, acknowledgements, expiring locks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.clock import Timer
from ottla.coordinator.share_state.state import StateBatch
from ottla.enums import AcknowledgeType
from ottla.errors import InvalidRecordState, InvalidRequest, KafkaError
from ottla.server.share.handing import Handing, Range
from ottla.server.share.inflight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NOBODY,
    Acquired,
    InFlight,
    Lock,
    Run,
    Taken,
)

_STATE_OF: Final[Mapping[int, int]] = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}

Done = Callable[[KafkaError | None], None]


class Limits(NamedTuple):
    """The limits of a partition from a group's settings."""

    lock_ms: int = 30_000
    deliveries: int = 5
    records: int = 2000
    """The most records in flight at a time."""


class AcknowledgementBatch(NamedTuple):
    first: int
    last: int
    types: Sequence[int]


class Storage(Protocol):
    """Keeps the state of a share partition; `done` is called immediately or later."""

    def write(self, start_offset: int, done_count: int, batches: Sequence[StateBatch], done: Done) -> None: ...


class _Change(NamedTuple):
    """A run that a member had, and its new state. It may be split before that is stored."""

    first: int
    last: int
    state: int
    delivery_count: int
    member: str
    lock: Lock | None


class SharePartition:
    __slots__ = ("_limits", "_storage", "_timer", "in_flight", "is_closed", "on_free")

    def __init__(self, in_flight: InFlight, limits: Callable[[], Limits], storage: Storage, timer: Timer) -> None:
        self.in_flight = in_flight
        self._limits = limits
        self._storage = storage
        self._timer = timer
        self.is_closed = False
        self.on_free: Callable[[], None] = lambda: None
        """Called when records are available again."""
        in_flight.advance()

    # -- handing out

    @property
    def can_acquire(self) -> bool:
        in_flight = self.in_flight
        if in_flight.next_offset() < in_flight.end or in_flight.size < self._limits().records:
            return True
        in_flight.advance()  # which otherwise waits for an acknowledgement; aborted records get none
        return in_flight.size < self._limits().records

    def acquire(
        self, member: str, offset: int, batches: Sequence[Range], max_records: int, batch_size: int, *, exact: bool
    ) -> list[Acquired]:
        """Acquire records that were read at `offset` for the member: first and last offset of each log batch.

        The limit is soft, because batches are not split, unless it is `exact` (KIP-1206).
        """
        if not batches or max_records <= 0:
            return []
        in_flight, limits = self.in_flight, self._limits()
        first, last = batches[0][0], batches[-1][1]
        most = min(max_records, limits.records - in_flight.size)
        if most <= 0:
            if offset >= in_flight.end:
                return []
            most = min(max_records, in_flight.end - offset)  # earlier in-flight records do not count
            last = min(last, in_flight.end - 1)
        if in_flight.runs and first > offset:
            in_flight.fill(offset, first - 1)  # compaction left nothing there
        handing = Handing(
            in_flight, member, last, most, batch_size, limits.deliveries, lambda: self.locked(limits), exact=exact
        )
        handing.hand_out(first, batches)
        return handing.acquired

    def locked(self, limits: Limits) -> Lock:
        lock = Lock()
        lock.handle = self._timer.schedule(limits.lock_ms, lambda: self._run_out(lock))
        return lock

    # -- acknowledging

    def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch], done: Done) -> Callable[[], None]:
        """Apply all acknowledgements or none.

        Call the returned function to store them; `done` is called when they are stored. Until then the records belong
        to nobody: a fetch in the same request does not get them, as in Kafka, which does not wait for the storage
        either.
        """
        changes: list[_Change] = []
        renewed: list[Run] = []
        try:
            for batch in batches:
                self._acknowledge(member, batch, changes, renewed)
        except KafkaError as error:
            self._take_back(changes)
            refusal = error
            return lambda: done(refusal)
        limits = self._limits()
        for run in renewed:
            run.lock = self.locked(limits)
        return self._to_store(changes, done)

    def _acknowledge(
        self, member: str, batch: AcknowledgementBatch, changes: list[_Change], renewed: list[Run]
    ) -> None:
        in_flight = self.in_flight
        first, last, types = batch
        if last < in_flight.start:
            return  # already finished
        runs = in_flight.runs
        if not runs or (last < runs[0].batch.first and first < runs[0].batch.first):
            raise InvalidRecordState("Batch record not found. The request batch offsets are not found in the cache.")
        if first >= in_flight.end:
            raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
        if last >= in_flight.end:
            raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
        start = in_flight.start
        kinds = _pieces(batch)
        for each in in_flight.batches(max(first, start), last):
            _check_whole(each, in_flight, member)
            if len(types) > 1 or each.first < max(first, start) or each.last > last:
                each.by_record = True
            for low, high, kind in kinds:
                for run in in_flight.between(max(low, start, each.first), min(high, each.last)):
                    _check_owner(run, member)
                    if kind == AcknowledgeType.RENEW:
                        renewed.append(run)
                    else:
                        changes.append(self._change(run, _STATE_OF[kind]))

    def _change(self, run: Run, state: int) -> _Change:
        """Release a run of a member. After too many deliveries, or below the log start, it is archived."""
        if state == AVAILABLE and (run.count >= self._limits().deliveries or run.last < self.in_flight.start):
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
        self._to_store(changes, done)()

    def _to_store(self, changes: Sequence[_Change], done: Done) -> Callable[[], None]:
        """A function that stores these changes in their current state."""
        if not changes:
            return lambda: done(None)
        in_flight = self.in_flight
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
                self._take_back(changes)
                done(error)
                self._let_go(self._held(lambda run: run.lock is not None and run.lock.is_over))
                return
            self._settle(changes)
            done(None)

        start, done_count = in_flight.start, in_flight.done_count
        return lambda: self._storage.write(start, done_count, moved, stored)

    def _settle(self, changes: Sequence[_Change]) -> None:
        """The changes are stored: available records may be handed out, and the start may move."""
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

    # -- releasing

    def _run_out(self, lock: Lock) -> None:
        lock.is_over = True
        self._let_go(self._held(lambda run: run.lock is lock))

    def _held(self, is_meant: Callable[[Run], bool]) -> list[Run]:
        """The acquired runs, split at the log start."""
        start = self.in_flight.start
        for run in [run for run in self.in_flight.runs if run.first < start <= run.last and is_meant(run)]:
            self.in_flight.cut(run, start)
        return [run for run in self.in_flight.runs if run.state == ACQUIRED and is_meant(run)]

    def release(self, member: str, done: Done) -> None:
        """The member leaves: its records are available for others."""
        held = self._held(lambda run: run.member == member)
        self._store([self._change(run, AVAILABLE) for run in held if not run.is_moving], done)

    def _let_go(self, runs: Sequence[Run]) -> None:
        """Release records whose lock expired, even if that cannot be stored now."""
        changes = [self._change(run, AVAILABLE) for run in runs if run.state == ACQUIRED and not run.is_moving]
        if not changes:
            return

        def stored(error: KafkaError | None) -> None:
            if error is None or self.is_closed:
                return
            for change in changes:
                for run in self.in_flight.between(change.first, change.last):
                    run.state, run.member = change.state, NOBODY
            self._settle(changes)

        self._store(changes, stored)

    def archive(self, ranges: Sequence[Range], acquired: Sequence[Acquired]) -> list[Acquired]:
        """Archive the records of aborted transactions among those just handed out."""
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
            if first <= given.last:
                rest.append(given._replace(first=first))
        return rest

    def log_starts_at(self, offset: int) -> None:
        if offset > self.in_flight.start:
            self.in_flight.move_start(offset)

    def close(self) -> None:
        """The group no longer reads it here: cancel the timers."""
        self.is_closed = True
        for run in self.in_flight.runs:
            if run.lock is not None:
                run.lock.cancel()


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


def _check_whole(batch: Taken, in_flight: InFlight, member: str) -> None:
    if not batch.by_record:
        for run in in_flight.runs_of(batch):
            _check_owner(run, member)


def _check_owner(run: Run, member: str) -> None:
    """Kafka's error for records that are not the member's: by batch, until its records are tracked separately."""
    by_record = run.batch.by_record
    if run.state != ACQUIRED or run.is_moving:
        if by_record:
            raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
        raise InvalidRecordState("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if run.member != member:
        raise InvalidRecordState(f"Member is not the owner of {'offset' if by_record else 'batch record'}")
