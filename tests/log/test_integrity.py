"""Missing or damaged files of a partition are reported, and never read as if nothing were missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.errors import KafkaStorageError
from ottla.log import integrity
from ottla.log.files import PosixDisk
from ottla.log.index import TransactionIndex
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker

START_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000)
COMPACTED = LogConfig(segment_bytes=1000, compact=True, delete=False)


def batch(key: bytes = b"k", **more: Any) -> Batch:
    return Batch(build_batch([Record(0, START_MS, key, b"v" * 100)], **more))


class Folder:
    """A data folder with one partition, t-0."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = PosixDisk(root)
        self.disk.mkdir("")

    def open(self, config: LogConfig = SMALL, *, clean: bool = True) -> Log:
        return open_log(self.disk, "t", 0, config, ManualClock(START_MS), clean=clean, recovery_point=0)

    def fill(self, make: Callable[[int], Batch] = lambda n: batch(b"%d" % n)) -> list[int]:
        """Writes records 0 to 39, one per batch. Returns the base offsets of the segments."""
        log = self.open()
        for number in range(40):
            log.append([make(number)], 0)
        bases = [segment.base_offset for segment in log.segments]
        log.close()
        assert len(bases) > 4
        return bases

    def file(self, base: int, suffix: str) -> Path:
        return self.root / "t-0" / f"{base:020d}.{suffix}"

    def remove(self, base: int, *suffixes: str) -> None:
        for suffix in suffixes:
            self.file(base, suffix).unlink()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data")


@pytest.mark.parametrize("suffixes", [("log", "index", "timeindex"), ("log",)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_middle_segment_is_reported_and_not_skipped(
    folder: Folder, caplog: pytest.LogCaptureFixture, suffixes: tuple[str, ...], clean: bool
) -> None:
    bases = folder.fill()
    folder.remove(bases[2], *suffixes)
    log = folder.open(clean=clean)
    if not clean:
        assert log.log_end_offset == 40, "recovery removes no intact data"
    assert log.missing == [(bases[2], bases[3])]
    assert f"offsets {bases[2]} to {bases[3] - 1} are missing" in caplog.text
    assert f"ottla topics alter t --delete-records-before 0:{bases[3]}" in caplog.text
    assert log.read(bases[1], 100_000).records
    assert log.read(bases[3], 100_000).records
    for offset in range(bases[2], bases[3]):
        with pytest.raises(integrity.MissingSegment, match=f"offset {offset} "):
            log.read(offset, 100_000)
    log.close()


def test_the_loss_can_be_accepted(folder: Folder) -> None:
    bases = folder.fill()
    folder.remove(bases[2], "log", "index", "timeindex")
    log = folder.open()
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(bases[3])
    assert log.read(log.log_start_offset, 100_000).records
    log.close()


def test_gaps_from_compaction_are_not_reported_as_missing(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    bases = folder.fill()
    folder.remove(bases[2], "log", "index", "timeindex")
    log = folder.open(COMPACTED)
    assert not log.missing
    assert log.read(bases[2], 100_000).records, "the next existing record"
    log.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_log_that_was_compacted_once_keeps_its_gaps(folder: Folder) -> None:
    """A batch from which records were removed shows it, even after the policy has changed."""
    bases = folder.fill(lambda n: batch(last_offset_delta=2) if n == 0 else batch())
    folder.remove(bases[2], "log", "index", "timeindex")
    log = folder.open()
    assert not log.missing
    log.close()


def test_in_a_compacted_log_an_index_without_its_log_reveals_the_loss(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    bases = folder.fill()
    folder.remove(bases[2], "log")
    log = folder.open(COMPACTED)
    assert log.missing == [(bases[2], bases[3])]
    with pytest.raises(integrity.MissingSegment):
        log.read(bases[2], 100_000)
    log.close()
    assert folder.file(bases[2], "index").exists(), "the trace stays for `ottla verify`"


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex"])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_folder_instead_of_a_file_takes_the_partition_offline(folder: Folder, suffix: str, which: int) -> None:
    bases = folder.fill()
    path = folder.file(bases[which], suffix)
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(KafkaStorageError, match=f"{path.name} is a folder, .* restore the file from a backup"):
        folder.open()
    assert path.is_dir()


@pytest.mark.parametrize("clean", [True, False])
def test_the_other_partitions_of_a_data_folder_start(
    folder: Folder, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    bases = folder.fill()
    other = open_log(folder.disk, "other", 0, SMALL, ManualClock(START_MS))
    other.append([batch()], 0)
    other.close()
    folder.remove(bases[2], "log")
    folder.file(bases[2], "log").mkdir()
    (folder.root / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n")
    if clean:
        (folder.root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    logs = LogManager(folder.disk, lambda topic: SMALL, ManualClock(START_MS), new_token=lambda: "0" * 32)
    logs.open("c", 1, "d")
    logs.load_all()
    for _ in integrity.inspecting(logs):
        pass
    assert "is a folder, and should be a file of a segment" in caplog.text
    found = logs.get("other", 0)
    assert found is not None and found.log_end_offset == 1
    with pytest.raises(KafkaStorageError):
        logs.get("t", 0)


def damaged(entries: bytes, how: str) -> bytes:
    size = TransactionIndex.ENTRY.size
    version, producer_id, first, last, stable = TransactionIndex.ENTRY.unpack_from(entries)
    pack = TransactionIndex.ENTRY.pack
    return {
        "cut short": entries[: size - 3],
        "empty": b"",
        "rubbish": b"\xff" * len(entries),
        "another producer": pack(version, producer_id + 1, first, last, stable) + entries[size:],
        "another offset": pack(version, producer_id, first, last + 1, stable) + entries[size:],
        "another version": pack(7, producer_id, first, last, stable) + entries[size:],
    }[how]


@pytest.mark.parametrize(
    "how", ["cut short", "empty", "rubbish", "another producer", "another offset", "another version"]
)
def test_a_damaged_index_of_aborted_transactions_is_rebuilt(
    folder: Folder, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    log = folder.open()
    for number in range(20):
        log.append([batch(producer_id=5, producer_epoch=0, base_sequence=number, transactional=True)], 0)
        marker = end_transaction_marker(False, 0, producer_id=5, producer_epoch=0, timestamp_ms=START_MS)
        log.append([Batch(marker)], 0, Origin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 20
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    path = folder.file(bases[1], "txnindex")
    path.write_bytes(damaged(path.read_bytes(), how))
    again = folder.open()
    assert again.aborted_transactions(0, again.log_end_offset) == aborted
    assert f"{path.name} is damaged" in caplog.text
    again.close()
