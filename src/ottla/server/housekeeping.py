"""Retention and compaction in the background: nothing here makes a fetch or a produce wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ottla.answers import Answer, Reply, paced
from ottla.clock import Timer, TimerHandle
from ottla.lazy_imports import lazy
from ottla.log.checkpoints import CLEANER_OFFSETS_FILE, TopicPartition
from ottla.log.files import PosixDisk
from ottla.log.integrity import inspecting
from ottla.log.log import Log
from ottla.log.manager import LogManager

if TYPE_CHECKING:
    from ottla.log import cleaner as cleaner_module
    from ottla.log.cleaner import Cleaning, LogCleaner, Work
    from ottla.log.cleaning_job import CleaningJob
    from ottla.server import cleaner_work
else:
    cleaner_module = lazy("ottla.log.cleaner")
    cleaner_work = lazy("ottla.server.cleaner_work")

PROCESS_FROM_BYTES: Final = 4 * 1024 * 1024
"""Starting a process costs as much as compacting about this much."""
SWEEP_STEPS: Final = 32
"""Logs swept before other work on the event loop gets its turn."""


class Housekeeper:
    """Deletes old segments and compacts logs while the broker runs.

    It replaces the cleaner until there is a compacted log, so that the cleaner is imported only then.
    """

    def __init__(
        self, logs: LogManager, loop: asyncio.AbstractEventLoop, timer: Timer, config: Callable[[], Any]
    ) -> None:
        self._logs = logs
        self._loop = loop
        self._timer = timer
        self._config = config
        self._running: set[asyncio.Future[None]] = set()
        self._next_look: TimerHandle | None = None
        self._next_look_ms = 0.0
        self._sweep: Iterator[int] | None = None
        self._stopped = False
        self._processes_work = True
        self.at_once = False
        """Finish due work before the timer's callback returns, instead of in the background."""
        self._cleaner: LogCleaner | None = None
        self._inspection: Answer[None] = None
        """The check of logs that have not been opened yet, after a clean start."""

    def _settings(self) -> cleaner_module.CleanerSettings:
        return cleaner_module.CleanerSettings.from_config(self._config())

    # -- retention ---------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Delete segments past their retention, some logs at a time. Only one sweep runs at a time."""
        if self._sweep is None and not self._stopped:
            self._sweep = self._logs.retention_steps()
            self._sweep_some()

    def _sweep_some(self) -> None:
        if self._sweep is None or self._stopped:
            return
        for _ in count() if self.at_once else range(SWEEP_STEPS):
            if next(self._sweep, None) is None:
                self._sweep = None
                return
        self._loop.call_soon(self._sweep_some)

    # -- compaction --------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._logs.unopened:
            self._inspection = paced(inspecting(self._logs))
        if self._logs.unopened or self._logs.disk.exists(CLEANER_OFFSETS_FILE):
            self._make_cleaner()
        else:
            self._logs.use_cleaner(self)

    @property
    def cleaner(self) -> LogCleaner:
        return self._cleaner if self._cleaner is not None else self._make_cleaner()

    def _make_cleaner(self) -> LogCleaner:
        cleaner = self._cleaner = cleaner_module.LogCleaner(self._logs, self._settings, self._start_work)
        cleaner.on_dirty = self._wake
        self._wait()
        return cleaner

    def changed(self, log: Log) -> None:
        """The log manager reports its logs here until one is compacted: then a new cleaner takes over."""
        if log.config.compact:
            self._make_cleaner()

    def settings_changed(self) -> None:
        if self._logs.unopened:
            self._make_cleaner()

    def removed(self, key: TopicPartition) -> None:
        """Nothing to do."""

    def is_busy(self, key: TopicPartition) -> bool:
        return False

    def _wake(self) -> None:
        """Check after `log.cleaner.backoff.ms`, unless a check is already planned."""
        self._look_in(self._backoff_ms())

    def _wait(self) -> None:
        """Check when there may be something to do; while nothing is written there is no timer."""
        next_ms = self.cleaner.next_look_ms()
        if next_ms is not None:
            self._look_in(max(next_ms - self._logs.clock.now_ms(), self._backoff_ms()))

    def _backoff_ms(self) -> int:
        return max(int(self._config()["log.cleaner.backoff.ms"]), 1)

    def _look_in(self, delay_ms: int) -> None:
        at_ms = self._logs.clock.monotonic_ms() + delay_ms
        pending = self._next_look is not None and self._next_look.pending
        if self._stopped or (pending and self._next_look_ms <= at_ms):
            return
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look_ms = at_ms
        self._next_look = self._timer.schedule(delay_ms, self._look)

    def _look(self) -> None:
        if self._stopped:
            return
        if self._settings().enabled:
            self.cleaner.delete_old_segments()
            self._begin()
            self._wait()

    def _begin(self) -> None:
        while (cleaning := self.cleaner.next()) is not None:
            if self.at_once:
                self.cleaner.finish(cleaning)
            else:
                self._step(cleaning)

    def _step(self, cleaning: Cleaning) -> None:
        future = self._loop.run_in_executor(None, cleaning.step)
        self._running.add(future)

        def stepped(done: asyncio.Future[None]) -> None:
            self._running.discard(done)
            if self._stopped:
                self.cleaner.discard(cleaning)
                return
            if isinstance(cleaning.error, OSError):
                self._processes_work = False  # no process could be started, or it died: use a thread instead
            if self.cleaner.apply(cleaning):
                self._step(cleaning)
            else:
                self._begin()
                self._wait()

        future.add_done_callback(stepped)

    def _start_work(self, job: CleaningJob) -> Work:
        # Most brokers never compact anything large: the modules for that are imported only when needed.
        disk = self._logs.disk.part_of(job.folder)
        rate = self._settings().bytes_per_second
        large = sum(source.size for source in job.sources) >= PROCESS_FROM_BYTES
        if large and self._processes_work and isinstance(disk, PosixDisk):
            return cleaner_work.ProcessWork(job, disk.root, rate)
        return cleaner_work.ThreadWork(job, disk, rate)

    def compact_now(self, topic: str, partition: int) -> Iterator[Cleaning]:
        """See `LogCleaner.compact_now`."""
        return self.cleaner.compact_now(topic, partition)

    async def stop(self) -> None:
        """End all work; unfinished work has no effect."""
        self._stopped = True
        if isinstance(self._inspection, Reply):
            self._inspection.cancel()
        if self._next_look is not None:
            self._next_look.cancel()
        if self._cleaner is not None:
            self._cleaner.stop()
        while self._running:
            await asyncio.wait(tuple(self._running))
