"""The log cleaner: picks the dirtiest compacted log, has it compacted elsewhere, and puts the result in place.

    idle      checks a log after a roll, a change of its settings, or at a set time; otherwise costs nothing
    working   a job reads immutable segments, in a thread or a process; appends and reads continue
    swap      each finished segment replaces its sources; the only part that runs on the log's event loop
    done      `cleaner-offset-checkpoint` holds the offset below which the log is clean

A log that cannot be compacted is not tried again; this is logged once. Disk errors are retried later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.errors import KafkaStorageError
from ottla.log import checkpoints
from ottla.log.checkpoints import TopicPartition
from ottla.log.cleaning_choice import NEVER_MS, LogToClean, look_at
from ottla.log.cleaning_job import (
    CLEANED_SUFFIX,
    CleanedGroup,
    CleaningAborted,
    CleaningJob,
    CleaningStats,
    Compaction,
    LastRecord,
    remove_cleaned,
)
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.segment import LOG_SUFFIX, Segment

logger = logging.getLogger(__name__)

LOOKS_AT_A_TIME: Final = 100
"""How many folders of unopened logs are listed at a time after a start."""
RETRY_MS: Final = 60_000
"""How long a log is left alone after a disk error."""
_UNLIMITED: Final = 1e18


@dataclass(slots=True)
class CleanerSettings:
    """The broker's `log.cleaner.*`."""

    enabled: bool = True
    threads: int = 1
    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    buffer_bytes: int = 512 * 1024
    bytes_per_second: float | None = None
    backoff_ms: int = 15_000

    @classmethod
    def from_config(cls, config: Any) -> CleanerSettings:
        """`config` is any object that supports `config["log.cleaner.threads"]`."""
        rate = config["log.cleaner.io.max.bytes.per.second"]
        return cls(
            enabled=config["log.cleaner.enable"],
            threads=max(config["log.cleaner.threads"], 1),
            map_bytes=config["log.cleaner.dedupe.buffer.size"],
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            buffer_bytes=config["log.cleaner.io.buffer.size"],
            bytes_per_second=None if rate >= _UNLIMITED else rate,
            backoff_ms=config["log.cleaner.backoff.ms"],
        )


class Work(Protocol):
    """A running job. `__next__` blocks and is called outside the event loop, the other methods on it."""

    def __next__(self) -> CleanedGroup: ...
    def abort(self) -> None:
        """Make a blocked `__next__` raise soon, and later ones immediately."""
        ...

    def close(self) -> None:
        """There will be no more calls."""
        ...


class InlineWork:
    """Does the work in the calling thread."""

    def __init__(self, job: CleaningJob, manager_disk: Any) -> None:
        self._groups = Compaction(job, manager_disk, self._pace).groups()
        self._aborted = False

    def _pace(self, size: int) -> None:
        if self._aborted:
            raise CleaningAborted

    def __next__(self) -> CleanedGroup:
        return next(self._groups)

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        pass


class Cleaning:
    """One log while it is compacted. `step` runs in a thread and only sets the fields that `LogCleaner.apply` reads."""

    __slots__ = ("_sync", "_work", "end_offset", "error", "group", "started_ms", "stats", "target", "truncations")

    def __init__(self, target: LogToClean, work: Work, started_ms: float, sync: Callable[[], object]) -> None:
        self.target = target
        self.started_ms = started_ms
        self.truncations = target.log.truncations
        self.group: CleanedGroup | None = None
        self.error: Exception | None = None
        self.end_offset = target.first_dirty_offset
        self.stats = CleaningStats()
        self._work = work
        self._sync = sync

    def step(self) -> None:
        """Build the next group. `group` is None if none is left, or if it failed with `error`."""
        swapped, self.group = self.group is not None, None
        try:
            if swapped:
                self._sync()  # the renames of the previous group
            self.group = next(self._work)
        except StopIteration:
            pass
        except Exception as error:
            self.error = error

    def abort(self) -> None:
        self._work.abort()

    def close(self) -> None:
        self._work.close()


