"""Several data folders as one disk: where partitions are placed, and which files each folder has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clock import ManualClock
from ottla.errors import KafkaStorageError
from ottla.log import checkpoints
from ottla.log.checkpoints import MetaProperties
from ottla.log.files import PosixDisk
from ottla.log.manager import LogManager
from ottla.log.multi_dir_disk import METADATA_FOLDER, MultiDirDisk
from ottla.log.options import LogConfig

NAMES = ("one", "two", "three")
Spread = Callable[..., MultiDirDisk]


@pytest.fixture
def spread(tmp_path: Path) -> Spread:
    def make(*names: str, metadata: str | None = None) -> MultiDirDisk:
        roots = [str(tmp_path / name) for name in names or NAMES]
        disk = MultiDirDisk(roots, None if metadata is None else str(tmp_path / metadata))
        disk.mkdir("")
        return disk

    return make


def place(disk: MultiDirDisk, folder: str) -> str:
    return Path(disk.resolve(folder)).parent.name


def manager_of(disk: MultiDirDisk) -> LogManager:
    tokens = iter(range(100, 200))
    manager = LogManager(
        disk, lambda _: LogConfig(), ManualClock(1_700_000_000_000), new_token=lambda: f"{next(tokens):032x}"
    )
    manager.open("cluster", 1, "A" * 22)
    return manager


def test_a_new_partition_is_placed_in_the_folder_with_the_fewest(spread: Spread) -> None:
    disk = spread()
    disk.mkdir(METADATA_FOLDER)
    for number in range(7):
        disk.mkdir(f"t-{number}")
    assert [place(disk, f"t-{number}") for number in range(7)] == [*NAMES, *NAMES, "one"]
    assert place(disk, METADATA_FOLDER) == "one"
    disk.rename("t-1", "t-1.0-delete")
    assert place(disk, "t-1.0-delete") == "two"
    disk.mkdir("u-0")
    assert place(disk, "u-0") == "two"  # a partition marked for deletion does not count
    disk.remove_tree("t-1.0-delete")
    disk.mkdir("u-1")
    assert place(disk, "u-1") == "two"


def test_cordoned_folders_get_no_new_partitions(spread: Spread) -> None:
    disk = spread()
    disk.cordoned = lambda: [disk.folders[0].root, disk.folders[2].root]
    disk.mkdir("t-0")
    disk.mkdir("t-1")
    assert (place(disk, "t-0"), place(disk, "t-1")) == ("two", "two")


def test_partitions_are_found_again_after_a_restart(spread: Spread) -> None:
    disk = spread()
    for number in range(4):
        disk.mkdir(f"t-{number}")
        disk.open(f"t-{number}/x").append([b"%d" % number])
    disk.close()
    again = spread()
    assert {name for name, size in again.scan("").items() if size < 0} == {f"t-{number}" for number in range(4)}
    assert [again.read_bytes(f"t-{number}/x") for number in range(4)] == [b"%d" % number for number in range(4)]
    again.mkdir("t-4")
    assert place(again, "t-4") == "two"
    thread = again.for_thread()
    assert thread.read_bytes("t-3/x") == b"3"
    thread.close()
    again.close()


def test_a_partition_in_two_folders_is_refused(spread: Spread, tmp_path: Path) -> None:
    spread().mkdir("t-0")
    (tmp_path / "three" / "t-0").mkdir()
    with pytest.raises(KafkaStorageError, match=r"t-0 is in two .*one and .*three; move one of them away"):
        spread().scan("")


def test_the_metadata_may_have_its_own_folder(spread: Spread) -> None:
    disk = spread("one", "two", metadata="elsewhere")
    disk.mkdir(METADATA_FOLDER)
    disk.mkdir("t-0")
    disk.mkdir("t-1")
    disk.mkdir("t-2")
    assert place(disk, METADATA_FOLDER) == "elsewhere"
    assert [place(disk, f"t-{number}") for number in range(3)] == ["one", "two", "one"]
    # It stays where it is found: a changed setting does not create another cluster.
    assert place(spread("one", "two", "elsewhere"), METADATA_FOLDER) == "elsewhere"


def test_each_folder_has_its_own_checkpoints(spread: Spread) -> None:
    disk = spread()
    offsets = {("t", number): 10 + number for number in range(5)}
    for number in range(5):
        disk.mkdir(f"t-{number}")
    checkpoints.write_offsets(disk, "some-checkpoint", offsets)
    one, two, three = disk.parts()
    assert two.read_bytes("some-checkpoint") == b"0\n2\nt 1 11\nt 4 14\n"
    assert checkpoints.read_offsets(disk, "some-checkpoint") == offsets
    # The old folder of a moved partition may still have a checkpoint for it.
    three.write_atomic("some-checkpoint", b"0\n2\nt 2 12\nt 1 99\n")
    assert checkpoints.read_offsets(disk, "some-checkpoint") == offsets
    one.remove("some-checkpoint")
    assert checkpoints.read_offsets(disk, "some-checkpoint") == {("t", 1): 11, ("t", 2): 12, ("t", 4): 14}


def test_each_folder_has_its_own_meta_properties(spread: Spread) -> None:
    manager = manager_of(spread())
    metas = [MetaProperties.read(part) for part in manager.disk.parts()]
    assert [(meta.cluster_id, meta.node_id) for meta in metas if meta] == [("cluster", 1)] * 3
    assert manager.directory_ids == [meta.directory_id for meta in metas if meta]
    assert len(set(manager.directory_ids)) == 3
    manager.close()
    again = manager_of(spread())
    assert again.clean_start and again.directory_ids == manager.directory_ids
    with pytest.raises(KafkaStorageError, match="another process"):
        manager_of(spread("three"))
    again.close()


def test_a_stop_is_clean_only_if_every_folder_says_so(spread: Spread, tmp_path: Path) -> None:
    manager_of(spread("one", "two")).close()
    grown = manager_of(spread())
    assert grown.clean_start, "a new folder has nothing to recover"
    grown.close()
    (tmp_path / "two" / checkpoints.CLEAN_STOP_FILE).unlink()
    assert not manager_of(spread()).clean_start


def test_folders_of_different_clusters_are_refused(spread: Spread, tmp_path: Path) -> None:
    manager_of(spread("one")).close()
    other = PosixDisk(tmp_path / "two")
    other.mkdir("")
    MetaProperties("another", 1, "B" * 22).write(other)
    with pytest.raises(KafkaStorageError, match=r"different clusters \(another, cluster\)"):
        manager_of(spread("one", "two"))
