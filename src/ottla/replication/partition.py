"""One partition on this broker: the leader's append, visibility for readers, and waiting readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.answers import Steps
from ottla.clock import Clock
from ottla.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
)
from ottla.lazy_imports import lazy
from ottla.log.files import FileRegion
from ottla.log.index import AbortedTransaction
from ottla.log.log import Log
from ottla.log.offset_position import TimestampedOffset
from ottla.log.options import LogConfig
from ottla.log.producers import Origin
from ottla.log.results import AppendInfo
from ottla.metadata.image import NO_LEADER, PartitionState
from ottla.records.batch import LOG_APPEND_TIME, NO_LEADER_EPOCH, NO_TIMESTAMP, Batch, Buffer
from ottla.records.validation import (
    LONG_BYTES,
    InvalidRecords,
    InvalidTimestamps,
    Validated,
    ValidationOptions,
    batch_bytes_to_check,
    bytes_to_check,
    may_store_as_is,
    placed,
    validate,
    validate_batch,
)

if TYPE_CHECKING:
    from ottla.replication import leadership as leadership_module
    from ottla.replication.leadership import Committed, Leadership, ReplicationContext
else:
    leadership_module = lazy("ottla.replication.leadership")

EMPTY = b""


class Watcher(Protocol):
    """Waits for this partition to grow, or to change."""

    def appended(self, byte_count: int) -> None: ...

    def moved(self) -> None: ...


class Readable(NamedTuple):
    """The result of a fetch: file bytes, and their aborted transactions."""

    records: FileRegion | bytes
    aborted: Sequence[AbortedTransaction]


class Partition:
    """A replica of a partition on this broker."""

    __slots__ = (
        "_clock",
        "_options",
        "_uncommitted_bytes",
        "broker_id",
        "index",
        "leadership",
        "log",
        "state",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        state: PartitionState,
        log: Log,
        options: ValidationOptions,
        clock: Clock,
        broker_id: int,
        context: ReplicationContext | None = None,
    ) -> None:
        """With a `context` it is one of several replicas. Without one, appended records are committed immediately."""
        self.topic = topic
        self.topic_id = state.topic_id
        self.index = state.index
        self.state = state
        self.log = log
        self.broker_id = broker_id
        self.watchers: set[Watcher] = set()
        self._options = options
        self._clock = clock
        self._uncommitted_bytes = 0
        self.leadership: Leadership | None = None
        """Set for a leader with followers."""
        if context is None:
            log.update_high_watermark(log.log_end_offset)
        else:
            self.lead_or_follow(context)

    def lead_or_follow(self, context: ReplicationContext) -> bool:
        """Lead or follow according to the metadata. Returns whether this changed."""
        state, leadership = self.state, self.leadership
        leads = state.leader == self.broker_id
        if leadership is not None:
            if leads and leadership.leader_epoch == state.leader_epoch and len(state.replicas) > 1:
                leadership.metadata_changed()
                return False
            self.leadership = None
            leadership.resign()
        if leads and len(state.replicas) > 1:
            self._uncommitted_bytes = 0
            self.leadership = leadership_module.Leadership(
                self.topic, state, self.log, self.broker_id, context, self._high_watermark_moved
            )
            self.leadership.advance()
        elif leads:
            self.log.update_high_watermark(self.log.log_end_offset)
        return True

    # -- access checks -----------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    def check_leads(self) -> None:
        if self.state.leader != self.broker_id:
            raise NotLeaderOrFollower()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose leader epoch is older or newer than ours (KIP-320)."""
        if current_leader_epoch == -1 or current_leader_epoch == self.state.leader_epoch:
            return
        if current_leader_epoch < self.state.leader_epoch:
            raise FencedLeaderEpoch()
        raise UnknownLeaderEpoch()

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, records: Buffer, produce_version: int, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Validate and append a client's records. Nothing is appended if any of them is refused."""
        try:
            validated = validate(records, self._options, self._clock.now_ms(), produce_version)
        except (InvalidRecords, InvalidTimestamps) as error:
            raise placed(error, self.topic, self.index) from None
        return self.append_checked(validated, origin)

    def bytes_to_check(self, records: Buffer) -> int:
        """How many decompressed bytes of a client's records must be read. LONG_BYTES + 1 means more."""
        return bytes_to_check(records, self._options, self._clock.now_ms())

    def checked(self, records: Buffer, produce_version: int, *, in_thread: bool) -> Steps[Validated | None]:
        """Validate a client's records, for `append_checked`. If this runs in a thread, the caller must not change
        them."""
        options, now_ms = self._options, self._clock.now_ms()
        try:
            if not in_thread:
                return validate(records, options, now_ms, produce_version)
            validated: Validated | None = yield lambda: validate(records, options, now_ms, produce_version)
            return validated
        except (InvalidRecords, InvalidTimestamps) as error:
            raise placed(error, self.topic, self.index) from None

    def append_checked(self, validated: Validated | None, origin: Origin = Origin.CLIENT) -> AppendInfo:
        """Append validated records. None means a message set without a complete message."""
        if validated is None:
            return AppendInfo(-1, -1, -1, self.log.log_start_offset)
        return self._append(validated.batch, origin, validated.append_time_ms)

    def append_batch(self, batch: Batch, produce_version: int) -> AppendInfo | None:
        """Like `append`, for one batch of the current format from a request. None if that would take long."""
        options, now_ms = self._options, self._clock.now_ms()
        if options.takes_unread and may_store_as_is(batch, options, now_ms):
            return self._append(batch, Origin.CLIENT, NO_TIMESTAMP)
        if batch_bytes_to_check(batch, options, now_ms) > LONG_BYTES:
            return None
        try:
            validated = validate_batch(batch, options, now_ms, produce_version)
        except (InvalidRecords, InvalidTimestamps) as error:
            raise placed(error, self.topic, self.index) from None
        return self._append(validated.batch, Origin.CLIENT, validated.append_time_ms)

    def _append(self, batch: Batch, origin: Origin, append_time_ms: int) -> AppendInfo:
        try:
            info = self.log.append((batch,), self.state.leader_epoch, origin, append_time_ms)
        except KafkaStorageError as error:
            self.log.failed(error)
            raise
        if not info.duplicate:
            self._grown(batch.size)
        return info

    def append_run(self, batches: Sequence[Batch], produce_version: int) -> Sequence[int]:
        """Append batches of several requests of one client with one write. Returns their first offsets.

        Stops before the first batch that is refused or needs special treatment; a separate append then reports the
        result. Does nothing if there is no benefit.
        """
        options = self._options
        if options.rewrites:
            return ()
        now_ms = self._clock.now_ms()
        unread = options.takes_unread
        sound = 0
        try:
            for batch in batches:
                if not (unread and may_store_as_is(batch, options, now_ms)):
                    if batch_bytes_to_check(batch, options, now_ms) > LONG_BYTES:
                        break
                    validate_batch(batch, options, now_ms, produce_version)
                sound += 1
        except KafkaError:
            pass
        return self._append_run(batches[:sound])

    def append_own_run(self, batches: Sequence[Batch]) -> Sequence[int]:
        """Like `append_run`, for the broker's own batches. Also does nothing if the topic uses LogAppendTime."""
        return () if self._options.timestamp_type == LOG_APPEND_TIME else self._append_run(batches)

    def _append_run(self, batches: Sequence[Batch]) -> Sequence[int]:
        try:
            offsets = self.log.append_run(batches, self.state.leader_epoch)
        except KafkaStorageError as error:
            self.log.failed(error)
            return ()
        if offsets:
            self._grown(sum([batch.size for batch in batches[: len(offsets)]]))
        return offsets

    def append_own(
        self, batches: Sequence[Batch], origin: Origin = Origin.COORDINATOR, transaction_version: int = 0
    ) -> AppendInfo:
        """Append the broker's own batches: coordinator records and transaction markers.

        `transaction_version` is the version with which the coordinator ended a marker's transaction.
        """
        if self._options.timestamp_type == LOG_APPEND_TIME:
            now_ms = self._clock.now_ms()
            for batch in batches:
                batch.set_max_timestamp(LOG_APPEND_TIME, now_ms)
        try:
            info = self.log.append(batches, self.state.leader_epoch, origin, transaction_version=transaction_version)
        except KafkaStorageError as error:
            self.log.failed(error)
            raise
        self._grown(sum(batch.size for batch in batches))
        return info

    def _grown(self, byte_count: int) -> None:
        if self.leadership is not None:
            self._uncommitted_bytes += byte_count
            self.leadership.grown()
            return
        log = self.log
        log.update_high_watermark(log.log_end_offset)
        if self.watchers:
            for watcher in tuple(self.watchers):
                watcher.appended(byte_count)

    def _high_watermark_moved(self) -> None:
        byte_count, self._uncommitted_bytes = self._uncommitted_bytes, 0
        for watcher in tuple(self.watchers):
            watcher.appended(byte_count)

    def when_committed(self, offset: int, committed: Committed) -> None:
        """Call back once `offset` is committed, or with an error if it cannot be. Calls back immediately if it already
        is."""
        leadership = self.leadership
        if leadership is not None:
            leadership.when_committed(offset, committed)
        elif offset < self.log.high_watermark:
            committed(None)
        else:
            committed(NotLeaderOrFollower())

    def when_acknowledged(self, offset: int, acknowledged: Committed) -> None:
        """Like `when_committed`, for acks=all: the ISR must still be large enough at that time."""
        leadership = self.leadership

        def committed(error: KafkaError | None) -> None:
            if error is None and leadership is not None and leadership.is_under_min_isr:
                error = NotEnoughReplicasAfterAppend()
            acknowledged(error)

        self.when_committed(offset, committed)

    # -- following ---------------------------------------------------------------------------------------------

    def append_as_follower(self, batches: Sequence[Batch], high_watermark: int, leader_start: int) -> None:
        """Append records from the leader, and apply its high watermark and log start offset."""
        log = self.log
        try:
            if batches:
                log.append_as_follower(batches)
        except KafkaStorageError as error:
            log.failed(error)
            raise
        before = log.high_watermark
        if high_watermark > before:
            log.update_high_watermark(high_watermark)
            if log.high_watermark > before and self.watchers:
                for watcher in tuple(self.watchers):
                    watcher.appended(sum(batch.size for batch in batches) or 1)
        if leader_start > log.log_start_offset:
            log.advance_log_start_offset(min(leader_start, log.high_watermark))

    def truncate(self, offset: int) -> None:
        """Remove records that the leader does not have."""
        if not self.log.truncate_to(offset):
            # A leader that was replaced before it wrote anything has an epoch without records. The new leader does not
            # have it.
            self.log.epochs.truncate_from_end(self.log.log_end_offset)

    def changed(self) -> None:
        """Leadership or the log start changed, or the partition is removed: wake all watchers."""
        for watcher in tuple(self.watchers):
            watcher.moved()

    def delete_records(self, offset: int) -> int:
        """Hide records below `offset` (-1: below the high watermark). Returns the new log start offset (KIP-107)."""
        log = self.log
        if log.config.compact and not log.config.delete:
            raise PolicyViolation(
                f"Records of partition {log.name} can not be deleted due to the configured cleanup policy"
            )
        if offset == -1:
            offset = log.high_watermark
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange()
        if log.advance_log_start_offset(offset):
            self.changed()
        return log.log_start_offset

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    def read(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> Readable:
        """File bytes from the batch that holds `offset`, up to the end that a consumer may see."""
        log = self.log
        limit = log.last_stable_offset if committed_only else log.high_watermark
        if offset > log.log_end_offset or offset < log.log_start_offset:
            raise OffsetOutOfRange()
        if offset >= limit:
            return Readable(EMPTY, ())
        try:
            result = log.read(offset, max_bytes, limit, at_least_one)
            if not committed_only or not len(result.records):
                return Readable(result.records, ())
            return Readable(result.records, log.aborted_transactions(offset, log.upper_bound_offset(result)))
        except KafkaStorageError as error:
            log.failed(error)
            raise

    def read_as_replica(self, offset: int, max_bytes: int, *, at_least_one: bool) -> FileRegion | bytes:
        """Like `read`, for a follower: up to the end of the log, committed or not."""
        log = self.log
        if offset > log.log_end_offset or offset < log.log_start_offset:
            raise OffsetOutOfRange()
        if offset == log.log_end_offset:
            return EMPTY
        try:
            return log.read(offset, max_bytes, log.log_end_offset, at_least_one).records
        except KafkaStorageError as error:
            log.failed(error)
            raise

    def offset_for_time(self, timestamp: int) -> Steps[TimestampedOffset | None]:
        """The first record at or after a time, or the one with the largest timestamp (KIP-734)."""
        return self.log.search_timestamp(timestamp)

    def segment_offsets(self) -> list[tuple[int, int]]:
        """(base offset, time of the last change) of every segment, oldest first."""
        return [(segment.base_offset, segment.largest_timestamp) for segment in self.log.segments]

    # -- epochs ------------------------------------------------------------------------------------------------

    def epoch_of_first_offset(self) -> int:
        epoch = self.log.epochs.epoch_for_offset(self.log.log_start_offset)
        # Kafka's leaders record their epoch when they start to lead; here the first record does this.
        return self.state.leader_epoch if epoch < 0 else epoch

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch up to `epoch` (KIP-101). The leader's epoch ends at the log end."""
        leader_epoch, log = self.state.leader_epoch, self.log
        if epoch == leader_epoch:
            return epoch, log.log_end_offset
        is_empty = log.epochs.latest == NO_LEADER_EPOCH
        if epoch != NO_LEADER_EPOCH and epoch < leader_epoch and (is_empty or epoch > log.epochs.latest):
            # As above, the first record notes the leader's epoch. Until then, it begins at the end of the log.
            return (epoch if is_empty else log.epochs.latest), log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where the caller's log diverges from this one, or None (KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.epoch_end_offset(last_fetched_epoch)
        if epoch < 0:
            raise OffsetOutOfRange()
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    # -- configuration -----------------------------------------------------------------------------------------

    def reconfigure(self, log_config: LogConfig, options: ValidationOptions) -> None:
        """Apply changed topic configs, from the next append and the next sweep on."""
        self.log.update_config(log_config)
        self._options = options

    @property
    def has_leader(self) -> bool:
        return self.state.leader != NO_LEADER
