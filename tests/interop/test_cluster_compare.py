"""What a cluster answers while all brokers work; the same tests run on Apache Kafka with `--cluster kafka`."""

from collections.abc import Callable
from typing import Any

from ottla.enums import ElectionType
from ottla.errors import (
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    FencedLeaderEpoch,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidUpdateVersion,
    LogDirNotFound,
    MismatchedEndpointType,
    NoReassignmentInProgress,
    NotCoordinator,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    UnsupportedAssignor,
)
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    ConsumerGroupHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    FetchRequest,
    ListPartitionReassignmentsRequest,
    OffsetForLeaderEpochRequest,
    ShareGroupHeartbeatRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from support.batches import batch, records_of
from support.interop.clusters import Clustered
from support.requests import new_topic

Check = Callable[[object, object], None]
Unique = Callable[[str], str]


def fetch(c: Clustered, broker: int, topic: str, offset: int = 0, version: int = 17, **more: Any) -> Any:
    """The whole answer; `replica`, `epoch`, `fetched_epoch`, `rack` are as in the protocol."""
    with c.wire(broker) as wire:
        part = FetchRequest.FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=more.get("epoch", -1),
            last_fetched_epoch=more.get("fetched_epoch", -1),
            partition_max_bytes=1 << 20,
        )
        entry = FetchRequest.FetchTopic(topic_id=wire.topic_id(topic), partitions=[part])
        return wire.call(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_epoch=-1,
                rack_id=more.get("rack", ""),
                replica_state=FetchRequest.ReplicaState(
                    replica_id=more.get("replica", -1), replica_epoch=more.get("replica_epoch", -1)
                ),
                topics=[entry],
            ),
            version,
        )


def fetched(c: Clustered, broker: int, topic: str, offset: int = 0, **more: Any) -> Any:
    return fetch(c, broker, topic, offset, **more).responses[0].partitions[0]


def create(
    c: Clustered, name: str, assignments: Any = (), partitions: int = -1, factor: int = -1, **configs: Any
) -> Any:
    wanted = new_topic(name, assignments=assignments, **configs)
    wanted.num_partitions, wanted.replication_factor = partitions, factor
    one = c.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0]
    return one.error_code, one.error_message


# -- requests to the wrong broker ------------------------------------------------------------------------------


def test_a_broker_that_does_not_lead_names_the_leader(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[2, 3]])
    for broker in (3, 1):  # a follower, and one without a replica
        code = NotLeaderOrFollower.code
        answer = cluster.produce(broker, topic)
        part = answer.responses[0].partition_responses[0]
        check((part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset), (code, -1, -1, -1))
        check((part.current_leader.leader_id, part.current_leader.leader_epoch), (2, 0))
        check([(one.node_id, one.port, one.rack) for one in answer.node_endpoints], [(2, cluster.addresses[2][1], "b")])
        check(cluster.produced(broker, topic, version=9), code)
        answer = fetch(cluster, broker, topic)
        part = answer.responses[0].partitions[0]
        if broker == 3:
            # A follower answers consumers from its own log (KIP-392).
            check((part.error_code, part.high_watermark), (0, 0))
            continue
        check(
            (part.error_code, part.high_watermark, part.log_start_offset, part.last_stable_offset), (code, -1, -1, -1)
        )
        check((part.current_leader.leader_id, part.current_leader.leader_epoch), (2, 0))
        check([(one.node_id, one.port, one.rack) for one in answer.node_endpoints], [(2, cluster.addresses[2][1], "b")])
    check(cluster.end_offset(3, topic), (NotLeaderOrFollower.code, -1))
    check(cluster.end_offset(1, topic), (NotLeaderOrFollower.code, -1))
    check(cluster.produced(3, topic, acks=1), NotLeaderOrFollower.code)
    for version in (13, 15, 16):
        part = fetched(cluster, 1, topic, version=version)
        leader = part.current_leader
        check((version, None if leader is None else leader.leader_id), (version, 2 if version == 16 else None))
    answer = fetch(cluster, 2, topic, epoch=1)
    check((answer.responses[0].partitions[0].current_leader, answer.node_endpoints), (None, []))


def test_a_fetch_of_an_old_client_goes_to_the_leader(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[2, 3]])
    cluster.produced(2, topic, b"x")
    for version in (4, 10):
        with cluster.wire(3) as wire:
            part = wire.fetch(topic, 0, version=version)
        check((version, part.error_code), (version, NotLeaderOrFollower.code))


