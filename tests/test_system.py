"""Functions that other operating systems lack have replacements. Linux runs the replacements too."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ottla import system

ROOT = Path(__file__).resolve().parent.parent


def test_reading_at_a_position_leaves_threads_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 64)
    fd = os.open(path, os.O_RDONLY)
    wrong: list[int] = []

    def read(start: int) -> None:
        for _ in range(200):
            if system._pread_by_seeking(fd, 1, start) != bytes([start]):
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(start,)) for start in (3, 77, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    assert wrong == []


def test_several_buffers_are_written_as_one(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    assert system._writev_by_joining(fd, [b"ab", memoryview(b"cd"), bytearray(b"e")]) == 5
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"abcde"


def test_a_file_is_sent_by_copying_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert system._sendfile_by_copying(ours, fd, 3, 4) == 4
        assert theirs.recv(100) == b"3456"
        assert system._sendfile_by_copying(ours, fd, 10, 4) == 0, "the end of the file"
    os.close(fd)


def test_signals_reach_a_loop_that_does_not_support_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "PLAIN", True)
    before = signal.getsignal(signal.SIGUSR1)

    async def main() -> None:
        heard = asyncio.Event()
        system.on_signal(asyncio.get_running_loop(), signal.SIGUSR1, heard.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 10)

    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_loop_of_windows_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    class ProactorEventLoop(asyncio.SelectorEventLoop):
        pass

    monkeypatch.setattr(asyncio, "ProactorEventLoop", ProactorEventLoop, raising=False)
    loop = ProactorEventLoop()
    with pytest.raises(RuntimeError, match=r"use ottla\.serve\(\)"):
        system.check_loop(loop)
    loop.close()


@pytest.mark.slow
def test_logs_and_connections_work_with_what_every_system_has() -> None:
    """Their own tests, without pread, writev, sendfile, sendmsg, uvloop and renames of open files."""
    tests = ["tests/log/test_files.py", "tests/log/test_log.py", "tests/server/net", "tests/server/test_start.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        env={**os.environ, "OTTLA_PLAIN_SYSTEM": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.slow
def test_a_broker_serves_and_stops_with_what_every_system_has(tmp_path: Path) -> None:
    code = (
        "import sys, ottla\n"
        "from confluent_kafka import Consumer, Producer\n"
        "with ottla.spawn(data=sys.argv[1]) as broker:\n"
        "    producer = Producer({'bootstrap.servers': broker.bootstrap})\n"
        "    for number in range(100):\n"
        "        producer.produce('t', b'x' * 1000)\n"
        "    assert producer.flush(30) == 0\n"
        "    settings = {'bootstrap.servers': broker.bootstrap, 'group.id': 'g', 'auto.offset.reset': 'earliest'}\n"
        "    consumer = Consumer(settings)\n"
        "    consumer.subscribe(['t'])\n"
        "    assert len(consumer.consume(100, timeout=30)) == 100\n"
        "    consumer.close()\n"
    )
    environment = {**os.environ, "OTTLA_PLAIN_SYSTEM": "1"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_workers_are_refused_where_processes_cannot_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--workers", "2", "--port", "0", "--data", str(tmp_path)]
    environment = {**os.environ, "OTTLA_PLAIN_SYSTEM": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--workers needs a system that can fork" in done.stderr
