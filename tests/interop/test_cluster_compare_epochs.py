"""Leader epochs and partition epochs, and AlterPartition as a broker sends it to the controller.

The same tests run on Apache Kafka with `--cluster kafka`. Clients see leader epochs only; the partition epochs are read
from the controllers' log, over the wire.
"""

from collections.abc import Callable
from typing import Any

from ottla.enums import ElectionType
from ottla.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
)
from support.interop.clusters import Clustered

Check = Callable[[object, object], None]
Unique = Callable[[str], str]


def in_answers(c: Clustered, topic: str) -> tuple[int, int]:
    """The leader epoch in Metadata and in DescribeTopicPartitions."""
    with c.wire(c.there[0]) as wire:
        part = wire.metadata(topic).topics[0].partitions[0]
    return part.leader_epoch, c.view(topic).epoch


def test_elections_and_changes_of_the_isr(quorum: Clustered, unique: Unique, check: Check) -> None:
    topic = quorum.create(unique("t"), [[1, 2, 3]])
    check(quorum.epochs(topic), (0, 0))
    quorum.kill(1)
    quorum.until(topic, leader=2)
    check(quorum.epochs(topic), (1, 1))
    check(in_answers(quorum, topic), (1, 1))
    quorum.start(1)
    quorum.until(topic, isr=[1, 2, 3])
    check(quorum.epochs(topic), (1, 2))
    check(in_answers(quorum, topic), (1, 1))
    quorum.elect(ElectionType.PREFERRED, topic)
    quorum.until(topic, leader=1)
    check(quorum.epochs(topic), (2, 3))
    quorum.stop(3)
    quorum.until(topic, isr=[1, 2])
    check(quorum.epochs(topic), (2, 4))
    quorum.start(3)
    quorum.until(topic, isr=[1, 2, 3])
    check(quorum.epochs(topic), (2, 5))
    quorum.stop(1)
    quorum.until(topic, leader=2)
    check(quorum.epochs(topic), (3, 6))
    check(in_answers(quorum, topic), (3, 3))
    quorum.start(1)
    quorum.until(topic, isr=[1, 2, 3])
    check(quorum.epochs(topic), (3, 7))


def test_a_partition_without_a_leader(quorum: Clustered, unique: Unique, check: Check) -> None:
    alone = quorum.create(unique("alone"), [[3]])
    pair = quorum.create(unique("pair"), [[2, 3]], min_insync_replicas=2)
    quorum.kill(3)
    quorum.until(alone, leader=-1)
    quorum.until(pair, isr=[2])
    check((quorum.epochs(alone), quorum.epochs(pair)), ((1, 1), (0, 1)))
    quorum.start(3)
    quorum.until(alone, leader=3)
    quorum.until(pair, isr=[2, 3])
    # The crash is noticed at the registration: eligible replicas are forgotten first.
    check((quorum.epochs(alone), quorum.epochs(pair)), ((2, 3), (0, 3)))


def test_reassignments(quorum: Clustered, unique: Unique, check: Check) -> None:
    topic = quorum.create(unique("t"), [[1, 2]])

    def moved(replicas: list[int]) -> tuple[int, int]:
        check(quorum.reassign(topic, replicas), (0, None))
        quorum.until(topic, replicas=replicas)
        quorum.wait(lambda: sorted(quorum.view(topic).isr) == sorted(replicas), "the new replicas in sync")
        return quorum.epochs(topic)

    check(moved([2, 1]), (0, 1))
    check(moved([1, 3]), (1, 3))
    check(moved([2, 3]), (2, 5))
    check(moved([3]), (3, 6))
    check(moved([1, 3]), (3, 8))
    quorum.elect(ElectionType.PREFERRED, topic)
    quorum.until(topic, leader=1)
    check(quorum.epochs(topic), (4, 9))