def test_heartbeats_are_checked_before_their_coordinator_is_found(
    cluster: Clustered, unique: Unique, check: Check
) -> None:
    group, codes = unique("g"), set()
    for broker in (1, 2, 3):
        wrong = ConsumerGroupHeartbeatRequest(group_id=group, member_id="", member_epoch=0)
        check(cluster.ask(broker, wrong, 1).error_code, InvalidRequest.code)
        wrong = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=1, server_assignor="x")
        check(cluster.ask(broker, wrong, 1).error_code, UnsupportedAssignor.code)
        wrong = ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-7)
        check(cluster.ask(broker, wrong, 1).error_code, InvalidRequest.code)
        right = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=1)
        codes.add(cluster.ask(broker, right, 1).error_code)
    check(NotCoordinator.code in codes, True)


def test_epochs_of_leaders(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[2, 3]])
    for epoch, code in ((-1, 0), (0, 0), (1, UnknownLeaderEpoch.code)):
        check((epoch, fetched(cluster, 2, topic, epoch=epoch).error_code), (epoch, code))
        check((epoch, cluster.end_offset(2, topic, epoch=epoch)[0]), (epoch, code))
    check(fetched(cluster, 3, topic, epoch=1).error_code, UnknownLeaderEpoch.code)
    check(fetched(cluster, 1, topic, epoch=1).error_code, NotLeaderOrFollower.code)
    check(cluster.end_offset(3, topic, epoch=1)[0], UnknownLeaderEpoch.code)
    check(cluster.end_offset(3, topic, epoch=0)[0], NotLeaderOrFollower.code)


def epoch_end(
    c: Clustered, broker: int, topic: str, epoch: int, current: int = -1, replica: int = -1
) -> tuple[int, ...]:
    part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, leader_epoch=epoch, current_leader_epoch=current
    )
    entry = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[part])
    one = c.ask(broker, OffsetForLeaderEpochRequest(replica_id=replica, topics=[entry]), 4).topics[0].partitions[0]
    return one.error_code, one.leader_epoch, one.end_offset


def test_end_offsets_of_epochs(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]])
    check(epoch_end(cluster, 1, topic, 0), (0, 0, 0))
    check(cluster.produced(1, topic, b"a", b"b"), 0)
    cluster.reassign(topic, [2, 1, 3])
    check(cluster.elect(ElectionType.PREFERRED, topic), [(0, None)])
    cluster.until(topic, leader=2)
    cluster.wait_leads(topic, 2)
    check(cluster.view(topic).epoch, 1)
    cluster.wait(lambda: cluster.produced(2, topic, b"c") == 0, "the leader")
    for asked in ((-1, -1), (0, -1), (1, -1), (1, 1), (1, 0), (1, 2), (2, -1), (2, 2)):
        expected = {
            (-1, -1): (0, -1, -1),
            (0, -1): (0, 0, 2),
            (1, -1): (0, 1, 3),
            (1, 1): (0, 1, 3),
            (1, 0): (74, -1, -1),
            (1, 2): (75, -1, -1),
            (2, -1): (0, -1, -1),
            (2, 2): (75, -1, -1),
        }[asked]
        check((asked, epoch_end(cluster, 2, topic, *asked)), (asked, expected))
    check(epoch_end(cluster, 1, topic, 0), (NotLeaderOrFollower.code, -1, -1))
    check(epoch_end(cluster, 1, topic, 0, 0), (FencedLeaderEpoch.code, -1, -1))
    check(epoch_end(cluster, 1, topic, 0, 1), (NotLeaderOrFollower.code, -1, -1))
    check(epoch_end(cluster, 1, topic, 0, 2), (UnknownLeaderEpoch.code, -1, -1))
    check(epoch_end(cluster, 2, unique("none"), 0), (UnknownTopicOrPartition.code, -1, -1))
    check(fetched(cluster, 2, topic, 3, epoch=0).error_code, FencedLeaderEpoch.code)
    check(cluster.end_offset(2, topic, epoch=0)[0], FencedLeaderEpoch.code)
    # A consumer whose records are of an epoch that diverged gets the offset to return to.
    part = fetched(cluster, 2, topic, 3, epoch=1, fetched_epoch=0)
    check((part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset), (0, 0, 2))
    part = fetched(cluster, 2, topic, 1, epoch=1, fetched_epoch=0)
    check((part.error_code, part.diverging_epoch, len(records_of(part))), (0, None, 3))


