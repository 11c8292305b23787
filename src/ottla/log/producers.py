"""A partition's producer state: sequences, epochs, open transactions, and snapshots of these.

Kafka keeps the last five batches of a producer in memory but only the last one in a snapshot, so after a restart only
that one is recognised as a duplicate.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from ottla.enums import ControlRecordType
from ottla.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from ottla.log.files import Disk
from ottla.records.batch import CONTROL_FLAG, MAX_SEQUENCE, TRANSACTIONAL_FLAG, Batch
from ottla.records.checksum import crc32c

logger = logging.getLogger(__name__)

BATCHES_REMEMBERED: Final = 5
"""A Java producer has at most five requests in flight to a partition, so an older duplicate cannot arrive."""
SNAPSHOT_SUFFIX: Final = ".snapshot"
SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_SNAPSHOT_CRC_START: Final = 6
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_TRANSACTION_KIND: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG


class Origin(Enum):
    """The source of an append. Sequences are checked for clients only; replicas accept what their leader accepted."""

    CLIENT = 0
    REPLICATION = 1
    COORDINATOR = 2


class StoredBatch(NamedTuple):
    """The fields of a producer's batch that are needed to recognise a duplicate."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_new: Final = tuple.__new__


class Transaction:
    """A transaction with data in this partition. `last_offset` is that of its marker, or -1 while it is open."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = -1


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """One producer in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.txn_first_offset = -1
        self.batches: deque[StoredBatch] = deque(maxlen=BATCHES_REMEMBERED)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def copy(self) -> ProducerState:
        other = ProducerState(self.producer_id, self.epoch)
        other.coordinator_epoch = self.coordinator_epoch
        other.last_timestamp = self.last_timestamp
        other.txn_first_offset = self.txn_first_offset
        other.batches = self.batches.copy()
        return other

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def remember(self, batch: Batch, first_offset: int) -> None:
        sequence = batch.base_sequence
        delta = batch.last_offset_delta
        # An offset commit within a transaction carries no sequence (-1).
        last = (sequence + delta) & MAX_SEQUENCE if sequence >= 0 else sequence
        timestamp = batch.max_timestamp
        self.batches.append(_new(StoredBatch, (sequence, last, first_offset + delta, delta, timestamp)))
        self.last_timestamp = timestamp

    def duplicate_of(self, batch: Batch) -> StoredBatch | None:
        """The remembered batch with exactly these sequences and this epoch."""
        if batch.producer_epoch == self.epoch:
            first = batch.base_sequence
            for stored in self.batches:
                if stored.first_sequence == first and stored.last_sequence == batch.last_sequence:
                    return stored
        return None


class PreparedAppend:
    """The changes of an append, prepared before the bytes are written and applied only after that."""

    __slots__ = ("completed", "started", "states", "verified")

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self.started: list[Transaction] = []
        self.verified: list[int] = []
        self.completed: list[CompletedTransaction] = []


