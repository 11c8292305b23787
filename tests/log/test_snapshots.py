"""Snapshots of disks: later writes change neither the snapshot nor the disks that were restored from it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clock import ManualClock
from ottla.errors import KafkaStorageError
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.log.manager import LogManager
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.log.options import LogConfig
from ottla.records.batch import Batch

NewDisk = Callable[[str], Disk]


@pytest.fixture(params=["memory", "folder"])
def new_disk(request: pytest.FixtureRequest, tmp_path: Path) -> NewDisk:
    def make(name: str) -> Disk:
        disk: Disk = MemoryDisk() if request.param == "memory" else PosixDisk(tmp_path / name)
        disk.mkdir("")
        return disk

    return make


def content(disk: Disk, folder: str = "") -> dict[str, bytes]:
    found = {}
    for name, size in disk.scan(folder).items():
        path = f"{folder}/{name}" if folder else name
        found |= content(disk, path) if size < 0 else {path: disk.read_bytes(path)}
    return found


def test_a_restored_disk_has_what_the_snapshot_had(new_disk: NewDisk) -> None:
    disk = new_disk("a")
    disk.mkdir("t-0")
    log = disk.open("t-0/0.log")
    log.append([b"one", b"two"])
    disk.write_atomic("meta", b"1")
    disk.set_modified_ms("meta", 1_700_000_000_000)
    state = disk.snapshot()
    log.append([b"three"])
    disk.write_atomic("meta", b"2")
    disk.write_atomic("new", b"x")
    disk.mkdir("u-0")
    assert content(disk) == {"t-0/0.log": b"onetwothree", "meta": b"2", "new": b"x"}
    disk.close()
    disk.restore(state)
    assert content(disk) == {"t-0/0.log": b"onetwo", "meta": b"1"}
    assert disk.modified_ms("meta") == 1_700_000_000_000 and not disk.exists("u-0")


def test_disks_with_one_origin_do_not_see_each_other(new_disk: NewDisk) -> None:
    disk = new_disk("a")
    log = disk.open("0.log")
    log.append([b"abcdef"])
    state = disk.snapshot()
    others = [new_disk("b"), new_disk("c")]
    for other in others:
        other.restore(state)
    log.append([b"-a"])
    others[0].open("0.log").append([b"-b"])
    cut = others[1].open("0.log")
    cut.truncate(2)
    cut.append([b"!"])
    log.append([b"+"])
    assert [content(each)["0.log"] for each in (disk, *others)] == [b"abcdef-a+", b"abcdef-b", b"ab!"]
    disk.restore(state)
    assert content(disk) == {"0.log": b"abcdef"}


def test_a_failed_append_does_not_change_a_snapshot(new_disk: NewDisk) -> None:
    disk = new_disk("a")
    log = disk.open("0.log")
    log.append([b"abcdef"])
    state = disk.snapshot()
    log.take_back(3)
    assert content(disk) == {"0.log": b"abc"}
    disk.restore(state)
    assert content(disk) == {"0.log": b"abcdef"}


def test_a_file_without_other_names_is_not_copied(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path / "a")
    disk.mkdir("")
    disk.open("0.log").append([b"abc"])
    state = disk.snapshot()
    inode = (tmp_path / "a/0.log").stat().st_ino
    assert disk.open("0.log").pread(3, 0) == b"abc", "reads do not copy"
    state.close()
    disk.open("0.log").append([b"d"])
    assert (tmp_path / "a/0.log").stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "a closed snapshot keeps nothing"


def test_kinds_of_disks_do_not_mix(tmp_path: Path) -> None:
    memory, folder = MemoryDisk(), PosixDisk(tmp_path / "a")
    folder.mkdir("")
    with pytest.raises(KafkaStorageError, match="in memory"):
        memory.restore(folder.snapshot())
    with pytest.raises(KafkaStorageError, match="has a data folder"):
        folder.restore(memory.snapshot())


def test_several_data_folders_have_no_snapshots(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match=r"log\.dirs names several"):
        MultiDirDisk([str(tmp_path / "a"), str(tmp_path / "b")]).snapshot()


def test_a_log_manager_continues_after_a_snapshot_that_is_like_a_clean_stop(
    new_disk: NewDisk, clock: ManualClock, make_batch: Callable[..., Batch]
) -> None:
    disk = new_disk("a")

    def start() -> LogManager:
        manager = LogManager(disk, lambda _: LogConfig(), clock, new_token=lambda: "0" * 32)
        manager.open("cluster", 1, "directory")
        return manager

    manager = start()
    log = manager.get_or_create("t", 0, bytes(16))
    log.append([make_batch(3, producer=(1, 0, 0))])
    state = manager.snapshot(broker_epoch=7)
    assert not disk.exists(".kafka_cleanshutdown"), "the folder itself was not stopped"
    log.append([make_batch(3, producer=(1, 0, 3))])
    assert log.log_end_offset == 6
    manager.close()
    disk.restore(state)
    again = start()
    assert (again.clean_start, again.previous_broker_epoch) == (True, 7)
    found = again.get("t", 0)
    assert found is not None and found.log_end_offset == found.recovery_point == 3
    assert list(found.producers.producers) == [1]
