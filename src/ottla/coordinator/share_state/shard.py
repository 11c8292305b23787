"""The share coordinator: where share groups stand in their partitions, kept in `__share_group_state`.

A share partition's state is a start offset and batches of records that are done or were delivered before. A snapshot
record has all of it, the update records after it only what changed; after some updates comes the next snapshot.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from ottla.clock import Clock, Timer
from ottla.coordinator.groups.settings import TypedSettings
from ottla.coordinator.runtime.batches import CorruptRecord
from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.shard import CoordinatorShard
from ottla.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.schema import Message
from ottla.wire.stored import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue

logger = logging.getLogger(__name__)

SNAPSHOT, UPDATE = 0, 1
NO_OFFSET: Final = -1
NO_COUNT: Final = -1

_INT16 = Struct(">h")


class ShareKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """As a coordinator is looked for."""
        return f"{self.group_id}:{uuid_to_base64(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Neighbouring records with the same fate."""

    first: int
    last: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    done_count: int = NO_COUNT
    """Of records from the start offset on."""
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0
    updates: int = 0
    """Since the snapshot."""
    snapshot_offset: int = 0


class ShareRecord(NamedTuple):
    key: ShareKey
    value: ShareSnapshotValue | ShareUpdateValue | None

    def encode(self) -> tuple[bytes, bytes | None]:
        number = UPDATE if isinstance(self.value, ShareUpdateValue) else SNAPSHOT
        group_id, topic_id, partition = self.key
        stored: Message = (ShareUpdateKey if number == UPDATE else ShareSnapshotKey)(
            group_id=group_id, topic_id=topic_id, partition=partition
        )
        key = _INT16.pack(number) + stored.encode(0)
        return key, None if self.value is None else _INT16.pack(0) + self.value.encode(0)