# -- reading nearby --------------------------------------------------------------------------------------------


def test_a_reader_in_another_rack_is_sent_to_its_replica(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])
    cluster.produced(1, topic, b"x")
    for rack, preferred in (("", -1), ("a", -1), ("b", 2), ("c", -1), ("nowhere", -1)):

        def settled(rack: str = rack, preferred: int = preferred) -> bool:
            # A follower can serve it as soon as the leader knows its log end.
            return bool(fetched(cluster, 1, topic, rack=rack).preferred_read_replica == preferred)

        cluster.wait(settled, f"the reader in rack {rack!r} to be sent to {preferred}")
        part = fetched(cluster, 1, topic, rack=rack)
        check((rack, len(records_of(part)), part.error_code), (rack, 1 if preferred < 0 else 0, 0))
    cluster.wait(lambda: len(records_of(fetched(cluster, 2, topic, rack="b"))) == 1, "the record on the follower")
    part = fetched(cluster, 2, topic, rack="b")
    check((part.high_watermark, part.last_stable_offset, part.preferred_read_replica), (1, 1, -1))
    # Beyond the follower's end: the reader continues with the leader.
    part = fetched(cluster, 2, topic, 5, rack="b")
    check((part.error_code, part.high_watermark), (OffsetOutOfRange.code, -1))
    check(fetched(cluster, 2, topic, 1, rack="a").preferred_read_replica, -1)
    check(fetched(cluster, 1, topic, 1, rack="b", version=10 if False else 11 + 2).preferred_read_replica, 2)


# -- making topics ---------------------------------------------------------------------------------------------


def test_topics_that_cannot_be_placed_are_refused(cluster: Clustered, unique: Unique, check: Check) -> None:
    t = unique("t")
    check(
        create(cluster, t, partitions=1, factor=4),
        (
            InvalidReplicationFactor.code,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because "
            "only 3 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
    )
    check(create(cluster, t, partitions=1, factor=0)[0], InvalidReplicationFactor.code)
    check(create(cluster, t, partitions=1, factor=-2)[0], InvalidReplicationFactor.code)
    check(create(cluster, t, partitions=0, factor=1)[0], InvalidPartitions.code)
    check(create(cluster, t, partitions=-2, factor=1)[0], InvalidPartitions.code)
    check(
        create(cluster, t, [[1, 7]]),
        (
            InvalidReplicaAssignment.code,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
    )
    check(
        create(cluster, t, [[1, -3]]),
        (
            InvalidReplicaAssignment.code,
            "The manual partition assignment includes broker -3, but no such broker is registered.",
        ),
    )
    check(
        create(cluster, t, [[1, 2, 1]]),
        (InvalidReplicaAssignment.code, "The manual partition assignment includes the broker 1 more than once."),
    )
    check(
        create(cluster, t, [[1, 2], [3]]),
        (
            InvalidReplicaAssignment.code,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s).",
        ),
    )
    check(
        create(cluster, t, [[]]),
        (InvalidReplicaAssignment.code, "The manual partition assignment includes an empty replica list."),
    )
    check(create(cluster, t, [[1, 2]], partitions=1)[0], InvalidRequest.code)
    check(create(cluster, t, [[1, 2]], factor=2)[0], InvalidRequest.code)
    check(create(cluster, t, [[1, 3000]])[0], InvalidReplicaAssignment.code)
    check(create(cluster, t, [[1, 2], [2, 3]]), (0, None))


def test_partitions_with_a_gap_are_refused(cluster: Clustered, unique: Unique, check: Check) -> None:
    wanted = new_topic(unique("t"), assignments=[[1], [2]])
    wanted.assignments[1].partition_index = 2
    one = cluster.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0]
    check(
        (one.error_code, one.error_message),
        (InvalidReplicaAssignment.code, "partitions should be a consecutive 0-based integer sequence"),
    )
    wanted.assignments[1].partition_index = 0
    one = cluster.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0]
    check(
        (one.error_code, one.error_message),
        (InvalidReplicaAssignment.code, "Found multiple manual partition assignments for partition 0"),
    )


