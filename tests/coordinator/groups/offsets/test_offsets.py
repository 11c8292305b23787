"""Committed offsets: what is kept, for how long, and who may change it."""

from typing import Any

import pytest

from ottla.coordinator.groups import requests
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.runtime.interfaces import Client
from ottla.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ottla.wire.messages import OffsetDeleteRequest, OffsetFetchRequest, TxnOffsetCommitRequest

DAY_MS = 24 * 60 * 60_000


def txn_commit(world: Any, producer_id: int, offset: int, *, group_id: str = "g", **fields: Any) -> Any:
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
        **fields,
    )
    client = Client("client", "/127.0.0.1", 5)
    answer = world.attempt(lambda: requests.commit_transactional_offsets(world.coordinator, request, client))
    return answer if isinstance(answer, int) else answer.topics[0].partitions[0].error_code


def delete(world: Any, group_id: str, topic: str, partition: int) -> Any:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)],
            )
        ],
    )
    answer = world.attempt(lambda: requests.delete_offsets(world.coordinator, request))
    return answer if isinstance(answer, int) else answer.topics[0].partitions[0].error_code


@pytest.fixture(autouse=True)
def topic(world: Any) -> None:
    world.topic("t")


def test_a_commit_without_a_member_creates_a_simple_group(world: Any, persisted_state: Any) -> None:
    assert world.commit({("t", 0): 5}, metadata="note") == {("t", 0): 0}
    found = world.offset("t", 0)
    assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (5, "note", -1)
    assert world.group().is_simple
    world.commit({("t", 0): 3})
    assert world.offset("t", 0).committed_offset == 3
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"offsets": {("t", 0): 1}, "epoch": 3, "member_id": "x", "version": 8}, IllegalGeneration.code),
        ({"offsets": {("t", 0): 1}, "epoch": 3, "member_id": "x", "version": 9}, GroupIdNotFound.code),
        ({"offsets": {("zz", 0): 1}}, UnknownTopicOrPartition.code),
        ({"offsets": {("zz", 0): 1}, "epoch": 3, "member_id": "x"}, UnknownTopicOrPartition.code),
        ({"offsets": {("t", 99): 1}}, UnknownTopicOrPartition.code),
        ({"offsets": {("t", 0): 1}, "metadata": "x" * 4097}, OffsetMetadataTooLarge.code),
    ],
)
def test_refused_commits_write_nothing(world: Any, arguments: Any, code: int) -> None:
    assert list(world.commit(**arguments).values()) == [code]
    assert not world.writer.batches
    # As on Kafka: only the commit with too much metadata created the group that refused it.
    assert ("g" in world.shard.groups) == (code == OffsetMetadataTooLarge.code)


@pytest.mark.parametrize("version", [0, 1, 2, 8, 9, 10])
@pytest.mark.parametrize("metadata", [None, "x" * 4096])
def test_every_version_commits(world: Any, version: int, metadata: str | None) -> None:
    assert world.commit({("t", 0): 7}, version=version, metadata=metadata, group_id="") == {("t", 0): 0}
    assert world.offset("t", 0, group_id="").metadata == (metadata or "")


def test_one_bad_partition_does_not_fail_the_others(world: Any) -> None:
    assert world.commit({("t", 0): 1, ("zz", 0): 1, ("t", 99): 1}) == {("t", 0): 0, ("zz", 0): 3, ("t", 99): 3}
    assert world.offset("t", 0).committed_offset == 1


def test_fetching_an_uncommitted_offset_is_not_an_error(world: Any) -> None:
    found = world.offset("t", 0, group_id="nope")
    assert (found.committed_offset, found.error_code, found.metadata) == (-1, 0, "")
    world.commit({("t", 0): 1})
    assert world.offset("zz", 0).committed_offset == -1


def test_offsets_are_fetched_for_all_topics_and_by_topic_id(world: Any) -> None:
    world.topic("u")
    world.commit({("t", 0): 1, ("t", 2): 3, ("u", 1): 9})
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = requests.fetch_offsets(world.coordinator, group, by_id=True, require_stable=False)
    names = {topic.topic_id: topic.name for topic in world.image.topics.values()}
    assert {
        (names[topic.topic_id], partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    } == {("t", 0): 1, ("t", 2): 3, ("u", 1): 9}
    group.topics = [OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0])]
    answer = requests.fetch_offsets(world.coordinator, group, by_id=True, require_stable=False)
    assert answer.topics[0].partitions[0].error_code == UnknownTopicId.code


