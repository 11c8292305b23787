"""A whole data folder: its identity, opening, checkpoints, deletion and stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ottla.clock import ManualClock, Timer
from ottla.errors import KafkaStorageError
from ottla.log import checkpoints
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.log.folder_names import marked_folder
from ottla.log.manager import RECOVERY_POINT_DELAY_MS, LogManager
from ottla.log.options import LogConfig
from ottla.log.segment import Segment
from ottla.records.batch import Batch

Make = Callable[..., Batch]
TOPIC_ID = bytes(range(16))


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def start(disk: Disk, clock: ManualClock, timer: Timer) -> Callable[..., LogManager]:
    tokens = count()

    def open_it(**settings: int) -> LogManager:
        manager = LogManager(
            disk,
            lambda _topic: LogConfig(**settings),  # type: ignore[arg-type]
            clock,
            new_token=lambda: f"{next(tokens):032x}",
            schedule=timer.schedule,
        )
        manager.open("cluster", 1, "directory")
        return manager

    return open_it


Start = Callable[..., LogManager]


def test_a_new_folder_gets_its_identity(start: Start, disk: Disk) -> None:
    manager = start()
    assert manager.clean_start
    assert disk.read_bytes("meta.properties") == (
        b"#\nnode.id=1\ndirectory.id=directory\nversion=1\ncluster.id=cluster\n"
    )
    manager.close(broker_epoch=42)
    assert json.loads(disk.read_bytes(".kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 42}
    again = start()
    assert again.clean_start
    assert again.previous_broker_epoch == 42
    assert not disk.exists(".kafka_cleanshutdown")
    again.close()


def test_another_nodes_folder_is_refused_untouched(disk: Disk, clock: ManualClock) -> None:
    checkpoints.MetaProperties("c", 7, "d").write(disk)
    before = disk.scan("")
    manager = LogManager(disk, lambda _: LogConfig(), clock, new_token=lambda: "0" * 32)
    with pytest.raises(KafkaStorageError, match="belongs to node 7, not to node 1"):
        manager.open("c", 1, "d")
    assert disk.scan("") == before


def test_a_foreign_folder_is_refused_untouched(disk: Disk, clock: ManualClock) -> None:
    disk.write_atomic("thesis.txt", b"precious")
    manager = LogManager(disk, lambda _: LogConfig(), clock, new_token=lambda: "0" * 32)
    with pytest.raises(KafkaStorageError, match=r"has no meta.properties and is not empty \(thesis.txt\)"):
        manager.open("c", 1, "d")
    assert disk.scan("") == {"thesis.txt": 8}


@pytest.mark.parametrize("text", ["version=9\ncluster.id=c\nnode.id=1\n", "version=1\n", "node.id=x\nversion=1\n"])
def test_invalid_meta_properties_are_refused(disk: Disk, text: str) -> None:
    disk.write_atomic("meta.properties", text.encode())
    with pytest.raises(KafkaStorageError, match=r"meta.properties cannot be understood"):
        checkpoints.MetaProperties.read(disk)


def test_meta_properties_of_kafka_are_read(disk: Disk) -> None:
    disk.write_atomic(
        "meta.properties", b"#\n#Mon Nov 16 04:20:40 UTC 2026\nnode.id=1\ndirectory.id=yGO\nversion=1\ncluster.id=AC\n"
    )
    assert checkpoints.MetaProperties.read(disk) == checkpoints.MetaProperties("AC", 1, "yGO")
    disk.write_atomic("meta.properties", b"version=0\nbroker.id=3\ncluster.id=AC\n")
    assert checkpoints.MetaProperties.read(disk) == checkpoints.MetaProperties("AC", 3, None)


def test_logs_come_back_after_a_clean_stop(start: Start, make_batch: Make, disk: Disk) -> None:
    manager = start()
    for partition in range(3):
        log = manager.get_or_create("a.b-c", partition, TOPIC_ID)
        log.append([make_batch(10)])
        log.update_high_watermark(8)
    log.advance_log_start_offset(5)
    manager.close()
    assert disk.read_bytes("a.b-c-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert disk.part_of("a.b-c-2").read_bytes("log-start-offset-checkpoint") == b"0\n1\na.b-c 2 5\n"
    again = start()
    assert sorted(again.partitions()) == [("a.b-c", 0), ("a.b-c", 1), ("a.b-c", 2)]
    assert list(again.logs()) == []
    assert again.topic_id("a.b-c", 1) == TOPIC_ID
    reopened = again.get("a.b-c", 2)
    assert reopened is not None
    assert (reopened.log_start_offset, reopened.high_watermark, reopened.log_end_offset) == (5, 8, 10)
    assert (reopened.recovery_point, reopened.topic_id) == (10, TOPIC_ID)
    assert again.get("a.b-c", 3) is None
    # logs that were never opened keep their checkpoints
    again.close()
    third = start()
    assert checkpoints.read_offsets(disk, "replication-offset-checkpoint")["a.b-c", 0] == 8
    other = third.get("a.b-c", 0)
    assert other is not None
    assert (other.high_watermark, other.recovery_point) == (8, 10)
    third.close()


def test_an_unclean_stop_recovers_everything(start: Start, make_batch: Make, disk: Disk) -> None:
    manager = start()
    log = manager.get_or_create("t", 0)
    log.append([make_batch(10)])
    disk.open("t-0/00000000000000000000.log").append([b"torn"])
    disk.close()
    again = start()
    assert not again.clean_start
    again.load_all()
    reopened = again.get("t", 0)
    assert reopened is not None
    assert (reopened.log_end_offset, reopened.recovery_point) == (10, 0)
    again.close()
    assert start().clean_start


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(
    start: Start, make_batch: Make, disk: Disk, clock: ManualClock
) -> None:
    manager = start()
    log = manager.get_or_create("t", 0, TOPIC_ID)
    log.append([make_batch(3)])
    region = log.read(0, 1000).records
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    if not isinstance(disk, MemoryDisk):
        tokens = len(disk.parts()) - 1  # an id for each further folder
        assert f"t-0.{tokens:032x}-delete" in disk.scan("")
        assert len(bytes(region.read())) == len(region)
    fresh = manager.get_or_create("t", 0, bytes(16))
    assert (fresh.log_end_offset, fresh.topic_id) == (0, bytes(16))
    clock.advance(60_000)
    assert not [name for name in disk.scan("") if name.endswith("-delete")]
    manager.delete("t", 99)
    manager.close()


def test_deletions_that_a_stop_interrupted_are_finished(start: Start, disk: Disk, clock: ManualClock) -> None:
    manager = start()
    manager.get_or_create("t", 0)
    manager.delete("t", 0)
    manager.close()
    again = start()
    assert again.partitions() == []
    clock.advance(60_000)
    assert [name for name, size in disk.scan("").items() if size < 0] == []
    again.close()


def test_stray_partitions_are_renamed(start: Start, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    manager = start()
    manager.get_or_create("t", 0)
    manager.mark_stray("t", 0)
    assert manager.partitions() == []
    assert any(name.startswith("t-0.") and name.endswith("-stray") for name in disk.scan(""))
    manager.close()
    caplog.clear()
    again = start()
    assert again.partitions() == []
    assert "is left alone" in caplog.text
    again.close()


def test_folders_that_are_not_partitions_are_ignored(
    start: Start, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    start().close()
    disk.mkdir("lost+found")
    manager = start()
    assert manager.partitions() == []
    assert "lost+found in the data folder is not a partition" in caplog.text


def test_long_names_fit_a_file_name() -> None:
    folder = marked_folder("x" * 249, 3, "0" * 32, "-delete")
    assert len(folder) == 255
    assert folder.endswith("-3.00000000000000000000000000000000-delete")
    assert marked_folder("t", 3, "f" * 32, "-stray") == f"t-3.{'f' * 32}-stray"


def test_retention_sweeps_all_logs(start: Start, make_batch: Make, clock: ManualClock) -> None:
    manager = start(retention_ms=1000, segment_bytes=200)
    for partition in range(2):
        log = manager.get_or_create("t", partition)
        for _ in range(3):
            log.append([make_batch(2)])
        log.update_high_watermark(6)
    manager.close()
    again = start(retention_ms=1000, segment_bytes=200)
    clock.advance(2000)
    assert again.delete_old_segments() == 6
    again.close()


def test_flush_by_time_and_config_changes(disk: Disk, clock: ManualClock, make_batch: Make) -> None:
    config = LogConfig(flush_ms=500)
    manager = LogManager(disk, lambda _: config, clock, new_token=lambda: "0" * 32)
    manager.open("c", 1, "d")
    log = manager.get_or_create("t", 0)
    log.append([make_batch(2)])
    manager.flush_due()
    assert log.unflushed == 2
    clock.advance(500)
    manager.flush_due()
    assert log.unflushed == 0
    config = LogConfig(segment_bytes=200)
    manager.update_config("t")
    log.append([make_batch(2)])
    assert len(log.segments) == 2
    clock.advance(10 * 86_400_000)
    log.append([make_batch(1, producer=(1, 0, 0))])
    manager.expire_producers()
    assert log.producers.producers == {}
    manager.close()


def test_rolls_are_flushed_in_the_background(disk: Disk, clock: ManualClock, make_batch: Make) -> None:
    jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []
    manager = LogManager(
        disk,
        lambda _: LogConfig(segment_bytes=200),
        clock,
        new_token=lambda: "0" * 32,
        background=lambda work, done: jobs.append((work, done)),
    )
    manager.open("c", 1, "d")
    log = manager.get_or_create("t", 0)
    for _ in range(3):
        log.append([make_batch(2)])
    assert len(jobs) == 2
    for work, done in jobs:
        work()
        done()
    assert log.recovery_point == 4
    manager.close()


def test_after_a_crash_only_what_was_not_flushed_is_read_again(
    tmp_path: Path, clock: ManualClock, make_batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rolls are checkpointed after seconds, not once a minute. Recovered data is flushed, so the next recovery reads
    less."""
    disk = PosixDisk(tmp_path / "data")
    timer = Timer(clock)
    read: list[int] = []
    recover = Segment.recover
    monkeypatch.setattr(
        Segment,
        "recover",
        lambda self, *arguments, **named: read.append(self.base_offset) or recover(self, *arguments, **named),
    )
    jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def start() -> LogManager:
        jobs.clear()
        read.clear()
        disk.close()  # what a crash does to the lock
        manager = LogManager(
            disk,
            lambda _: LogConfig(segment_bytes=200),
            clock,
            new_token=lambda: "0" * 32,
            schedule=timer.schedule,
            background=lambda work, done: jobs.append((work, done)),
        )
        manager.open("c", 1, "d")
        manager.load_all()
        return manager

    def work() -> None:
        while jobs:
            job, done = jobs.pop(0)
            job()
            done()

    log = start().get_or_create("t", 0)
    for _ in range(5):
        log.append([make_batch(2)])
    start()
    assert read == [0, 2, 4, 6, 8]  # killed before anything was flushed
    work()
    clock.advance(RECOVERY_POINT_DELAY_MS)
    work()
    manager = start()
    assert read == [8]
    again = manager.get("t", 0)
    assert again is not None
    for _ in range(2):
        again.append([make_batch(2)])
    work()
    start()  # the rolls were flushed but not checkpointed yet
    assert read == [8, 10, 12]
    work()
    clock.advance(RECOVERY_POINT_DELAY_MS)
    work()
    start().close()
    assert read == [12]