class Unverified:
    """A producer whose transaction has not begun in this partition, and the first sequence that tried to begin it."""

    __slots__ = ("bumps", "epoch", "sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, bumps: bool, since_ms: int) -> None:
        self.epoch = epoch
        self.sequence = sequence
        self.bumps = bumps
        """Whether each transaction has its own epoch (KIP-890)."""
        self.since_ms = since_ms

    def outlives(self, batch: Batch) -> bool:
        """Whether a batch is the late marker of the previous transaction, with this same epoch."""
        return bool(self.bumps and batch.attributes & CONTROL_FLAG and batch.producer_epoch == self.epoch)


class ProducerStateManager:
    """All producers of one partition, and the transactions that hold back the last stable offset."""

    __slots__ = (
        "_disk",
        "_folder",
        "_last_snapshot",
        "_name",
        "_ongoing",
        "_snapshots",
        "_unreplicated",
        "expiration_ms",
        "map_end_offset",
        "producers",
        "unverified",
    )

    def __init__(self, disk: Disk, folder: str, name: str, expiration_ms: int, snapshots: Iterable[int] = ()) -> None:
        self._disk = disk
        self._folder = folder
        self._name = name
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerState] = {}
        self.unverified: dict[int, Unverified] = {}
        # Both are in the order of first offsets: appends arrive in that order, and loading sorts them.
        self._ongoing: dict[int, Transaction] = {}
        self._unreplicated: dict[int, Transaction] = {}
        self._snapshots: set[int] = set(snapshots)
        self._last_snapshot = 0
        self.map_end_offset = 0

    # --- checks and updates ------------------------------------------------------------------------------------------

    def continues(self, batch: Batch) -> ProducerState | None:
        """The producer's state, if its batch is next in sequence and starts or ends no transaction.

        That is almost every batch of a client, and needs no copy of the state.
        """
        state = self.producers.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch or not state.batches:
            return None
        if batch.base_sequence != state.batches[-1][1] + 1 or batch.base_sequence < 1:
            return None
        if self.unverified and batch.producer_id in self.unverified:
            return None
        kind = batch.attributes & _TRANSACTION_KIND
        if kind == (TRANSACTIONAL_FLAG if state.txn_first_offset >= 0 else 0):
            return state
        return None

    def run_of(self, batches: Sequence[Batch]) -> tuple[int, ProducerState | None]:
        """How many of a client's batches directly follow each other, and the state of their producer, if any."""
        state: ProducerState | None = None
        producer_id = batches[0].producer_id if batches else -1
        expected = -1
        for count, batch in enumerate(batches):
            if batch.producer_id != producer_id:
                return count, state
            if producer_id >= 0:
                if state is None:
                    state = self.continues(batch)
                    if state is None:
                        return count, None
                elif (
                    batch.base_sequence != expected
                    or batch.producer_epoch != state.epoch
                    or batch.attributes & _TRANSACTION_KIND != batches[0].attributes & _TRANSACTION_KIND
                ):
                    return count, state
                expected = batch.base_sequence + batch.last_offset_delta + 1
                if expected > MAX_SEQUENCE:
                    return count + 1, state
        return len(batches), state

    def prepare(
        self, batches: Iterable[Batch], base_offset: int, origin: Origin, transaction_version: int = 0
    ) -> PreparedAppend | StoredBatch:
        """Check the batches as stored from `base_offset` on. Returns the original if a client's batch is a duplicate.

        Replicated batches keep their offsets. `transaction_version` is for markers: from 2 on (KIP-890) the coordinator
        has raised the epoch, so a marker with the producer's own epoch is late.
        """
        prepared = PreparedAppend()
        offset = base_offset
        for batch in batches:
            if batch.producer_id >= 0:
                if origin is Origin.CLIENT and (known := self.producers.get(batch.producer_id)) is not None:
                    duplicate = known.duplicate_of(batch)
                    if duplicate is not None:
                        return duplicate
                first = batch.base_offset if origin is Origin.REPLICATION else offset
                self._prepare_batch(prepared, batch, first, origin, transaction_version)
            offset += batch.last_offset_delta + 1
        return prepared

    def _prepare_batch(
        self,
        prepared: PreparedAppend,
        batch: Batch,
        first_offset: int,
        origin: Origin,
        transaction_version: int = 0,
    ) -> None:
        state = prepared.states.get(batch.producer_id)
        if state is None:
            known = self.producers.get(batch.producer_id)
            state = ProducerState(batch.producer_id) if known is None else known.copy()
            prepared.states[batch.producer_id] = state
        waiting = self.unverified.get(batch.producer_id)
        if waiting is not None and batch.attributes & TRANSACTIONAL_FLAG and not waiting.outlives(batch):
            prepared.verified.append(batch.producer_id)
        if batch.attributes & CONTROL_FLAG:
            completed = self._end_transaction(state, batch, first_offset, origin, transaction_version)
            if completed is not None:
                prepared.completed.append(completed)
            return
        self._check_epoch(state, batch.producer_epoch, first_offset, origin)
        if origin is Origin.CLIENT:
            self._check_sequence(state, batch, first_offset)
        state.set_epoch(batch.producer_epoch)
        state.remember(batch, first_offset)
        transactional = batch.attributes & TRANSACTIONAL_FLAG
        if state.txn_first_offset >= 0 and not transactional:
            raise InvalidTxnState(
                f"Expected transactional write from producer {state.producer_id} at offset {first_offset} "
                f"in partition {self._name}"
            )
        if state.txn_first_offset < 0 and transactional:
            state.txn_first_offset = first_offset
            prepared.started.append(Transaction(state.producer_id, first_offset))

    def _check_epoch(self, state: ProducerState, epoch: int, offset: int, origin: Origin) -> None:
        if epoch < state.epoch:
            message = (
                f"Epoch of producer {state.producer_id} at offset {offset} in {self._name} is {epoch}, "
                f"which is smaller than the last seen epoch {state.epoch}"
            )
            if origin is not Origin.REPLICATION:
                raise InvalidProducerEpoch(message)
            logger.warning("%s", message)

    def _check_marker_epoch(
        self, state: ProducerState, epoch: int, offset: int, origin: Origin, transaction_version: int
    ) -> None:
        # The same epoch without an open transaction is a retry of the coordinator: the marker is written again.
        if transaction_version >= 2 and epoch == state.epoch and state.txn_first_offset >= 0:
            message = (
                f"Epoch of producer {state.producer_id} at offset {offset} in {self._name} is {epoch}, "
                f"which is <= the last seen epoch {state.epoch}"
            )
            if origin is not Origin.REPLICATION:
                raise InvalidProducerEpoch(message)
            logger.warning("%s", message)
        self._check_epoch(state, epoch, offset, origin)

    def _check_sequence(self, state: ProducerState, batch: Batch, offset: int) -> None:
        sequence = batch.base_sequence
        waiting = self.unverified.get(batch.producer_id)
        # Before KIP-890 a forgotten producer may continue with any sequence. Now each transaction has its own epoch.
        forgotten = waiting is not None and waiting.bumps and state.epoch == -1 and sequence != 0
        if waiting is not None and (forgotten or sequence > waiting.sequence):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {state.producer_id} at offset {offset} in partition "
                f"{self._name}: {sequence} (incoming seq. number), {waiting.sequence} (earliest seen sequence)"
            )
        if batch.producer_epoch != state.epoch:
            if sequence != 0 and state.epoch != -1:
                raise OutOfOrderSequenceNumber(
                    f"Invalid sequence number for new epoch of producer {state.producer_id} at offset {offset} "
                    f"in partition {self._name}: {batch.producer_epoch} (request epoch), {sequence} (seq. number), "
                    f"{state.epoch} (current producer epoch)"
                )
            # An unknown producer may start anywhere, because retention may have removed its records.
            return
        last = state.last_sequence
        if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {state.producer_id} at offset {offset} in partition "
                f"{self._name}: {sequence} (incoming seq. number), {last} (current end sequence number)"
            )

    def _end_transaction(
        self, state: ProducerState, batch: Batch, offset: int, origin: Origin, transaction_version: int
    ) -> CompletedTransaction | None:
        record = next(batch.control_records(), None)
        if record is None:  # compaction removed the marker: the transaction is completely gone
            return None
        if record.type > 1:  # not an end-of-transaction marker
            return None
        self._check_marker_epoch(state, batch.producer_epoch, offset, origin, transaction_version)
        if state.coordinator_epoch > record.coordinator_epoch:
            message = (
                f"Invalid coordinator epoch for producerId {state.producer_id} at offset {offset} in partition "
                f"{self._name}: {record.coordinator_epoch} (zombie), {state.coordinator_epoch} (current)"
            )
            if origin is not Origin.REPLICATION:
                raise TransactionCoordinatorFenced(message)
            logger.info("%s", message)
        first = state.txn_first_offset
        state.set_epoch(batch.producer_epoch)
        state.coordinator_epoch = record.coordinator_epoch
        state.last_timestamp = record.timestamp
        state.txn_first_offset = -1
        # A marker without data in this partition does not affect the last stable offset.
        if first < 0:
            return None
        return CompletedTransaction(state.producer_id, first, offset, record.type == ControlRecordType.ABORT)

    def commit(self, prepared: PreparedAppend) -> list[tuple[CompletedTransaction, int]]:
        """Apply the prepared changes. Returns each completed transaction with the last stable offset at that moment."""
        self.producers.update(prepared.states)
        for producer_id in prepared.verified:
            self.unverified.pop(producer_id, None)
        for transaction in prepared.started:
            self._ongoing[transaction.first_offset] = transaction
        done: list[tuple[CompletedTransaction, int]] = []
        for completed in prepared.completed:
            done.append((completed, self._stable_offset_after(completed)))
            transaction = self._ongoing.pop(completed.first_offset)
            transaction.last_offset = completed.last_offset
            self._unreplicated[completed.first_offset] = transaction
        return done

    def _stable_offset_after(self, completed: CompletedTransaction) -> int:
        for transaction in self._ongoing.values():
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset
        return completed.last_offset + 1

    def replay(self, batch: Batch) -> list[tuple[CompletedTransaction, int]]:
        """Apply a stored batch, in recovery and reloading."""
        done: list[tuple[CompletedTransaction, int]] = []
        if batch.producer_id >= 0:
            prepared = PreparedAppend()
            self._prepare_batch(prepared, batch, batch.base_offset, Origin.REPLICATION)
            done = self.commit(prepared)
        self.map_end_offset = batch.next_offset
        return done

    # --- transactions ------------------------------------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether anything can hold back the last stable offset."""
        return bool(self._ongoing or self._unreplicated)

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that is open, or whose marker is not below the high watermark yet."""
        first = next(iter(self._ongoing), None)
        unreplicated = min(self._unreplicated, default=None)
        if first is None or (unreplicated is not None and unreplicated < first):
            return unreplicated
        return first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions with a replicated marker no longer hold back the last stable offset."""
        for first in [t.first_offset for t in self._unreplicated.values() if t.last_offset < high_watermark]:
            del self._unreplicated[first]

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        state = self.producers.get(producer_id)
        if state is None or state.txn_first_offset < 0:
            return False
        return producer_epoch is None or producer_epoch == state.epoch

    def begins(self, producer_id: int, epoch: int, sequence: int, *, bumps: bool, now_ms: int) -> None:
        """A batch is about to begin a transaction, if the coordinator agrees.

        Until a batch has begun it, later sequences of the producer are not written, because this one may be retried.
        """
        waiting = self.unverified.get(producer_id)
        if waiting is None:
            self.unverified[producer_id] = Unverified(epoch, sequence, bumps, now_ms)
        elif epoch > waiting.epoch or (epoch == waiting.epoch and sequence < waiting.sequence):
            waiting.epoch, waiting.sequence = epoch, sequence

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated

    def expire(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for the expiration time and have no open transaction."""
        for producer_id in [p.producer_id for p in self.producers.values() if self._expired(p, now_ms)]:
            del self.producers[producer_id]
        for producer_id in [p for p, one in self.unverified.items() if now_ms - one.since_ms >= self.expiration_ms]:
            del self.unverified[producer_id]

    def _expired(self, state: ProducerState, now_ms: int) -> bool:
        return state.txn_first_offset < 0 and now_ms - state.last_timestamp >= self.expiration_ms

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot_path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def moved_to(self, folder: str) -> None:
        self._folder = folder

    @property
    def snapshot_offsets(self) -> Collection[int]:
        return self._snapshots

    @property
    def latest_snapshot_offset(self) -> int | None:
        return max(self._snapshots, default=None)

    def take_snapshot(self, *, sync: bool = False) -> None:
        """Write the state as of `map_end_offset`, unless nothing changed since the last snapshot."""
        if self.map_end_offset > self._last_snapshot:
            self._disk.write_atomic(
                self.snapshot_path(self.map_end_offset), encode_snapshot(self.producers.values()), sync=sync
            )
            self._snapshots.add(self.map_end_offset)
            self._last_snapshot = self.map_end_offset

    def load(self, first_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest valid snapshot within the log, or start empty. The caller replays the rest.

        `first_offset` is the start of the first segment. Kafka drops snapshots at or below the log start offset, and
        with them the state of producers whose records were deleted. Here a restart forgets no more than a running
        broker does.
        """
        for offset in [o for o in self._snapshots if o > log_end_offset]:
            self.remove_snapshot(offset)
        self._clear()
        while (latest := self.latest_snapshot_offset) is not None:
            try:
                states = decode_snapshot(self._disk.read_bytes(self.snapshot_path(latest)))
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("%s: producer snapshot at offset %d is not usable: %s", self._name, latest, error)
                self.remove_snapshot(latest)
                continue
            for state in states:
                if not self._expired(state, now_ms):
                    self.producers[state.producer_id] = state
            opened = sorted(s.txn_first_offset for s in self.producers.values() if s.txn_first_offset >= 0)
            owners = {s.txn_first_offset: s.producer_id for s in self.producers.values()}
            self._ongoing = {first: Transaction(owners[first], first) for first in opened}
            self._last_snapshot = self.map_end_offset = latest
            return
        self._last_snapshot = self.map_end_offset = first_offset

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def log_start_moved(self, log_start_offset: int) -> None:
        self.high_watermark_moved(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        # Kafka treats the start offset as an existing snapshot, so a clean stop right after this would lose the state.
        self._last_snapshot = -1 if latest is None else latest

    def start_at(self, offset: int) -> None:
        """Forget everything: the log starts again, empty, at `offset`."""
        self._clear()
        for snapshot in list(self._snapshots):
            self.remove_snapshot(snapshot)
        self._last_snapshot = 0
        self.map_end_offset = offset

    def remove_snapshot(self, offset: int) -> None:
        if offset in self._snapshots:
            self._snapshots.discard(offset)
            self._disk.remove(self.snapshot_path(offset))

    def forget_snapshot(self, offset: int) -> str | None:
        """Stop using a snapshot. Returns its path for a delayed removal."""
        if offset not in self._snapshots:
            return None
        self._snapshots.discard(offset)
        return self.snapshot_path(offset)

    def remove_stray_snapshots(self, base_offsets: Collection[int]) -> None:
        """Keep snapshots at segment starts, and the newest other one if it is after the start of the last segment."""
        stray = sorted(self._snapshots.difference(base_offsets))
        last_base = max(base_offsets, default=-1)
        keep = stray[-1] if stray and stray[-1] >= last_base else None
        for offset in stray:
            if offset != keep:
                self.remove_snapshot(offset)


class CorruptSnapshot(KafkaError):
    """A producer snapshot cannot be read. The state is then rebuilt from the log."""


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """Kafka's `.snapshot`: version, CRC-32C of the rest, count, and 46 bytes per producer."""
    entries = bytearray()
    count = 0
    for state in states:
        last = state.batches[-1] if state.batches else None
        entries += _SNAPSHOT_ENTRY.pack(
            state.producer_id,
            state.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else -1,
            last.offset_delta if last else 0,
            state.last_timestamp,
            state.coordinator_epoch,
            state.txn_first_offset,
        )
        count += 1
    body = count.to_bytes(4, "big") + bytes(entries)
    return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body), count) + bytes(entries)


def decode_snapshot(data: bytes) -> list[ProducerState]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc != crc32c(data[_SNAPSHOT_CRC_START:]):
        raise CorruptSnapshot("the checksum is wrong")
    entries = data[_SNAPSHOT_HEAD.size :]
    if len(entries) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshot(f"{len(entries)} bytes do not hold {count} producers")
    states = []
    for producer_id, epoch, last_seq, last_offset, delta, timestamp, coordinator, first in _SNAPSHOT_ENTRY.iter_unpack(
        entries
    ):
        state = ProducerState(producer_id, epoch)
        state.coordinator_epoch = coordinator
        state.last_timestamp = timestamp
        state.txn_first_offset = first
        if last_offset >= 0:
            first_sequence = (last_seq - delta) & MAX_SEQUENCE if last_seq >= 0 else last_seq
            state.batches.append(StoredBatch(first_sequence, last_seq, last_offset, delta, timestamp))
        states.append(state)
    return states
