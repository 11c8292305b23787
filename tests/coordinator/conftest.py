"""A group coordinator over a log in memory, with a clock that stands still until a test advances it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.clock import ManualClock, Timer
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.runtime.interfaces import Client
from ottla.coordinator.runtime.loader import Loader
from ottla.errors import KafkaError, MemberIdRequired
from ottla.records.batch import Batch, batches
from ottla.server.randomness import SeededRandomness
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

START_MS = 1_700_000_000_000
HOST = "/127.0.0.1"


class MemoryWriter:
    """A partition that keeps its batches; `hold` stops its high watermark."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.committed_offset = 0
        self.hold = False
        self.fail_with: KafkaError | None = None
        self._waiting: list[tuple[int, Callable[[KafkaError | None], None]]] = []

    @property
    def high_watermark(self) -> int:
        return self.committed_offset

    def append(self, batch: bytearray) -> int:
        if self.fail_with is not None:
            raise self.fail_with
        view = Batch(batch)
        assert view.crc_ok()
        base_offset = self.end_offset
        view.stamp(base_offset, 0)
        self.batches.append(bytes(batch))
        self.end_offset = base_offset + view.last_offset_delta + 1
        if not self.hold:
            self.committed_offset = self.end_offset
        return base_offset

    def on_committed(self, offset: int, callback: Callable[[KafkaError | None], None]) -> None:
        self._waiting.append((offset, callback))

    def release(self, error: KafkaError | None = None) -> None:
        self.hold = False
        if error is None:
            self.committed_offset = self.end_offset
        waiting, self._waiting = self._waiting, []
        for _, callback in waiting:
            callback(error)


@dataclass
class MemoryTopic:
    name: str
    topic_id: bytes
    partition_count: int
    rack_names: tuple[str, ...] = ()

    def racks(self, partition: int) -> tuple[str, ...]:
        return self.rack_names


@dataclass
class MemoryMetadata:
    topics: dict[str, MemoryTopic] = field(default_factory=dict)
    version: int = 0
    group_configs: dict[tuple[str, str], Any] = field(default_factory=dict)

    def topic(self, name: str) -> MemoryTopic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> MemoryTopic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def topic_names(self) -> list[str]:
        return list(self.topics)

    def group_config(self, group_id: str, key: str) -> Any | None:
        return self.group_configs.get((group_id, key))

    def create(self, name: str, partition_count: int) -> MemoryTopic:
        self.version += 1
        topic_id = hashlib.md5(f"{name}{self.version}".encode()).digest()
        topic = self.topics[name] = MemoryTopic(name, topic_id, partition_count)
        return topic