def test_checkpoints_are_written_in_the_background_and_only_when_they_changed(
    disk: Disk, clock: ManualClock, make_batch: Make
) -> None:
    jobs: list[Callable[[], None]] = []
    manager = LogManager(
        disk,
        lambda _: LogConfig(),
        clock,
        new_token=lambda: "0" * 32,
        background=lambda work, _done: jobs.append(work),
    )
    manager.open("c", 1, "d")
    log = manager.get_or_create("t", 0)
    log.append([make_batch(2)])
    log.update_high_watermark(2)
    path = checkpoints.HIGH_WATERMARKS_FILE
    manager.checkpoint_high_watermarks()
    manager.checkpoint_high_watermarks()  # the first is still being written
    assert (len(jobs), disk.exists(path)) == (1, False)
    jobs.pop()()
    assert checkpoints.read_offsets(disk, path) == {("t", 0): 2}
    manager.checkpoint_high_watermarks()
    assert jobs == []
    log.append([make_batch(1)])
    log.update_high_watermark(3)
    manager.checkpoint_high_watermarks()
    assert len(jobs) == 1
    manager.close()  # does not wait for a thread
    assert checkpoints.read_offsets(disk, path) == {("t", 0): 3}
    disk.remove(path)
    jobs.pop()()  # and a late write does not overwrite it
    assert not disk.exists(path)


