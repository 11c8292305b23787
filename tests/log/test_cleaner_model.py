"""Compaction against a plain list: no key loses its newest value after any writes, cleanings and restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.clock import ManualClock
from ottla.log.cleaner import CleanerSettings, LogCleaner
from ottla.log.files import MemoryDisk
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.offset_map import BYTES_PER_ENTRY
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker

START_MS = 1_700_000_000_000
RETENTION_MS = 1000

KEYS = st.sampled_from([b"a", b"b", b"c", b"long-key-that-is-digested-%d" % 1, b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=30))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)


class CleanerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(self.clock)
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        """offset -> key, value, timestamp"""
        self.undecided: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.end = 0

    @initialize(slots=st.integers(2, 8), segment_bytes=st.sampled_from([450, 700, 2000]))
    def begin(self, slots: int, segment_bytes: int) -> None:
        self.settings = CleanerSettings(map_bytes=slots * BYTES_PER_ENTRY, load_factor=1.0)
        self.config = LogConfig(
            compact=True,
            delete=False,
            min_cleanable_dirty_ratio=0.0,
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            delete_retention_ms=RETENTION_MS,
        )
        self.open()

    def open(self) -> None:
        self.manager = LogManager(self.disk, lambda topic: self.config, self.clock, new_token=lambda: "0" * 32)
        self.manager.open("cluster", 1, "A" * 22)
        self.manager.load_all()
        self.cleaner = LogCleaner(self.manager, lambda: self.settings)
        self.log: Log = self.manager.get_or_create("t", 0)
        self.log.update_high_watermark(self.log.log_end_offset)
        assert self.log.log_end_offset == self.end

    def batch(self, pairs: list[tuple[bytes, bytes | None]], producer: int = -1, **options: Any) -> list[int]:
        now_ms = self.clock.now_ms()
        records = [Record(n, now_ms + n, key, value) for n, (key, value) in enumerate(pairs)]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        made = build_batch(records, 0, options.pop("codec", 0), producer, min(producer, 0), sequence, **options)
        self.log.append([Batch(made)])
        offsets = list(range(self.end, self.end + len(pairs)))
        for offset, record in zip(offsets, records, strict=True):
            assert record.key is not None
            self.written[offset] = (record.key, record.value, record.timestamp)
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
        self.end += len(pairs)
        self.log.update_high_watermark(self.end)
        return offsets

    @rule(pairs=PAIRS, codec=st.sampled_from([0, 0, 1, 4]))
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        self.batch(pairs, codec=codec)

    @rule(pairs=PAIRS, producer=st.integers(0, 1))
    def append_idempotent(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        self.batch(pairs, producer)

    @rule(pairs=PAIRS, producer=st.integers(10, 12))
    def append_in_transaction(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        self.undecided.setdefault(producer, []).extend(self.batch(pairs, producer, transactional=True))

    @precondition(lambda self: self.undecided)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.undecided))), commit)

    def end_one(self, producer: int, commit: bool) -> None:
        marker = end_transaction_marker(
            commit, 0, producer_id=producer, producer_epoch=0, timestamp_ms=self.clock.now_ms()
        )
        self.log.append([Batch(marker)], origin=Origin.COORDINATOR)
        offsets = self.undecided.pop(producer)
        if not commit:
            self.aborted.update(offsets)
        self.end += 1
        self.log.update_high_watermark(self.end)

    @rule()
    def roll(self) -> None:
        if self.log.active_segment.size:
            self.log.roll()

    @rule()
    def clean(self) -> None:
        self.cleaner.run_until_clean()
        assert not self.cleaner.uncleanable
        self.check_compacted()

    @rule(ms=st.sampled_from([1, 400, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def restart(self) -> None:
        self.manager.close()
        self.open()

    @rule(forget=st.booleans())
    def crash(self, forget: bool) -> None:
        if forget:
            self.log.recovery_point = 0
        self.manager.checkpoint_recovery_points()
        self.disk.close()
        self.open()

    def surviving(self) -> list[tuple[int, Record]]:
        return [(r.offset, r) for b in self.log.batches(0) if not b.is_control for r in b.records()]

    @invariant()
    def the_newest_values_are_there(self) -> None:
        if not hasattr(self, "log"):
            return
        open_offsets = {offset for offsets in self.undecided.values() for offset in offsets}
        hidden = open_offsets | self.aborted
        newest: dict[bytes, bytes | None] = {}
        for offset, (key, value, _) in self.written.items():
            if offset not in hidden:
                newest[key] = value
        found: dict[bytes, bytes | None] = {}
        before = -1
        for offset, record in self.surviving():
            assert offset > before
            before = offset
            assert self.written[offset] == (record.key, record.value, record.timestamp)
            if offset not in hidden:
                found[record.key] = record.value  # type: ignore[index]
        assert {k: v for k, v in found.items() if v is not None} == {k: v for k, v in newest.items() if v is not None}
        assert open_offsets <= {offset for offset, _ in self.surviving()}
        assert (self.log.log_start_offset, self.log.log_end_offset) == (0, self.end)
        for producer, sequence in self.sequences.items():
            assert self.log.producers.producers[producer].last_sequence == sequence - 1

    def check_compacted(self) -> None:
        clean_to = self.cleaner.clean_offsets.get(("t", 0), 0)
        keys = [record.key for offset, record in self.surviving() if offset < clean_to]
        assert len(keys) == len(set(keys))
        assert not [offset for offset, _ in self.surviving() if offset in self.aborted and offset < clean_to]
        assert all(batch.crc_ok() for batch in self.log.batches(0))
        for offset in range(self.end):
            result = self.log.read(offset, 1 << 20)
            assert len(result.records) or not any(o >= offset for o, _ in self.surviving())

    def teardown(self) -> None:
        """Tombstones, and markers without records, do not stay forever."""
        if not hasattr(self, "log"):
            return
        for producer in list(self.undecided):
            self.end_one(producer, commit=False)
        for producer in list(self.sequences):  # their last batches move to the active segment
            self.batch([(b"last-%d" % producer, b"")], producer)
        for n in range(4):
            self.batch([(b"unique-%d" % n, b"")])
            if n < 3 or self.log.active_segment.size:
                self.log.roll()
            self.clean()
            self.the_newest_values_are_there()
            self.clock.advance(RETENTION_MS)
        left = list(self.log.batches(0))
        assert not [r for b in left if not b.is_control for r in b.records() if r.value is None]
        with_data = {b.producer_id for b in left if b.is_transactional and not b.is_control}
        assert {b.producer_id for b in left if b.is_control and b.record_count} <= with_data
        self.manager.close()


TestCleaner = CleanerMachine.TestCase
TestCleaner.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)


class Crash(BaseException):
    """The machine lost power."""


class CrashingDisk:
    """A memory disk that stops at the N-th change."""

    CHANGES = frozenset(
        {"append", "truncate", "fsync", "mkdir", "rename", "write_atomic", "touch", "sync_folder", "remove"}
        | {"set_modified_ms"}
    )

    def __init__(self, inner: MemoryDisk) -> None:
        self.inner = inner
        self.left = 1 << 30

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def guard(self, target: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in self.CHANGES:
                self.spend()
            return getattr(target, name)(*args, **kwargs)

        return call

    def open(self, path: str, *, size: int | None = None) -> Any:
        if not self.inner.exists(path):
            self.spend()
        return CrashingFile(self, self.inner.open(path))

    def for_thread(self) -> CrashingDisk:
        return self

    def __getattr__(self, name: str) -> Any:
        return self.guard(self.inner, name)


class CrashingFile:
    def __init__(self, disk: CrashingDisk, file: Any) -> None:
        self.__dict__.update(disk=disk, file=file)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.file, name)
        return self.disk.guard(self.file, name) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.file, name, value)


def write_dirty_log(disk: Any, clock: ManualClock) -> tuple[LogManager, LogCleaner]:
    config = LogConfig(
        compact=True, delete=False, min_cleanable_dirty_ratio=0.0, segment_bytes=500, index_interval_bytes=100
    )
    manager = LogManager(disk, lambda topic: config, clock, new_token=lambda: "0" * 32)
    manager.open("cluster", 1, "A" * 22)
    manager.load_all()
    cleaner = LogCleaner(manager)
    log = manager.get_or_create("t", 0)
    if not log.log_end_offset:
        for n in range(30):
            producer = (n % 2, 0, n // 2 * 2)
            records = [Record(i, START_MS, b"k%d" % (n * i % 7), b"%d" % n) for i in range(2)]
            log.append([Batch(build_batch(records, 0, 0, *producer, transactional=n % 2 == 1))])
            if n % 6 == 5:
                end = end_transaction_marker(
                    n % 12 == 5, 0, producer_id=1, producer_epoch=0, timestamp_ms=clock.now_ms()
                )
                log.append([Batch(end)], origin=Origin.COORDINATOR)
        log.roll()
        log.flush()
        manager.checkpoint_recovery_points()
    log.update_high_watermark(log.log_end_offset)
    return manager, cleaner


def visible(log: Log) -> tuple[dict[bytes | None, bytes | None], dict[int, int], int]:
    """The final records of a reader of committed records, the producer state, and the log's end."""
    aborted = [(t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_transactions(0, 1 << 40)]
    values = {}
    for batch in log.batches(0):
        hidden = batch.is_transactional and any(
            p == batch.producer_id and first <= batch.base_offset <= last for p, first, last in aborted
        )
        if not batch.is_control and not hidden:
            values.update({r.key: r.value for r in batch.records()})
    sequences = {p: state.last_sequence for p, state in log.producers.producers.items()}
    return values, sequences, log.log_end_offset


def test_a_crash_at_any_change_to_the_disk_loses_nothing() -> None:
    clock = ManualClock(START_MS)
    manager, cleaner = write_dirty_log(MemoryDisk(clock), clock)
    wanted = visible(manager.get_or_create("t", 0))
    before = len(list(manager.get_or_create("t", 0).batches(0)))
    assert cleaner.run_until_clean() == 1
    cleaned = [b.base_offset for b in manager.get_or_create("t", 0).batches(0)]
    assert len(cleaned) < before
    survived = set()
    for fail_at in range(400):
        inner = MemoryDisk(clock)
        disk = CrashingDisk(inner)
        manager, cleaner = write_dirty_log(disk, clock)
        disk.left = fail_at
        try:
            cleaner.run_until_clean()
        except Crash:
            survived.add(fail_at)
        else:
            break
        inner.close()
        manager, cleaner = write_dirty_log(inner, clock)
        log = manager.get_or_create("t", 0)
        assert visible(log) == wanted, fail_at
        names = [name for name in inner.scan("t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert not names, fail_at
        cleaner.run_until_clean()
        assert not cleaner.uncleanable
        assert visible(log) == wanted, fail_at
        # Half of the segments may already be replaced. Then more records were known to be old, but none was lost.
        assert {b.base_offset for b in log.batches(0) if b.record_count and not b.is_control} <= set(cleaned)
    else:
        raise AssertionError("the cleaning never ended")
    assert len(survived) > 50
