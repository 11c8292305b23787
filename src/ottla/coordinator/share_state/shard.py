"""One partition of `__share_group_state` (Kafka: ShareCoordinatorShard): the progress of share groups.

A share partition's state is a start offset and batches of records that are finished or were delivered before. A
snapshot record has the whole state, the update records after it only the changes. After some updates a new snapshot is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ottla.clock import Clock, Timer
from ottla.coordinator.runtime.interfaces import PartitionWriter
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.shard import CoordinatorShard
from ottla.coordinator.share_state.records import ShareRecord, decode_record
from ottla.coordinator.share_state.settings import ShareStateSettings
from ottla.coordinator.share_state.state import NO_COUNT, NO_OFFSET, ShareKey, ShareState, StateBatch, combined
from ottla.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from ottla.wire.stored import ShareSnapshotValue, ShareUpdateValue


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
        """The state, for the leader of the partition. Stores the epoch of a new leader."""
        state = self.states.get(key)
        if state is None:
            raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
        if leader_epoch < state.leader_epoch:
            raise FencedLeaderEpoch
        if leader_epoch == state.leader_epoch:
            return Result((), state)
        return Result([self._change(key, state, leader_epoch, state.start_offset, state.done_count, ())], state)

    def summary(self, key: ShareKey) -> Result[ShareState]:
        """The state, without a check of the sender; an empty one if nothing is stored."""
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
        """Write new snapshots of states whose last one is before `offset`, so that the log can be truncated."""
        return Result(
            [self._snapshot(key, state) for key, state in self.states.items() if state.snapshot_offset < offset]
        )

    def first_needed_offset(self) -> int:
        """The shard can be loaded from this offset on."""
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
            return  # its snapshot was truncated: the state was deleted
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
        """Nothing to keep: reads wait until everything before them is committed."""

    decode = staticmethod(decode_record)

    def on_loaded(self) -> Iterable[int]:
        """Nothing here depends on time."""
        return ()

    def on_unloaded(self) -> None:
        self.states.clear()
