"""What a cluster shows when its brokers fail and come back; the same tests run on Apache Kafka with `--cluster kafka`.

Most tests take a partition through several faults in a row, because it takes a while until a broker is missed.
"""

from collections.abc import Callable
from typing import Any

from ottla.enums import CoordinatorType, ElectionType
from ottla.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
)
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    UnregisterBrokerRequest,
)
from support.batches import batch
from support.interop.clusters import Clustered, View
from support.requests import new_topic

Check = Callable[[object, object], None]
Unique = Callable[[str], str]


def shown(view: View) -> tuple[Any, ...]:
    return view.leader, view.epoch, view.isr, view.elr, view.last_elr, view.offline


def in_metadata(c: Clustered, topic: str) -> tuple[Any, ...]:
    with c.wire(c.there[0]) as wire:
        answer = wire.metadata(topic)
    part = answer.topics[0].partitions[0]
    brokers = sorted(broker.node_id for broker in answer.brokers)
    return brokers, part.error_code, part.leader_id, part.leader_epoch, part.isr_nodes, part.offline_replicas


def known_brokers(c: Clustered) -> list[tuple[int, bool]]:
    answer = c.ask_any(DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True), 2)
    return sorted((one.broker_id, one.is_fenced) for one in answer.brokers)


def create(c: Clustered, name: str, assignments: Any = (), partitions: int = -1, factor: int = -1) -> Any:
    wanted = new_topic(name, assignments=assignments)
    wanted.num_partitions, wanted.replication_factor = partitions, factor
    one = c.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0]
    return one.error_code, one.error_message


def test_a_leader_is_killed(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]])
    alone = cluster.create(unique("alone"), [[1]])
    pair = cluster.create(unique("pair"), [[2, 1]])
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.kill(1)
    check(shown(cluster.until(topic, leader=2)), (2, 1, [2, 3], [], [], [1]))
    check(shown(cluster.until(alone, leader=-1)), (-1, 1, [], [1], [1], [1]))
    check(shown(cluster.until(pair, isr=[2])), (2, 0, [2], [], [], [1]))
    check(in_metadata(cluster, topic), ([2, 3], 0, 2, 1, [2, 3], [1]))
    check(in_metadata(cluster, alone), ([2, 3], 5, -1, 1, [], [1]))
    check(known_brokers(cluster), [(1, True), (2, False), (3, False)])
    cluster.wait_leads(topic, 2)
    check(cluster.produced(2, topic, b"b"), 0)
    check(cluster.produced(2, alone), NotLeaderOrFollower.code)
    answer = cluster.produce(2, alone)
    part = answer.responses[0].partition_responses[0]
    check((part.current_leader.leader_id, part.current_leader.leader_epoch, answer.node_endpoints), (-1, 1, []))
    # Elections that are impossible while the broker is away.
    check(
        cluster.elect(ElectionType.PREFERRED, topic),
        [(PreferredLeaderNotAvailable.code, "The preferred leader was not available.")],
    )
    check(
        cluster.elect(ElectionType.PREFERRED, alone),
        [(PreferredLeaderNotAvailable.code, "The preferred leader was not available.")],
    )
    check(
        cluster.elect(ElectionType.UNCLEAN, alone),
        [(EligibleLeadersNotAvailable.code, "Eligible topic partition leaders are not available.")],
    )
    check(
        cluster.elect(ElectionType.UNCLEAN, topic),
        [(ElectionNotNeeded.code, "Leader election not needed for topic partition.")],
    )
    # New topics may use a broker that is away, but not as their only replica.
    late = unique("late")
    check(create(cluster, late, [[1, 2]]), (0, None))
    check(shown(cluster.until(late, error=0)), (2, 0, [2], [], [], [1]))
    check(
        create(cluster, unique("no"), [[1]]),
        (
            InvalidReplicaAssignment.code,
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown.",
        ),
    )
    spread = unique("spread")
    check(create(cluster, spread, partitions=1, factor=3), (0, None))
    seen = cluster.until(spread, error=0)
    check((sorted(seen.replicas), seen.replicas[0] != 1, sorted(seen.isr)), ([1, 2, 3], True, [2, 3]))
    check(create(cluster, unique("no"), partitions=1, factor=4)[0], InvalidReplicationFactor.code)
    check(cluster.reassign(pair, [3, 1]), (0, None))  # it may be moved to that broker, and waits
    check(cluster.reassign(pair, None), (0, None))
    cluster.start(1)
    check(shown(cluster.until(topic, isr=[1, 2, 3])), (2, 1, [1, 2, 3], [], [], []))
    check(shown(cluster.until(alone, leader=1)), (1, 2, [1], [], [], []))
    check(cluster.elect(ElectionType.PREFERRED, topic), [(0, None)])
    check(shown(cluster.until(topic, leader=1)), (1, 2, [1, 2, 3], [], [], []))