class LogCleaner:
    """Compaction for all logs of a manager."""

    def __init__(
        self,
        logs: LogManager,
        settings: Callable[[], CleanerSettings] = CleanerSettings,
        start_work: Callable[[CleaningJob], Work] | None = None,
    ) -> None:
        self._logs = logs
        self._clock = logs.clock
        self._settings = settings
        self._start_work = start_work or (lambda job: InlineWork(job, logs.disk))
        self._clean_up_to = checkpoints.read_offsets(logs.disk, checkpoints.CLEANER_OFFSETS_FILE)
        self._due_ms: dict[TopicPartition, int] = {}
        self._unlooked: deque[TopicPartition] = deque(logs.unopened)
        self._expiring: set[TopicPartition] = set()
        self.on_dirty: Callable[[], object] | None = None
        """Called when there may be new work."""
        self.in_progress: dict[TopicPartition, Cleaning] = {}
        self.uncleanable: set[TopicPartition] = set()
        logs.use_cleaner(self)

    @property
    def clean_offsets(self) -> dict[TopicPartition, int]:
        """The offset below which each log is clean."""
        return self._clean_up_to

    # --- notifications from the log manager --------------------------------------------------------------------------

    def changed(self, log: Log) -> None:
        """The log was opened or rolled, or its settings changed. It may need cleaning."""
        key = (log.topic, log.partition)
        self._expiring.discard(key)
        if not log.config.compact:
            return
        if log.config.delete:
            self._expiring.add(key)
        if len(log.segments) > 1:
            self._due_ms[key] = 0
        if self.on_dirty is not None and (log.config.delete or len(log.segments) > 1):
            self.on_dirty()

    def settings_changed(self) -> None:
        """Settings changed, perhaps those of unopened logs: check these again."""
        self._unlooked = deque(self._logs.unopened)
        if self._unlooked and self.on_dirty is not None:
            self.on_dirty()

    def removed(self, key: TopicPartition) -> None:
        """The log is gone."""
        self._due_ms.pop(key, None)
        self._expiring.discard(key)
        self.uncleanable.discard(key)
        if key in self.in_progress:
            self.in_progress[key].abort()
        if self._clean_up_to.pop(key, None) is not None:
            self._write_checkpoint()

    def is_busy(self, key: TopicPartition) -> bool:
        """Whether retention must wait, because a job reads the log's segments."""
        return key in self.in_progress

    # --- choosing ----------------------------------------------------------------------------------------------------

    def next(self) -> Cleaning | None:
        """Start on the dirtiest log that is dirty enough. None if there is no work or no free thread."""
        settings = self._settings()
        if not settings.enabled or len(self.in_progress) >= settings.threads:
            return None
        self._look_at_unopened()
        while (target := self._dirtiest()) is not None:
            try:
                return self.start(target)
            except KafkaStorageError as error:
                self._postpone(target.key, error)
        return None

    def _postpone(self, key: TopicPartition, error: KafkaStorageError) -> None:
        """A log that cannot be read now must not stop the compaction of the others."""
        logger.warning("compacting %s-%d has to wait: %s", *key, error)
        self._due_ms[key] = self._clock.now_ms() + RETRY_MS

    def next_look_ms(self) -> int | None:
        """When to call `next` again if nothing happens before. None means never."""
        now_ms = self._clock.now_ms()
        if self._unlooked or self._expiring:
            return now_ms
        return min((max(due_ms, now_ms) for due_ms in self._due_ms.values()), default=None)

    def _dirtiest(self) -> LogToClean | None:
        now_ms = self._clock.now_ms()
        best: LogToClean | None = None
        for key in [key for key, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            if key in self.in_progress:
                continue
            try:
                target = self._look(key, now_ms)
            except KafkaStorageError as error:
                self._postpone(key, error)
                continue
            if target is None or not target.is_due:
                if target is None or target.look_again_ms == NEVER_MS:
                    del self._due_ms[key]
                else:
                    self._due_ms[key] = target.look_again_ms
            elif best is None or target.ratio > best.ratio:
                best = target
        return best

    def _look(self, key: TopicPartition, now_ms: int) -> LogToClean | None:
        log = self._logs.opened(*key)
        if log is None or not log.config.compact or key in self.uncleanable:
            return None
        return look_at(key, log, self._clean_up_to.get(key), now_ms)

    def _look_at_unopened(self) -> None:
        """After a start: open the logs that were dirty at the last stop, judged by their file names."""
        compact: dict[str, bool] = {}
        for _ in range(min(len(self._unlooked), LOOKS_AT_A_TIME)):
            key = self._unlooked.popleft()
            if key[0] not in compact:
                compact[key[0]] = self._logs.config_for(key[0]).compact
            if not compact[key[0]] or key not in self._logs.unopened:
                continue
            try:
                names = self._logs.disk.scan(f"{key[0]}-{key[1]}")
                bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
                if len(bases) > 1 and max(bases) > self._clean_up_to.get(key, 0):
                    self._logs.get(*key)  # this notifies us that it is open
            except KafkaStorageError as error:
                logger.warning("%s-%d cannot be opened to compact it: %s", *key, error)
                self._unlooked.append(key)

    # --- working -----------------------------------------------------------------------------------------------------

    def start(self, target: LogToClean) -> Cleaning:
        """Begin to compact a log."""
        log = target.log
        remove_cleaned(self._logs.disk, log.folder)  # files that `discard` could not remove because the disk failed
        settings = self._settings()
        sources = target.sources()
        first = sources[0].base_offset if sources else target.first_dirty_offset
        job = CleaningJob(
            name=log.name,
            folder=log.folder,
            config=log.config,
            sources=sources,
            first_dirty_offset=target.first_dirty_offset,
            first_uncleanable_offset=target.first_uncleanable_offset,
            now_ms=self._clock.now_ms(),
            aborted=log.aborted_transactions(first, target.first_uncleanable_offset),
            last_records={
                state.producer_id: LastRecord(state.batches[-1].last_offset if state.batches else -1, state.epoch)
                for state in log.producers.producers.values()
            },
            map_bytes=settings.map_bytes // settings.threads,
            load_factor=settings.load_factor,
            buffer_bytes=settings.buffer_bytes // settings.threads,  # Kafka halves it for a second buffer, to write
        )
        disk, folder = self._logs.disk, log.folder
        cleaning = Cleaning(
            target, self._start_work(job), self._clock.monotonic_ms(), lambda: disk.sync_paths([folder])
        )
        self.in_progress[target.key] = cleaning
        return cleaning

    def apply(self, cleaning: Cleaning) -> bool:
        """Put the result of a step in place. Returns False when the cleaning is over."""
        error = cleaning.error
        group = cleaning.group
        if error is not None and self._logs.opened(*cleaning.target.key) is not cleaning.target.log:
            error = CleaningAborted()  # whatever the error was: the files were removed during the work
        if error is None and group is not None:
            try:
                self._swap(cleaning, group)
            except CleaningAborted as aborted:
                error = aborted
            except Exception as failure:
                # Files and memory may differ from here on; the next start repairs this.
                self._give_up(cleaning, failure)
                return False
        if error is None:
            if group is not None:
                cleaning.end_offset, cleaning.stats = group.end_offset, group.stats
                return True
            self._done(cleaning)
            return False
        self.discard(cleaning)
        if isinstance(error, CleaningAborted):
            self._finish(cleaning)
        elif isinstance(error, (KafkaStorageError, OSError)):
            logger.warning("compacting %s failed and is tried again later: %s", cleaning.target.log.name, error)
            self._finish(cleaning, self._clock.now_ms() + RETRY_MS)
        else:
            self._give_up(cleaning, error)
        return False

    def discard(self, cleaning: Cleaning) -> None:
        """End a cleaning that is finished or aborted, and remove its incomplete files."""
        cleaning.close()
        self.in_progress.pop(cleaning.target.key, None)
        try:
            remove_cleaned(self._logs.disk, cleaning.target.log.folder)
        except KafkaStorageError as error:
            logger.warning("%s keeps files of an unfinished compaction for now: %s", cleaning.target.log.name, error)

    def _swap(self, cleaning: Cleaning, group: CleanedGroup) -> None:
        log = cleaning.target.log
        wanted = set(group.replaces)
        replaced = [segment for segment in log.segments if segment.base_offset in wanted]
        if (
            self._logs.opened(*cleaning.target.key) is not log
            or log.truncations != cleaning.truncations
            or len(replaced) != len(wanted)
        ):
            raise CleaningAborted
        now_ms = self._clock.now_ms()
        cleaned = Segment(
            self._logs.disk, log.folder, group.base_offset, log.config, now_ms, sizes=group.files, suffix=CLEANED_SUFFIX
        )
        log.replace_segments(cleaned, replaced)

    def _done(self, cleaning: Cleaning) -> None:
        target, stats = cleaning.target, cleaning.stats
        self._clean_up_to[target.key] = cleaning.end_offset
        self._write_checkpoint()
        logger.info(
            "compacted %s, offsets %d to %d: %d records in %d bytes became %d in %d, %d of %d keys, %.0f ms",
            target.log.name,
            target.first_dirty_offset,
            cleaning.end_offset,
            stats.records_read,
            stats.bytes_read,
            stats.records_written,
            stats.bytes_written,
            stats.map_keys,
            stats.map_capacity,
            self._clock.monotonic_ms() - cleaning.started_ms,
        )
        if stats.keyless_records:
            logger.warning("%s: compaction removed %d records without a key", target.log.name, stats.keyless_records)
        stuck = cleaning.end_offset <= target.first_dirty_offset
        self._finish(cleaning, self._clock.now_ms() + RETRY_MS if stuck else 0)

    def _give_up(self, cleaning: Cleaning, error: Exception) -> None:
        self.uncleanable.add(cleaning.target.key)
        logger.warning(
            "%s cannot be compacted and is left alone from now on: %s: %s",
            cleaning.target.log.name,
            type(error).__name__,
            error,
        )
        self._finish(cleaning)

    def _finish(self, cleaning: Cleaning, again_ms: int = 0) -> None:
        cleaning.close()
        key = cleaning.target.key
        self.in_progress.pop(key, None)
        if self._logs.opened(*key) is not None and key not in self.uncleanable:
            self._due_ms[key] = again_ms

    def _write_checkpoint(self) -> None:
        try:
            self._logs.write_checkpoint(checkpoints.CLEANER_OFFSETS_FILE, dict(self._clean_up_to))
        except KafkaStorageError as error:
            # It is only a hint: without it more of the log counts as dirty.
            logger.warning("%s", error)

    # --- retention of compacted logs ---------------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Like Kafka's cleaner, apply retention to `compact,delete` logs whenever it looks for work."""
        deleted = 0
        for key in tuple(self._expiring):
            log = self._logs.opened(*key)
            if log is not None and key not in self.in_progress and key not in self.uncleanable:
                try:
                    deleted += log.delete_old_segments()
                except KafkaStorageError as error:
                    logger.error("retention of %s failed: %s", log.name, error)
        return deleted

    # --- all at once -------------------------------------------------------------------------------------------------

    def run_until_clean(self) -> int:
        """Compact every log that is dirty enough, synchronously. Returns the number of rounds."""
        rounds = 0
        while (cleaning := self.next()) is not None:
            rounds += 1
            self.finish(cleaning)
        return rounds

    def finish(self, cleaning: Cleaning) -> None:
        """Run a cleaning to its end, synchronously."""
        cleaning.step()
        while self.apply(cleaning):
            cleaning.step()

    def compact_now(self, topic: str, partition: int) -> Iterator[Cleaning]:
        """Rounds that compact a log up to its last stable offset, even if it is clean. Run each with `finish`."""
        key = (topic, partition)
        while (log := self._logs.get(topic, partition)) is not None and key not in self.uncleanable:
            target = look_at(key, log, self._clean_up_to.get(key), self._clock.now_ms())
            if not target.cleanable_bytes:
                return
            yield self.start(target)

    def stop(self) -> None:
        """End all work soon. Unfinished work has no effect."""
        for cleaning in self.in_progress.values():
            cleaning.abort()
