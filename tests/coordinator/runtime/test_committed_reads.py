"""What reads see while writes wait for followers: the state below the high watermark, as in Kafka's coordinators."""

from typing import Any

import pytest

from ottla.answers import Reply
from ottla.coordinator.groups import requests
from ottla.coordinator.runtime.interfaces import Client
from ottla.errors import CoordinatorNotAvailable, NotCoordinator
from ottla.wire.messages import (
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)


@pytest.fixture
def world(make_world: Any) -> Any:
    world = make_world()
    world.topic("t", 2)
    world.topic("u", 2)
    return world


def commit(world: Any, topic: str, index: int, offset: int, group_id: str = "g") -> Any:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    entry = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    request = OffsetCommitRequest(group_id=group_id, topics=[entry])
    return requests.commit_offsets(world.coordinator, request, Client("c", "/h", 9))


def asked(group_id: str) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=[topic])


def states(world: Any) -> dict[str, str]:
    return {group.group_id: group.group_state for group in requests.list_groups(world.coordinator).groups}


def described(world: Any, group_id: str) -> Any:
    return requests.describe_consumer_groups(world.coordinator, [group_id])[0]


def test_an_offset_is_visible_when_it_is_replicated(world: Any) -> None:
    world.commit({("t", 0): 1, ("u", 0): 1})
    world.writer.hold = True
    waiting = [commit(world, "t", 0, 2), commit(world, "u", 0, 2), commit(world, "t", 0, 3)]
    assert all(isinstance(answer, Reply) and not answer.done for answer in waiting)
    assert world.offset("t", 0).committed_offset == 1
    assert world.offset("u", 0).committed_offset == 1
    # The second write is replicated, the later ones are not:
    world.writer.committed_offset = world.writer.end_offset - 1
    assert world.offset("t", 0).committed_offset == 2
    assert world.offset("u", 0).committed_offset == 2
    world.writer.release()
    assert world.offset("t", 0).committed_offset == 3
    assert [answer.value.topics[0].partitions[0].error_code for answer in waiting] == [0, 0, 0]
    world.commit({("t", 0): 4})
    assert world.offset("t", 0).committed_offset == 4


def test_a_group_is_listed_when_its_record_is_replicated(world: Any) -> None:
    world.writer.hold = True
    commit(world, "t", 0, 2, "new")
    assert states(world) == {}
    assert world.offset("t", 0, group_id="new").committed_offset == -1
    assert requests.describe_groups(world.coordinator, ["new"], 6)[0].group_state == "Dead"
    world.writer.release()
    assert states(world) == {"new": "Empty"}
    assert world.offset("t", 0, group_id="new").committed_offset == 2


def test_a_deleted_group_is_visible_until_the_deletion_is_replicated(world: Any) -> None:
    world.commit({("t", 0): 1, ("u", 1): 7})
    world.writer.hold = True
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    requests.delete_offsets(world.coordinator, OffsetDeleteRequest(group_id="g", topics=[topic]))
    assert world.offset("t", 0).committed_offset == 1
    world.writer.release()
    assert world.offset("t", 0).committed_offset == -1
    world.writer.hold = True
    (deleted,) = requests.delete_groups(world.coordinator, ["g"])
    assert isinstance(deleted, Reply) and not deleted.done
    assert states(world) == {"g": "Empty"}
    assert world.offset("u", 1).committed_offset == 7
    world.writer.release()
    assert deleted.value.error_code == 0
    assert states(world) == {}


def test_a_consumer_group_is_described_as_it_is_committed(world: Any) -> None:
    world.consumer("a", 0, topics=["t"])
    before = described(world, "n")
    assert [member.member_id for member in before.members] == ["a"]
    world.writer.hold = True
    world.consumer("b", 0, topics=["t"])
    world.consumer("c", 0, topics=["t"])
    assert described(world, "n") == before
    assert sorted(world.group("n").members) == ["a", "b", "c"]
    world.writer.release()
    after = described(world, "n")
    assert sorted(member.member_id for member in after.members) == ["a", "b", "c"]
    assert after.group_epoch > before.group_epoch


def test_a_stable_fetch_waits_for_replication(world: Any) -> None:
    world.commit({("t", 0): 1})
    world.writer.hold = True
    commit(world, "t", 0, 2)
    answer = requests.fetch_offsets(world.coordinator, asked("g"), by_id=False, require_stable=True)
    assert isinstance(answer, Reply) and not answer.done
    world.writer.release()
    assert answer.value.topics[0].partitions[0].committed_offset == 2
    assert world.offset("t", 0, require_stable=True).committed_offset == 2, "no request waits any more"


def test_an_answer_without_records_waits_for_those_before_it(world: Any) -> None:
    (member,) = world.stable()
    world.writer.hold = True
    commit(world, "t", 0, 2, "other")
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    waiting: list[Any] = [requests.heartbeat(world.coordinator, request) for _ in range(2)]
    assert all(isinstance(answer, Reply) and not answer.done for answer in waiting)
    world.writer.release(NotCoordinator())
    for answer in waiting:
        with pytest.raises(NotCoordinator):
            _ = answer.value


def test_a_write_that_is_not_replicated_in_time_fails(world: Any) -> None:
    world.writer.hold = True
    answer = commit(world, "t", 0, 2)
    world.clock.advance(4_999)
    world.timer.fire_due()
    assert not answer.done
    world.clock.advance(2)
    world.timer.fire_due()
    with pytest.raises(CoordinatorNotAvailable):
        _ = answer.value
    world.writer.release()
    assert world.offset("t", 0).committed_offset == 2, "it may still be replicated later"


def test_a_new_leader_shows_what_is_committed(world: Any) -> None:
    world.commit({("t", 0): 1})
    world.consumer("a", 0, topics=["t"])
    before = described(world, "n")
    world.writer.hold = True
    commit(world, "t", 0, 2)
    world.consumer("b", 0, topics=["t"])
    world.restart()
    assert world.offset("t", 0).committed_offset == 1
    assert described(world, "n") == before
    stable = requests.fetch_offsets(world.coordinator, asked("g"), by_id=False, require_stable=True)
    assert isinstance(stable, Reply) and not stable.done, "the records it found are not committed either"
    world.writer.release()
    assert world.offset("t", 0).committed_offset == 2
    assert len(described(world, "n").members) == 2


def test_offsets_of_a_transaction_are_seen_when_its_marker_is_committed(world: Any) -> None:
    world.commit({("t", 0): 1})
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    request = TxnOffsetCommitRequest(group_id="g", producer_id=5, producer_epoch=0, topics=[topic])
    requests.commit_transactional_offsets(world.coordinator, request, Client("c", "/h", 3))
    world.writer.hold = True
    world.shard.complete_transaction(5, 0, 0, commit=True)
    assert world.offset("t", 0).committed_offset == 1
    world.writer.release()
    assert world.offset("t", 0).committed_offset == 9