def test_a_leader_is_stopped(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]])
    alone = cluster.create(unique("alone"), [[1]])
    follows = cluster.create(unique("follows"), [[2, 1]], min_insync_replicas=2)
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.stop(1)
    check(shown(cluster.until(topic, offline=[1])), (2, 1, [2, 3], [], [], [1]))
    check(shown(cluster.until(alone, offline=[1])), (-1, 1, [], [1], [1], [1]))
    check(shown(cluster.until(follows, offline=[1])), (2, 0, [2], [1], [], [1]))
    check(known_brokers(cluster), [(1, True), (2, False), (3, False)])
    check(cluster.produced(2, follows), NotEnoughReplicas.code)
    cluster.start(1)
    check(shown(cluster.until(topic, isr=[1, 2, 3])), (2, 1, [1, 2, 3], [], [], []))
    check(shown(cluster.until(alone, leader=1)), (1, 2, [1], [], [], []))
    check(shown(cluster.until(follows, isr=[1, 2])), (2, 0, [1, 2], [], [], []))
    cluster.wait(lambda: cluster.produced(2, follows) == 0, "replicas enough")


def test_a_leader_is_paused(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2, 3]], min_insync_replicas=2)
    alone = cluster.create(unique("alone"), [[1]])
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.pause(1)
    check(shown(cluster.until(topic, leader=2)), (2, 1, [2, 3], [], [], [1]))
    check(shown(cluster.until(alone, leader=-1)), (-1, 1, [], [1], [1], [1]))
    cluster.wait_leads(topic, 2)
    check(cluster.produced(2, topic, b"b"), 0)
    cluster.resume(1)
    check(shown(cluster.until(topic, isr=[1, 2, 3])), (2, 1, [1, 2, 3], [], [], []))
    check(shown(cluster.until(alone, leader=1)), (1, 2, [1], [], [], []))


def test_too_few_replicas_in_sync(cluster: Clustered, unique: Unique, check: Check) -> None:
    """Two of three are stopped, then the last one; the one that may lead returns last."""
    topic = cluster.create(unique("t"), [[1, 2, 3]], min_insync_replicas=2)
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.stop(3)
    check(shown(cluster.until(topic, offline=[3])), (1, 0, [1, 2], [], [], [3]))
    check(cluster.produced(1, topic, b"b"), 0)
    cluster.stop(2)
    check(shown(cluster.until(topic, offline=[2, 3])), (1, 0, [1], [2], [], [2, 3]))
    answer = cluster.produce(1, topic, b"c").responses[0].partition_responses[0]
    check(
        (answer.error_code, answer.base_offset, answer.log_start_offset, answer.error_message),
        (NotEnoughReplicas.code, -1, 0, None),
    )
    check(cluster.produced(1, topic, b"d", acks=1), 0)
    check(cluster.end_offset(1, topic), (0, 2))  # written, not committed
    cluster.configure(topic, min_insync_replicas="1")
    # The leader checks it at the next append.
    cluster.wait(lambda: cluster.produced(1, topic, b"e") == 0, "the smaller number at the leader")
    check(cluster.end_offset(1, topic), (0, 4))
    check(shown(cluster.until(topic, offline=[2, 3])), (1, 0, [1], [], [], [2, 3]))
    cluster.start(2)
    cluster.until(topic, isr=[1, 2])
    cluster.configure(topic, min_insync_replicas="2")
    cluster.start(3)
    cluster.until(topic, isr=[1, 2, 3])


def test_a_partition_loses_all_its_replicas(cluster: Clustered, unique: Unique, check: Check) -> None:
    """Clean stops of both: the last leader or an eligible replica leads again."""
    topic = cluster.create(unique("t"), [[1, 2]], min_insync_replicas=2)
    other = cluster.create(unique("other"), [[1, 2]])
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.stop(1)
    check(shown(cluster.until(topic, offline=[1])), (2, 1, [2], [1], [], [1]))
    check(shown(cluster.until(other, offline=[1])), (2, 1, [2], [], [], [1]))
    cluster.stop(2)
    check(shown(cluster.until(topic, offline=[1, 2])), (-1, 2, [], [1, 2], [2], [1, 2]))
    check(shown(cluster.until(other, offline=[1, 2])), (-1, 2, [], [2], [2], [1, 2]))
    check(in_metadata(cluster, topic), ([3], 5, -1, 2, [], [1, 2]))
    check(
        cluster.elect(ElectionType.UNCLEAN, topic),
        [(EligibleLeadersNotAvailable.code, "Eligible topic partition leaders are not available.")],
    )
    cluster.start(1)
    check(shown(cluster.until(topic, leader=1)), (1, 3, [1], [2], [], [2]))  # eligible
    check(shown(cluster.until(other, offline=[2])), (-1, 2, [], [2], [2], [2]))  # not eligible
    check(
        cluster.elect(ElectionType.PREFERRED, other),
        [(PreferredLeaderNotAvailable.code, "The preferred leader was not available.")],
    )
    cluster.wait_leads(topic, 1)
    check(cluster.produced(1, topic, b"x"), NotEnoughReplicas.code)
    # An unclean election by the administrator.
    check(cluster.elect(ElectionType.UNCLEAN, other), [(0, None)])
    check(shown(cluster.until(other, leader=1)), (1, 3, [1], [], [], [2]))
    cluster.start(2)
    check(shown(cluster.until(topic, isr=[1, 2])), (1, 3, [1, 2], [], [], []))
    check(shown(cluster.until(other, isr=[1, 2])), (1, 3, [1, 2], [], [], []))


