"""The disk interface: the same behaviour in memory and on a disk, and the errors that only a disk has."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import system
from ottla.errors import KafkaStorageError
from ottla.log.files import Disk, MemoryDisk, PosixDisk


def test_appends_are_read_back_at_any_position(disk: Disk) -> None:
    disk.mkdir("p")
    file = disk.open("p/a.log")
    assert file.append([b"hello ", memoryview(b"xworldx")[1:6]]) == 0
    assert file.append([bytearray(b"!")]) == 11
    whole = b"hello world!"
    assert file.size == len(whole)
    for start in range(len(whole) + 1):
        for length in range(len(whole) + 2):
            expected = whole[start : start + length]
            assert file.pread(length, start) == expected
            assert bytes(file.view(start, length)) == expected
            assert b"".join(file.views(start, length)) == expected


def test_regions_name_a_part_of_a_file(disk: Disk) -> None:
    file = disk.open("a")
    file.append([b"0123"])
    file.append([b"4567"])
    region = file.region(2, 4)
    assert len(region) == 4
    assert region.position == 2
    assert bytes(region.read()) == b"2345"
    assert b"".join(region.parts()) == b"2345"
    fd = region.fileno()
    if isinstance(disk, MemoryDisk):
        assert fd is None
    else:
        assert fd is not None
        assert os.pread(fd, 4, 2) == b"2345"


@pytest.mark.parametrize("size", range(9))
def test_an_append_after_a_truncation_is_read_back(disk: Disk, size: int) -> None:
    file = disk.open("a")
    for piece in (b"ab", b"cdef", b"gh"):
        file.append([piece])
    file.truncate(size)
    assert file.size == size
    assert file.append([b"XY"]) == size
    assert file.pread(100, 0) == b"abcdefgh"[:size] + b"XY"


def test_a_reader_of_memory_keeps_its_bytes() -> None:
    file = MemoryDisk().open("a")
    file.append([b"first"])
    seen = file.view(0, 5)
    file.truncate(0)
    file.append([b"other"])
    assert bytes(seen) == b"first"


def test_folders_are_created_listed_renamed_and_removed(disk: Disk) -> None:
    disk.mkdir("t-0")
    disk.open("t-0/1.log").append([b"abc"])
    disk.touch("t-0/empty")
    disk.write_atomic("t-0/x", b"one")
    disk.write_atomic("t-0/x", b"two", sync=True)
    assert disk.scan("t-0") == {"1.log": 3, "empty": 0, "x": 3}
    assert disk.scan("") == {"t-0": -1}
    assert disk.read_bytes("t-0/x") == b"two"
    disk.rename("t-0/1.log", "t-0/2.log")
    assert not disk.exists("t-0/1.log")
    disk.rename("t-0", "gone")
    assert disk.read_bytes("gone/2.log") == b"abc"
    disk.remove("gone/2.log")
    disk.remove("gone/2.log")
    assert set(disk.scan("gone")) == {"empty", "x"}
    disk.remove_tree("gone")
    assert disk.scan("") == {}
    with pytest.raises(FileNotFoundError):
        disk.read_bytes("gone/x")
    with pytest.raises(KafkaStorageError, match="rename of nothing failed"):
        disk.rename("nothing", "else")


def test_open_handles_are_bounded(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path, max_open_files=16)
    files = [disk.open(str(number)) for number in range(100)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.append([b"%d:%d " % (turn, number)])
            assert len(disk.handles) <= 16
    assert all(file.pread(99, 0) == b"0:%d 1:%d 2:%d " % (n, n, n) for n, file in enumerate(files))
    disk.close()
    assert not disk.handles


def test_a_file_in_use_keeps_its_handle(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path, max_open_files=16)
    busy = disk.open("busy")
    busy.append([b"x"])
    fd = busy.fileno()
    for number in range(200):
        disk.open(str(number)).append([b"x"])
        busy.append([b"x"])
        assert busy.fileno() == fd
    disk.close()


def test_a_closed_file_is_forgotten(tmp_path: Path) -> None:
    """A broker below its handle limit never closes a handle for another, so nothing else would forget a removed
    segment."""
    disk = PosixDisk(tmp_path)
    kept = disk.open("kept")
    kept.append([b"x"])
    for number in range(100):
        segment = disk.open(str(number))
        segment.append([b"x"])
        segment.close()
        kept.close()
        kept.append([b"x"])
    assert list(disk.handles) == [kept]
    disk.close()


@pytest.mark.parametrize("buffers", [[b"new"], [b"n", b"ew"], [b"n", b"e"] * 1500])
def test_a_failed_append_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffers: list[bytes]) -> None:
    disk = PosixDisk(tmp_path)
    file = disk.open("a")
    file.append([b"old"])
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 1:
            return write(fd, bytes(data)[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(system, "writev", lambda fd, data: full(fd, b"".join(data)))
        with pytest.raises(KafkaStorageError, match="append to a failed: No space left on device"):
            file.append(buffers)
    assert (file.size, (tmp_path / "a").read_bytes()) == (3, b"old")
    file.append([b"er"])
    assert (tmp_path / "a").read_bytes() == b"older"
    disk.close()


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk(tmp_path)
    file = disk.open("a")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:2]))
    monkeypatch.setattr(system, "writev", lambda fd, data: write(fd, b"".join(data)[:3]))
    file.append([b"hello"])
    file.append([b" ", b"wor", b"ld"])
    assert (tmp_path / "a").read_bytes() == b"hello world"
    disk.close()


def test_more_buffers_than_one_writev_accepts_are_written(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    file = disk.open("a")
    file.append([b"%04d" % n for n in range(3000)])
    assert (tmp_path / "a").read_bytes() == b"".join(b"%04d" % n for n in range(3000))
    disk.close()


def test_a_second_process_cannot_lock_the_folder(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    disk.lock()
    with pytest.raises(KafkaStorageError, match="another process uses the data folder"):
        PosixDisk(tmp_path).lock()
    code = "import sys; from ottla.log.files import PosixDisk; PosixDisk(sys.argv[1]).lock()"
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert "another process uses the data folder" in child.stderr
    disk.close()
    second = PosixDisk(tmp_path)
    second.lock()
    second.close()


def test_a_memory_disk_is_locked_too() -> None:
    disk = MemoryDisk()
    disk.lock()
    with pytest.raises(KafkaStorageError):
        disk.lock()


def test_an_unwritable_folder_gives_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(KafkaStorageError, match="creation of"):
        PosixDisk(tmp_path / "file" / "data").mkdir("")
    with pytest.raises(KafkaStorageError, match="lock of"):
        PosixDisk(tmp_path / "missing").lock()
