"""One partition of a coordinator's log, and the state built from its records (Kafka: CoordinatorShard).

A request runs as one operation on one shard. The operation reads the shard's state and returns a `Result`; the shard
appends its records as one batch, replays them into the state, and sends the answer once they are committed. An answer
without records waits for the earlier records that it depends on. Loading is the same replay from the start of the log.
Reads see committed state (see `committed_view`).

Everything runs on the event loop's thread, so there are no locks, and answers that do not wait are plain values.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

from ottla.answers import Answer, Reply, settled
from ottla.clock import Clock
from ottla.coordinator.runtime.batches import CorruptRecord, readable_records
from ottla.coordinator.runtime.interfaces import EncodableRecord, PartitionWriter
from ottla.coordinator.runtime.result import Result
from ottla.errors import CoordinatorNotAvailable, KafkaError
from ottla.records.batch import NO_PRODUCER_ID, Batch, Record, build_batch

T = TypeVar("T")

logger = logging.getLogger(__name__)

STEP: Final = 64
"""The number of records per step, after which the loader checks the clock: a fraction of a millisecond."""


class CoordinatorShard:
    """One partition of a coordinator's log, and the state built from its records."""

    __slots__ = ("_reported_corruption", "_writer", "_written_offset", "clock", "partition")

    LOG_NAME: ClassVar[str]
    """For log messages."""

    FIRST_SEQUENCE: ClassVar[int] = 0
    """Kafka's group coordinator counts sequences from 0 even without a producer id."""

    WORKS_ON: ClassVar[bool] = False
    """Whether an operation whose client got a timeout still continues once its records are committed."""

    def __init__(self, partition: int, writer: PartitionWriter, clock: Clock) -> None:
        self.partition = partition
        self._writer = writer
        self.clock = clock
        self._written_offset = -1
        self._reported_corruption = False

    @property
    def written_offset(self) -> int:
        """The offset of the last replayed record."""
        return self._written_offset

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed at once."""
        return self._writer.commits_at_once

    @property
    def codec(self) -> int:
        """The compression codec of the log's batches."""
        return 0

    @abstractmethod
    def replay(self, record: Any, offset: int, producer_id: int) -> None:
        """The only place where persisted state changes."""

    @abstractmethod
    def decode(self, key: bytes | None, value: bytes | None) -> Any | None:
        """Decode a record; None for an unknown type. Raises CorruptRecord."""

    @abstractmethod
    def on_loaded(self) -> Iterable[int]:
        """The log is loaded: start sessions and continue unfinished work, in steps as `loading` does."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """This broker no longer leads the partition, maybe before it was loaded: answer requests and cancel timers."""

    # -- loading

    def loading(self, batches: Iterable[Batch]) -> Iterator[int]:
        """Rebuild the state from the partition's batches, in steps that each yield the number of loaded records."""
        count = 0
        writer = self._writer
        for batch in batches:
            self._written_offset = batch.last_offset
            is_committed = batch.base_offset < writer.high_watermark
            if batch.is_control:
                self.load_control(batch, is_committed=is_committed)
                count += 1
            else:
                producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
                for stored in readable_records(batch, self.partition, self.LOG_NAME):
                    self._load_record(stored, producer_id, is_committed)
                    count += 1
                    if count >= STEP:
                        yield count
                        count = 0
            if count >= STEP:
                yield count
                count = 0

    def load(self, batches: Iterable[Batch]) -> None:
        """Like `loading`, but in one step."""
        for _ in self.loading(batches):
            pass

    def load_control(self, batch: Batch, *, is_committed: bool) -> None:
        """Load a transaction's marker. Only group coordinators use it."""

    def _load_record(self, stored: Record, producer_id: int, is_committed: bool) -> None:
        try:
            record = self.decode(stored.key, stored.value)
            if record is not None:
                if not is_committed:
                    self.keep([record], stored.offset)
                self.replay(record, stored.offset, producer_id)
        except CorruptRecord as error:
            if not self._reported_corruption:
                self._reported_corruption = True
                logger.error(
                    "partition %d of the %s: record %d is left out: %s (said once for this partition)",
                    self.partition,
                    self.LOG_NAME,
                    stored.offset,
                    error,
                )

    # -- operations

    def run(self, result: Result[T]) -> Answer[T]:
        """Append, replay, and answer: at once if everything is committed, otherwise with a `Reply`."""
        records, response, then, producer_id, producer_epoch = result
        if not records:
            if then is not None:
                then(None)
            answer = settled(response)
            if self._written_offset < self._writer.high_watermark or isinstance(answer, Reply):
                return answer
            return self._deferred(self._written_offset, answer, None)
        try:
            last_offset = self._append(records, producer_id, producer_epoch)
        except KafkaError as error:
            if then is None:
                raise
            then(error)
            return settled(response)
        if last_offset < self._writer.high_watermark:
            if then is not None:
                then(None)
            return settled(response)
        return self._deferred(last_offset, response, then)

    def _append(self, records: Sequence[Any], producer_id: int, producer_epoch: int) -> int:
        base_offset = self._writer.append(self._batch(records, self.clock.now_ms(), producer_id, producer_epoch))
        if base_offset >= self._writer.high_watermark:
            self.keep(records, base_offset)
        return self._replay_own(records, base_offset, producer_id)

    def _replay_own(self, records: Sequence[Any], base_offset: int, producer_id: int) -> int:
        for position, record in enumerate(records):
            self.replay(record, base_offset + position, producer_id)
        self._written_offset = base_offset + len(records) - 1
        return self._written_offset

    def append_alike(self, batches: Sequence[bytearray], records: Callable[[int], Sequence[Any]]) -> int:
        """Append encoded batches of operations that each overwrite the previous one.

        So only the last one is replayed: `records` returns the records of the batch at a position. Returns how many
        were appended, in order: 0 if they would have to wait to be committed.
        """
        writer = self._writer
        if not writer.commits_at_once:
            return 0
        base_offsets = writer.append_run(batches) if len(batches) > 1 else ()
        if not base_offsets:
            base_offsets = (writer.append(batches[0]),)
        self._replay_own(records(len(base_offsets) - 1), base_offsets[-1], NO_PRODUCER_ID)
        return len(base_offsets)

    @abstractmethod
    def keep(self, records: Sequence[Any], offset: int) -> None:
        """Keep the state that these records will change, for reads: they are appended but not committed."""

    def _limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None] | None:
        """Call `give_up` if an answer takes too long; returns a function that cancels this."""
        return None

    def _batch(
        self, records: Sequence[EncodableRecord], now_ms: int, producer_id: int, producer_epoch: int
    ) -> bytearray:
        """The encoded batch of one operation."""
        return build_batch(
            [Record(position, now_ms, *record.encode()) for position, record in enumerate(records)],
            0,
            self.codec,
            producer_id,
            producer_epoch,
            self.FIRST_SEQUENCE,
            transactional=producer_id != NO_PRODUCER_ID,
        )

    def _deferred(
        self, last_offset: int, response: Answer[T], then: Callable[[KafkaError | None], None] | None
    ) -> Reply[T]:
        reply: Reply[T] = Reply()
        is_over = False

        def committed(error: KafkaError | None) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            if call_off is not None:
                call_off()
            if then is not None:
                then(error)
            if reply.done:
                return  # timed out
            if isinstance(response, Reply):
                response.forward(reply)
            elif error is None:
                reply.resolve(response)
            else:
                reply.fail(error)

        def time_is_up() -> None:
            if not self.WORKS_ON:
                committed(CoordinatorNotAvailable())
            elif not is_over:
                reply.fail(CoordinatorNotAvailable())

        call_off = self._limit_wait(time_is_up)
        self._writer.on_committed(last_offset, committed)
        return reply
