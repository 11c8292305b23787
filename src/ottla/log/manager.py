"""All logs of a data folder: finding and opening them, creating and deleting, checkpoints, retention, flushing.

After a clean stop a log is opened when it is first asked for, so thousands of partitions cost a listing of the
folder. After an unclean one `load_all` recovers every log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, Protocol, TypeAlias

from ottla.clock import Clock
from ottla.errors import KafkaStorageError
from ottla.log import checkpoints, ownership, retention
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.files import Disk, MemoryDisk
from ottla.log.loader import open_log
from ottla.log.log import Log, Scheduler
from ottla.log.options import LogConfig

logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
MAX_FOLDER_NAME: Final = 255
FLUSH_ONE_BY_ONE: Final = 16
"""With more logs than this to flush at a stop, one flush of the whole file system is faster."""
RECOVERY_POINT_DELAY_MS: Final = 5_000
"""Recovery points that a roll moves are noted this soon, and those of other rolls in between with them. Kafka waits for
`log.flush.offset.checkpoint.interval.ms`, and reads a minute of segments again after a crash."""
COMPLAINT_INTERVAL_MS: Final = 60_000
_PARTITION: Final = r"(.+)-(\d+)"
_MARKED: Final = r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|stray|future)"


class Cleaner(Protocol):
    """Who compacts the logs, as far as the manager has to tell it."""

    def changed(self, log: Log) -> None: ...
    def removed(self, key: TopicPartition) -> None: ...
    def settings_changed(self) -> None: ...
    def is_busy(self, key: TopicPartition) -> bool: ...


Background: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], object]
"""`background(work, done)`: run `work` in a thread, then `done` on the event loop if it did not fail."""


def marked_folder(topic: str, partition: int, token: str, suffix: str) -> str:
    """`topic-0.<token>-delete`; a long topic name is cut as Kafka cuts it, to fit a file name."""
    tail = f"-{partition}.{token}{suffix}"
    return topic[: MAX_FOLDER_NAME - len(tail)] + tail


class LogManager:
    """The logs under one disk.

    `config_for(topic)` gives the topic's settings; `new_token()` 32 hex digits for folders under deletion.
    """

    def __init__(
        self,
        disk: Disk,
        config_for: Callable[[str], LogConfig],
        clock: Clock,
        *,
        new_token: Callable[[], str],
        schedule: Scheduler | None = None,
        background: Background | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.meta: MetaProperties | None = None
        self.unfinished: dict[str, TopicPartition] = {}
        """Folders of moves that a stop or a crash interrupted."""
        self.directory_ids: list[str] = []
        """Of the folders that the disk is made of."""
        self.clean_start = True
        self.previous_broker_epoch = -1
        self._config_for = config_for
        self._new_token = new_token
        self._schedule = schedule
        self._background = background
        self._logs: dict[TopicPartition, Log] = {}
        self._unopened: dict[TopicPartition, None] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._writing: set[str] = set()
        self._checkpointing = Lock()
        self._checkpoint_is_due = False
        # A disk in memory ends with its process: nobody will read it again.
        self._checkpoints_early = schedule is not None and background is not None and type(disk) is not MemoryDisk
        self._closing = False
        self._locked = False
        self._cleaner: Cleaner | None = None
        self._retention_due_ms: dict[TopicPartition, int] = {}
        self._unretired: set[TopicPartition] = set()
        """Taken out of service, but the disk did not let us rename the folder."""
        self._flushed_with: set[TopicPartition] = set()
        self.metadata_log: Log | None = None
        """Without its topic a flushed record is a stray: this log is flushed with any other."""
        self._complained_ms: float | None = None
        self._failures = 0

    def use_cleaner(self, cleaner: Cleaner) -> None:
        """Tell `cleaner` what happens to the logs."""
        self._cleaner = cleaner
        for log in self.logs():
            cleaner.changed(log)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, cluster_id: str, node_id: int, directory_id: str) -> MetaProperties:
        """Lock the folder, check or write whose it is, list its partitions. The ids given are for a new folder.

        Nothing is touched when the folder is another's: KafkaStorageError says in one line why.
        """
        disk = self.disk
        disk.mkdir("")
        found = ownership.read_owners(disk, node_id)
        disk.lock()
        self._locked = True
        used = [part for part, meta in found if meta is not None]
        if used:  # in a new folder there is nothing that a stop could have left unclean
            self.clean_start, self.previous_broker_epoch = checkpoints.take_clean_stop(used)
        metas = ownership.claim(found, MetaProperties(cluster_id, node_id, directory_id), self._new_token)
        self.meta = metas[0]
        self.directory_ids = [meta.directory_id or "" for meta in metas]
        self._recovery_points = checkpoints.read_offsets(disk, checkpoints.RECOVERY_POINTS_FILE)
        self._start_offsets = checkpoints.read_offsets(disk, checkpoints.LOG_START_OFFSETS_FILE)
        self._high_watermarks = checkpoints.read_offsets(disk, checkpoints.HIGH_WATERMARKS_FILE)
        for name, size in disk.scan("").items():
            if size < 0:
                self._found_folder(name)
        return self.meta

    def _found_folder(self, name: str) -> None:
        marked = re.fullmatch(_MARKED, name)
        if marked is not None:
            if marked[4] == "delete":
                self._remove_later(name, LogConfig().file_delete_delay_ms)
            elif marked[4] == "future" and len(self.disk.parts()) > 1:
                self.unfinished[name] = marked[1], int(marked[2])
            else:
                logger.warning("%s is left alone: it belongs to no partition any more", name)
            return
        partition = re.fullmatch(_PARTITION, name)
        if partition is not None:
            self._unopened[partition[1], int(partition[2])] = None
        else:
            logger.warning("%s in the data folder is not a partition and is ignored", name)

    def load_all(self) -> None:
        """Recover all logs if the last stop was unclean. After a clean one there is nothing to do."""
        if not self.clean_start:
            for topic, partition in list(self._unopened):
                self.get(topic, partition)
            if not self._closing:
                self._flush_recovered([key for key, log in self._logs.items() if len(log.segments) > 1])

    def _flush_recovered(self, left: list[TopicPartition]) -> None:
        """Have the disk keep what was read, one log after the other: the next crash need not read it again."""
        while left and not self._closing:
            log = self._logs.get(left.pop())
            if log is not None and self._flush_rolled(log, lambda: self._flush_recovered(left)):
                return

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a folder."""
        return [*self._logs, *self._unopened]

    @property
    def unopened(self) -> Mapping[TopicPartition, None]:
        """Those whose log was not needed so far."""
        return self._unopened

    def report_missing(self, expected: Iterable[TopicPartition]) -> None:
        """Say which of these had records, and have no folder any more: they begin again, empty."""
        for key in expected:
            offset = max(self._recovery_points.get(key, 0), self._high_watermarks.get(key, 0))
            if offset and key not in self._logs and key not in self._unopened:
                logger.error(
                    "%s-%d has no folder, but had records up to offset %d; it starts empty. Stop the "
                    "broker and restore the folder from a backup if they are needed",
                    *key,
                    offset,
                )

    def opened(self, topic: str, partition: int) -> Log | None:
        """The log if it is open."""
        return self._logs.get((topic, partition))

    def config_for(self, topic: str) -> LogConfig:
        return self._config_for(topic)

    def logs(self) -> Iterator[Log]:
        """The logs that are open."""
        return iter(list(self._logs.values()))

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, None when it has no folder."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None and key in self._unopened:
            log = self._load(key, clean=self.clean_start)
            del self._unopened[key]
            self._retention_due_ms.pop(key, None)
        return log

    def get_or_create(self, topic: str, partition: int, topic_id: bytes | None = None) -> Log:
        """The log of a partition, made if need be."""
        log = self.get(topic, partition)
        if log is None:
            if (topic, partition) in self._unretired:
                self._set_folder_aside(topic, partition, DELETE_SUFFIX, None)
            # What a crash left of an older topic of this name in the checkpoints does not concern a new log.
            for offsets in (self._recovery_points, self._start_offsets, self._high_watermarks):
                offsets.pop((topic, partition), None)
            log = self._load((topic, partition), clean=True)
        if topic_id is not None and log.topic_id is None:
            checkpoints.write_partition_metadata(self.disk, log.folder, topic_id)
            log.topic_id = topic_id
        return log

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id noted in a partition's folder, without opening the log."""
        log = self._logs.get((topic, partition))
        if log is not None:
            return log.topic_id
        return checkpoints.read_partition_metadata(self.disk, f"{topic}-{partition}")

    def _load(self, key: TopicPartition, *, clean: bool) -> Log:
        topic, partition = key
        log = open_log(
            self.disk,
            topic,
            partition,
            self._config_for(topic),
            self.clock,
            log_start_offset=self._start_offsets.get(key, 0),
            recovery_point=self._recovery_points.get(key, 0),
            clean=clean,
            schedule=self._schedule,
            topic_id=checkpoints.read_partition_metadata(self.disk, f"{topic}-{partition}"),
        )
        log.update_high_watermark(self._high_watermarks.get(key, 0))
        log.on_roll = self._rolled
        log.on_flush = self._flushed
        log.on_failure = self._failed
        self._logs[key] = log
        if self._cleaner is not None:
            self._cleaner.changed(log)
        log.on_config = self._reconfigured
        log.remove_files = self._remove_files
        return log

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete(self, topic: str, partition: int) -> None:
        """Take a partition out of service at once, and its files away after `file.delete.delay.ms`."""
        self._retire(topic, partition, DELETE_SUFFIX)

    def exchange(self, topic: str, partition: int, folder: str) -> None:
        """A copy of a log takes its place; the log goes on with the files of the copy, which have the same names."""
        log = self._logs[topic, partition]
        former = marked_folder(topic, partition, self._new_token(), DELETE_SUFFIX)
        log.close_handles()
        self.disk.rename(log.folder, former)
        try:
            self.disk.rename(folder, log.folder)
        except KafkaStorageError:
            self.disk.rename(former, log.folder)  # by its name the next start would delete it
            raise
        self.disk.sync_folder("")
        self._flushed_with.discard((topic, partition))
        self._remove_later(former, log.config.file_delete_delay_ms)

    def finish_exchange(self, topic: str, partition: int, folder: str) -> None:
        """A copy whose exchange a crash interrupted: the log itself is set aside already."""
        self.disk.rename(folder, f"{topic}-{partition}")
        self._unopened[topic, partition] = None

    def mark_stray(self, topic: str, partition: int) -> None:
        """Set aside a folder that the cluster's metadata does not know (its topic was deleted while we were down)."""
        logger.warning(
            "%s-%d belongs to no topic of the cluster; its folder is renamed to …%s", topic, partition, "-stray"
        )
        self._retire(topic, partition, STRAY_SUFFIX)

    def _retire(self, topic: str, partition: int, suffix: str) -> None:
        key = (topic, partition)
        log = self._logs.pop(key, None)
        if log is None and key not in self._unopened:
            return
        self._unopened.pop(key, None)
        self._retention_due_ms.pop(key, None)
        for offsets in (self._recovery_points, self._start_offsets, self._high_watermarks):
            offsets.pop(key, None)
        if self._cleaner is not None:
            self._cleaner.removed(key)
        self._flushed_with.discard(key)
        try:
            self._set_folder_aside(topic, partition, suffix, log)
        except KafkaStorageError as error:
            # The topic is gone all the same. Its folder is tried again before a new one of that name takes its place;
            # until then the next start finds it and sets it aside.
            logger.error("the folder of %s-%d stays for now: %s", topic, partition, error)
            self._unretired.add(key)
            if log is not None:
                log.close_handles()

    def _set_folder_aside(self, topic: str, partition: int, suffix: str, log: Log | None) -> None:
        folder = marked_folder(topic, partition, self._new_token(), suffix)
        self.disk.rename(f"{topic}-{partition}", folder)
        self._unretired.discard((topic, partition))
        if log is not None:
            log.moved_to(folder)
            log.close_handles()
        if suffix == DELETE_SUFFIX:
            self._remove_later(folder, log.config.file_delete_delay_ms if log else 0, log)

    def _remove_later(self, folder: str, delay_ms: int, log: Log | None = None) -> None:
        def remove() -> None:
            if log is not None:
                log.close_handles()
            self._off_the_loop(lambda: self.disk.remove_tree(folder))

        if self._schedule is None:
            remove()
        else:
            self._schedule(delay_ms, remove)

    def _remove_files(self, paths: Sequence[str]) -> None:
        def remove() -> None:
            for path in paths:
                self.disk.remove(path)

        self._off_the_loop(remove)

    def _off_the_loop(self, work: Callable[[], None]) -> None:
        """Unlinking large files takes long; memory does not."""
        if self._background is None or self._closing or self.disk.for_thread() is self.disk:
            work()
        else:
            self._background(work, lambda: None)

    # --- what runs now and then --------------------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        points = {key: log.recovery_point for key, log in self._logs.items()}
        for key in self._unopened:
            points[key] = self._recovery_points.get(key, 0)
        self.write_checkpoint(checkpoints.RECOVERY_POINTS_FILE, points)

    def checkpoint_start_offsets(self) -> None:
        """Only those that a segment's name does not tell."""
        starts = {
            key: log.log_start_offset
            for key, log in self._logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        starts.update({key: self._start_offsets[key] for key in self._unopened if key in self._start_offsets})
        self.write_checkpoint(checkpoints.LOG_START_OFFSETS_FILE, starts)

    def checkpoint_high_watermarks(self) -> None:
        marks = {key: log.high_watermark for key, log in self._logs.items()}
        marks.update({key: self._high_watermarks[key] for key in self._unopened if key in self._high_watermarks})
        self.write_checkpoint(checkpoints.HIGH_WATERMARKS_FILE, marks)

    def write_checkpoint(self, path: str, offsets: dict[TopicPartition, int]) -> None:
        """In the background where there is one: waiting for a disk would hold up every connection.

        What is on the disk already is not written again, so an idle broker leaves the disk alone.
        """
        if self._written.get(path) == offsets:
            return
        if self._background is None or self._closing:
            with self._checkpointing:
                checkpoints.write_offsets(self.disk, path, offsets)
            self._written[path] = offsets
        elif path not in self._writing:
            self._writing.add(path)

            def work() -> None:
                try:
                    with self._checkpointing:
                        if not self._closing:  # else newer offsets are there or on their way
                            checkpoints.write_offsets(self.disk, path, offsets)
                            self._written[path] = offsets
                finally:
                    self._writing.discard(path)

            self._background(work, lambda: None)

    def is_busy(self, key: TopicPartition) -> bool:
        """Whether somebody reads the log's segments, who would lose them."""
        return self._cleaner is not None and self._cleaner.is_busy(key)

    def delete_old_segments(self) -> int:
        """One retention sweep."""
        return sum(self.retention_steps())

    def retention_steps(self) -> Iterator[int]:
        """A retention sweep log by log, so that a caller with thousands of them can do other things in between.

        Gives how many segments each lost. A log that fails does not keep the others from theirs.
        """
        for key in self.partitions():
            try:
                if self.is_busy(key) or (key in self._unopened and not self._retention_is_due(key)):
                    yield 0
                    continue
                log = self.get(*key)
                yield 0 if log is None else log.delete_old_segments()
            except KafkaStorageError as error:
                logger.error("retention of %s-%d failed: %s", *key, error)

    def _retention_is_due(self, key: TopicPartition) -> bool:
        """Whether an unopened log has something to lose; looked up once, as such a log does not change."""
        now_ms = self.clock.now_ms()
        due_ms = self._retention_due_ms.get(key)
        if due_ms is None:
            topic, partition = key
            due_ms = retention.due_ms(
                self.disk, f"{topic}-{partition}", self._config_for(topic), self._start_offsets.get(key, 0), now_ms
            )
            self._retention_due_ms[key] = due_ms
        return due_ms <= now_ms

    def flush_due(self) -> None:
        """Flush logs whose `flush.ms` has passed."""
        now_ms = self.clock.now_ms()
        for log in self.logs():
            if log.unflushed and now_ms - log.last_flush_ms >= log.config.flush_ms:
                log.flush()

    def expire_producers(self) -> None:
        """Forget producers past `producer.id.expiration.ms`."""
        now_ms = self.clock.now_ms()
        for log in self.logs():
            log.producers.expire(now_ms)

    def update_config(self, topic: str) -> None:
        """The topic's settings changed."""
        config = self._config_for(topic)
        for (name, _), log in self._logs.items():
            if name == topic:
                log.update_config(config)

    def settings_changed(self) -> None:
        """Settings of topics changed, perhaps of some whose logs are not open."""
        self._retention_due_ms.clear()
        if self._cleaner is not None:
            self._cleaner.settings_changed()

    def _reconfigured(self, log: Log) -> None:
        if self._cleaner is not None:
            self._cleaner.changed(log)

    def _failed(self, log: Log, error: KafkaStorageError) -> None:
        """A full disk fails every request: it is said once a minute, not once a request."""
        now_ms = self.clock.monotonic_ms()
        self._failures += 1
        if self._complained_ms is None or now_ms - self._complained_ms >= COMPLAINT_INTERVAL_MS:
            self._complained_ms = now_ms
            logger.error(
                "%s: %s; such requests get KAFKA_STORAGE_ERROR until the disk works again%s",
                log.name,
                error,
                f" ({self._failures} so far)" if self._failures > 1 else "",
            )

    def _flushed(self, log: Log) -> None:
        """The first flush of a log makes its folder durable, and that this start was not a clean stop's end."""
        metadata_log = self.metadata_log
        if metadata_log is not None and metadata_log is not log and metadata_log.unflushed:
            metadata_log.flush()
        key = (log.topic, log.partition)
        if key not in self._flushed_with:
            self.disk.sync_folder("")
            self._flushed_with.add(key)

    def _rolled(self, log: Log) -> None:
        if self._cleaner is not None:
            self._cleaner.changed(log)
        self._flush_rolled(log)
        if log.recovery_point >= log.segments[-1].base_offset:  # appends are flushed as they come
            self._checkpoint_soon()

    def _flush_rolled(self, log: Log, then: Callable[[], None] = lambda: None) -> bool:
        """Flush all but the newest segment in the background; whether there was anything to flush."""
        job = log.background_flush()
        if job is None or self._background is None:
            return False
        paths, done = job

        def flushed() -> None:
            done()
            self._checkpoint_soon()
            then()

        self._background(lambda: self.disk.sync_paths([*paths, log.folder]), flushed)
        return True

    def _checkpoint_soon(self) -> None:
        if self._schedule is not None and self._checkpoints_early and not self._checkpoint_is_due:
            self._checkpoint_is_due = True
            self._schedule(RECOVERY_POINT_DELAY_MS, self._checkpoint_now)

    def _checkpoint_now(self) -> None:
        self._checkpoint_is_due = False
        if not self._closing:
            self.checkpoint_recovery_points()

    # --- stopping ----------------------------------------------------------------------------------------------------

    def close(self, broker_epoch: int = -1) -> None:
        """A clean stop: everything flushed and closed, then the checkpoints, then the marker that says so."""
        if not self._locked:
            return
        self._closing = True
        try:
            self.load_all()
            clean = self._close_logs()
            self.checkpoint_recovery_points()
            self.checkpoint_start_offsets()
            self.checkpoint_high_watermarks()
            if clean:
                self._note_clean_stop(broker_epoch)
        except KafkaStorageError as error:
            logger.error("this is not a clean stop, the next start recovers the logs: %s", error)
        finally:
            self._logs.clear()
            self._unopened.clear()
            self._locked = False
            self.disk.close()

    def _note_clean_stop(self, broker_epoch: int) -> None:
        checkpoints.write_clean_stop(self.disk, broker_epoch)

    def _close_logs(self) -> bool:
        closed: list[Log] = []
        for log in self.logs():
            try:
                log.close()
                closed.append(log)
            except KafkaStorageError as error:
                logger.error("closing %s failed: %s", log.name, error)
        unflushed = [log for log in closed if log.unflushed]
        at_once = len(unflushed) > FLUSH_ONE_BY_ONE and self.disk.sync_all()
        failed = len(self._logs) - len(closed)
        for log in unflushed:
            if at_once:
                log.mark_flushed()
                continue
            try:
                log.flush()
            except KafkaStorageError as error:
                failed += 1
                logger.error("closing %s failed: %s", log.name, error)
            log.close_handles()
        return not failed