def test_offsets_of_an_empty_group_expire(world: Any, persisted_state: Any) -> None:
    """The retention starts when the group becomes empty, not at the commit (KIP-211)."""
    (member_id,) = world.stable()
    world.commit({("t", 0): 1}, member_id=member_id, epoch=1)
    for _ in range(4 * 24 * 6):
        world.clock.advance(10 * 60_000 - 5000)
    assert world.group().is_empty
    emptied_ms = world.group().state_timestamp_ms
    assert world.offset("t", 0).committed_offset == 1
    world.clock.advance(emptied_ms + 7 * DAY_MS - world.clock.now_ms() - 1)
    assert world.offset("t", 0).committed_offset == 1
    world.clock.advance(11 * 60_000)
    assert "g" not in world.shard.groups
    assert world.shard.offsets.groups == {}
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_offsets_of_a_live_group_stay(world: Any) -> None:
    (member_id,) = world.stable(session_timeout_ms=1_800_000)
    world.commit({("t", 0): 1}, member_id=member_id, epoch=1)
    for _ in range(8 * 24 * 2 + 1):
        world.clock.advance(30 * 60_000 - 1)
        assert world.heartbeat(member_id, 1) == 0
    assert world.offset("t", 0).committed_offset == 1


def test_a_stable_consumer_group_forgets_topics_it_no_longer_reads(world: Any) -> None:
    world.topic("u")
    options = {"protocols": (("range", world.subscription("t")),), "session_timeout_ms": 1_800_000}
    (member_id,) = world.stable(**options)
    world.commit({("t", 0): 1, ("u", 0): 2}, member_id=member_id, epoch=1)
    for _ in range(8 * 24 * 2 + 1):
        world.clock.advance(30 * 60_000 - 1)
        world.heartbeat(member_id, 1)
    assert world.offset("t", 0).committed_offset == 1
    assert world.offset("u", 0).committed_offset == -1


def test_a_commit_with_its_own_retention_expires_by_it(world: Any, persisted_state: Any) -> None:
    world.commit({("t", 0): 1}, version=2, retention_ms=60_000)
    world.commit({("t", 1): 1})
    world.clock.advance(601_000)
    assert world.offset("t", 0).committed_offset == -1
    assert world.offset("t", 1).committed_offset == 1
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_version_1_sets_its_own_timestamp(world: Any) -> None:
    long_ago_ms = world.clock.now_ms() - 8 * DAY_MS
    world.commit({("t", 0): 1}, version=1, timestamp_ms=long_ago_ms)
    world.commit({("t", 1): 1}, version=1)
    world.clock.advance(601_000)
    assert world.offset("t", 0).committed_offset == -1
    assert world.offset("t", 1).committed_offset == 1


def test_deleting_a_topic_removes_its_offsets_everywhere(world: Any, persisted_state: Any) -> None:
    world.topic("u")
    for group_id in ("a", "b"):
        world.commit({("t", 0): 1, ("u", 0): 2}, group_id=group_id)
    txn_commit(world, 7, 5)
    world.delete_topic("t")
    assert [list(offsets) for offsets in world.shard.offsets.groups.values()] == [["u"], ["u"]]
    world.shard.complete_transaction(7, 0, 0, commit=True)
    assert "g" not in world.shard.offsets.groups
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_transactional_offsets_wait_for_the_marker(world: Any, persisted_state: Any) -> None:
    world.commit({("t", 0): 1})
    assert txn_commit(world, 7, 5) == 0
    assert world.offset("t", 0).committed_offset == 1
    assert world.offset("t", 0, require_stable=True).error_code == UnstableOffsetCommit.code
    assert world.offset("t", 1, require_stable=True).error_code == 0
    assert persisted_state(world.fresh()) == persisted_state(world.shard)
    world.shard.complete_transaction(7, 0, 0, commit=True)
    assert world.offset("t", 0, require_stable=True).committed_offset == 5
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_an_aborted_transaction_changes_nothing(world: Any, persisted_state: Any) -> None:
    world.commit({("t", 0): 1})
    txn_commit(world, 7, 5)
    world.shard.complete_transaction(7, 0, 0, commit=False)
    assert world.offset("t", 0, require_stable=True).committed_offset == 1
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_the_later_of_two_commits_wins(world: Any) -> None:
    """A plain commit after the transactional one is newer, although the marker comes last."""
    txn_commit(world, 7, 5)
    world.commit({("t", 0): 9})
    world.shard.complete_transaction(7, 0, 0, commit=True)
    assert world.offset("t", 0).committed_offset == 9


