"""Files in memory: their chunks, their cost, and when they are freed."""

from __future__ import annotations

import random
import weakref

import pytest

from ottla import system
from ottla.errors import KafkaStorageError
from ottla.log.files import MemoryDisk, MemoryFile


def capacity(file: MemoryFile) -> int:
    return sum(map(len, file._chunks))


@pytest.mark.parametrize("seed", range(8))
def test_appends_and_truncations_are_read_back(seed: int) -> None:
    rng, file, expected = random.Random(seed), MemoryDisk().open("a"), bytearray()
    for _ in range(60):
        pieces = [rng.randbytes(rng.choice((0, 1, 61, 5_000, 90_000, 1_500_000))) for _ in range(rng.randrange(1, 4))]
        assert file.append(pieces) == len(expected)
        expected += b"".join(pieces)
        if rng.random() < 0.2:
            file.truncate(cut := rng.randrange(len(expected) + 1))
            del expected[cut:]
        assert file.size == len(expected)
        start, length = rng.randrange(len(expected) + 1), rng.choice((1, 4096, 200_000, 10_000_000))
        assert b"".join(file.views(start, length)) == expected[start : start + length]
        assert bytes(file.view(start, length)) == expected[start : start + length]


@pytest.mark.parametrize(("size", "times"), [(70, 10_000), (1_000, 1_000), (65_600, 300), (524_400, 40)])
def test_memory_follows_what_is_stored(size: int, times: int) -> None:
    file = MemoryDisk().open("a")
    for _ in range(times):
        file.append([bytes(size)])
        assert capacity(file) <= 1.25 * file.size + 4096
    assert len(file._chunks) < 120


def test_a_small_file_is_no_larger_than_its_bytes() -> None:
    disk = MemoryDisk()
    disk.write_atomic("a", b"0123456789")
    assert capacity(disk.open("a")) == 10


def test_a_deleted_folder_frees_its_memory_while_files_are_open() -> None:
    disk = MemoryDisk()
    disk.mkdir("t-0")
    file = disk.open("t-0/0.log")
    file.append([bytes(200_000)])
    chunk = weakref.ref(file.view(0, 1).obj)  # type: ignore[union-attr]
    assert chunk() is not None
    disk.remove_tree("t-0")
    assert chunk() is None
    assert file.views(0, 10) == []


def test_an_answer_that_waits_keeps_its_bytes() -> None:
    disk = MemoryDisk()
    disk.mkdir("t-0")
    file = disk.open("t-0/0.log")
    file.append([b"0123456789" * 20_000])
    waiting, later = file.region(5, 10), file.region(5, 10)
    waiting.pin()
    disk.remove_tree("t-0")
    assert b"".join(waiting.parts()) == b"5678901234"
    with pytest.raises(OSError, match="shorter than the answer"):
        later.parts()


def test_views_cannot_be_written_to() -> None:
    file = MemoryDisk().open("a")
    file.append([b"0123"])
    with pytest.raises(TypeError):
        file.view(0, 4)[0] = 1  # type: ignore[index]


def test_an_append_without_enough_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = MemoryDisk().open("a")
    file.append([b"0123"])
    left = iter([memoryview(bytearray(1 << 20))])

    def allocate(size: int, *, ready: bool) -> memoryview:
        try:
            return next(left)
        except StopIteration:
            raise OSError(12, "Cannot allocate memory") from None

    monkeypatch.setattr(system, "memory", allocate)
    with pytest.raises(KafkaStorageError, match="no memory left"):
        file.append([b"4", bytes(3 << 20)])
    monkeypatch.undo()
    assert file.append([b"x"]) == 4
    assert file.pread(10, 0) == b"0123x"