def test_replicas_are_spread(cluster: Clustered, unique: Unique, check: Check) -> None:
    for factor in (1, 2, 3, -1):
        topic = unique(f"t{factor}")
        check(create(cluster, topic, partitions=6, factor=factor), (0, None))
        for partition in range(6):
            cluster.until(topic, partition, error=0)
        placed = [cluster.view(topic, partition) for partition in range(6)]
        leaders = sorted(one.replicas[0] for one in placed)
        everyone = sorted(broker for one in placed for broker in one.replicas)
        count = 3 if factor == -1 else factor
        check((factor, set(leaders)), (factor, {1, 2, 3}))
        # With one broker per rack, the replicas are in consecutive racks. After three partitions the order of the racks
        # changes.
        for one in placed[:3]:
            check(one.replicas, [(one.replicas[0] - 1 + step) % 3 + 1 for step in range(count)])
        check((factor, len(everyone), set(everyone)), (factor, 6 * count, {1, 2, 3}))
        check([one.leader for one in placed], [one.replicas[0] for one in placed])
        check([one.isr for one in placed], [one.replicas for one in placed])
        check([(one.epoch, one.elr, one.last_elr, one.offline) for one in placed], [(0, [], [], [])] * 6)


def test_more_partitions(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])

    def grow(count: int, assignments: list[list[int]] | None) -> tuple[int, str | None]:
        entry = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
        )
        answer = cluster.ask_any(CreatePartitionsRequest(topics=[entry], timeout_ms=30_000, validate_only=False), 3)
        one = answer.results[0]
        return one.error_code, one.error_message

    check(grow(1, None), (InvalidPartitions.code, "Topic already has 1 partition(s)."))
    check(grow(0, None)[0], InvalidPartitions.code)
    check(grow(2, [[1, 2], [2, 1]])[0], InvalidReplicaAssignment.code)
    check(grow(3, [[1, 2]])[0], InvalidReplicaAssignment.code)
    check(grow(2, [[1]])[0], InvalidReplicaAssignment.code)
    check(grow(2, [[1, 9]])[0], InvalidReplicaAssignment.code)
    check(grow(2, [[1, 1]])[0], InvalidReplicaAssignment.code)
    check(grow(2, [[3, 1]]), (0, None))
    cluster.until(topic, 1, leader=3, isr=[3, 1], error=0)
    check(grow(3, None), (0, None))
    cluster.until(topic, 2, error=0)
    check(len(cluster.view(topic, 2).replicas), 2)


# -- moving replicas -------------------------------------------------------------------------------------------


def reassignments(c: Clustered, topic: str | None) -> list[tuple[Any, ...]]:
    wanted = (
        None
        if topic is None
        else [ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])]
    )
    answer = c.ask_any(ListPartitionReassignmentsRequest(timeout_ms=30_000, topics=wanted), 0)
    assert answer.error_code == 0, answer
    return [
        (found.name, one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
        for found in answer.topics
        for one in found.partitions
    ]


def test_refused_reassignments(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])
    missing = unique("none")
    check(cluster.reassign(missing, [1]), (UnknownTopicOrPartition.code, f"Unable to find a topic named {missing}."))
    check(cluster.reassign(topic, [1], 5), (UnknownTopicOrPartition.code, f"Unable to find partition {topic}:5."))
    check(
        cluster.reassign(topic, [1, 8]),
        (
            InvalidReplicaAssignment.code,
            "The manual partition assignment includes broker 8, but no such broker is registered.",
        ),
    )
    check(
        cluster.reassign(topic, [1, 1]),
        (InvalidReplicaAssignment.code, "The manual partition assignment includes the broker 1 more than once."),
    )
    check(
        cluster.reassign(topic, []),
        (InvalidReplicaAssignment.code, "The manual partition assignment includes an empty replica list."),
    )
    check(cluster.reassign(topic, None), (NoReassignmentInProgress.code, None))
    check(reassignments(cluster, topic), [])
    check(cluster.view(topic).epoch, 0)


def test_reassignments(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])
    cluster.produced(1, topic, b"x")
    check(cluster.reassign(topic, [1, 2]), (0, None))  # as it is
    check(cluster.view(topic).epoch, 0)
    check(cluster.reassign(topic, [2, 1]), (0, None))  # another order only
    seen = cluster.until(topic, replicas=[2, 1])
    check((seen.leader, seen.epoch, seen.isr), (1, 0, [1, 2]))
    check(cluster.reassign(topic, [2, 1, 3]), (0, None))  # one more
    seen = cluster.until(topic, replicas=[2, 1, 3], isr=[1, 2, 3])
    check((seen.leader, seen.epoch), (1, 0))
    check(cluster.reassign(topic, [3, 2]), (0, None))  # without the leader
    seen = cluster.until(topic, replicas=[3, 2])
    check((seen.leader, seen.epoch, sorted(seen.isr)), (3, 1, [2, 3]))
    check(cluster.reassign(topic, [3]), (0, None))
    seen = cluster.until(topic, replicas=[3])
    check((seen.leader, seen.epoch, seen.isr), (3, 2, [3]))
    check(cluster.reassign(topic, [1]), (0, None))
    seen = cluster.until(topic, replicas=[1], leader=1)
    check((seen.epoch, seen.isr, reassignments(cluster, None)), (3, [1], []))
    cluster.wait_leads(topic, 1)
    check(cluster.end_offset(1, topic), (0, 1))
    for broker in (2, 3):
        check((broker, cluster.produced(broker, topic)), (broker, NotLeaderOrFollower.code))


