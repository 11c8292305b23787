"""Retention by time, size and start offset, as the files show it, and of logs that were never opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.log import retention
from ottla.log.files import Disk
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.options import LogConfig
from ottla.records.batch import Batch

START_MS = 1_700_000_000_000


class Shelf:
    """A manager whose topic has five segments of one batch each, one second apart."""

    def __init__(self, disk: Disk, make_batch: Callable[..., Batch], **settings: Any) -> None:
        self.disk = disk
        self.clock = ManualClock(START_MS)
        self.config = LogConfig(**{"retention_ms": -1, "segment_ms": 500, **settings})
        self.manager = self.open()
        log = self.log
        for n in range(5):
            log.append([make_batch(2, timestamp=START_MS + n * 1000, size=50)])
        log.update_high_watermark(log.log_end_offset)
        assert len(log.segments) == (5 if self.config.segment_ms == 500 else 1)

    def open(self) -> LogManager:
        manager = LogManager(self.disk, lambda topic: self.config, self.clock, new_token=lambda: "0" * 32)
        manager.open("cluster", 1, "A" * 22)
        return manager

    @property
    def log(self) -> Log:
        return self.manager.get_or_create("t", 0)

    def reopen(self) -> None:
        self.manager.close()
        self.manager = self.open()

    def is_open(self) -> bool:
        return self.manager.opened("t", 0) is not None


@pytest.fixture
def shelf(disk: Disk, make_batch: Callable[..., Batch]) -> Callable[..., Shelf]:
    return lambda **settings: Shelf(disk, make_batch, **settings)


def test_retention_by_time_uses_the_newest_record_of_a_segment(shelf: Callable[..., Shelf]) -> None:
    s = shelf(retention_ms=10_000)
    s.clock.advance(10_001)  # the last record of the first batch is 1 ms newer than its first
    assert s.manager.delete_old_segments() == 0
    s.clock.advance(1)
    assert s.manager.delete_old_segments() == 1
    assert s.log.log_start_offset == 2
    s.clock.advance(3999)
    assert s.manager.delete_old_segments() == 3
    # The active segment is deleted too, after an empty one has replaced it.
    s.clock.advance(1)
    assert s.manager.delete_old_segments() == 1
    assert (s.log.log_start_offset, s.log.log_end_offset, len(s.log.segments)) == (10, 10, 1)
    assert s.manager.delete_old_segments() == 0


def test_retention_by_size_deletes_no_more_than_needed(shelf: Callable[..., Shelf]) -> None:
    s = shelf()
    one = s.log.segments[0].size
    s.config.retention_bytes = 3 * one + 1
    assert s.manager.delete_old_segments() == 1
    s.config.retention_bytes = 3 * one
    assert s.manager.delete_old_segments() == 1
    s.config.retention_bytes = 0
    assert s.manager.delete_old_segments() == 3
    assert s.log.size_bytes == 0


def test_retention_by_start_offset_deletes_whole_segments(shelf: Callable[..., Shelf]) -> None:
    s = shelf(delete=False)
    s.log.advance_log_start_offset(3)
    assert s.manager.delete_old_segments() == 1
    s.log.advance_log_start_offset(10)
    assert s.manager.delete_old_segments() == 3  # the active one stays
    assert len(s.log.segments) == 1


def test_nothing_above_the_high_watermark_is_deleted(shelf: Callable[..., Shelf]) -> None:
    s = shelf(retention_bytes=0)
    s.log.update_high_watermark(5)
    assert s.manager.delete_old_segments() == 2
    assert s.log.log_start_offset == 4


@pytest.mark.parametrize(
    ("settings", "start", "reason"),
    [
        ({"retention_ms": 1}, 0, "due to log retention time 1ms breach based on its record timestamps"),
        ({"retention_bytes": 600}, 0, "due to log retention size 600 breach"),
        ({}, 2, "due to log start offset 2 breach"),
    ],
)
def test_each_deletion_is_logged(
    shelf: Callable[..., Shelf],
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, int],
    start: int,
    reason: str,
) -> None:
    s = shelf(**settings)
    s.log.advance_log_start_offset(start)
    s.clock.advance(3)
    with caplog.at_level(logging.INFO, "ottla.log.log"):
        assert s.manager.delete_old_segments() == 1
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("t-0: deleting segment 0 (size ")
    assert reason in caplog.messages[0]


def test_an_unopened_log_stays_closed_until_it_is_due(shelf: Callable[..., Shelf]) -> None:
    s = shelf(retention_ms=10_000)
    s.reopen()
    s.clock.advance(10_001)
    assert s.manager.delete_old_segments() == 0
    assert not s.is_open()
    s.clock.advance(1)
    assert s.manager.delete_old_segments() == 1
    assert s.is_open()


def test_an_unopened_log_is_examined_once(shelf: Callable[..., Shelf], monkeypatch: pytest.MonkeyPatch) -> None:
    s = shelf(retention_ms=10_000)
    s.reopen()
    looks = []
    scan = s.disk.scan
    monkeypatch.setattr(s.disk, "scan", lambda folder: looks.append(folder) or scan(folder))
    for _ in range(3):
        s.manager.delete_old_segments()
    assert looks == ["t-0"]
    s.config.retention_ms = 0
    s.clock.advance(5000)
    s.manager.settings_changed()
    assert s.manager.delete_old_segments() == 5


@pytest.mark.parametrize(
    ("settings", "start", "due"),
    [
        ({}, 0, False),
        ({"retention_bytes": 1 << 20}, 0, False),
        ({"retention_bytes": 0}, 0, True),
        ({}, 2, True),
        ({}, 1, False),
        ({"delete": False, "retention_bytes": 0, "retention_ms": 0}, 0, False),
    ],
)
def test_retention_of_an_unopened_log_reads_its_files(
    shelf: Callable[..., Shelf], settings: dict[str, Any], start: int, due: bool
) -> None:
    s = shelf()
    s.log.advance_log_start_offset(start)
    s.config = LogConfig(**{"retention_ms": -1, **settings})
    s.reopen()
    s.manager.delete_old_segments()
    assert s.is_open() is due


def test_leftovers_of_an_earlier_run_are_cleared(shelf: Callable[..., Shelf]) -> None:
    s = shelf()
    s.manager.close()
    s.disk.touch("t-0/00000000000000000000.log.deleted")
    s.manager = s.open()
    s.manager.delete_old_segments()
    assert not [name for name in s.disk.scan("t-0") if name.endswith(".deleted")]


def test_an_empty_log_is_never_due(disk: Disk) -> None:
    disk.mkdir("e-0")
    assert retention.due_ms(disk, "e-0", LogConfig(), 0, START_MS) == retention.NEVER_MS
    disk.touch("e-0/00000000000000000007.log")
    assert retention.due_ms(disk, "e-0", LogConfig(), 0, START_MS) == retention.NEVER_MS


def test_deleting_all_records_forgets_no_open_transaction(shelf: Callable[..., Shelf], make_batch: Any) -> None:
    s = shelf(segment_ms=1 << 40)
    s.manager.delete("t", 0)
    log = s.log
    log.append([make_batch(1, producer=(7, 0, 0), transactional=True)])
    log.update_high_watermark(1)
    log.advance_log_start_offset(1)
    assert log.last_stable_offset == 1
    s.reopen()
    log = s.log
    assert log.producers.has_ongoing_transaction(7)
    log.append([make_batch(1)])
    log.update_high_watermark(2)
    assert (log.log_start_offset, log.last_stable_offset) == (1, 1)