def test_pending_offsets_do_not_expire(world: Any) -> None:
    world.commit({("t", 0): 1})
    txn_commit(world, 7, 5)
    world.clock.advance(8 * DAY_MS)
    world.shard.complete_transaction(7, 0, 0, commit=True)
    assert world.offset("t", 0).committed_offset == 5


def test_transactional_commits_are_fenced_by_the_group(world: Any) -> None:
    (member_id,) = world.stable()
    assert txn_commit(world, 7, 5, generation_id=1, member_id=member_id) == 0
    assert txn_commit(world, 7, 5, generation_id=0, member_id=member_id) == 22
    assert txn_commit(world, 7, 5, generation_id=1, member_id="x") == 25
    assert txn_commit(world, 7, 5, generation_id=1, member_id="x", group_id="nope") == 22
    assert txn_commit(world, 7, 5, group_id="") == 24
    # Old clients send no member id, and are not checked.
    assert txn_commit(world, 7, 5) == 0


def test_a_transaction_from_kafkas_log_is_replayed(world: Any, golden: Any, make_world: Any) -> None:
    world.load((golden / "transactional-offsets.log").read_bytes())
    assert world.shard.offsets.groups["txg"]["foo"][2][1].offset == 3
    assert world.shard.offsets.pending == {}
    world.load((golden / "transactional-offsets.log").read_bytes()[:613])
    assert "txg" not in world.shard.offsets.groups
    assert world.shard.offsets.pending[0]["txg"]["foo"][2][1].offset == 3


def test_offset_delete(world: Any) -> None:
    world.commit({("t", 0): 1, ("t", 1): 1})
    assert delete(world, "g", "t", 0) == 0
    assert delete(world, "g", "t", 2) == 0
    assert delete(world, "g", "t", 99) == 3
    assert delete(world, "g", "zz", 0) == 3
    assert delete(world, "nope", "t", 0) == 69
    assert delete(world, "", "t", 0) == 24
    assert (world.offset("t", 0).committed_offset, world.offset("t", 1).committed_offset) == (-1, 1)


def test_offset_delete_in_live_groups(world: Any) -> None:
    world.topic("u")
    (member_id,) = world.stable(protocols=(("range", world.subscription("t")),))
    world.commit({("t", 0): 1, ("u", 0): 1}, member_id=member_id, epoch=1)
    assert delete(world, "g", "t", 0) == 86
    assert delete(world, "g", "u", 0) == 0


def test_only_empty_groups_are_deleted(world: Any, persisted_state: Any) -> None:
    world.stable(1, "busy")
    world.commit({("t", 0): 1}, group_id="simple")
    txn_commit(world, 7, 5, group_id="simple")
    world.consumer("m", 0, topics=["t"], group_id="new")
    world.consumer("m", -1, group_id="new")
    results = requests.delete_groups(world.coordinator, ["busy", "simple", "new", "nope"])
    assert [result.error_code for result in results] == [NonEmptyGroup.code, 0, 0, GroupIdNotFound.code]
    assert list(world.shard.groups) == ["busy"]
    world.shard.complete_transaction(7, 0, 0, commit=True)
    assert "simple" not in world.shard.offsets.groups
    assert persisted_state(world.fresh()) == persisted_state(world.shard)


def test_many_tombstones_are_written_in_several_batches(world: Any) -> None:
    world.topic("big", 2500)
    for start in range(0, 2500, 500):
        world.commit({("big", index): 1 for index in range(start, start + 500)})
    before = len(world.writer.batches)
    world.delete_topic("big")
    assert len(world.writer.batches) - before == 3
    assert isinstance(world.shard, GroupShard)
    assert world.shard.offsets.groups == {}