def test_checkpoint_files_are_written_and_checked(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    assert checkpoints.read_offsets(disk, "x") == {}
    checkpoints.write_offsets(disk, "x", {("a", 0): 5, ("b.c", 12): 0})
    assert disk.read_bytes("x") == b"0\n2\na 0 5\nb.c 12 0\n"
    assert checkpoints.read_offsets(disk, "x") == {("a", 0): 5, ("b.c", 12): 0}
    disk.write_atomic("x", b"")
    assert checkpoints.read_offsets(disk, "x") == {}
    assert caplog.text == ""
    for broken in (b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"rubbish", b"0", b"\xff\xfe"):
        disk.write_atomic("x", broken)
        caplog.clear()
        assert checkpoints.read_offsets(disk, "x") == {}
        assert "x is malformed" in caplog.text


def test_broken_partition_metadata_and_markers_are_tolerated(disk: Disk) -> None:
    disk.mkdir("t-0")
    assert checkpoints.read_partition_metadata(disk, "t-0") is None
    for broken in (b"", b"version: 0\n", b"version: 0\ntopic_id: ???", b"\xff"):
        disk.write_atomic("t-0/partition.metadata", broken)
        assert checkpoints.read_partition_metadata(disk, "t-0") is None
    for content, epoch in [(b"", -1), (b"no json", -1), (b"[]", -1), (b'{"version":0,"brokerEpoch":9}', 9)]:
        disk.write_atomic(".kafka_cleanshutdown", content)
        assert checkpoints.take_clean_stop([disk]) == (True, epoch)
        assert checkpoints.take_clean_stop([disk]) == (False, -1)


def test_thousands_of_partitions_open_without_opening_files(tmp_path: Path, clock: ManualClock) -> None:
    disk = PosixDisk(tmp_path)
    manager = LogManager(disk, lambda _: LogConfig(), clock, new_token=lambda: "0" * 32)
    manager.open("c", 1, "d")
    for partition in range(300):
        manager.get_or_create("t", partition)
    assert not disk.handles
    manager.close()
    disk = PosixDisk(tmp_path)
    again = LogManager(disk, lambda _: LogConfig(), clock, new_token=lambda: "0" * 32)
    again.open("c", 1, "d")
    assert len(again.partitions()) == 300
    for topic, partition in again.partitions():
        assert again.get(topic, partition) is not None
    assert not disk.handles
    again.close()