def decode_record(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    if key is None or len(key) < _INT16.size:
        raise CorruptRecord("a record of the share state log has no key")
    (number,) = _INT16.unpack_from(key)
    if number not in (SNAPSHOT, UPDATE):
        return None
    try:
        stored, _ = (ShareUpdateKey if number == UPDATE else ShareSnapshotKey).decoder(0)(key, _INT16.size)
        name = ShareKey(stored.group_id, stored.topic_id, stored.partition)
        if value is None:
            return ShareRecord(name, None)
        kind: Any = ShareUpdateValue if number == UPDATE else ShareSnapshotValue
        (version,) = _INT16.unpack_from(value)
        if not 0 <= version <= kind.MAX_VERSION:
            raise CorruptRecord(f"{kind.__name__} has no version {version}")
        return ShareRecord(name, kind.decoder(version)(value, _INT16.size)[0])
    except (ValueError, IndexError, StructError) as error:
        raise CorruptRecord(f"type {number}: {error}") from error


def combined(known: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Both together from the start offset on; where they differ, more deliveries count, then the later state."""
    every = [*known, *newer]
    edges = sorted({edge for batch in every for edge in (batch.first, batch.last + 1)} | {start_offset})
    best: list[StateBatch | None] = [None] * len(edges)
    for batch in every:
        for position in range(bisect_left(edges, batch.first), bisect_left(edges, batch.last + 1)):
            there = best[position]
            if there is None or (batch.delivery_count, batch.state) > (there.delivery_count, there.state):
                best[position] = batch
    result: list[StateBatch] = []
    for position, chosen in enumerate(best):
        if chosen is None or edges[position] < start_offset:
            continue
        first, last = edges[position], edges[position + 1] - 1
        if result and result[-1].last + 1 == first and result[-1][2:] == chosen[2:]:
            result[-1] = result[-1]._replace(last=last)
        else:
            result.append(StateBatch(first, last, chosen.state, chosen.delivery_count))
    return tuple(result)


@dataclass(slots=True)
class ShareStateSettings:
    partitions: int = 50
    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5000
    compression_codec: int = 0

    @classmethod
    def from_config(cls, config: TypedSettings) -> ShareStateSettings:
        return cls(
            partitions=config["share.coordinator.state.topic.num.partitions"],
            updates_per_snapshot=config["share.coordinator.snapshot.update.records.per.snapshot"],
            write_timeout_ms=config["share.coordinator.write.timeout.ms"],
            compression_codec=int(config["share.coordinator.state.topic.compression.codec"]),
        )


class ShareStateShard(CoordinatorShard):
    """The share partitions of one partition of the log."""

    LOG_NAME = "share state log"

    __slots__ = ("settings", "states", "timer")

    def __init__(
        self, partition: int, writer: PartitionWriter, settings: ShareStateSettings, clock: Clock, timer: Timer
    ) -> None:
        super().__init__(partition, writer, clock)
        self.settings = settings
        self.timer = timer
        self.states: dict[ShareKey, ShareState] = {}

    @property
    def codec(self) -> int:
        return self.settings.compression_codec

    def _limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None]:
        return self.timer.schedule(self.settings.write_timeout_ms, give_up).cancel

    # -- operations

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Result[None]:
        known = self.states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise FencedStateEpoch
        now_ms = self.clock.now_ms()
        value = ShareSnapshotValue(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0 if known is None else known.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=NO_COUNT if start_offset == NO_OFFSET else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=[],
        )
        return Result([ShareRecord(key, value)])

    def read(self, key: ShareKey, leader_epoch: int) -> Result[ShareState]:
        """The state, for whoever leads the partition; a new leader's epoch is noted."""
        state = self.states.get(key)
        if state is None:
            raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
        if leader_epoch < state.leader_epoch:
            raise FencedLeaderEpoch
        if leader_epoch == state.leader_epoch:
            return Result((), state)
        return Result([self._change(key, state, leader_epoch, state.start_offset, state.done_count, ())], state)

    def summary(self, key: ShareKey) -> Result[ShareState]:
        """The state without asking who wants to know; one of nowhere if there is none."""
        return Result((), self.states.get(key, ShareState()))

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        done_count: int,
        changed: Sequence[StateBatch],
    ) -> Result[None]:
        state = self.states.get(key)
        if state is None:
            raise InvalidRequest("Write operation on uninitialized share partition not allowed.")
        if leader_epoch < state.leader_epoch:
            raise FencedLeaderEpoch
        if state_epoch < state.state_epoch:
            raise FencedStateEpoch
        return Result([self._change(key, state, leader_epoch, start_offset, done_count, changed)])

    def _change(
        self,
        key: ShareKey,
        state: ShareState,
        leader_epoch: int,
        start_offset: int,
        done_count: int,
        changed: Sequence[StateBatch],
    ) -> ShareRecord:
        if state.updates < self.settings.updates_per_snapshot:
            update = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=done_count,
                state_batches=[
                    ShareUpdateValue.StateBatch(
                        first_offset=first, last_offset=last, delivery_state=mark, delivery_count=count
                    )
                    for first, last, mark, count in changed
                ],
            )
            return ShareRecord(key, update)
        kept = state.start_offset if start_offset == NO_OFFSET else start_offset
        return self._snapshot(
            key,
            replace(
                state,
                leader_epoch=leader_epoch,
                start_offset=kept,
                done_count=done_count,
                batches=combined(state.batches, changed, kept),
            ),
        )

    def _snapshot(self, key: ShareKey, state: ShareState) -> ShareRecord:
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.done_count,
            create_timestamp=state.created_ms,
            write_timestamp=self.clock.now_ms(),
            state_batches=[
                ShareSnapshotValue.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=mark, delivery_count=count
                )
                for first, last, mark, count in state.batches
            ],
        )
        return ShareRecord(key, value)

    def snapshot_older_than(self, offset: int) -> Result[None]:
        """New snapshots of what has its last one before `offset`, so that the log can be cut there."""
        return Result(
            [self._snapshot(key, state) for key, state in self.states.items() if state.snapshot_offset < offset]
        )

    def first_needed_offset(self) -> int:
        """Nothing before it is needed to load the shard."""
        needed = (state.snapshot_offset for state in self.states.values())
        return min(needed, default=self._written_offset + 1)

    def delete(self, key: ShareKey) -> Result[None]:
        return Result([ShareRecord(key, None)]) if key in self.states else Result()

    def topic_tombstones(self, topic_id: bytes) -> Result[None]:
        return Result([ShareRecord(key, None) for key in self.states if key.topic_id == topic_id])

    # -- replay

    def replay(self, record: ShareRecord, offset: int, producer_id: int) -> None:
        key, value = record
        if value is None:
            self.states.pop(key, None)
            return
        changed = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in value.state_batches
        )
        if isinstance(value, ShareSnapshotValue):
            self.states[key] = ShareState(
                value.snapshot_epoch,
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                changed,
                value.create_timestamp,
                value.write_timestamp,
                0,
                offset,
            )
            return
        state = self.states.get(key)
        if state is None:
            return  # its snapshot was cut off: the log says that it is gone
        start_offset = state.start_offset if value.start_offset == NO_OFFSET else value.start_offset
        self.states[key] = replace(
            state,
            leader_epoch=value.leader_epoch,
            start_offset=start_offset,
            done_count=value.delivery_complete_count,
            batches=combined(state.batches, changed, start_offset),
            updates=state.updates + 1,
        )

    def keep(self, records: Sequence[Any], offset: int) -> None:
        """Nothing: whoever reads here waits for what is written before."""

    decode = staticmethod(decode_record)

    def on_loaded(self) -> Iterable[int]:
        """Nothing here depends on time."""
        return ()

    def on_unloaded(self) -> None:
        self.states.clear()


class ShareCoordinator(CoordinatorRuntime[ShareStateShard]):
    """All shards of this broker, found by share partition."""

    __slots__ = ("_clock", "_timer", "settings")

    def __init__(self, settings: ShareStateSettings, clock: Clock, timer: Timer, loader: Loader) -> None:
        super().__init__(loader, settings.partitions)
        self.settings = settings
        self._clock = clock
        self._timer = timer

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> None:
        self._is_running = False
        self.resign_all()

    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> ShareStateShard:
        return ShareStateShard(partition, writer, self.settings, self._clock, self._timer)
