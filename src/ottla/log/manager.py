"""All logs of a data folder: finding and opening them, creating and deleting, checkpoints, retention, flushing.

After a clean stop a log is opened when it is first used, so thousands of partitions only cost a listing of the folder.
After an unclean stop `load_all` recovers every log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from ottla.clock import Clock
from ottla.errors import KafkaStorageError
from ottla.log import checkpoints, integrity, ownership, retention
from ottla.log.checkpoint_writer import Background, CheckpointWriter, FolderCheckpoints, Offsets
from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.files import Disk, DiskFailure, DiskSnapshot, MemoryDisk
from ottla.log.folder_names import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, marked_folder, parse_folder
from ottla.log.loader import open_log
from ottla.log.log import Log
from ottla.log.options import LogConfig
from ottla.log.removal import Scheduler

logger = logging.getLogger(__name__)

FLUSH_ONE_BY_ONE: Final = 16
"""With more logs than this to flush at a stop, one flush of the whole file system is faster."""
RECOVERY_POINT_DELAY_MS: Final = 5_000
"""How soon to checkpoint the recovery points that rolls have moved. Kafka waits for
`log.flush.offset.checkpoint.interval.ms`, and after a crash reads up to a minute of segments again."""
COPIED_BYTES_MAX: Final = 1 << 20  # of the newest segment in a snapshot; a longer one is rolled first
COMPLAINT_INTERVAL_MS: Final = 60_000


class Cleaner(Protocol):
    """The manager's view of the log cleaner."""

    def changed(self, log: Log) -> None: ...
    def removed(self, key: TopicPartition) -> None: ...
    def settings_changed(self) -> None: ...
    def is_busy(self, key: TopicPartition) -> bool: ...