def test_a_reassignment_in_progress(cluster: Clustered, unique: Unique, check: Check) -> None:
    """A throttle holds the new replica back."""
    topic = cluster.create(
        unique("t"), [[1, 2]], follower_replication_throttled_replicas="*", leader_replication_throttled_replicas="*"
    )
    for _ in range(3):  # each is a separate fetch, and the second one has to wait
        check(cluster.produced(1, topic, bytes(900_000)), 0)
    cluster.limit_replication(1000)
    try:
        check(cluster.reassign(topic, [1, 3]), (0, None))
        check(reassignments(cluster, topic), [(topic, 0, [1, 3, 2], [3], [2])])
        check(reassignments(cluster, None), [(topic, 0, [1, 3, 2], [3], [2])])
        seen = cluster.until(topic, replicas=[1, 3, 2])
        check((seen.leader, seen.epoch, seen.isr), (1, 0, [1, 2]))
        # A second one replaces the first.
        check(cluster.reassign(topic, [3, 2]), (0, None))
        check(reassignments(cluster, topic), [(topic, 0, [3, 2, 1], [3], [1])])
        check(cluster.reassign(topic, [3]), (0, None))
        check(reassignments(cluster, topic), [(topic, 0, [3, 1, 2], [3], [1, 2])])
        check(cluster.reassign(topic, None), (0, None))
        check(reassignments(cluster, topic), [])
        seen = cluster.until(topic, replicas=[1, 2])
        check((seen.leader, seen.isr, seen.epoch), (1, [1, 2], 1))
        check(cluster.reassign(topic, None), (NoReassignmentInProgress.code, None))
        check(cluster.reassign(topic, [1, 2, 3]), (0, None))
        check(reassignments(cluster, topic), [(topic, 0, [1, 2, 3], [3], [])])
    finally:
        cluster.limit_replication(None)
    seen = cluster.until(topic, replicas=[1, 2, 3], isr=[1, 2, 3])
    check((seen.epoch, reassignments(cluster, topic)), (1, []))


# -- elections while all brokers work -------------------------------------------------------------------------------


def test_elections_that_are_not_needed(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2], [2, 3]])
    check(
        cluster.elect(ElectionType.PREFERRED, topic, 0, 1),
        [(ElectionNotNeeded.code, "Leader election not needed for topic partition.")] * 2,
    )
    check(
        cluster.elect(ElectionType.UNCLEAN, topic),
        [(ElectionNotNeeded.code, "Leader election not needed for topic partition.")],
    )
    check(
        cluster.elect(ElectionType.PREFERRED, topic, 7),
        [(UnknownTopicOrPartition.code, f"No such partition as {topic}-7")],
    )
    missing = unique("none")
    check(cluster.elect(ElectionType.UNCLEAN, missing), [(UnknownTopicOrPartition.code, f"No such topic as {missing}")])


def test_preferred_leaders(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]])
    cluster.reassign(topic, [3, 2, 1])
    check(cluster.elect(ElectionType.PREFERRED, topic), [(0, None)])
    seen = cluster.until(topic, leader=3)
    check((seen.epoch, seen.isr, seen.replicas), (1, [1, 2, 3], [3, 2, 1]))
    cluster.wait_leads(topic, 3)
    answer = cluster.produce(1, topic).responses[0].partition_responses[0]
    check(
        (answer.error_code, answer.current_leader.leader_id, answer.current_leader.leader_epoch),
        (NotLeaderOrFollower.code, 3, 1),
    )


# -- what there is ---------------------------------------------------------------------------------------------


