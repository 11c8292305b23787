"""Elections on request, and reassignments of replicas."""

from typing import Any

import pytest

from ottla.enums import ElectionType
from ottla.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.metadata.controller import NewTopic
from ottla.metadata.image import PartitionState
from ottla.metadata.reassignment import elect_leader, is_reassigning, reassign
from ottla.wire.stored import metadata as stored


@pytest.fixture
def three(make_world: Any) -> Any:
    world = make_world(1, 2, 3, 4)
    world.controller.create_topics([NewTopic("t", assignments=[(0, [1, 2, 3])])])
    return world


def partition(world: Any) -> PartitionState:
    found: PartitionState = world.image.topics["t"].partitions[0]
    return found


def change(world: Any, **fields: Any) -> None:
    topic_id = world.image.topics["t"].topic_id
    world.append([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id, **fields)])


def fence(world: Any, *brokers: int) -> None:
    world.append([stored.FenceBrokerRecord(id=broker) for broker in brokers])


def elect(world: Any, kind: int, topic: str = "t", index: int = 0) -> None:
    world.append([elect_leader(world.image, topic, index, kind)])


def move(world: Any, replicas: list[int] | None, **options: Any) -> None:
    record = reassign(world.image, "t", 0, replicas, directories=world.controller.directories, **options)
    if record is not None:
        world.append([record])


def test_the_preferred_leader_is_elected_again(three: Any) -> None:
    with pytest.raises(ElectionNotNeeded):
        elect(three, ElectionType.PREFERRED)
    change(three, leader=2)
    epoch = partition(three).leader_epoch
    elect(three, ElectionType.PREFERRED)
    assert (partition(three).leader, partition(three).leader_epoch) == (1, epoch + 1)


def test_a_preferred_leader_out_of_sync_or_away_is_not_elected(three: Any) -> None:
    change(three, leader=2, isr=[2, 3])
    with pytest.raises(PreferredLeaderNotAvailable):
        elect(three, ElectionType.PREFERRED)
    change(three, isr=[1, 2, 3])
    fence(three, 1)
    with pytest.raises(PreferredLeaderNotAvailable):
        elect(three, ElectionType.PREFERRED)


def test_an_unclean_election_takes_any_live_replica(three: Any) -> None:
    with pytest.raises(ElectionNotNeeded):
        elect(three, ElectionType.UNCLEAN)
    change(three, leader=-1, isr=[1])
    fence(three, 1, 2)
    elect(three, ElectionType.UNCLEAN)
    found = partition(three)
    assert (found.leader, found.isr, found.leader_recovery_state) == (3, [3], 1)
    change(three, leader=-1)
    fence(three, 3)
    with pytest.raises(EligibleLeadersNotAvailable):
        elect(three, ElectionType.UNCLEAN)


def test_unknown_partitions_cannot_be_elected(three: Any) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="No such topic as x"):
        elect(three, ElectionType.PREFERRED, "x")
    with pytest.raises(UnknownTopicOrPartition, match="No such partition as t-7"):
        elect(three, ElectionType.PREFERRED, "t", 7)


def test_another_order_or_fewer_replicas_are_done_at_once(three: Any) -> None:
    before = len(three.written)
    move(three, [1, 2, 3])
    assert len(three.written) == before
    move(three, [3, 2, 1])
    assert (partition(three).replicas, partition(three).leader) == ([3, 2, 1], 1)
    move(three, [2])
    found = partition(three)
    assert (found.replicas, found.isr, found.leader, is_reassigning(found)) == ([2], [2], 2, False)
    assert found.directories == three.controller.directories([2])


def test_a_new_replica_is_added_first_and_can_be_cancelled(three: Any) -> None:
    move(three, [4, 2])
    found = partition(three)
    assert found.replicas == [4, 2, 1, 3]
    assert (found.adding_replicas, found.removing_replicas) == ([4], [1, 3])
    assert (found.leader, found.isr) == (1, [1, 2, 3])
    move(three, None)
    assert not is_reassigning(partition(three))
    assert sorted(partition(three).replicas) == [1, 2, 3]
    with pytest.raises(NoReassignmentInProgress):
        move(three, None)


def test_a_move_that_caught_up_completes(three: Any) -> None:
    move(three, [4, 2])
    change(three, isr=[1, 2, 3, 4])
    move(three, [4, 2])
    found = partition(three)
    assert (found.replicas, found.isr, found.leader, is_reassigning(found)) == ([4, 2], [2, 4], 4, False)


def test_cancelling_may_need_an_unclean_election(three: Any) -> None:
    move(three, [4])
    change(three, isr=[4], leader=4)
    with pytest.raises(InvalidReplicaAssignment, match="it would require an unclean leader election"):
        move(three, None)
    move(three, None, may_elect_unclean=True)
    assert partition(three).leader in (1, 2, 3)


def test_the_replication_factor_can_be_guarded(three: Any) -> None:
    with pytest.raises(InvalidReplicationFactor):
        move(three, [1, 2], may_change_factor=False)
    move(three, [1, 2, 4], may_change_factor=False)
    with pytest.raises(InvalidReplicaAssignment, match="broker 9, but no such broker"):
        move(three, [9])
