"""Logs that move to another folder while they are written: nothing is lost, and nothing is left incomplete."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock, Timer
from ottla.errors import KafkaStorageError
from ottla.log import replica_moves as moves_module
from ottla.log.files import PosixDisk
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.log.options import LogConfig
from ottla.log.replica_moves import Moves
from ottla.records.batch import Batch

Make = Callable[..., Batch]
KEY = ("t", 0)
SMALL_SEGMENTS = 4_000


class World:
    """A log in the first of two folders; background work runs when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.disk = MultiDirDisk([str(folder / "one"), str(folder / "two")])
        self.clock = ManualClock(1_700_000_000_000)
        self.timer = Timer(self.clock)
        tokens = iter(range(10_000))
        self.token = lambda: f"{next(tokens):032x}"
        config = LogConfig(segment_bytes=SMALL_SEGMENTS)
        self.logs = LogManager(
            self.disk, lambda _: config, self.clock, new_token=self.token, schedule=self.timer.schedule
        )
        self.logs.open("cluster", 1, "A" * 22)
        self.log = self.logs.get_or_create(*KEY, bytes(range(16)))
        self.jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.busy = False
        self.moved: list[Any] = []
        self.moves = Moves(
            self.logs,
            self.disk,
            lambda work, done: self.jobs.append((work, done)),
            self.timer.schedule,
            self.token,
            lambda key: self.busy,
        )
        self.moves.on_moved = self.moved.append

    @property
    def one(self) -> PosixDisk:
        return self.disk.folders[0]

    @property
    def two(self) -> PosixDisk:
        return self.disk.folders[1]

    def work(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done()

    def names(self, part: PosixDisk) -> list[str]:
        return sorted(name for name, size in part.scan("").items() if size < 0)

    def content(self) -> bytes:
        return content(self.log)

    def reopened(self) -> bytes:
        """What the folders contain afterwards."""
        self.logs.close()
        again = LogManager(self.disk, lambda _: LogConfig(), self.clock, new_token=self.token)
        again.open("cluster", 1, "A" * 22)
        log = again.get(*KEY)
        assert log is not None and log.topic_id == bytes(range(16))
        found = content(log)
        again.close()
        return found


def content(log: Log) -> bytes:
    found = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = bytes(log.read(offset, 1 << 20).records.read())
        found += records
        last = 0
        while last < len(records):
            batch = Batch(memoryview(bytearray(records))[last:])
            last += batch.size
            offset = batch.last_offset + 1
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.disk.close()


def test_a_log_continues_in_another_folder(world: World, make_batch: Make) -> None:
    for _ in range(40):
        world.log.append([make_batch(5, size=100)])
    assert len(world.log.segments) > 3
    region = world.log.read(0, 2_000).records
    before = world.content()
    world.moves.start(KEY, world.two)
    (move,) = world.moves.under_way()
    assert (move.size_bytes, move.offset_lag) == (0, 200)
    world.log.append([make_batch(5)])
    work, done = world.jobs.pop()
    work()
    assert move.size_bytes == len(before) and 0 < move.offset_lag < 200
    world.log.append([make_batch(5)])
    done()
    assert world.moves.under_way() == [] and world.moved == [KEY]
    assert world.disk.part_of("t-0") is world.two
    assert [name.rpartition("-")[2] for name in world.names(world.one)] == ["delete"]
    assert bytes(region.read()) == before[: len(region)], "an answer in flight is sent from the same bytes"
    world.log.append([make_batch(5)])
    after = world.content()
    assert after[: len(before)] == before and world.log.log_end_offset == 215
    world.clock.advance(60_000)
    assert world.names(world.one) == []
    assert world.reopened() == after


def test_changes_during_a_move_are_copied(world: World, make_batch: Make, monkeypatch: Any) -> None:
    """Random operations on a log between the rounds of its moves back and forth."""
    monkeypatch.setattr(moves_module, "_REST_BYTES", 1_500)
    rng = random.Random(7)
    appended: dict[int, bytes] = {}
    for _ in range(60):
        offset = world.log.log_end_offset
        world.log.append([make_batch(rng.randint(1, 9), size=rng.randint(1, 300))])
        world.log.update_high_watermark(world.log.log_end_offset)
        appended[offset] = bytes(world.log.read(offset, 1 << 20).records.read())
        if not world.moves.under_way():
            world.moves.start(KEY, world.one if world.disk.part_of("t-0") is world.two else world.two)
        elif rng.random() < 0.6:
            world.work()
        if rng.random() < 0.2:
            segment = world.log.segments[rng.randrange(len(world.log.segments))]
            world.log.advance_log_start_offset(max(segment.base_offset, world.log.log_start_offset))
            world.log.delete_old_segments()
        if rng.random() < 0.2:
            path = world.log.segments[0].log.path
            world.log.close_handles()
            world.disk.write_atomic(path, world.disk.read_bytes(path))  # another file with the same name
    while world.moves.under_way():
        world.work()
    assert len(world.moved) > 3
    assert world.log.log_start_offset > 0
    kept = [appended[offset] for offset in sorted(appended) if offset >= world.log.log_start_offset]
    assert world.reopened() == b"".join(kept)


def test_a_file_that_was_replaced_is_copied_again(world: World, make_batch: Make) -> None:
    """As compaction does: a new file with the same name, and here even the same size."""
    for _ in range(20):
        world.log.append([make_batch(5, size=100)])
    world.moves.start(KEY, world.two)
    work, done = world.jobs.pop()
    work()
    path = world.log.segments[0].log.path
    replaced = world.disk.read_bytes(path).replace(b"v", b"w")
    world.log.close_handles()
    world.disk.write_atomic(path, replaced)
    done()
    assert world.moved == [KEY] and world.disk.read_bytes(path) == replaced


def test_an_interrupted_move_continues_at_the_next_start(world: World, make_batch: Make) -> None:
    world.log.append([make_batch(5)])
    world.moves.start(KEY, world.two)
    (folder,) = world.names(world.two)
    world.moves.stop()
    world.work()
    assert world.names(world.two) == [folder] and world.moved == []
    world.logs.close()
    again = LogManager(world.disk, lambda _: LogConfig(), world.clock, new_token=world.token)
    again.open("cluster", 1, "A" * 22)
    assert again.unfinished == {folder: KEY} and again.partitions() == [KEY]
    again.close()


def test_a_busy_log_is_not_replaced(world: World, make_batch: Make) -> None:
    world.log.append([make_batch(5)])
    world.busy = True
    world.moves.start(KEY, world.two)
    world.work()
    assert world.moved == []
    world.log.append([make_batch(5)])
    world.busy = False
    world.clock.advance(1_000)
    assert world.moved == [KEY] and world.log.log_end_offset == 10
    assert len(world.content()) == world.log.size_bytes


def test_a_cancelled_move_leaves_nothing(world: World, make_batch: Make) -> None:
    world.log.append([make_batch(5)])
    world.moves.start(KEY, world.two)
    world.moves.cancel(KEY)
    assert world.names(world.two) == []
    world.work()
    assert (world.names(world.one), world.names(world.two), world.moved) == (["t-0"], [], [])
    world.moves.start(KEY, world.two)
    world.moves.start(KEY, world.two)
    assert len(world.jobs) == 1, "it is already being moved there"
    world.logs.delete(*KEY)
    world.moves.cancel(KEY)
    world.work()
    assert world.names(world.two) == []


@pytest.mark.parametrize("fails", ["copy", "rename"])
def test_a_disk_that_fails_leaves_the_log_where_it_is(world: World, make_batch: Make, fails: str, caplog: Any) -> None:
    world.log.append([make_batch(5)])
    world.moves.start(KEY, world.two)

    def fail(*_: object) -> None:
        raise KafkaStorageError("No space left on device")

    setattr(world.disk, fails, fail)
    world.work()
    assert "t-0 stays where it is: No space left on device" in caplog.text
    assert world.moves.under_way() == [] and world.disk.part_of("t-0") is world.one
    assert world.names(world.two) == []
    world.log.append([make_batch(5)])
    assert len(world.content()) == world.log.size_bytes


def test_a_log_stays_if_its_copy_cannot_replace_it(world: World, make_batch: Make, monkeypatch: Any) -> None:
    world.log.append([make_batch(5)])
    before = world.content()
    world.moves.start(KEY, world.two)
    rename = world.disk.rename

    def fail(path: str, to: str) -> None:
        if path.endswith("-future"):
            raise KafkaStorageError("Input/output error")
        rename(path, to)

    monkeypatch.setattr(world.disk, "rename", fail)
    world.work()
    assert (world.names(world.one), world.names(world.two), world.moved) == (["t-0"], [], [])
    assert world.content() == before
    assert world.reopened() == before


def test_moves_to_the_same_folder_or_of_unknown_logs_are_ignored(world: World) -> None:
    world.moves.start(KEY, world.one)
    world.moves.start(("nobody", 3), world.two)
    assert world.jobs == [] and world.names(world.two) == []
