"""Where a compaction runs: in a thread if it is small, otherwise in its own process.

A thread that decodes millions of records would block the event loop for milliseconds at a time.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ottla.log.cleaning_job import CleanedGroup, CleaningAborted, CleaningJob, Compaction
from ottla.log.files import Disk

THREAD_BUFFER_BYTES: Final = 64 * 1024
"""A thread releases the interpreter after each buffer."""
WORKER_MODULE: Final = "ottla.server.cleaner_process"
_NAP_S: Final = 0.1


class Throttle:
    """Sleeps to limit the average rate of work; None means no limit."""

    def __init__(
        self,
        bytes_per_second: float | None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`check` is called between naps, and may raise."""
        self._check = check
        self._rate = bytes_per_second
        self._now_s = now_s
        self._sleep = sleep
        self._start_s = now_s()
        self._bytes = 0

    def pace(self, size: int) -> None:
        if self._rate is None:
            return
        self._bytes += size
        while (ahead_s := self._bytes / self._rate - (self._now_s() - self._start_s)) > 0:
            self._check()
            self._sleep(min(ahead_s, _NAP_S))


class WorkerEnded(OSError):
    """The process ended without an answer: it was killed, or cannot run here."""


class ThreadWork:
    """A job in the calling thread."""

    def __init__(self, job: CleaningJob, disk: Disk, bytes_per_second: float | None) -> None:
        job.buffer_bytes = min(job.buffer_bytes, THREAD_BUFFER_BYTES)
        self._disk = disk.for_thread()
        self._shares_disk = self._disk is disk
        self._throttle = Throttle(bytes_per_second, check=self._check)
        self._aborted = False
        self._groups = Compaction(job, self._disk, self._pace).groups()

    def _check(self) -> None:
        if self._aborted:
            raise CleaningAborted

    def _pace(self, size: int) -> None:
        self._check()
        if size:
            self._throttle.pace(size)
            time.sleep(0)

    def __next__(self) -> CleanedGroup:
        return next(self._groups)

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        self._groups.close()  # type: ignore[attr-defined]  # it is a generator
        if not self._shares_disk:
            self._disk.close()


class ProcessWork:
    """A job in a child process, which ends with this process."""

    def __init__(self, job: CleaningJob, root: str, bytes_per_second: float | None) -> None:
        self._order = (root, job, bytes_per_second)
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def __next__(self) -> CleanedGroup:
        if self._aborted:
            raise CleaningAborted
        message = self._receive(self._process or self._start())
        if self._aborted:
            raise CleaningAborted
        if isinstance(message, Exception):
            raise message
        if message is None:
            raise StopIteration
        assert isinstance(message, CleanedGroup)
        return message

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", WORKER_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = process
        if self._aborted:  # meanwhile, on the event loop
            process.kill()
        order = pickle.dumps(self._order)
        assert process.stdin is not None
        with suppress(OSError):  # reading the answer shows what happened
            process.stdin.write(len(order).to_bytes(4, "big") + order)
            process.stdin.flush()
        return process

    def _receive(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        head = process.stdout.read(4)
        body = process.stdout.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        if not body:
            return WorkerEnded(f"the compacting process ended with code {process.wait()}")
        return pickle.loads(body)

    def abort(self) -> None:
        self._aborted = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
