"""CoordinatorRuntime: the partitions of groups, answers that wait, and answers while a shard is not ready."""

import asyncio
from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups import requests
from ottla.coordinator.groups.records import CommittedOffset, OffsetRecord
from ottla.coordinator.groups.settings import GroupSettings
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from ottla.metadata.topics import internal_partition, java_hash
from support.loading import run_turns, slow_log
from support.virtual_loop import run_virtual


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001d4b3", 0xD835 * 31 + 0xDCB3)],
)
def test_the_hash_of_a_string_equals_javas(text: str, expected: int) -> None:
    """The hash uses UTF-16 code units and Java's overflow; a character outside the first plane is two units."""
    assert java_hash(text) == expected


def test_groups_map_to_the_partitions_that_kafka_uses() -> None:
    """The partitions of golden/*.log, from a real broker with four partitions."""
    assert [internal_partition(group, 4) for group in ("new", "cls", "simple", "txg")] == [0, 2, 2, 3]
    assert internal_partition("polygenelubricants", 50) == 0


def test_a_group_of_another_coordinator_is_refused(make_world: Any) -> None:
    world = make_world(offsets_partitions=4)
    coordinator = world.coordinator
    assert coordinator.shard_for("new").partition == 0
    with pytest.raises(NotCoordinator):
        coordinator.shard_for("cls")
    offset = OffsetRecord("cls", "t", 0, CommittedOffset(7, -1, "", 0))
    coordinator.lead(2, world.writer, slow_log(world.clock, lambda number: offset.encode(), 100))
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.shard_for("cls")
    assert world.heartbeat("m", 1, group_id="cls") == 0
    with pytest.raises(CoordinatorLoadInProgress):
        requests.list_groups(coordinator)
    coordinator.lead(2, world.writer, [])
    run_turns(world.turns)
    assert coordinator.shard_for("cls").partition == 2
    coordinator.resign(2)
    with pytest.raises(NotCoordinator):
        coordinator.shard_for("cls")
    coordinator.stop()
    with pytest.raises(CoordinatorNotAvailable):
        coordinator.shard_for("new")


def test_an_answer_waits_for_replicas(world: Any) -> None:
    world.topic("t")
    world.writer.hold = True
    answers = [world.shard.run(world.shard.offsets.commit(*commit_request(world, offset))) for offset in (1, 2)]
    assert [answer.done for answer in answers] == [False, False]
    world.writer.release()
    assert [answer.value.topics[0].partitions[0].error_code for answer in answers] == [0, 0]


def test_an_answer_fails_when_its_records_are_lost(world: Any) -> None:
    world.topic("t")
    world.writer.hold = True
    answer = world.shard.run(world.shard.offsets.commit(*commit_request(world, 1)))
    world.writer.release(NotLeaderOrFollower())
    with pytest.raises(NotLeaderOrFollower):
        _ = answer.value


def test_a_failed_append_changes_nothing(world: Any, persisted_state: Any) -> None:
    world.topic("t")
    world.writer.fail_with = NotLeaderOrFollower()
    before = persisted_state(world.shard)
    with pytest.raises(KafkaError):
        world.commit({("t", 0): 1})
    assert world.consumer("m", 0, topics=["t"]) == NotLeaderOrFollower.code
    assert persisted_state(world.shard) == before


def test_each_operation_writes_one_batch(world: Any) -> None:
    world.topic("t")
    world.commit({("t", 0): 1, ("t", 1): 2})
    world.consumer("m", 0, topics=["t"])
    assert len(world.writer.batches) == 2


def commit_request(world: Any, offset: int) -> Any:
    from ottla.coordinator.runtime.interfaces import Client
    from ottla.wire.messages import OffsetCommitRequest

    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )
    return request, Client("client", "/127.0.0.1", 9)


def test_a_reply_can_be_awaited_before_and_after() -> None:
    async def main() -> list[int]:
        early: Reply[int] = Reply()
        late: Reply[int] = Reply()
        late.resolve(2)
        late.resolve(3)
        asyncio.get_running_loop().call_soon(early.resolve, 1)
        future = early.future()
        assert isinstance(future, asyncio.Future)
        return [await early, await late, await future]

    assert run_virtual(main()) == [1, 2, 1]


def test_a_failed_reply_raises() -> None:
    async def main() -> None:
        reply: Reply[int] = Reply()
        other: Reply[int] = Reply()
        reply.forward(other)
        reply.fail(NotCoordinator())
        with pytest.raises(NotCoordinator):
            await reply
        with pytest.raises(NotCoordinator):
            _ = other.value

    run_virtual(main())


def test_settings_come_from_the_configuration() -> None:
    from ottla.config import Config

    settings = GroupSettings.from_config(Config.load(overrides={"group.max.size": "7"}))
    assert settings.max_size == 7
    assert settings.consumer_assignors == ("uniform", "range")
    assert settings.consumer_migration_policy == "bidirectional"
    assert settings.offsets_retention_ms == 7 * 24 * 60 * 60_000
    assert settings.compression_codec == 0
