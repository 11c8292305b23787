"""A real disk with faults: full, failing, read-only, and a process without free file handles.

The request gets KAFKA_STORAGE_ERROR, the log reports it once, and everything else continues. The rest continues after
the fault.
"""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import KafkaStorageError
from ottla.log.files import PosixDisk
from support.batches import batch, records_of
from support.processes import start_and_wait
from support.waiting import wait_for
from support.wire import Wire


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes, if the test may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(start_broker: Callable[..., Any], small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    broker = start_broker(small_disk / "data")
    acknowledged: list[bytes] = []
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        wire.create_topic("other")
        number = refused = 0
        while refused < 50:
            value = b"%d" % number + b"." * 20_000
            number += 1
            answer = wire.produce("t", batch(value))
            if answer.error_code == 0:
                assert answer.base_offset == len(acknowledged)
                acknowledged.append(value)
            else:
                assert answer.error_code == KafkaStorageError.code
                refused += 1
        assert len(acknowledged) > 20
        # Everything that needs no room continues.
        assert wire.metadata("t").topics[0].error_code == 0
        assert records_of(wire.fetch("t", 0))[0].value == acknowledged[0]
        lines = [line for line in broker.text().splitlines() if "No space left" in line]
        assert len(lines) == 1, lines
        assert "KAFKA_STORAGE_ERROR" in lines[0]
        ballast.unlink()
        assert wire.produce("t", batch(b"more")).base_offset == len(acknowledged)
        acknowledged.append(b"more")
    broker.stop(signal.SIGKILL)
    again = start_broker(small_disk / "data")
    with Wire(again.address) as wire:
        found: list[Any] = []
        while more := records_of(wire.fetch("t", len(found))):
            found += [record.value for record in more]
        assert found == acknowledged


def test_workers_end_together_when_their_data_folder_is_gone(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    broker = start_broker(workers=2, log_dirs=tmp_path / "data")
    with Wire(broker.address) as wire:  # either worker accepts it, and either may lead the partition
        assert wire.create_topic_result("t", segment_bytes=1 << 20).error_code == 0
        found = wire.metadata("t")
    leader_id = found.topics[0].partitions[0].leader_id
    [port] = [node.port for node in found.brokers if node.node_id == leader_id]
    with Wire((broker.host, port)) as wire, suppress(ConnectionError):
        (tmp_path / "data").rename(tmp_path / "gone")
        while wire.produce("t", batch(bytes(500_000))).error_code == 0:
            pass  # until a new segment cannot be created
    assert broker.process.wait(60) == 1
    assert "cannot continue without it" in broker.text()


def test_out_of_file_handles(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    limit = 80
    log = tmp_path / "log"
    process, address = start_and_wait(command, log, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    try:
        with Wire(address) as wire:
            wire.create_topic("t", 40)
            crowd = []
            for _ in range(limit + 20):
                crowd.append(socket.create_connection(address))
            for partition in range(40):
                answer = wire.produce("t", batch(b"x"), partition)
                assert answer.error_code in (0, KafkaStorageError.code), answer
            assert wire.metadata("t").topics[0].error_code == 0
            for one in crowd:
                one.close()
            wait_for(lambda: wire.produce("t", batch(b"y"), 39).error_code == 0, "an append")
        with Wire(address) as newcomer:
            assert len(newcomer.metadata("t").topics[0].partitions) == 40
        complaints = [line for line in log.read_text().splitlines() if "cannot accept" in line]
        assert len(complaints) <= 10
    finally:
        process.terminate()
        process.wait(20)
    assert process.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("where", ["/proc/ottla-data", "file/data"])
def test_an_unwritable_folder_is_reported_in_one_line(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = where if where.startswith("/") else str(tmp_path / where)
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--port", "0", "--data", path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert path in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


# -- errors of system calls ----------------------------------------------------------------------------------------


def test_a_torn_append_is_cut_before_the_next_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk(tmp_path)
    file = disk.open("log")
    file.append([b"one"])
    write = os.write

    def half(fd: int, data: Any) -> int:
        write(fd, bytes(data)[: len(data) // 2])
        raise OSError(errno.EIO, "Input/output error")

    def no_truncation(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half)
        broken.setattr(os, "ftruncate", no_truncation)
        for _ in range(3):
            with pytest.raises(KafkaStorageError, match="Input/output error"):
                file.append([b"rubbish!"])
            assert file.size == 3
    assert len((tmp_path / "log").read_bytes()) > 3
    assert file.append([b"two"]) == 3
    assert (tmp_path / "log").read_bytes() == b"onetwo"
    disk.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EACCES])
def test_every_system_error_becomes_a_kafka_error(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk(tmp_path)
    disk.touch("file")

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    calls: dict[str, Callable[[], Any]] = {
        "remove": lambda: disk.remove("file"),
        "stat": lambda: disk.modified_ms("file"),
        "scandir": lambda: disk.scan(""),
        "replace": lambda: disk.rename("file", "other"),
        "makedirs": lambda: disk.mkdir("folder"),
        "open": lambda: disk.open("file").append([b"x"]),
        "fsync": lambda: disk.sync_folder(""),
        "utime": lambda: disk.set_modified_ms("file", 1),
    }
    for name, call in calls.items():
        with monkeypatch.context() as broken:
            broken.setattr(os, name, fails)
            with pytest.raises(KafkaStorageError, match=os.strerror(number)):
                call()
    disk.close()