def test_an_unclean_election_by_a_setting(cluster: Clustered, unique: Unique, check: Check) -> None:
    """After a crash a broker is not eligible, but the last known leader is remembered."""
    topic = cluster.create(unique("t"), [[1, 2]])
    last = cluster.create(unique("last"), [[2, 1]])
    both = cluster.create(unique("both"), [[1, 2]], min_insync_replicas=2)
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.kill(2)
    check(shown(cluster.until(topic, isr=[1])), (1, 0, [1], [], [], [2]))
    check(shown(cluster.until(last, leader=1)), (1, 1, [1], [], [], [2]))
    check(shown(cluster.until(both, isr=[1])), (1, 0, [1], [2], [], [2]))
    check(cluster.produced(1, topic, b"b"), 0)
    cluster.kill(1)
    check(shown(cluster.until(topic, leader=-1)), (-1, 1, [], [1], [1], [1, 2]))
    check(shown(cluster.until(both, leader=-1)), (-1, 1, [], [1, 2], [1], [1, 2]))
    cluster.start(2)
    check(shown(cluster.until(topic, offline=[1])), (-1, 1, [], [1], [1], [1]))
    check(shown(cluster.until(both, offline=[1])), (-1, 1, [], [1], [1], [1]))
    cluster.configure(topic, unclean_leader_election_enable="true")
    check(shown(cluster.until(topic, leader=2)), (2, 2, [2], [], [], [1]))
    cluster.wait_leads(topic, 2)
    check(cluster.produced(2, topic, b"c"), 0)
    check(cluster.end_offset(2, topic), (0, 2))
    cluster.start(1)
    check(shown(cluster.until(last, leader=1)), (1, 3, cluster.view(last).isr, [], [], []))
    cluster.until(last, isr=[1, 2])
    check(shown(cluster.until(both, isr=[1, 2])), (1, 2, [1, 2], [], [], []))
    check(shown(cluster.until(topic, isr=[1, 2])), (2, 2, [1, 2], [], [], []))
    check(cluster.end_offset(2, topic), (0, 2))


def test_an_append_that_loses_its_followers(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]], min_insync_replicas=2)
    pair = cluster.create(unique("pair"), [[1, 2]])
    check(cluster.produced(1, topic, b"a"), 0)
    cluster.pause(2)
    answer = cluster.produce(1, topic, b"b", timeout_ms=100).responses[0].partition_responses[0]
    check((answer.error_code, answer.base_offset, answer.log_start_offset), (RequestTimedOut.code, 1, 0))
    check(cluster.produced(1, pair, b"b"), 0)  # as soon as the paused broker is fenced
    cluster.until(topic, isr=[1])
    check(cluster.produced(1, topic, b"c"), NotEnoughReplicas.code)
    check(cluster.end_offset(1, topic), (0, 1))
    cluster.resume(2)
    cluster.until(topic, isr=[1, 2])
    cluster.wait(lambda: cluster.end_offset(1, topic) == (0, 2), "what was written alone")


def test_a_broker_is_unregistered(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[3, 2]])
    cluster.stop(3)
    cluster.until(topic, offline=[3])
    answer = cluster.ask_any(UnregisterBrokerRequest(broker_id=3), 0)
    check((answer.error_code, answer.error_message), (0, ""))
    cluster.wait(lambda: known_brokers(cluster) == [(1, False), (2, False)], "the broker to be off the list")
    check(shown(cluster.view(topic)), (2, 1, [2], [], [], [3]))
    check(
        create(cluster, unique("no"), [[3]]),
        (
            InvalidReplicaAssignment.code,
            "The manual partition assignment includes broker 3, but no such broker is registered.",
        ),
    )
    check(create(cluster, unique("no"), partitions=1, factor=3)[0], InvalidReplicationFactor.code)
    cluster.start(3)
    cluster.until(topic, isr=[2, 3])
    check(known_brokers(cluster), [(1, False), (2, False), (3, False)])


