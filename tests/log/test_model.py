"""The log against a plain list, with clean and unclean stops at any step, and with a disk that fails at any
operation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.clock import ManualClock
from ottla.errors import KafkaError, KafkaStorageError, OutOfOrderSequenceNumber
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker

START_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=120, segment_index_bytes=400)


def batch_of(
    timestamps: list[int], producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False
) -> Batch:
    records = [Record(n, timestamp, None, b"%d" % timestamp) for n, timestamp in enumerate(timestamps)]
    return Batch(build_batch(records, 0, 0, *producer, transactional=transactional))


class LogMachine(RuleBasedStateMachine):
    """`records[i]` is the timestamp of offset i; truncation cuts at batches."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.batches: list[tuple[int, list[int | None]]] = []
        self.start = 0
        self.end = 0
        self.sequences: dict[int, int] = {}
        self.open_since: dict[int, int] = {}
        self.aborted: list[tuple[int, int]] = []

    @initialize(posix=st.booleans())
    def begin(self, posix: bool) -> None:
        self.folder = tempfile.TemporaryDirectory() if posix else None
        self.disk: Disk = PosixDisk(self.folder.name) if self.folder else MemoryDisk(self.clock)
        self.log = self.reopen(clean=True)

    def reopen(self, clean: bool, recovery_point: int = 0) -> Log:
        log = open_log(
            self.disk,
            "t",
            0,
            CONFIG,
            self.clock,
            clean=clean,
            log_start_offset=self.start,
            recovery_point=recovery_point,
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def added(self, timestamps: list[int | None]) -> None:
        self.batches.append((self.end, timestamps))
        self.end += len(timestamps)
        self.log.update_high_watermark(self.end)

    @rule(deltas=st.lists(st.integers(-5, 20), min_size=1, max_size=5))
    def append(self, deltas: list[int]) -> None:
        timestamps = [self.clock.now_ms() + delta for delta in deltas]
        info = self.log.append([batch_of(timestamps)])
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(deltas) - 1)
        self.added(list(timestamps))

    @rule(producer=st.integers(0, 2), count=st.integers(1, 3))
    def append_idempotent(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, 0)
        stamps = [self.clock.now_ms()] * count
        made = (producer, 0, sequence)
        info = self.log.append([batch_of(stamps, made)])
        assert not info.duplicate
        again = self.log.append([batch_of(stamps, made)])
        assert (again.first_offset, again.duplicate) == (info.first_offset, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            self.log.append([batch_of(stamps, (producer, 0, sequence + count + 1))])
        self.sequences[producer] = sequence + count
        self.added(list(stamps))

    @rule(producer=st.integers(10, 12))
    def append_in_transaction(self, producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        self.log.append([batch_of([self.clock.now_ms()], (producer, 0, sequence), transactional=True)])
        self.sequences[producer] = sequence + 1
        self.open_since.setdefault(producer, self.end)
        self.added([self.clock.now_ms()])

    @precondition(lambda self: self.open_since)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open_since)))
        marker = end_transaction_marker(
            commit, 0, producer_id=producer, producer_epoch=0, timestamp_ms=self.clock.now_ms()
        )
        self.log.append([Batch(marker)], origin=Origin.COORDINATOR)
        first = self.open_since.pop(producer)
        if not commit:
            self.aborted.append((first, self.end))
        self.added([self.clock.now_ms()])

    @rule(ms=st.integers(0, 50))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.log = self.reopen(clean=True)

    @rule(keep_recovery_point=st.booleans())
    def crash(self, keep_recovery_point: bool) -> None:
        point = self.log.recovery_point if keep_recovery_point else 0
        self.log.close_handles()
        self.log = self.reopen(clean=False, recovery_point=point)

    @precondition(lambda self: self.batches and not self.sequences and self.log.active_segment.size)
    @rule(data=st.data())
    def crash_with_a_torn_tail(self, data: st.DataObject) -> None:
        base, stamps = self.batches[-1]
        if base < max(self.log.active_segment.base_offset, self.start):
            return
        size = next(iter(self.log.batches(base))).size
        self.log.close_handles()
        file = self.disk.open(self.log.active_segment.log.path)
        file.truncate(file.size - data.draw(st.integers(1, size)))
        file.close()
        self.batches.pop()
        self.end -= len(stamps)
        self.log = self.reopen(clean=False)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start_offset(self.start)
        self.log.delete_old_segments()

    @precondition(lambda self: not self.sequences and self.end > self.start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        borders = [base for base, _ in self.batches if base >= self.start]
        target = data.draw(st.sampled_from([*borders, self.end]))
        self.log.truncate_to(target)
        kept = [(base, stamps) for base, stamps in self.batches if base + len(stamps) <= target]
        if target < self.end:
            self.batches = kept
            self.end = target

    @invariant()
    def same_offsets(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        stable = min([*self.open_since.values(), self.end])
        assert self.log.last_stable_offset == max(stable, self.start)

    @invariant()
    def same_records(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = {
            base + n: stamp for base, stamps in self.batches for n, stamp in enumerate(stamps) if base + n >= self.start
        }
        found = {}
        offset = self.start
        while offset < self.end:
            result = self.log.read(offset, 150)
            data = result.records if isinstance(result.records, bytes) else result.records.read()
            if not data:
                break
            batch = Batch(data)
            assert batch.last_offset >= offset
            assert batch.size <= len(data)
            found.update({r.offset: r.timestamp for r in batch.records() if r.offset >= self.start})
            offset = batch.next_offset
        assert found == expected

    @invariant()
    def same_times(self) -> None:
        if not hasattr(self, "log") or not self.end:
            return
        records = [(b + n, s) for b, stamps in self.batches for n, s in enumerate(stamps) if b + n >= self.start]
        for target in {START_MS, self.clock.now_ms() - 10, self.clock.now_ms()}:
            expected = next((offset for offset, stamp in records if stamp is not None and stamp >= target), None)
            found = self.log.offset_for_timestamp(target)
            assert (found.offset if found else None) == expected

    @invariant()
    def same_aborted(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {(t.first_offset, t.last_offset) for t in self.log.aborted_transactions(self.start, self.end)}
        wanted = {(first, last) for first, last in self.aborted if last >= self.start}
        assert wanted <= found <= set(self.aborted)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.close()
            if self.folder:
                self.folder.cleanup()


TestLog = LogMachine.TestCase
TestLog.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)


class FailingDisk:
    """A memory disk whose N-th operation fails, like every later one until it is repaired."""

    WRITES = frozenset({"append", "truncate", "fsync", "mkdir", "rename", "write_atomic", "touch", "sync_folder"})

    def __init__(self, fail_at: int) -> None:
        self.inner = MemoryDisk(ManualClock(START_MS))
        self.left = fail_at
        self.broken = False

    def spend(self, name: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.broken = True
            raise KafkaStorageError(f"{name}: no space left on device")

    def guard(self, target: Any, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in self.WRITES:
                self.spend(name)
            return getattr(target, name)(*args, **kwargs)

        return call

    def open(self, path: str, *, size: int | None = None) -> Any:
        return FailingFile(self, self.inner.open(path))

    def __getattr__(self, name: str) -> Any:
        return self.guard(self.inner, name)


class FailingFile:
    def __init__(self, disk: FailingDisk, file: Any) -> None:
        self.__dict__.update(disk=disk, file=file)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.file, name)
        return self.disk.guard(self.file, name) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.file, name, value)


def test_every_operation_of_the_disk_may_fail() -> None:
    """After the restart, all acknowledged records exist and no refused ones; the disk fails after N = 1, 2, 3 …
    operations."""
    finished = False
    for fail_at in range(1, 400):
        disk = FailingDisk(fail_at)
        clock = ManualClock(START_MS)
        acknowledged: list[int] = []
        refused: set[int] = set()
        try:
            log = open_log(disk, "t", 0, CONFIG, clock, clean=True)
        except KafkaStorageError:
            continue
        for n in range(60):
            try:
                log.append([batch_of([START_MS + n], (1, 0, len(acknowledged)))])
                acknowledged.append(START_MS + n)
            except KafkaStorageError:
                refused.add(START_MS + n)
                if n % 3 == 0:
                    disk.left = 1 << 30  # the disk has room again
            assert log.log_end_offset == len(acknowledged)
        if not disk.broken:
            finished = True
            break
        disk.left = 1 << 30
        live = [r.timestamp for batch in log.batches(0) for r in batch.records()]
        assert live == acknowledged
        for clean in (False, True):
            if clean:
                log.close()
            again = open_log(disk, "t", 0, CONFIG, clock, clean=clean)
            assert [r.timestamp for batch in again.batches(0) for r in batch.records()] == acknowledged
            assert again.producers.producers[1].last_sequence == len(acknowledged) - 1
            assert again.epochs.entries == [(0, 0)]
            log = again
    assert finished


def test_a_disk_error_is_the_wire_error_56() -> None:
    assert KafkaStorageError.code == 56
    assert issubclass(KafkaStorageError, KafkaError)
