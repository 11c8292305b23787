"""The transaction coordinator: all shards of this broker, found by transactional id, and their periodic sweeps (Kafka:
TransactionCoordinator).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from ottla.answers import Reply
from ottla.clock import Clock, Timer, TimerHandle
from ottla.coordinator.runtime.interfaces import PartitionWriter, TypedSettings
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.transactions.shard import MarkerWriter, TransactionShard
from ottla.coordinator.transactions.state import BY_NAME, Identity, State, TopicPartition, Transaction
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    TransactionalIdNotFound,
)
from ottla.metadata.java_hash_order import scala_map
from ottla.re2_patterns import InvalidPattern, compile_pattern

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""The pause before failed marker writes are retried."""


@dataclass(slots=True)
class TransactionSettings:
    """The broker's settings for transactions."""

    partitions: int = 50
    max_timeout_ms: int = 900_000
    write_timeout_ms: int = 30_000
    """How long a client waits for the replicas of `__transaction_state`."""
    abort_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000

    @classmethod
    def from_config(cls, config: TypedSettings) -> TransactionSettings:
        """From any mapping of Kafka's names to typed values."""
        return cls(
            partitions=config["transaction.state.log.num.partitions"],
            max_timeout_ms=config["transaction.max.timeout.ms"],
            write_timeout_ms=config["request.timeout.ms"],
            abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiration_ms=config["transactional.id.expiration.ms"],
            expiration_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    """The transactions of the partitions of `__transaction_state` that this broker leads."""

    __slots__ = (
        "_clock",
        "_retries",
        "_timer",
        "_timers",
        "_version",
        "answers_before_markers",
        "markers",
        "new_producer_id",
        "settings",
    )

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timer: Timer,
        markers: MarkerWriter,
        new_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
        loader: Loader,
        *,
        answers_before_markers: bool = False,
    ) -> None:
        super().__init__(loader, settings.partitions)
        self.settings = settings
        self.markers = markers
        self.answers_before_markers = answers_before_markers
        self.new_producer_id = new_producer_id
        self._version = transaction_version
        self._clock = clock
        self._timer = timer
        self._timers: dict[str, TimerHandle] = {}
        self._retries: set[TransactionShard] = set()

    # -- lifecycle

    def start(self) -> None:
        self._is_running = True
        self._every(self.settings.abort_interval_ms, "abort", TransactionShard.abort_timed_out)
        self._every(
            self.settings.expiration_interval_ms, "expire", lambda shard: shard.expire(self.settings.expiration_ms)
        )

    def stop(self) -> None:
        """Cancel all timers. The next start completes unfinished transactions."""
        self._is_running = False
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        self._retries.clear()
        self.resign_all()

    def _every(self, interval_ms: int, name: str, job: Callable[[TransactionShard], None]) -> None:
        def run() -> None:
            for shard in self.shards():
                try:
                    job(shard)
                except KafkaError as error:
                    logger.warning("transactions of partition %d (%s): %s", shard.partition, name, error)
            self._timers[name] = self._timer.schedule(interval_ms, run)

        self._timers[name] = self._timer.schedule(interval_ms, run)

    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> TransactionShard:
        return TransactionShard(partition, writer, self._clock, leader_epoch, self)

    def leads(self, partition: int, leader_epoch: int) -> bool:
        """Markers carry the leader epoch: with a new one, the partition is loaded again."""
        led = self._shards.get(partition)
        if led is None and partition in self._loading:
            led = self._loading[partition].shard
        return led is not None and led.coordinator_epoch == leader_epoch

    # -- used by shards

    @property
    def transaction_version(self) -> int:
        return self._version()

    def limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None]:
        """Call `give_up` if a write takes longer than Kafka's timeout; returns a function that cancels this."""
        return self._timer.schedule(self.settings.write_timeout_ms, give_up).cancel

    def retry_later(self, shard: TransactionShard) -> None:
        self._retries.add(shard)
        if "retry" not in self._timers:
            self._timers["retry"] = self._timer.schedule(RETRY_MS, self._retry)

    def _retry(self) -> None:
        del self._timers["retry"]
        retries, self._retries = self._retries, set()
        for shard in retries:
            if self.keeps(shard):
                shard.go_on()

    # -- requests

    def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: Identity | None
    ) -> Identity | Reply[Identity]:
        if not transactional_id:
            raise InvalidRequest
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise InvalidTransactionTimeout
        shard = self.shard_for(transactional_id)
        return shard.once_complete(
            transactional_id, lambda: shard.run(shard.init_producer(transactional_id, timeout_ms, expected))
        )

    def add_partitions(
        self, transactional_id: str, producer: Identity, partitions: Collection[TopicPartition], client_version: int
    ) -> Reply[None] | None:
        shard = self._shard_of(transactional_id)
        return shard.once_complete(
            transactional_id,
            lambda: shard.run(shard.add_partitions(transactional_id, producer, partitions, client_version)),
        )

    def missing_partitions(
        self, transactional_id: str, producer: Identity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        return self._shard_of(transactional_id).missing_partitions(transactional_id, producer, partitions)

    def end(
        self, transactional_id: str, producer: Identity, client_version: int, *, commit: bool
    ) -> Identity | Reply[Identity]:
        shard = self._shard_of(transactional_id)
        return shard.run(shard.end(transactional_id, producer, client_version, commit=commit))

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise InvalidRequest
        return self.shard_for(transactional_id)

    def describe(self, transactional_id: str) -> Transaction:
        if not self._is_running:
            raise CoordinatorNotAvailable
        known = self._shard_of(transactional_id).seen(transactional_id)
        if known is None:
            raise TransactionalIdNotFound
        return known

    def list(
        self,
        state_names: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> tuple[list[tuple[str, Transaction]], list[str]]:
        """The transactions that pass all filters, and the unknown names in `state_names`."""
        if not self._is_running:
            raise CoordinatorNotAvailable
        if self.is_loading:
            raise CoordinatorLoadInProgress
        states = {BY_NAME[name] for name in state_names if name in BY_NAME}
        unknown = [name for name in state_names if name not in BY_NAME]
        matches = _matcher(pattern) if pattern else None
        latest_start_ms = self._clock.now_ms() - longer_than_ms
        shards = {shard.partition: shard for shard in self.shards()}
        found = [
            (transactional_id, known)
            for partition in scala_map(shards, int)
            for transactional_id, known in shards[partition].all_seen()
            if (not state_names or known.state in states)
            and known.state is not State.DEAD
            and (not producer_ids or known.producer_id in producer_ids)
            and (longer_than_ms < 0 or known.start_ms < latest_start_ms)
            and (matches is None or matches(transactional_id))
        ]
        return found, unknown


def _matcher(pattern: str) -> Callable[[str], bool]:
    """A function that matches the full id (RE2 syntax, KIP-1152)."""
    try:
        compiled = compile_pattern(pattern)
    except InvalidPattern:
        raise InvalidRegularExpression(
            f"Transaction ID Pattern `{pattern}` is not a valid regular expression."
        ) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None