def test_records_are_deleted_while_a_follower_is_away(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic = cluster.create(unique("t"), [[1, 2]])
    check(cluster.produced(1, topic, b"a", b"b"), 0)

    def delete(broker: int, offset: int) -> tuple[int, int]:
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        entry = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])
        one = cluster.ask(broker, DeleteRecordsRequest(topics=[entry], timeout_ms=30_000), 2).topics[0].partitions[0]
        return one.error_code, one.low_watermark

    check(delete(2, 1), (NotLeaderOrFollower.code, -1))
    check(delete(1, 1), (0, 1))
    check(delete(1, 5), (OffsetOutOfRange.code, -1))
    cluster.stop(2)
    cluster.until(topic, isr=[1])
    check(delete(1, 2), (0, 2))


# -- coordinators ----------------------------------------------------------------------------------------------


def committed(c: Clustered, broker: int, group: str, topic: str) -> tuple[int, int]:
    entry = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[entry])
    found = c.ask(broker, OffsetFetchRequest(groups=[wanted], require_stable=False), 8).groups[0]
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -2


def commit(c: Clustered, broker: int, group: str, topic: str, offset: int) -> int:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    entry = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[entry])
    code: int = c.ask(broker, request, 8).topics[0].partitions[0].error_code
    return code


def test_a_group_moves_with_its_coordinator(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic, group = cluster.create(unique("t"), [[1, 2, 3]]), unique("g")
    first = cluster.find(CoordinatorType.GROUP, group)
    check((first.host, first.port), cluster.addresses[first.node_id])
    for at in (1, 2, 3):
        check(cluster.find(CoordinatorType.GROUP, group, at).node_id, first.node_id)
    cluster.wait(lambda: commit(cluster, first.node_id, group, topic, 5) == 0, "the coordinator")
    check(committed(cluster, first.node_id, group, topic), (0, 5))
    other = first.node_id % 3 + 1
    check(commit(cluster, other, group, topic, 6), NotCoordinator.code)
    check(committed(cluster, other, group, topic), (NotCoordinator.code, -2))
    beat = cluster.ask(other, HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4)
    check(beat.error_code, NotCoordinator.code)
    described = cluster.ask(other, DescribeGroupsRequest(groups=[group]), 5).groups[0]
    check((described.error_code, described.group_state), (NotCoordinator.code, ""))
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = cluster.ask(other, join, 9)
    check((joined.error_code, joined.generation_id, joined.member_id), (NotCoordinator.code, -1, ""))
    cluster.kill(first.node_id)
    cluster.wait(lambda: cluster.find(CoordinatorType.GROUP, group).node_id != first.node_id, "another coordinator")
    second = cluster.find(CoordinatorType.GROUP, group).node_id
    cluster.wait(lambda: committed(cluster, second, group, topic) == (0, 5), "the offsets there")
    check(commit(cluster, second, group, topic, 7), 0)
    third = next(at for at in cluster.there if at != second)
    check(commit(cluster, third, group, topic, 8), NotCoordinator.code)


def test_a_transaction_moves_with_its_coordinator(cluster: Clustered, unique: Unique, check: Check) -> None:
    topic, name = cluster.create(unique("t"), [[1, 2, 3], [1, 2, 3]]), unique("x")
    first = cluster.find(CoordinatorType.TRANSACTION, name).node_id
    begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    identity = cluster.wait(
        lambda: None if (made := cluster.ask(first, begin, 4)).error_code else (made.producer_id, made.producer_epoch),
        "an identity",
    )
    other = first % 3 + 1
    refused = cluster.ask(other, begin, 4)
    check((refused.error_code, refused.producer_id, refused.producer_epoch), (NotCoordinator.code, -1, -1))
    entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[entry],
    )

    def added(broker: int) -> set[int]:
        answer = cluster.ask(broker, add, 3)
        return {one.partition_error_code for one in answer.results_by_topic_v3_and_below[0].results_by_partition}

    check(added(other), {NotCoordinator.code})
    cluster.wait(lambda: added(first) == {0}, "the partitions in the transaction")
    with cluster.wire(1) as wire:
        records = batch(b"x", producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True)
        check(wire.produce(topic, records, transactional_id=name).error_code, 0)
    cluster.kill(first)
    cluster.wait(lambda: cluster.find(CoordinatorType.TRANSACTION, name).node_id != first, "another coordinator")
    second = cluster.find(CoordinatorType.TRANSACTION, name).node_id
    end = EndTxnRequest(transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=True)
    third = next(at for at in cluster.there if at != second)
    check(cluster.ask(third, end, 3).error_code, NotCoordinator.code)
    cluster.wait(lambda: cluster.ask(second, end, 3).error_code == 0, "the commit")
    leader = cluster.wait(lambda: max(cluster.view(topic).leader, 0), "a leader")
    # The record and its marker.
    cluster.wait(lambda: cluster.end_offset(leader, topic) == (0, 2), "the marker")
