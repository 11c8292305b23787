"""The group coordinator: the groups and offsets of each partition of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.clock import Clock, Timer, TimerHandle
from ottla.coordinator.groups.classic.group import EMPTY, STABLE, ClassicGroup, ClassicMember
from ottla.coordinator.groups.classic.protocol import ClassicProtocol
from ottla.coordinator.groups.consumer import migration as mixed
from ottla.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember, target_of
from ottla.coordinator.groups.consumer.protocol import ConsumerProtocol
from ottla.coordinator.groups.consumer.regex import ResolvedRegex
from ottla.coordinator.groups.interfaces import OtherGroup, OtherProtocol, new_protocol
from ottla.coordinator.groups.offsets.offsets import GroupOffsets, OffsetStore
from ottla.coordinator.groups.records import (
    CoordinatorRecord,
    OffsetRecord,
    StoredRecord,
    classic_group_tombstone,
    decode_record,
    kind_of,
)
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.runtime.batches import CorruptRecord, encode_batch
from ottla.coordinator.runtime.committed_view import CommittedView
from ottla.coordinator.runtime.interfaces import ClusterView, EncodableRecord, PartitionWriter
from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.runtime import CoordinatorRuntime
from ottla.coordinator.runtime.shard import STEP, CoordinatorShard
from ottla.errors import KafkaError
from ottla.metadata.java_hash_order import timeline_map
from ottla.metadata.topics import java_hash
from ottla.records.batch import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Batch,
    end_transaction_marker,
)
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)

logger = logging.getLogger(__name__)

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | OtherGroup

MAX_RECORDS_PER_BATCH = 1000
"""Sweeps can concern any number of offsets; a batch of this many tombstones stays far below `max.message.bytes`."""


class Seen(NamedTuple):
    """A group as reads see it."""

    group: AnyGroup | None
    offsets: GroupOffsets


class GroupShard(CoordinatorShard):
    """The groups of one partition of `__consumer_offsets`."""

    LOG_NAME = "offsets log"

    __slots__ = (
        "_is_loaded",
        "_others",
        "_random_uuid",
        "classic",
        "cluster",
        "committed",
        "consumer",
        "groups",
        "new_member_id",
        "new_uuid",
        "offsets",
        "settings",
        "timer",
        "topic_hashes",
        "topics_version",
    )

    def __init__(
        self,
        partition: int,
        writer: PartitionWriter,
        cluster: ClusterView,
        settings: GroupSettings,
        clock: Clock,
        timer: Timer,
        random_uuid: Callable[[], bytes],
    ) -> None:
        super().__init__(partition, writer, clock)
        self.cluster = cluster
        self.settings = settings
        self.timer = timer
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = OffsetStore(self)
        self.committed: CommittedView[str, Seen] = CommittedView(writer)
        self.classic = ClassicProtocol(self)
        self.consumer = ConsumerProtocol(self)
        self._others: dict[str, OtherProtocol] = {}
        self.topic_hashes: dict[str, int] = {}
        self.topics_version = -1
        """The metadata version at which a topic was last created: older regex results do not know it."""
        self._random_uuid = random_uuid
        self.new_member_id: Callable[[str], str] = self._new_classic_member_id
        self.new_uuid: Callable[[], str] = lambda: uuid_to_base64(random_uuid())
        self._is_loaded = False

    # -- running operations

    @property
    def codec(self) -> int:
        return self.settings.compression_codec

    def _batch(
        self, records: Sequence[EncodableRecord], now_ms: int, producer_id: int, producer_epoch: int
    ) -> bytearray:
        return encode_batch(records, now_ms, self.codec, producer_id, producer_epoch, self.FIRST_SEQUENCE)

    def run_all(self, records: list[CoordinatorRecord]) -> None:
        """Append records that need no common batch, in portions."""
        for start in range(0, len(records), MAX_RECORDS_PER_BATCH):
            self.run(Result(records[start : start + MAX_RECORDS_PER_BATCH]))

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> int:
        """Write a transaction's marker into this partition, and let its offsets count or forget them.

        Returns the marker's offset. A marker that the log got in another way is told by `replay_marker`.
        """
        batch = end_transaction_marker(
            commit,
            coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self.clock.now_ms(),
        )
        offset = self._writer.append(batch)
        if commit and offset >= self._writer.high_watermark:
            self._keep_pending(producer_id, offset)
        self.offsets.replay_marker(producer_id, commit=commit)
        self._written_offset = offset
        return offset

    def _limit_wait(self, give_up: Callable[[], None]) -> Callable[[], None]:
        return self.timer.schedule(self.settings.commit_timeout_ms, give_up).cancel

    # -- what reads see

    def seen(self, group_id: str) -> Seen:
        """A group and its offsets as they are committed."""
        return self.committed.get(group_id, self.newest(group_id))

    def newest(self, group_id: str) -> Seen:
        """The same with what is not committed yet."""
        return Seen(self.groups.get(group_id), self.offsets.groups.get(group_id, {}))

    def seen_groups(self) -> Iterator[AnyGroup]:
        for group_id in timeline_map({**self.groups, **dict.fromkeys(self.committed.keys())}, java_hash):
            group = self.seen(group_id).group
            if group is not None:
                yield group

    def keep(self, records: Sequence[CoordinatorRecord], offset: int) -> None:
        touched: dict[str, set[str]] = {}
        for record in records:
            if type(record) is OffsetRecord:
                touched.setdefault(record.group, set()).add(record.topic)
            else:
                assert isinstance(record, StoredRecord)
                key: Any = record.key
                touched.setdefault(key.group if isinstance(key, GroupMetadataKey) else key.group_id, set())
        for group_id, topics in touched.items():
            self._keep_group(group_id, topics, offset)

    def _keep_pending(self, producer_id: int, offset: int) -> None:
        for group_id, topics in self.offsets.pending.get(producer_id, {}).items():
            self._keep_group(group_id, topics, offset)

    def _keep_group(self, group_id: str, topics: Iterable[str], offset: int) -> None:
        offsets = self.offsets.set_aside(group_id, topics)
        group = self.groups.get(group_id)
        if isinstance(group, (ConsumerGroup, OtherGroup)):
            group = group.copy()
        elif group is not None and group.stored is None and not offsets:
            group = None  # made by the operation whose records these are
        # What else a classic group is stays in memory, in Kafka too: reads see it as it is now.
        self.committed.keep(offset, group_id, Seen(group, offsets))

    # -- groups

    def classic_group(self, group_id: str, *, create: bool = False) -> ClassicGroup | None:
        """The classic group of this name, if any; `create` makes it, also over an empty one of another kind."""
        group = self.groups.get(group_id)
        if create and group is not None and self.can_become_classic(group):
            self.run(Result(self.group_tombstones(group)))
            group = None
        if group is None and create:
            group = self.groups[group_id] = ClassicGroup(group_id, self.clock.now_ms())
        return group if isinstance(group, ClassicGroup) else None

    @staticmethod
    def can_become_classic(group: AnyGroup) -> bool:
        """Whether a group of another kind makes way for a classic one of its name."""
        may = group.becomes_classic if isinstance(group, OtherGroup) else isinstance(group, ConsumerGroup)
        return may and group.is_empty

    def ensure_group(self, group_id: str) -> None:
        """Offsets need a group to belong to: without members it is an empty classic one."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, None)

    def ensure_group_unseen(self, group_id: str) -> None:
        """The same where nothing is written: reads see the group when something else is, and it is committed.

        Kafka makes a group before it looks at the offsets, and then refuses all of them. The group is there for the
        next request that changes something, and lasts until the next sweep.
        """
        if group_id not in self.groups:
            self.committed.keep(self._written_offset + 1, group_id, self.newest(group_id))
            self.ensure_group(group_id)

    def group_setting(self, group_id: str, key: str, default: int) -> int:
        value = self.cluster.group_config(group_id, key)
        return default if value is None else int(value)

    def other(self, kind: str) -> Any:
        """The protocol of a kind of groups that not every broker has."""
        protocol = self._others.get(kind)
        if protocol is None:
            protocol = self._others[kind] = new_protocol(kind, self)
        return protocol

    def group_tombstones(self, group: AnyGroup) -> list[CoordinatorRecord]:
        if isinstance(group, OtherGroup):
            return group.tombstones()
        return [classic_group_tombstone(group.group_id)] if isinstance(group, ClassicGroup) else mixed.tombstones(group)

    def _new_classic_member_id(self, prefix: str) -> str:
        """The client's id or the instance id, and a random UUID in the text form that Java gives it."""
        digits = self._random_uuid().hex()
        return "-".join((prefix, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    # -- sweeps and events

    def expire(self) -> None:
        """Remove offsets that have expired, and empty groups without any."""
        now_ms = self.clock.now_ms()
        for group in list(self.groups.values()):
            records, is_bare = self.offsets.expired(group, now_ms)
            if is_bare and group.is_empty and (not isinstance(group, OtherGroup) or group.expires):
                records += self.group_tombstones(group)
            if records:
                self.run_all(records)

    def on_topics_deleted(self, names: Iterable[str]) -> None:
        self.run_all(self.offsets.topic_tombstones(names))

    def on_topics_changed(self, names: Iterable[str], *, has_new: bool) -> None:
        """Created, grown, deleted or moved topics: groups that read them look again at their next heartbeat."""
        if has_new:
            self.topics_version = self.cluster.version
        changed = set(names)
        for name in changed:
            self.topic_hashes.pop(name, None)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and any(group.is_subscribed_to(name) for name in changed):
                group.needs_refresh = True
        for protocol in self._others.values():
            protocol.on_topics_changed(changed)

    def on_topic_id_deleted(self, topic_id: bytes) -> None:
        for protocol in self._others.values():
            protocol.on_topic_deleted(topic_id)

    # -- replay

    decode = staticmethod(decode_record)

    def load_control(self, batch: Batch, *, is_committed: bool) -> None:
        kind = batch.control_type()
        if kind in (CONTROL_COMMIT, CONTROL_ABORT):
            if kind == CONTROL_COMMIT and not is_committed:
                self._keep_pending(batch.producer_id, batch.base_offset)
            self.offsets.replay_marker(batch.producer_id, commit=kind == CONTROL_COMMIT)

    def on_loaded(self) -> Iterator[int]:
        """The log is read: sessions begin."""
        self._is_loaded = True
        for count, group in enumerate(list(self.groups.values())):
            if isinstance(group, ClassicGroup):
                self.classic.on_loaded(group)
            elif isinstance(group, OtherGroup):
                self.other(group.type_name).on_loaded(group)
            else:
                self.consumer.on_loaded(group)
            if count % STEP == 0:
                yield STEP

    def on_unloaded(self) -> None:
        """Leadership is gone: whoever waits is told, and no timer is left."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.classic.on_unloaded(group)
        self.consumer.on_unloaded()
        for protocol in self._others.values():
            protocol.on_unloaded()
        self.groups.clear()

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """The only place where persisted state changes."""
        if type(record) is OffsetRecord:
            self.offsets.replay(record, offset, producer_id)
        else:
            assert isinstance(record, StoredRecord)
            replay = _REPLAY.get(type(record.key))
            if replay is not None:
                replay(self, record.key, record.value)
            else:
                self.other(kind_of(record.key)).replay(record.key, record.value)

    def _replay_classic(self, key: Any, value: GroupMetadataValue | None) -> None:
        group_id = key.group
        live = self.groups.get(group_id)
        if value is None:
            removed = self.groups.pop(group_id, None)
            if isinstance(removed, ClassicGroup):
                removed.cancel_timers()
            return
        if (
            self._is_loaded
            and isinstance(live, ClassicGroup)
            # Members that are not in memory come from a consumer group that was just converted.
            and all(member.member_id in live.members for member in value.members)
        ):
            # A record that this coordinator wrote itself: what it says counts for the group once it is committed.
            live.stored = value
            return
        group = ClassicGroup(group_id, None, STABLE if value.members else EMPTY)
        group.state_timestamp_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for member in value.members:
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
                    member.session_timeout,
                    value.protocol_type,
                    ((value.protocol or "", member.subscription),),
                    member.assignment,
                )
            )
        group.subscribed_topics = group.read_subscriptions()
        group.stored = value
        self.groups[group_id] = group

    def _consumer_group(self, group_id: str, *, create: bool) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not create:
            return None
        if isinstance(group, OtherGroup) or (group is not None and not group.is_simple):
            raise CorruptRecord(f"group {group_id} is a {group.type_name} group, but has a record of a consumer group")
        # A group that exists by its offsets only has no records, so it can become anything.
        created = self.groups[group_id] = ConsumerGroup(group_id)
        return created

    def _replay_epoch(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            del self.groups[key.group_id]
            if key.group_id in self.offsets.groups:
                self.ensure_group(key.group_id)
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash

    def _replay_partition_metadata(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _replay_member(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.remove_member(key.member_id)
        else:
            group.put_member(group.members.get(key.member_id, ConsumerMember(key.member_id)).with_metadata(value))

    def _replay_target_epoch(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is not None:
            group.target_epoch = -1 if value is None else value.assignment_epoch
            group.target_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = target_of(value)

    def _replay_current(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        member = group.members.get(key.member_id)
        if value is not None:
            group.put_member((member or ConsumerMember(key.member_id)).with_assignment(value))
        elif member is not None:
            group.put_member(member.without_assignment())

    def _replay_regex(self, key: Any, value: Any) -> None:
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        if value is None:
            group.regexes.pop(key.regular_expression, None)
        else:
            group.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )


_REPLAY: Mapping[type, Callable[[GroupShard, Any, Any], None]] = {
    GroupMetadataKey: GroupShard._replay_classic,
    ConsumerGroupMetadataKey: GroupShard._replay_epoch,
    ConsumerGroupPartitionMetadataKey: GroupShard._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: GroupShard._replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: GroupShard._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: GroupShard._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: GroupShard._replay_current,
    ConsumerGroupRegularExpressionKey: GroupShard._replay_regex,
}


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """All shards of this broker, found by group id; the sweep for expired offsets."""

    __slots__ = ("_clock", "_cluster", "_random_uuid", "_sweep", "_timer", "settings")

    def __init__(
        self,
        cluster: ClusterView,
        settings: GroupSettings,
        clock: Clock,
        timer: Timer,
        random_uuid: Callable[[], bytes],
        loader: Loader,
    ) -> None:
        super().__init__(loader, settings.offsets_partitions)
        self._random_uuid = random_uuid
        self._cluster = cluster
        self.settings = settings
        self._clock = clock
        self._timer = timer
        self._sweep: TimerHandle | None = None

    # -- life

    def start(self) -> None:
        self._is_running = True
        self._schedule_sweep()

    def stop(self) -> None:
        """Answer everybody who waits, and let go of every timer."""
        self._is_running = False
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.resign_all()

    def _schedule_sweep(self) -> None:
        self._sweep = self._timer.schedule(self.settings.offsets_check_interval_ms, self._expire)

    def _expire(self) -> None:
        for shard in self.shards():
            try:
                shard.expire()
            except KafkaError as error:
                logger.warning("expired offsets of partition %d stay for now: %s", shard.partition, error.message)
        self._schedule_sweep()

    def new_shard(self, partition: int, writer: PartitionWriter, leader_epoch: int) -> GroupShard:
        return GroupShard(partition, writer, self._cluster, self.settings, self._clock, self._timer, self._random_uuid)

    # -- events from the cluster's metadata

    def on_topic_deleted(self, name: str, topic_id: bytes) -> None:
        self.on_topics_changed(deleted=[name])
        self.on_every_shard(lambda shard: shard.on_topic_id_deleted(topic_id))

    def on_topics_changed(
        self, *, created: Iterable[str] = (), changed: Iterable[str] = (), deleted: Iterable[str] = ()
    ) -> None:
        """Topics were created, grew or moved, or were deleted. Call after the metadata shows it."""
        new, gone = list(created), list(deleted)
        names = [*new, *changed, *gone]

        def look_again(shard: GroupShard) -> None:
            shard.on_topics_changed(names, has_new=bool(new))
            if gone:
                shard.on_topics_deleted(gone)

        self.on_every_shard(look_again)
