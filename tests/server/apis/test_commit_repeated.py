"""Repeated commits take a shortcut. Its answers and records equal those of the normal path, byte for byte."""

import random
import struct
from functools import partial
from typing import Any

import pytest

from ottla.clock import ManualClock
from ottla.coordinator.groups.offsets.repeated_commits import PARTITIONS_MAX, CommitPlan
from ottla.enums import CoordinatorType
from ottla.errors import KafkaStorageError, UnknownMemberId, UnknownTopicOrPartition
from ottla.log.files import MemoryDisk, MemoryFile
from ottla.replication.partition import Partition
from ottla.server.apis.commit_repeated import RepeatedCommit
from ottla.server.coordinator_host import CoordinatorPartition
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from ottla.wire.primitives import ZERO_UUID
from support.repeating import NOW_MS, Talk, counted, same_both_ways

LAST_VERSION = 10
FIRST_TOPIC_ID_VERSION = 10


class Consumer(Talk):
    """A consumer that commits with one version of the API."""

    def __init__(self, running: Any, client: Any, version: int) -> None:
        super().__init__(running, client)
        self.version = version
        self.member_id, self.generation = "", -1

    def frame(
        self, offset: int, *, group: str = "g", topics: tuple[tuple[str, int], ...] = (("t", 0), ("u", 0)),
        metadata: str | None = "here", epoch: int = -1, retention_ms: int = -1, timestamp_ms: int = -1,
        generation: int | None = None, client_id: str = "c", behind: bytes = b"",
    ) -> bytes:  # fmt: skip
        by_id = self.version >= FIRST_TOPIC_ID_VERSION
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            retention_time_ms=retention_ms if 2 <= self.version <= 4 else -1,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name="" if by_id else name,
                    topic_id=self.topic_id(name) if by_id else ZERO_UUID,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset + position,
                            committed_leader_epoch=epoch if self.version >= 6 else -1,
                            commit_timestamp=timestamp_ms if self.version == 1 else -1,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for position, (name, index) in enumerate(topics)
            ],
        )
        return self.framed(request, self.version, client_id, behind)

    async def commit(self, offset: int, **how: Any) -> bytes:
        self.client.writer.write(self.frame(offset, **how))
        return await self.hear()

    async def committed(self, group: str = "g") -> Any:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        response = await self.client.call(OffsetFetchRequest(groups=[asked], require_stable=False), 8)
        return response.groups[0]

    async def join(self, group: str = "g") -> None:
        """Become the only member of a classic group."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = await self.client.call(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            3,
        )
        self.member_id, self.generation = joined.member_id, joined.generation_id
        everything = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        synced = await self.client.call(
            SyncGroupRequest(
                group_id=group, generation_id=self.generation, member_id=self.member_id, assignments=[everything]
            ),
            2,
        )
        assert synced.error_code == 0, synced

    async def leave(self, group: str = "g") -> None:
        await self.client.call(LeaveGroupRequest(group_id=group, member_id=self.member_id), 2)
        self.member_id, self.generation = "", -1


async def started(running: Any, version: int) -> Consumer:
    client = await running.connect()
    consumer = Consumer(running, client, version)
    await client.create_topic("t", 2)
    await client.create_topic("u")
    await client.call(FindCoordinatorRequest(key="g", key_type=CoordinatorType.GROUP), 2)
    return consumer


def offset_records(running: Any, topic_ids: list[bytes]) -> list[Any]:
    """Every commit in the logs of the offsets topic. Also checks the CRCs of their batches."""
    found = []
    for partition in running.broker.replicas:
        if partition.topic != "__consumer_offsets":
            continue
        for batch in partition.log.batches(0):
            assert batch.crc_ok()
            shape = batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch
            for record in batch.records():
                value = record.value
                for topic_id in topic_ids:
                    value = value and value.replace(topic_id, b"the topic's id..")
                if record.key[:2] == b"\0\1":
                    found.append((partition.index, batch.record_count, shape, record._replace(value=value)))
    return found


async def conversation(version: int, seed: int, running: Any) -> tuple[list[bytes], list[Any], list[Any]]:
    """A consumer that mostly repeats its requests, mixed with all requests that must not be mistaken for repeats."""
    rng = random.Random(seed)
    consumer = await started(running, version)
    commit = consumer.commit
    topic_ids = [consumer.topic_id(name) for name in ("t", "u")]
    members = version >= 1
    for step in range(140):
        offset = rng.randrange(1 << 40)
        running.broker.clock.advance(rng.choice((0, 0, 1, 7)))
        match rng.randrange(40):
            case 0:
                await commit(offset, topics=(("t", 1),))
            case 1:
                await commit(offset, topics=(("t", 7), ("u", 0)))
            case 2:
                await commit(offset, topics=(("nobody's", 0),))
            case 3:
                await commit(offset, group="h")
            case 4:
                await commit(offset, metadata=rng.choice((None, "", "there", "longer than that")))
            case 5:
                await commit(offset, epoch=3)
                await commit(offset, epoch=3)
                await commit(offset, epoch=3)
            case 6:
                await commit(offset, retention_ms=1000)
            case 7:
                await commit(offset, timestamp_ms=NOW_MS - 5)
            case 8:
                await commit(offset, generation=7)
            case 9:
                await commit(offset, client_id="d")
            case 10:
                await commit(offset, behind=b"\0\0")
            case 11:
                for _ in range(3):
                    await commit(offset, metadata="x" * 5000)
            case 12:
                await commit(rng.choice((-1, -2, 0, (1 << 63) - 2)))
            case 13 if members:
                await (consumer.leave() if consumer.member_id else consumer.join())
            case 14 if consumer.member_id:
                await consumer.join()
            case 15:
                await consumer.client.create_topic(f"new-{step}")
            case 16 | 17 | 18:
                frames = [consumer.frame(offset + n) for n in range(rng.randrange(2, 30))]
                if rng.random() < 0.3:
                    frames.insert(rng.randrange(len(frames)), consumer.frame(offset, topics=(("t", 9), ("u", 0))))
                consumer.client.writer.write(b"".join(frames))
                for _ in frames:
                    await consumer.hear()
            case 19:
                await commit(offset, topics=(("t", 0), ("t", 0)))
                await commit(offset, topics=(("t", 0), ("t", 0)))
                await commit(offset, topics=(("t", 0), ("t", 0)))
            case _:
                await commit(offset)
    kept = [await consumer.committed("g"), await consumer.committed("h")]
    return consumer.heard, kept, offset_records(running, topic_ids)


@pytest.mark.parametrize("version", range(LAST_VERSION + 1))
def test_repeated_commits_equal_ordinary_ones(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def main() -> None:
        for seed in range(2):
            converse = partial(conversation, version, seed)
            await same_both_ways(monkeypatch, RepeatedCommit, run_broker, converse, served_more_than=20)

    run(main())


def error_codes(answer: bytes) -> list[int]:
    """The error codes in the v8 answer to a commit for one partition of t and one of u."""
    per_topic = struct.Struct(">xxxih")  # the name's length and name, one partition, its number; then the tags
    first = 4 + 1 + 4 + 1
    return [per_topic.unpack_from(answer, first + n * (per_topic.size + 2))[1] for n in range(2)]


def test_the_third_commit_is_served_from_memory(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            first = consumer.client.frames.correlation_id
            with counted(monkeypatch, RepeatedCommit) as served:
                for offset in range(5):
                    await consumer.commit(offset)
                assert served == [first + 3, first + 4, first + 5]
                with monkeypatch.context() as patch:
                    patch.delattr(CommitPlan, "of")  # a client that alternates between partitions gets no template
                    for index in (0, 1, 0, 1, 0, 1):
                        await consumer.commit(9, topics=(("t", index),))
                assert served == [first + 3, first + 4, first + 5]
                many = tuple(("t", 0) for _ in range(PARTITIONS_MAX + 1))
                for _ in range(4):
                    await consumer.commit(9, topics=many)
                assert served == [first + 3, first + 4, first + 5]

    run(main())


def test_a_metadata_change_is_seen_at_once(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            for offset in range(4):
                assert error_codes(await consumer.commit(offset)) == [0, 0]
            await consumer.delete("u")
            assert error_codes(await consumer.commit(4)) == [0, UnknownTopicOrPartition.code] or error_codes(
                consumer.heard[-1]
            ) == [UnknownTopicOrPartition.code, 0]
            await consumer.client.create_topic("u")
            with counted(monkeypatch, RepeatedCommit) as served:
                for offset in range(5, 9):
                    assert error_codes(await consumer.commit(offset)) == [0, 0]
                assert served
            topics = {topic.name: topic.partitions[0].committed_offset for topic in (await consumer.committed()).topics}
            assert topics == {"t": 8, "u": 9}

    run(main())


def test_a_commit_keeps_a_member_alive_and_a_dead_one_is_refused(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            await consumer.join()
            with counted(monkeypatch, RepeatedCommit) as served:
                for offset in range(6):
                    running.broker.clock.advance(9_000)
                    assert error_codes(await consumer.commit(offset)) == [0, 0]
                assert len(served) == 4
                running.broker.clock.advance(11_000)
                assert error_codes(await consumer.commit(7)) == [
                    UnknownMemberId.code,
                    UnknownMemberId.code,
                ]  # UNKNOWN_MEMBER_ID
                assert len(served) == 4

    run(main())


def test_a_member_of_the_new_protocol_commits_until_it_leaves(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 9)
            consumer.member_id = "AAAAAAAAAAAAAAAAAAAAAA"

            async def beat(epoch: int, **how: Any) -> int:
                response = await consumer.client.call(
                    ConsumerGroupHeartbeatRequest(
                        group_id="g", member_id=consumer.member_id, member_epoch=epoch, server_assignor=None, **how
                    ),
                    1,
                )
                assert response.error_code == 0, response
                return response.member_epoch

            joined = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["t"], "topic_partitions": []}
            consumer.generation = await beat(0, **joined)
            with counted(monkeypatch, RepeatedCommit) as served:
                for offset in range(4):
                    assert error_codes(await consumer.commit(offset)) == [0, 0]
                assert len(served) == 2
                await beat(-1)
                assert error_codes(await consumer.commit(4)) == [
                    UnknownMemberId.code,
                    UnknownMemberId.code,
                ]  # UNKNOWN_MEMBER_ID
                assert len(served) == 2

    run(main())


def test_a_quota_is_seen_at_once(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            with counted(monkeypatch, RepeatedCommit) as served:
                for offset in range(3):
                    await consumer.commit(offset)
                assert len(served) == 1
                await consumer.limit("request_percentage")
                await consumer.commit(3)
                assert len(served) == 1

    run(main())


def test_commits_that_arrive_together_are_written_together(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    original = Partition.append_own_run

    def append_own_run(self: Partition, batches: Any) -> Any:
        offsets = original(self, batches)
        runs.append(len(offsets))
        return offsets

    async def main() -> None:
        monkeypatch.setattr(Partition, "append_own_run", append_own_run)
        outcomes = []
        for at_once in (1, 20):
            async with run_broker(disk=MemoryDisk(), clock=ManualClock(NOW_MS)) as running:
                consumer = await started(running, 8)
                frames = [consumer.frame(offset) for offset in range(60)]
                for first in range(0, 60, at_once):
                    consumer.client.writer.write(b"".join(frames[first : first + at_once]))
                    for _ in range(at_once):
                        await consumer.hear()
                topic_ids = [consumer.topic_id(name) for name in ("t", "u")]
                outcomes.append((consumer.heard, await consumer.committed(), offset_records(running, topic_ids)))
        assert max(runs) > 10
        assert outcomes[0] == outcomes[1]

    run(main())


@pytest.mark.parametrize("at_once", [1, 5])
def test_a_disk_error_is_answered(run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    def append(self: MemoryFile, buffers: Any) -> int:
        raise KafkaStorageError("no space left")

    async def main() -> None:
        async with run_broker(disk=MemoryDisk(), clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            for offset in range(4):
                await consumer.commit(offset)
            with monkeypatch.context() as patch:
                patch.setattr(MemoryFile, "append", append)
                consumer.client.writer.write(b"".join([consumer.frame(offset) for offset in range(9, 9 + at_once)]))
                for _ in range(at_once):
                    assert error_codes(await consumer.hear()) not in ([0, 0], [])
            assert (await consumer.committed()).topics[0].partitions[0].committed_offset in (3, 4)

    run(main())


def test_commits_that_wait_for_followers_use_the_normal_path(
    run: Any, run_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with run_broker(clock=ManualClock(NOW_MS)) as running:
            consumer = await started(running, 8)
            for offset in range(4):
                await consumer.commit(offset)
            with counted(monkeypatch, RepeatedCommit) as served, monkeypatch.context() as patch:
                patch.setattr(type(running.broker.groups.shard_for("g")), "commits_at_once", False)
                patch.setattr(CoordinatorPartition, "commits_at_once", False)
                for offset in range(4, 8):
                    assert error_codes(await consumer.commit(offset)) == [0, 0]
                assert not served

    run(main())
