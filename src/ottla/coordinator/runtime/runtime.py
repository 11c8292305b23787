"""What every coordinator runs on: one shard for each partition of its log that this broker leads.

A request runs as one operation on one shard. The operation reads the shard's state and returns a `Result`; the shard
appends its records as one batch, replays them into the state, and the answer goes out once they are committed. An
answer without records waits for those before it, as it was made from them. Loading is the same replay from
the beginning of the log. Reads see what is committed (see `kept`).

Everything runs on the event loop's thread, so nothing is locked, and answers that need not wait are plain values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ottla.clock import Clock
from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.result import Reply, Result
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError, NotCoordinator
from ottla.metadata.topics import internal_partition
from ottla.records.batch import NO_PRODUCER_ID, Buffer, Record, build_batch

T = TypeVar("T")


class EncodableRecord(Protocol):
    """A record of a coordinator's log."""

    def encode(self) -> tuple[bytes, bytes | None]: ...


class CoordinatorShard:
    """One partition of a coordinator's log, and the state that its records make."""

    __slots__ = ("_writer", "_written_offset", "clock", "partition")

    FIRST_SEQUENCE: ClassVar[int] = 0
    """Kafka's group coordinator counts sequences from 0 even without a producer id."""

    def __init__(self, partition: int, writer: PartitionWriter, clock: Clock) -> None:
        self.partition = partition
        self._writer = writer
        self.clock = clock
        self._written_offset = -1

    @property
    def written_offset(self) -> int:
        """The last one that is in the state."""
        return self._written_offset

    @property
    def commits_at_once(self) -> bool:
        """Whether what is appended is committed with that."""
        return self._writer.commits_at_once

    @property
    def codec(self) -> int:
        """How the log's batches are compressed."""
        return 0

    @abstractmethod
    def replay(self, record: Any, offset: int, producer_id: int) -> None:
        """The only place where persisted state changes."""

    @abstractmethod
    def load(self, chunks: Iterable[Buffer]) -> None:
        """Rebuild the state from the partition's batches; each chunk holds whole batches."""

    @abstractmethod
    def on_loaded(self) -> None:
        """The log is read: time begins to count."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """Leadership is gone: whoever waits is told, and no timer is left."""

    def run(self, result: Result[T]) -> T | Reply[T]:
        """Append, replay, and hand out the answer: at once if it can be, else as a `Reply`."""
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
        """Append ready batches of operations of which each overwrites what the one before it did.

        So only the last is replayed: `records` gives those of the batch at a position. Returns how many were appended,
        from the first on: none at all where they would have to wait to be committed.
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
        """Keep, for reads, what replaying these will change: they are appended but not committed."""

    def _limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None] | None:
        """Have `give_up` called when an answer took too long; returns how to call that off."""
        return None

    def _batch(
        self, records: Sequence[EncodableRecord], now_ms: int, producer_id: int, producer_epoch: int
    ) -> bytearray:
        """The records of one operation as they go into the log."""
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
        self, last_offset: int, response: T | Reply[T], then: Callable[[KafkaError | None], None] | None
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
            if isinstance(response, Reply):
                response.forward(reply)
            elif error is None:
                reply.resolve(response)
            else:
                reply.fail(error)

        call_off = self._limit_wait(lambda: committed(CoordinatorNotAvailable()))
        self._writer.on_committed(last_offset, committed)
        return reply


def settled(response: T | Reply[T]) -> T | Reply[T]:
    """The plain answer if it is there already."""
    return response.value if isinstance(response, Reply) and response.done else response


ShardT = TypeVar("ShardT", bound=CoordinatorShard)


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of a coordinator that this broker leads, found by what is kept in them."""

    __slots__ = ("_is_running", "_shards")

    def __init__(self) -> None:
        self._shards: dict[int, ShardT | None] = {}
        """None while a shard is loading."""
        self._is_running = False

    @property
    @abstractmethod
    def partition_count(self) -> int:
        """Of the coordinator's topic."""

    def begin_loading(self, partition: int) -> None:
        """Requests for what the partition keeps get COORDINATOR_LOAD_IN_PROGRESS from here to the end of loading."""
        self._shards.setdefault(partition, None)

    def _take(self, shard: ShardT, chunks: Iterable[Buffer]) -> ShardT:
        """Replay what a partition holds, then serve it."""
        self.resign(shard.partition)
        shard.load(chunks)
        self._shards[shard.partition] = shard
        shard.on_loaded()
        return shard

    def resign(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.on_unloaded()

    def resign_all(self) -> None:
        for partition in list(self._shards):
            self.resign(partition)

    def partition_for(self, key: str) -> int:
        return internal_partition(key, self.partition_count)

    def shard_for(self, key: str) -> ShardT:
        """Raises the error that the client should see if `key` is not served here (now)."""
        partition = internal_partition(key, self.partition_count)
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if not self._is_running:
            raise CoordinatorNotAvailable
        if partition in self._shards:
            raise CoordinatorLoadInProgress
        raise NotCoordinator

    def shard(self, partition: int) -> ShardT | None:
        return self._shards.get(partition)

    def shards(self) -> list[ShardT]:
        return [shard for shard in self._shards.values() if shard is not None]

    @property
    def is_loading(self) -> bool:
        return any(shard is None for shard in self._shards.values())
