"""The groups and offsets of one partition of `__consumer_offsets` (Kafka: GroupCoordinatorShard)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clock import Clock, Timer
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.protocol import ClassicProtocol
from ottla.coordinator.groups.consumer.protocol import ConsumerProtocol
from ottla.coordinator.groups.history import GroupEvent, GroupHistory
from ottla.coordinator.groups.interfaces import Group, GroupProtocol, new_protocol
from ottla.coordinator.groups.offsets.offsets import GroupOffsets, OffsetStore
from ottla.coordinator.groups.records import CoordinatorRecord, OffsetRecord, StoredRecord, decode_record, kind_of
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.runtime.batches import encode_batch
from ottla.coordinator.runtime.committed_view import CommittedView
from ottla.coordinator.runtime.interfaces import EncodableRecord, MetadataView, PartitionWriter
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.shard import STEP, CoordinatorShard
from ottla.enums import ControlRecordType
from ottla.metadata.java_hash_order import timeline_map
from ottla.metadata.topics import java_hash
from ottla.records.batch import Batch, end_transaction_marker
from ottla.wire.primitives import uuid_to_base64
from ottla.wire.stored import GroupMetadataKey

if TYPE_CHECKING:
    from ottla.coordinator.groups.share.protocol import ShareProtocol
    from ottla.coordinator.groups.streams.protocol import StreamsProtocol

MAX_RECORDS_PER_BATCH = 1000
"""A sweep can remove any number of offsets; a batch of this many tombstones is far below `max.message.bytes`."""


class Seen(NamedTuple):
    """A group as reads see it."""

    group: Group | None
    offsets: GroupOffsets


class GroupShard(CoordinatorShard):
    """The groups of one partition of `__consumer_offsets`."""

    LOG_NAME = "offsets log"

    __slots__ = (
        "_protocols",
        "_random_uuid",
        "classic",
        "committed",
        "consumer",
        "groups",
        "history",
        "image",
        "is_loaded",
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
        image: MetadataView,
        settings: GroupSettings,
        clock: Clock,
        timer: Timer,
        random_uuid: Callable[[], bytes],
    ) -> None:
        super().__init__(partition, writer, clock)
        self.image = image
        self.settings = settings
        self.timer = timer
        self.groups: dict[str, Group] = {}
        self.history = GroupHistory()
        self.offsets = OffsetStore(self)
        self.committed: CommittedView[str, Seen] = CommittedView(writer)
        self.classic = ClassicProtocol(self)
        self.consumer = ConsumerProtocol(self)
        self._protocols: dict[str, GroupProtocol[Any]] = {"classic": self.classic, "consumer": self.consumer}
        """By kind. Those of share and streams groups are created with the first such group: many brokers have none."""
        self.topic_hashes: dict[str, int] = {}
        self.topics_version = -1
        """The metadata version at which a topic was last created. Regex results from before it are outdated."""
        self._random_uuid = random_uuid
        self.new_member_id: Callable[[str], str] = self._new_classic_member_id
        self.new_uuid: Callable[[], str] = lambda: uuid_to_base64(random_uuid())
        self.is_loaded = False

    def note(
        self,
        group_id: str,
        kind: str,
        member_id: str | None = None,
        detail: str | None = None,
        generation: int | None = None,
        members: int | None = None,
    ) -> None:
        """Add an event to the group's history, which explains rebalances; events are not added while loading."""
        if self.is_loaded:
            now_ms = self.clock.now_ms()
            self.history.note(group_id, GroupEvent(now_ms, kind, member_id, detail, generation, members))

    # -- running operations

    @property
    def codec(self) -> int:
        return self.settings.compression_codec

    def _batch(
        self, records: Sequence[EncodableRecord], now_ms: int, producer_id: int, producer_epoch: int
    ) -> bytearray:
        return encode_batch(records, now_ms, self.codec, producer_id, producer_epoch, self.FIRST_SEQUENCE)

    def run_all(self, records: list[CoordinatorRecord]) -> None:
        """Append records in as many batches as necessary."""
        for start in range(0, len(records), MAX_RECORDS_PER_BATCH):
            self.run(Result(records[start : start + MAX_RECORDS_PER_BATCH]))

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> int:
        """Write a transaction's marker into this partition, and commit or discard its offsets.

        Returns the marker's offset.
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

    # -- reads

    def seen(self, group_id: str) -> Seen:
        """The committed state of a group and its offsets."""
        return self.committed.get(group_id, self.newest(group_id))

    def newest(self, group_id: str) -> Seen:
        """The newest state, including uncommitted changes."""
        return Seen(self.groups.get(group_id), self.offsets.groups.get(group_id, {}))

    def seen_groups(self) -> Iterator[Group]:
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
        seen = None if group is None else group.as_committed(has_offsets=bool(offsets))
        self.committed.keep(offset, group_id, Seen(seen, offsets))

    # -- groups

    def protocol(self, kind: str) -> GroupProtocol[Any]:
        """The protocol of a kind of group."""
        protocol = self._protocols.get(kind)
        if protocol is None:
            protocol = self._protocols[kind] = new_protocol(kind, self)
        return protocol

    @property
    def share(self) -> ShareProtocol:
        return self.protocol("share")  # type: ignore[return-value]

    @property
    def streams(self) -> StreamsProtocol:
        return self.protocol("streams")  # type: ignore[return-value]

    def ensure_group(self, group_id: str) -> None:
        """Offsets belong to a group: create an empty classic group if there is none."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, None)

    def ensure_group_unseen(self, group_id: str) -> None:
        """Like `ensure_group`, but reads do not see the group until the next record is committed.

        Kafka creates the group before it checks the offsets and refuses all of them. The next request that changes
        something finds the group; the next sweep removes it.
        """
        if group_id not in self.groups:
            self.committed.keep(self._written_offset + 1, group_id, self.newest(group_id))
            self.ensure_group(group_id)

    def group_setting(self, group_id: str, key: str, default: int) -> int:
        value = self.image.group_config(group_id, key)
        return default if value is None else int(value)

    def _new_classic_member_id(self, prefix: str) -> str:
        """The client id or the instance id, and a random UUID in Java's text format."""
        digits = self._random_uuid().hex()
        return "-".join((prefix, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    # -- sweeps and events

    def expire(self) -> None:
        """Remove expired offsets, and empty groups without offsets."""
        now_ms = self.clock.now_ms()
        for group in list(self.groups.values()):
            records, is_bare = self.offsets.expired(group, now_ms)
            if is_bare and group.is_empty and group.expires:
                records += group.tombstones()
            if records:
                self.run_all(records)

    def on_topics_deleted(self, names: Iterable[str]) -> None:
        self.run_all(self.offsets.topic_tombstones(names))

    def on_topics_changed(self, names: Iterable[str], *, has_new: bool) -> None:
        """Topics were created, extended, deleted or moved: their groups check again at the next heartbeat."""
        if has_new:
            self.topics_version = self.image.version
        changed = set(names)
        for name in changed:
            self.topic_hashes.pop(name, None)
        for protocol in self._protocols.values():
            protocol.on_topics_changed(changed)

    def on_topic_id_deleted(self, topic_id: bytes) -> None:
        for protocol in self._protocols.values():
            protocol.on_topic_deleted(topic_id)

    # -- loading and replay

    decode = staticmethod(decode_record)

    def load_control(self, batch: Batch, *, is_committed: bool) -> None:
        kind = batch.control_type()
        if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            if kind == ControlRecordType.COMMIT and not is_committed:
                self._keep_pending(batch.producer_id, batch.base_offset)
            self.offsets.replay_marker(batch.producer_id, commit=kind == ControlRecordType.COMMIT)

    def on_loaded(self) -> Iterator[int]:
        """The log is loaded: start the sessions."""
        self.is_loaded = True
        for count, group in enumerate(list(self.groups.values())):
            self.protocol(group.type_name).on_loaded(group)
            if count % STEP == 0:
                yield STEP

    def on_unloaded(self) -> None:
        """This broker no longer leads the partition: answer waiting members and cancel all timers."""
        for protocol in self._protocols.values():
            protocol.on_unloaded()
        self.groups.clear()

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """The only place where persisted state changes."""
        if type(record) is OffsetRecord:
            self.offsets.replay(record, offset, producer_id)
        else:
            assert isinstance(record, StoredRecord)
            self.protocol(kind_of(record.key)).replay(record.key, record.value)
