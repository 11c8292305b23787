"""The same tests on both kinds of disks, and helpers to make batches and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.log.files import Disk, MemoryDisk, PosixDisk
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.multi_dir_disk import MultiDirDisk
from ottla.log.options import LogConfig
from ottla.records.batch import Batch, Record, build_batch, end_transaction_marker

START_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture(params=["memory", "posix", "spread"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk
    if request.param == "memory":
        made = MemoryDisk(ManualClock(START_MS))
    elif request.param == "posix":
        made = PosixDisk(tmp_path / "data")
    else:
        made = MultiDirDisk([str(tmp_path / name) for name in ("data", "more", "most")])
    made.mkdir("")
    yield made
    made.close()


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """`make_batch(count, timestamp=…, producer=(id, epoch, sequence), size=…, transactional=…)`."""

    def make(
        count: int = 1,
        *,
        timestamp: int = START_MS,
        producer: tuple[int, int, int] = (-1, -1, -1),
        size: int = 10,
        transactional: bool = False,
        codec: int = 0,
    ) -> Batch:
        records = [Record(i, timestamp + i, b"key-%d" % i, b"v" * size) for i in range(count)]
        producer_id, epoch, sequence = producer
        return Batch(build_batch(records, 0, codec, producer_id, epoch, sequence, transactional=transactional))

    return make


@pytest.fixture
def make_marker() -> Callable[..., Batch]:
    def make(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> Batch:
        return Batch(
            end_transaction_marker(
                commit, coordinator_epoch, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=START_MS
            )
        )

    return make


@pytest.fixture
def open_t(disk: Disk, clock: ManualClock) -> Callable[..., Log]:
    """Open partition `t-0`; keyword arguments that are settings are added to its config."""

    def open_it(**arguments: Any) -> Log:
        settings = {name: arguments.pop(name) for name in list(arguments) if name in LogConfig.__slots__}
        return open_log(disk, "t", 0, LogConfig(**settings), clock, **arguments)

    return open_it


@pytest.fixture
def contents() -> Callable[[Log], list[tuple[int, int]]]:
    """(offset, timestamp) of every record from the start offset on."""

    def read(log: Log) -> list[tuple[int, int]]:
        found = []
        for batch in log.batches(log.log_start_offset):
            found += [(r.offset, r.timestamp) for r in batch.records() if r.offset >= log.log_start_offset]
        return found

    return read