def test_log_dirs_of_each_broker(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2], [2, 3]])
    cluster.produced(1, topic, b"x" * 100)

    def held(broker: int) -> dict[int, tuple[bool, int, bool]]:
        wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0, 1])
        answer = cluster.ask(broker, DescribeLogDirsRequest(topics=[wanted]), 4)
        assert answer.error_code == 0 and len(answer.results) == 1 and answer.results[0].error_code == 0
        return {
            one.partition_index: (one.partition_size > 0, one.offset_lag, one.is_future_key)
            for found in answer.results[0].topics
            for one in found.partitions
        }

    cluster.wait(lambda: held(2).get(0) == (True, 0, False), "the replica")
    check(held(1), {0: (True, 0, False)})
    check(held(2), {0: (True, 0, False), 1: (False, 0, False)})
    check(held(3), {1: (False, 0, False)})


def test_the_cluster_as_clients_see_it(cluster: Clustered, check: Check) -> None:
    for at in (1, 2, 3):
        answer = cluster.ask(at, DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True), 2)
        brokers = [
            (one.broker_id, one.rack, one.is_fenced) for one in sorted(answer.brokers, key=lambda b: b.broker_id)
        ]
        check((answer.error_code, brokers), (0, [(1, "a", False), (2, "b", False), (3, "c", False)]))
        check(answer.controller_id in (1, 2, 3), True)
        answer = cluster.ask(at, DescribeClusterRequest(endpoint_type=2), 2)
        check((answer.error_code, answer.error_message is not None), (MismatchedEndpointType.code, True))
        with cluster.wire(at) as wire:
            check(wire.metadata().controller_id in (1, 2, 3), True)


def test_features(cluster: Clustered, check: Check) -> None:
    from ottla.wire.messages import ApiVersionsRequest

    answer = cluster.ask(2, ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    levels = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
    check(
        levels,
        {
            "eligible.leader.replicas.version": (1, 1),
            "group.version": (1, 1),
            "metadata.version": (30, 30),
            "share.version": (1, 1),
            "streams.version": (1, 1),
            "transaction.version": (2, 2),
        },
    )
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="nothing", max_version_level=1, upgrade_type=1)
    answer = cluster.ask(2, UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=True), 2)
    check(answer.error_code, InvalidUpdateVersion.code)


def test_brokers_that_cannot_be_unregistered(cluster: Clustered, check: Check) -> None:
    answer = cluster.ask_any(UnregisterBrokerRequest(broker_id=77), 0)
    check(
        (answer.error_code, answer.error_message),
        (BrokerIdNotRegistered.code, "Broker ID 77 is not currently registered"),
    )


def test_folders_of_replicas(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])

    def move(broker: int, path: str) -> int:
        entry = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[entry])
        return cluster.ask(broker, AlterReplicaLogDirsRequest(dirs=[wanted]), 2).results[0].partitions[0].error_code

    check(
        [move(broker, "/nowhere") for broker in (1, 2, 3)],
        [LogDirNotFound.code, LogDirNotFound.code, LogDirNotFound.code],
    )
    here = cluster.ask(3, DescribeLogDirsRequest(topics=[]), 4).results[0].log_dir
    check(move(3, here), ReplicaNotAvailable.code)


def test_producers_are_described_by_replicas(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])
    with cluster.wire(1) as wire:
        producer_id, epoch = wire.producer_id()
        records = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        check(wire.produce(topic, records).error_code, 0)

    def known(broker: int) -> tuple[int, list[int]]:
        entry = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
        one = cluster.ask(broker, DescribeProducersRequest(topics=[entry]), 0).topics[0].partitions[0]
        return one.error_code, [producer.producer_id for producer in one.active_producers]

    check(known(1), (0, [producer_id]))
    check(known(2), (0, [producer_id]))
    check(known(3), (NotLeaderOrFollower.code, []))


def test_acks(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]], min_insync_replicas=3)
    for acks in (1, -1):
        check((acks, cluster.produced(1, topic, acks=acks)), (acks, 0))
    check(cluster.produced(1, topic, acks=2), InvalidRequiredAcks.code)
    cluster.produce(1, topic, acks=0)
    cluster.wait(lambda: cluster.end_offset(1, topic) == (0, 3), "what nobody answered for")
    with cluster.wire(2) as wire:
        # There is no answer to report the wrong broker: the connection is closed instead.
        wire.send_bytes(b"")
        from ottla.wire.messages import ProduceRequest

        data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))
        entry = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        wire.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[entry]), 12, answered=False)
        check(wire.is_closed(), True)
