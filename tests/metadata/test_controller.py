"""Topics and partitions: what is created, which messages refusals have, and that nothing is half done."""

from typing import Any

import pytest

from ottla.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.controller import PRODUCER_ID_BLOCK, NewTopic
from ottla.metadata.image import TopicState
from ottla.metadata.replica_placement import place_replicas


def create(world: Any, *names: str, **fields: Any) -> None:
    for outcome in world.controller.create_topics([NewTopic(name, **fields) for name in names]):
        assert isinstance(outcome, TopicState), outcome


def refused(world: Any, topic: NewTopic) -> KafkaError:
    before = len(world.written)
    [outcome] = world.controller.create_topics([topic])
    assert isinstance(outcome, KafkaError), outcome
    assert len(world.written) == before
    return outcome


def test_a_topic_gets_the_brokers_defaults(make_world: Any) -> None:
    world = make_world(1, 2, 3, num_partitions=4, default_replication_factor=2)
    create(world, "t")
    partitions = world.image.topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3]
    for partition in partitions.values():
        assert len(set(partition.replicas)) == 2
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert partition.directories == [broker.to_bytes(16, "big") for broker in partition.replicas]


def test_one_refused_topic_does_not_refuse_the_others(world: Any) -> None:
    outcomes = world.controller.create_topics([NewTopic("a"), NewTopic("b b"), NewTopic("c")])
    assert [type(outcome) for outcome in outcomes] == [TopicState, InvalidTopicException, TopicState]
    assert list(world.image.topics) == ["a", "c"]


def test_validating_writes_nothing(world: Any) -> None:
    before = list(world.written)
    [outcome] = world.controller.create_topics([NewTopic("t", 3)], validate_only=True)
    assert len(outcome.partitions) == 3
    assert world.written == before