def test_alter_partition(quorum: Clustered, unique: Unique, check: Check) -> None:
    topic = quorum.create(unique("t"), [[1, 2, 3]])
    image = quorum.image()
    brokers = {number: image.brokers[number].epoch for number in (1, 2, 3)}
    topic_id = image.topics[topic].topic_id
    member = AlterPartitionRequest.BrokerState

    def alter(version: int = 3, **more: Any) -> Any:
        """The error, or the partition after the change: (leader, leader epoch, ISR, state, partition epoch)."""
        sender = more.get("sender", 1)
        isr: dict[int, int] = more.get("isr", brokers)
        change = AlterPartitionRequest.PartitionData(
            partition_index=more.get("index", 0),
            leader_epoch=more.get("leader_epoch", 0),
            partition_epoch=more.get("partition_epoch", 0),
            leader_recovery_state=more.get("state", 0),
            new_isr=list(isr),
            new_isr_with_epochs=[member(broker_id=number, broker_epoch=epoch) for number, epoch in isr.items()],
        )
        entry = AlterPartitionRequest.TopicData(topic_id=more.get("topic_id", topic_id), partitions=[change])
        request = AlterPartitionRequest(
            broker_id=sender, broker_epoch=more.get("epoch", brokers.get(sender, -1)), topics=[entry]
        )
        with quorum.controller_wire() as wire:
            answer = wire.call(request, version)
        if answer.error_code:
            return answer.error_code, answer.topics
        one = answer.topics[0].partitions[0]
        if one.error_code:
            return one.error_code
        return one.leader_id, one.leader_epoch, one.isr, one.leader_recovery_state, one.partition_epoch

    check(alter(epoch=brokers[1] - 1), (StaleBrokerEpoch.code, []))
    check(alter(epoch=brokers[1] + 1), (StaleBrokerEpoch.code, []))
    check(alter(sender=9), (StaleBrokerEpoch.code, []))
    check(alter(topic_id=bytes(15) + b"x"), UnknownTopicId.code)
    check(alter(index=7), UnknownTopicOrPartition.code)
    check(alter(leader_epoch=1), NotController.code)
    check(alter(partition_epoch=1), NotController.code)
    check(alter(leader_epoch=-1), FencedLeaderEpoch.code)
    check(alter(partition_epoch=-1), InvalidUpdateVersion.code)
    check(alter(sender=2), InvalidRequest.code)
    check(alter(isr={1: brokers[1], 9: 1}), InvalidRequest.code)
    check(alter(isr={2: brokers[2]}), InvalidRequest.code)
    check(alter(state=1), InvalidRequest.code)
    check(alter(isr={**brokers, 3: brokers[3] - 1}), IneligibleReplica.code)
    check(alter(isr={}), InvalidRequest.code)
    check(quorum.epochs(topic), (0, 0))
    check(alter(), (1, 0, [1, 2, 3], 0, 0))
    check(quorum.epochs(topic), (0, 0))
    turned = {number: brokers[number] for number in (3, 1, 2)}
    check(alter(isr=turned), (1, 0, [3, 1, 2], 0, 1))
    # The broker learns about changes by others from the metadata, and then proposes again.
    pause = quorum.create(unique("paused"), [[1, 2, 3]])
    paused = quorum.image().topics[pause].topic_id
    quorum.pause(3)
    quorum.until(pause, isr=[1, 2])
    check(alter(topic_id=paused, partition_epoch=1), IneligibleReplica.code)
    check(alter(topic_id=paused, partition_epoch=0), InvalidUpdateVersion.code)
    two = {1: brokers[1], 2: brokers[2]}
    check(alter(topic_id=paused, partition_epoch=1, isr=two), (1, 0, [1, 2], 0, 1))
    check(alter(2, topic_id=paused, partition_epoch=1, isr=two), (1, 0, [1, 2], 0, 1))
    one = {1: brokers[1]}
    check(alter(topic_id=paused, partition_epoch=1, isr=one), (1, 0, [1], 0, 2))
    check(alter(topic_id=paused, partition_epoch=1, isr=one), InvalidUpdateVersion.code)


def test_other_requests_of_brokers(quorum: Clustered, check: Check) -> None:
    """Requests of a broker that is not registered, and of an earlier start of a broker."""
    with quorum.controller_wire() as wire:
        for number, epoch in ((9, 5), (1, 5)):
            beat = wire.call(BrokerHeartbeatRequest(broker_id=number, broker_epoch=epoch, current_metadata_offset=1), 1)
            check((beat.error_code, beat.is_caught_up, beat.is_fenced), (StaleBrokerEpoch.code, False, True))
            folders = wire.call(AssignReplicasToDirsRequest(broker_id=number, broker_epoch=epoch), 0)
            check((folders.error_code, folders.directories), (StaleBrokerEpoch.code, []))
            ids = wire.call(AllocateProducerIdsRequest(broker_id=number, broker_epoch=epoch), 0)
            check((ids.error_code, ids.producer_id_start, ids.producer_id_len), (StaleBrokerEpoch.code, 0, 0))