class LogManager:
    """The logs under one disk.

    `config_for(topic)` returns the topic's settings; `new_token()` returns 32 hex digits for folders under deletion.
    Without `folder_checkpoints`, checkpoints are written into the folder.
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
        folder_checkpoints: FolderCheckpoints | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.meta: MetaProperties | None = None
        self.unfinished: dict[str, TopicPartition] = {}
        """Folders of moves that were interrupted by a stop or a crash."""
        self.offline: set[TopicPartition] = set()
        """Partitions in a data folder that failed during use."""
        self.left_out: set[TopicPartition] = set()
        """Partitions in a data folder that was unusable when this broker started."""
        self.directory_ids: list[str] = []
        """The ids of the disk's folders."""
        self.clean_start = True
        self.previous_broker_epoch = -1
        self._config_for = config_for
        self._new_token = new_token
        self._schedule = schedule
        # Readers keep the memory that they use, so `file.delete.delay.ms` does not apply.
        self._schedule_removal = None if isinstance(disk, MemoryDisk) else schedule
        self._background = background
        self._logs: dict[TopicPartition, Log] = {}
        self._unopened: dict[TopicPartition, None] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._folder_checkpoints = folder_checkpoints or CheckpointWriter(disk, background)
        self._checkpoint_is_due = False
        # A disk in memory ends with its process and is never read again.
        self._checkpoints_early = schedule is not None and background is not None and type(disk) is not MemoryDisk
        self._closing = False
        self._settling = False
        self._locked = False
        self._cleaner: Cleaner | None = None
        self._retention_due_ms: dict[TopicPartition, int] = {}
        self._unretired: set[TopicPartition] = set()
        """Out of service, but the folder could not be renamed on the disk."""
        self._flushed_with: set[TopicPartition] = set()
        self.metadata_log: Log | None = None
        """Without the metadata of its topic a flushed record is a stray, so this log is flushed with any other."""
        self._complained_ms: float | None = None
        self._failures = 0

    def use_cleaner(self, cleaner: Cleaner) -> None:
        """Notify `cleaner` about the logs."""
        self._cleaner = cleaner
        for log in self.logs():
            cleaner.changed(log)

    # --- opening -----------------------------------------------------------------------------------------------------

    def open(self, cluster_id: str, node_id: int, directory_id: str) -> MetaProperties:
        """Lock the folder, check or write its owner, and list its partitions. The ids are for a new folder.

        Nothing is touched if the folder has another owner: KafkaStorageError gives the reason in one line.
        """
        disk = self.disk
        disk.mkdir("")
        found = ownership.read_owners(disk, node_id)
        disk.lock()
        self._locked = True
        used = [part for part, meta in found if meta is not None]
        if used:  # a new folder has no unclean stop to recover from
            self.clean_start, self.previous_broker_epoch = checkpoints.take_clean_stop(used)
        metas = ownership.claim(found, MetaProperties(cluster_id, node_id, directory_id), self._new_token)
        self.meta = metas[0]
        self.directory_ids = [meta.directory_id or "" for meta in metas]
        self._read_checkpoints()
        for name, size in disk.scan("").items():
            if size < 0:
                self._found_folder(name)
        return self.meta

    def open_part(self, identity: MetaProperties, clean_start: bool, own: Sequence[TopicPartition]) -> None:
        """Open some partitions of a folder that another process has locked and checked."""
        self.meta = identity
        self.clean_start = clean_start
        self._locked = True
        self._read_checkpoints()
        folders = self.disk.scan("")
        self._unopened = {key: None for key in own if folders.get(f"{key[0]}-{key[1]}") == -1}
        self.report_missing(own)

    def keep_only(self, is_own: Callable[[TopicPartition], bool]) -> None:
        """Leave the unopened partitions that are not ours to other processes."""
        self._unopened = {key: None for key in self._unopened if is_own(key)}

    def holds(self, key: TopicPartition) -> bool:
        """Whether a partition has a folder here."""
        return key in self._logs or key in self._unopened

    def _read_checkpoints(self) -> None:
        self._recovery_points = checkpoints.read_offsets(self.disk, checkpoints.RECOVERY_POINTS_FILE)
        self._start_offsets = checkpoints.read_offsets(self.disk, checkpoints.LOG_START_OFFSETS_FILE)
        self._high_watermarks = checkpoints.read_offsets(self.disk, checkpoints.HIGH_WATERMARKS_FILE)

    def _found_folder(self, name: str) -> None:
        found = parse_folder(name)
        if found is None:
            logger.warning("%s in the data folder is not a partition and is ignored", name)
            return
        topic, partition, suffix = found
        if not suffix:
            self._unopened[topic, partition] = None
        elif suffix == DELETE_SUFFIX:
            self._remove_later(name, LogConfig().file_delete_delay_ms)
        elif suffix == FUTURE_SUFFIX and self.disk.is_spread:
            self.unfinished[name] = topic, partition
        else:
            logger.warning("%s is left alone: it belongs to no partition any more", name)

    def load_all(self) -> None:
        """Recover all logs if the last stop was unclean. Otherwise do nothing."""
        if not self.clean_start:
            for topic, partition in list(self._unopened):
                integrity.open_or_report(self, topic, partition)
            if not self._closing:
                self._flush_recovered([key for key, log in self._logs.items() if len(log.segments) > 1])

    def _flush_recovered(self, left: list[TopicPartition]) -> None:
        """Flush the recovered logs one by one, so that the next crash does not have to read them again."""
        while left and not self._closing:
            log = self._logs.get(left.pop())
            if log is not None and self._flush_rolled(log, lambda: self._flush_recovered(left)):
                return

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a folder."""
        return [*self._logs, *self._unopened]

    @property
    def unopened(self) -> Mapping[TopicPartition, None]:
        """The partitions whose logs were not needed so far."""
        return self._unopened

    def report_missing(self, expected: Iterable[TopicPartition]) -> None:
        """Report which of these had records but no longer have a folder: they start empty."""
        for key in expected:
            offset = max(self._recovery_points.get(key, 0), self._high_watermarks.get(key, 0))
            if offset and not self.holds(key):
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
        """The log of a partition, or None if it has no folder."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None and key in self._unopened:
            log = self._load(key, clean=self.clean_start)
            del self._unopened[key]
            self._retention_due_ms.pop(key, None)
        return log

    def get_or_create(self, topic: str, partition: int, topic_id: bytes | None = None) -> Log:
        """The log of a partition, created if needed."""
        log = self.get(topic, partition)
        if log is None:
            if (topic, partition) in self.offline or (topic, partition) in self.left_out:
                raise KafkaStorageError(f"{topic}-{partition} is in a data folder that is offline")
            if (topic, partition) in self._unretired:
                self._set_folder_aside(topic, partition, DELETE_SUFFIX, None)
            # Checkpoint entries of an older topic with this name, left by a crash, do not apply to a new log.
            for offsets in (self._recovery_points, self._start_offsets, self._high_watermarks):
                offsets.pop((topic, partition), None)
            log = self._load((topic, partition), clean=True)
        if topic_id is not None and log.topic_id is None:
            checkpoints.write_partition_metadata(self.disk, log.folder, topic_id)
            log.topic_id = topic_id
        return log

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id in a partition's folder, without opening the log."""
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
            schedule=self._schedule_removal,
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
        log.removal.unlink = self._remove_files
        return log

    # --- deleting ----------------------------------------------------------------------------------------------------

    def delete(self, topic: str, partition: int) -> None:
        """Take a partition out of service now. Its files are removed after `file.delete.delay.ms`."""
        self._retire(topic, partition, DELETE_SUFFIX)

    def exchange(self, topic: str, partition: int, folder: str) -> None:
        """Replace a log's folder with a copy. The log continues with the copy's files, which have the same names."""
        log = self._logs[topic, partition]
        former = marked_folder(topic, partition, self._new_token(), DELETE_SUFFIX)
        log.close_handles()
        self.disk.rename(log.folder, former)
        try:
            self.disk.rename(folder, log.folder)
        except KafkaStorageError:
            self.disk.rename(former, log.folder)  # otherwise the next start would delete it because of its name
            raise
        self.disk.sync_folder("")
        self._flushed_with.discard((topic, partition))
        self._remove_later(former, log.config.file_delete_delay_ms)

    def finish_exchange(self, topic: str, partition: int, folder: str) -> None:
        """Finish an exchange that a crash interrupted: the original log is already set aside."""
        self.disk.rename(folder, f"{topic}-{partition}")
        self._unopened[topic, partition] = None

    def mark_stray(self, topic: str, partition: int) -> None:
        """Set aside a folder that is not in the cluster's metadata (its topic was deleted while we were down)."""
        logger.warning(
            "%s-%d belongs to no topic of the cluster; its folder is renamed to …%s", topic, partition, "-stray"
        )
        self._retire(topic, partition, STRAY_SUFFIX)

    def _retire(self, topic: str, partition: int, suffix: str) -> None:
        key = (topic, partition)
        self.offline.discard(key)
        self.left_out.discard(key)
        if not self.holds(key):
            return
        log = self._drop(key)
        try:
            self._set_folder_aside(topic, partition, suffix, log)
        except KafkaStorageError as error:
            # The topic is deleted in any case. The rename is retried before a new topic of that name uses the folder;
            # otherwise the next start finds the folder and sets it aside.
            logger.error("the folder of %s-%d stays for now: %s", topic, partition, error)
            self._unretired.add(key)
            if log is not None:
                log.close_handles()

    def take_offline(self, part: Disk) -> list[TopicPartition]:
        """A data folder failed: stop using its logs. Returns their partitions."""
        lost = [key for key in self.partitions() if self.disk.part_of(f"{key[0]}-{key[1]}") is part]
        for key in lost:
            self._drop(key)
        self.offline.update(lost)
        return lost

    def _drop(self, key: TopicPartition) -> Log | None:
        log = self._logs.pop(key, None)
        self._unopened.pop(key, None)
        self._retention_due_ms.pop(key, None)
        for offsets in (self._recovery_points, self._start_offsets, self._high_watermarks):
            offsets.pop(key, None)
        if self._cleaner is not None:
            self._cleaner.removed(key)
        self._flushed_with.discard(key)
        return log

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

        if self._schedule_removal is None:
            remove()
        else:
            self._schedule_removal(delay_ms, remove)

    def _remove_files(self, paths: Sequence[str]) -> None:
        def remove() -> None:
            for path in paths:
                self.disk.remove(path)

        self._off_the_loop(remove)

    def _off_the_loop(self, work: Callable[[], None]) -> None:
        """Run `work` in the background: unlinking large files takes long, except in memory."""
        if self._background is None or self._closing or self.disk.for_thread() is self.disk:
            work()
        else:
            self._background(work, lambda: None)

    # --- periodic work -----------------------------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        points = {key: log.recovery_point for key, log in self._logs.items()}
        for key in self._unopened:
            points[key] = self._recovery_points.get(key, 0)
        self.write_checkpoint(checkpoints.RECOVERY_POINTS_FILE, points)

    def checkpoint_start_offsets(self) -> None:
        """Checkpoint only the start offsets above the base offset of the first segment."""
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

    def write_checkpoint(self, path: str, offsets: Offsets) -> None:
        if self._settling:
            self._folder_checkpoints.write_for_snapshot(path, offsets)
        else:
            self._folder_checkpoints.write(path, offsets)

    def is_busy(self, key: TopicPartition) -> bool:
        """Whether a reader uses the log's segments."""
        return self._cleaner is not None and self._cleaner.is_busy(key)

    def delete_old_segments(self) -> int:
        """One retention sweep."""
        return sum(self.retention_steps())

    def retention_steps(self) -> Iterator[int]:
        """A retention sweep log by log, so that the caller can do other work in between.

        Yields the number of deleted segments per log. A failing log does not stop the sweep.
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
        """Whether retention may delete from an unopened log. Computed once, because such a log does not change."""
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
        """Settings of topics changed, perhaps of topics whose logs are not open."""
        self._retention_due_ms.clear()
        if self._cleaner is not None:
            self._cleaner.settings_changed()

    def _reconfigured(self, log: Log) -> None:
        if self._cleaner is not None:
            self._cleaner.changed(log)

    def _failed(self, log: Log, error: KafkaStorageError) -> None:
        """Log once a minute, not for every request. The failure of a whole folder is reported elsewhere."""
        if isinstance(error, DiskFailure) and error.is_reported:
            return
        now_ms, self._failures = self.clock.monotonic_ms(), self._failures + 1
        if self._complained_ms is None or now_ms - self._complained_ms >= COMPLAINT_INTERVAL_MS:
            self._complained_ms = now_ms
            until = "" if isinstance(error, integrity.MissingSegment) else " until the disk works again"
            so_far = f" ({self._failures} so far)" if self._failures > 1 else ""
            logger.error("%s: %s; such requests get KAFKA_STORAGE_ERROR%s%s", log.name, error, until, so_far)

    def _flushed(self, log: Log) -> None:
        """The first flush of a log also makes its folder, and the removal of the clean-stop marker, durable."""
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
        if log.recovery_point >= log.segments[-1].base_offset:  # appends are flushed immediately
            self._checkpoint_soon()

    def _flush_rolled(self, log: Log, then: Callable[[], None] = lambda: None) -> bool:
        """Flush all segments except the newest in the background. Returns whether there was anything to flush."""
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

    def snapshot(self, broker_epoch: int = -1) -> DiskSnapshot:
        """The current logs, as a clean stop would leave them, while the broker keeps running."""
        in_memory = isinstance(self.disk, MemoryDisk)
        self._settling = True
        try:
            for log in self.logs():  # on a disk the newest segment is copied before the next append to it
                if not in_memory and log is not self.metadata_log and log.active_segment.size > COPIED_BYTES_MAX:
                    log.roll()
                log.close()
            self._write_checkpoints()
            checkpoints.write_clean_stop(self.disk, broker_epoch, sync=False)
            try:
                return self.disk.snapshot()
            finally:
                checkpoints.take_clean_stop(self.disk.parts())
        finally:
            self._settling = False

    def _write_checkpoints(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_start_offsets()
        self.checkpoint_high_watermarks()

    # --- stopping ----------------------------------------------------------------------------------------------------

    def close(self, broker_epoch: int = -1) -> None:
        """A clean stop: flush and close everything, write the checkpoints, then the clean-stop marker."""
        if not self._locked:
            return
        self._closing = True
        self._folder_checkpoints.closing()
        try:
            self.load_all()
            clean = self._close_logs()
            self._write_checkpoints()
            if clean:
                self._folder_checkpoints.note_clean_stop(broker_epoch)
        except KafkaStorageError as error:
            logger.error("this is not a clean stop, the next start recovers the logs: %s", error)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Stop without further writes: the content of the disk will be replaced."""
        self._closing = True
        self._logs.clear()
        self._unopened.clear()
        self._locked = False
        self.disk.close()

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