MANUAL = {"num_partitions": -1, "replication_factor": -1}
REFUSED = [
    (NewTopic("there"), TopicAlreadyExists, "Topic 'there' already exists."),
    (NewTopic("a_b"), InvalidTopicException, "Topic 'a_b' collides with existing topic: a.b"),
    (NewTopic("a.b"), TopicAlreadyExists, "Topic 'a.b' already exists."),
    (NewTopic("t", 0), InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
    (
        NewTopic("t", 0, 0),
        InvalidReplicationFactor,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        NewTopic("t", 1, 2),
        InvalidReplicationFactor,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        NewTopic("t", assignments=[(0, [1])], num_partitions=-1, replication_factor=1),
        InvalidRequest,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        NewTopic("t", assignments=[(0, [1])], num_partitions=1, replication_factor=-1),
        InvalidRequest,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        NewTopic("t", assignments=[(1, [1]), (1, [1])]),
        InvalidReplicaAssignment,
        "Found multiple manual partition assignments for partition 1",
    ),
    (
        NewTopic("t", assignments=[(0, [1]), (2, [1])]),
        InvalidReplicaAssignment,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        NewTopic("t", assignments=[(0, [])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        NewTopic("t", assignments=[(0, [1, 9])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        NewTopic("t", assignments=[(0, [1, 1])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        NewTopic("t", configs={"retention.ms": None, "b.x": None, "segment.ms": "1"}),
        InvalidConfig,
        "Null value not supported for topic configs: retention.ms,b.x",
    ),
    (NewTopic("t", configs={"no.such": "1"}), InvalidConfig, "Unknown topic config name: no.such"),
]


@pytest.mark.parametrize(("topic", "error", "message"), REFUSED, ids=lambda value: getattr(value, "name", None))
def test_refusals_have_kafkas_messages(world: Any, topic: NewTopic, error: type[KafkaError], message: str) -> None:
    create(world, "there", "a.b")
    found = refused(world, topic)
    assert (type(found), found.message) == (error, message)


def test_manual_assignments_of_different_lengths_are_refused(make_world: Any) -> None:
    world = make_world(1, 2)
    found = refused(world, NewTopic("t", assignments=[(0, [1, 2]), (1, [1])]))
    assert found.message == (
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
        "previous partitions, which have 2 replica(s)."
    )


def test_one_request_may_create_names_that_collide(world: Any) -> None:
    create(world, "a.b", "a_b")
    assert list(world.image.topics) == ["a.b", "a_b"]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((9_999,), None),
        ((10_000,), "Unable to perform excessively large batch operation."),
        ((6_000, 4_001), "Excessively large number of partitions per request."),
    ],
)
def test_a_request_is_bounded_as_a_whole(world: Any, counts: tuple[int, ...], message: str | None) -> None:
    wanted = [NewTopic(f"t{number}", count) for number, count in enumerate(counts)]
    if message is None:
        world.controller.create_topics(wanted, validate_only=True)
    else:
        with pytest.raises(PolicyViolation, match=message):
            world.controller.create_topics(wanted, validate_only=True)


def grow(world: Any, *wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Any:
    return world.controller.create_partitions(wanted, validate_only)


def test_partitions_are_added_after_the_existing_ones(make_world: Any) -> None:
    world = make_world(1, 2)
    create(world, "t", num_partitions=2, replication_factor=2)
    topic_id = world.image.topics["t"].topic_id
    assert grow(world, ("t", 4, None)) == [None]
    assert grow(world, ("t", 5, [[2, 1]])) == [None]
    topic = world.image.topics["t"]
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert topic.topic_id == topic_id
    assert topic.partitions[4].replicas == [2, 1]
    assert all(len(partition.replicas) == 2 for partition in topic.partitions.values())


GROWTH_REFUSED: list[tuple[str, int, list[list[int]] | None, type[KafkaError], str]] = [
    ("none", 3, None, UnknownTopicOrPartition, UnknownTopicOrPartition.default_message),
    ("t", 3, None, InvalidPartitions, "Topic already has 3 partition(s)."),
    ("t", 2, None, InvalidPartitions, "The topic t currently has 3 partition(s); 2 would not be an increase."),
    (
        "t",
        5,
        [[1]],
        InvalidReplicaAssignment,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    ("t", 4, [[]], InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list."),
    ("t", 10_004, None, UnknownServerError, UnknownServerError.default_message),
]


@pytest.mark.parametrize(("name", "count", "assignments", "error", "message"), GROWTH_REFUSED)
def test_refused_growth_changes_nothing(
    world: Any, name: str, count: int, assignments: Any, error: type[KafkaError], message: str
) -> None:
    create(world, "t", num_partitions=3)
    before = len(world.written)
    [found] = grow(world, (name, count, assignments))
    assert (type(found), found.message) == (error, message)
    assert len(world.written) == before


def test_validated_growth_changes_nothing(world: Any) -> None:
    create(world, "t")
    assert grow(world, ("t", 3, None), validate_only=True) == [None]
    assert len(world.image.topics["t"].partitions) == 1


def test_deleting_a_topic_deletes_its_configs(world: Any) -> None:
    create(world, "t", configs={"retention.ms": "1"})
    world.controller.delete_topics([world.image.topics["t"]])
    assert not world.image.topics
    assert not world.image.configs


def test_producer_ids_are_never_assigned_twice(world: Any) -> None:
    first = world.controller.allocate_producer_ids(1, 0)
    second = world.controller.allocate_producer_ids(1, 0)
    assert len(first) == PRODUCER_ID_BLOCK
    assert second.start == first.stop
    assert world.replayed().next_producer_id == second.stop


@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (3, 1), (3, 3), (5, 3)])
def test_leaders_and_replicas_are_spread_evenly(brokers: int, factor: int) -> None:
    ids = list(range(brokers))
    placed = place_replicas(ids, dict.fromkeys(ids), 60, factor, lambda limit: 0)
    for role in range(factor):
        counts = [sum(replicas[role] == broker for replicas in placed) for broker in ids]
        assert max(counts) - min(counts) <= 60 // brokers, (role, counts)
    leaders = [sum(replicas[0] == broker for replicas in placed) for broker in ids]
    assert set(leaders) == {60 // brokers}
    assert all(len(set(replicas)) == factor for replicas in placed)


def test_replicas_go_to_different_racks() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b"}
    for replicas in place_replicas(list(racks), racks, 4, 2, lambda limit: 0):
        assert {racks[broker] for broker in replicas} == {"a", "b"}