class World:
    """One coordinator with one partition, so every group is in the same shard."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(START_MS)
        self.timer = Timer(self.clock)
        self.image = MemoryMetadata()
        self.settings = GroupSettings(
            **{
                "offsets_partitions": 1,
                "initial_rebalance_delay_ms": 0,
                "min_session_timeout_ms": 10,
                "consumer_assignment_interval_ms": 0,
                **settings,
            }
        )
        self.writer = MemoryWriter()
        self.turns: list[Callable[[], None]] = []
        """What the event loop would call in its next turn."""
        self.coordinator = GroupCoordinator(
            self.image,
            self.settings,
            self.clock,
            self.timer,
            SeededRandomness(1).uuid,
            Loader(self.clock, self.turns.append),
        )
        self.coordinator.start()
        self.shard = self.coordinator.lead(0, self.writer, [])
        self._ids = 0
        self._name_ids(self.shard)

    def _name_ids(self, shard: GroupShard) -> None:
        def number(prefix: str) -> str:
            self._ids += 1
            return f"{prefix}-{self._ids}"

        shard.new_member_id = number

    def group(self, group_id: str = "g") -> Any:
        return self.shard.groups[group_id]

    def topic(self, name: str, partition_count: int = 3) -> MemoryTopic:
        is_new = name not in self.image.topics
        topic = self.image.create(name, partition_count)
        self.coordinator.on_topics_changed(created=[name] if is_new else [], changed=[] if is_new else [name])
        return topic

    def grow(self, name: str, partition_count: int) -> None:
        self.image.version += 1
        self.image.topics[name].partition_count = partition_count
        self.coordinator.on_topics_changed(changed=[name])

    def delete_topic(self, name: str) -> None:
        self.image.version += 1
        del self.image.topics[name]
        self.coordinator.on_topics_changed(deleted=[name])

    def fresh(self) -> GroupShard:
        """A new shard, loaded only from the log."""
        shard = GroupShard(
            0,
            MemoryWriter(),
            self.image,
            self.settings,
            ManualClock(0),
            Timer(ManualClock(0)),
            SeededRandomness(1).uuid,
        )
        shard.load(map(Batch, self.writer.batches))
        return shard

    def restart(self) -> None:
        self.shard = self.coordinator.lead(0, self.writer, map(Batch, list(self.writer.batches)))
        self._name_ids(self.shard)

    def load(self, log: bytes) -> None:
        """Become leader of a partition that contains these batches."""
        self.shard = self.coordinator.lead(0, self.writer, batches(log))
        self._name_ids(self.shard)

    # -- requests, as a client sends them

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Any = (("range", b"meta"),),
        protocol_type: str = "consumer",
        version: int = 9,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        client_id: str = "client",
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
            ],
        )
        return requests.join(self.coordinator, request, Client(client_id, HOST, version))

    def new_member(self, group_id: str = "g", **options: Any) -> Any:
        """Both steps of a first join (KIP-394)."""
        asked = self.join(group_id, **options)
        assert asked.error_code == MemberIdRequired.code, asked
        return asked.member_id, self.join(group_id, asked.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
        )
        return self.attempt(lambda: requests.sync(self.coordinator, request, Client("client", HOST, version)))

    def heartbeat(self, member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        answer = self.attempt(lambda: requests.heartbeat(self.coordinator, request))
        return answer if isinstance(answer, int) else answer.error_code

    def leave(self, *members: str | tuple[str, str | None], group_id: str = "g", version: int = 5) -> Any:
        identities = [member if isinstance(member, tuple) else (member, None) for member in members]
        request = LeaveGroupRequest(
            group_id=group_id,
            member_id=identities[0][0],
            members=[
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in identities
            ],
        )
        return self.attempt(lambda: requests.leave(self.coordinator, request, Client("client", HOST, version)))

    def stable(self, count: int = 1, group_id: str = "g", **options: Any) -> list[str]:
        """A Stable group of dynamic members; the first leads."""
        members: list[str] = []
        for _ in range(count):
            member_id, answer = self.new_member(group_id, **options)
            for other in members:
                self.join(group_id, other, **options)
            members.append(member_id)
        generation = self.group(group_id).generation
        for member_id in reversed(members):
            assignments = {name: name.encode() for name in members} if member_id == members[0] else None
            answer = self.sync(member_id, generation, assignments, group_id=group_id)
        assert self.group(group_id).state_name == "Stable"
        assert answer.error_code == 0
        return members

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group_id: str = "g",
        member_id: str = "",
        epoch: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
        timestamp_ms: int = -1,
    ) -> dict[tuple[str, int], int]:
        """Returns the error codes by partition."""
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.image.topics[topic].topic_id if version >= 10 else bytes(16),
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                            commit_timestamp=timestamp_ms,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        answer = requests.commit_offsets(self.coordinator, request, Client("client", HOST, version))
        assert not isinstance(answer, Reply)
        names = {topic.topic_id: topic.name for topic in self.image.topics.values()}
        return {
            (topic.name if version < 10 else names[topic.topic_id], partition.partition_index): partition.error_code
            for topic in answer.topics
            for partition in topic.partitions
        }

    def offset(self, topic: str, partition: int, *, group_id: str = "g", require_stable: bool = False) -> Any:
        """The fetched partition."""
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
        )
        answer = requests.fetch_offsets(self.coordinator, group, by_id=False, require_stable=require_stable)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    def consumer(self, member_id: str, epoch: int, *, group_id: str = "n", version: int = 1, **fields: Any) -> Any:
        """A ConsumerGroupHeartbeat; joins include the mandatory fields."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], **fields}
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=self.image.topics[topic].topic_id, partitions=list(indexes)
                )
                for topic, indexes in owned.items()
            ]
        topics, may_see = fields.pop("topics", None), fields.pop("may_see", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            subscribed_topic_regex=fields.pop("regex", None),
            **fields,
        )
        client = Client("client", HOST, version, may_see)
        return self.attempt(lambda: requests.consumer_heartbeat(self.coordinator, request, client))

    def assignment(self, answer: Any) -> dict[str, list[int]] | None:
        if answer.assignment is None:
            return None
        names = {topic.topic_id: topic.name for topic in self.image.topics.values()}
        return {names[each.topic_id]: each.partitions for each in answer.assignment.topic_partitions}

    @staticmethod
    def attempt(operation: Callable[[], Any]) -> Any:
        """The answer, or the code of the error that was raised."""
        try:
            return operation()
        except KafkaError as error:
            return error.code

    # -- the formats of the consumer protocol

    @staticmethod
    def subscription(*topics: str, version: int = 1, owned: dict[str, list[int]] | None = None) -> bytes:
        message = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in (owned or {}).items()
            ],
        )
        return version.to_bytes(2, "big") + message.encode(version)

    @staticmethod
    def consumer_assignment(**partitions: list[int]) -> bytes:
        message = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in partitions.items()
            ]
        )
        return b"\x00\x01" + message.encode(1)


def persisted(shard: GroupShard) -> dict[str, Any]:
    """The state that a restart must restore."""
    groups: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if group.type_name == "classic":
            stored = group.stored
            groups[group_id] = ("classic", None if stored is None else stored.encode(3))
        else:
            groups[group_id] = (
                "consumer",
                group.epoch,
                group.metadata_hash,
                group.target_epoch,
                group.target_timestamp_ms,
                group.target,
                group.members,
                group.static_members,
                group.regexes,
                group._owner_epochs,
            )
    return {
        "groups": groups,
        "offsets": shard.offsets.groups,
        "pending": {producer: offsets for producer, offsets in shard.offsets.pending.items() if offsets},
    }


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def persisted_state() -> Callable[[GroupShard], dict[str, Any]]:
    return persisted


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parent / "golden"
