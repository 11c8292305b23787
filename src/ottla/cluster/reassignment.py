"""Elections asked for by an administrator, and moves of replicas to other brokers (KIP-455).

A move goes in three steps: the new replicas are added, they catch up, the old ones are removed. A change that needs no
catching up (another order, fewer replicas) is done in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.cluster.metadata import NO_LEADER, BrokerState, MetadataImage, PartitionState
from ottla.cluster.placement import check_assignment
from ottla.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.wire.stored import metadata as stored

PREFERRED, UNCLEAN = 0, 1
_RECOVERING = 1


def elect_leader(image: MetadataImage, topic_name: str, index: int, kind: int) -> stored.PartitionChangeRecord:
    """The record that gives a partition its preferred leader back, or after a loss any leader at all (KIP-460)."""
    topic = image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {topic_name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {topic_name}-{index}")
    if kind == PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded()
        if preferred not in partition.isr or not _is_live(image.brokers, preferred):
            raise PreferredLeaderNotAvailable()
        return stored.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=preferred)
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded()
    in_sync = [broker for broker in partition.isr if _is_live(image.brokers, broker)]
    if in_sync:
        return stored.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=in_sync[0])
    live = [broker for broker in partition.replicas if _is_live(image.brokers, broker)]
    if not live:
        raise EligibleLeadersNotAvailable()
    # Records may be lost; the new leader says so until it has looked at its log.
    return stored.PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        isr=[live[0]],
        leader=live[0],
        leader_recovery_state=_RECOVERING,
    )


def _is_live(brokers: dict[int, BrokerState], broker_id: int) -> bool:
    broker = brokers.get(broker_id)
    return broker is not None and not broker.fenced


def is_reassigning(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def reassign(
    image: MetadataImage,
    topic_name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    directories: Callable[[Sequence[int]], list[bytes]],
    may_change_factor: bool = True,
    may_elect_unclean: bool = False,
) -> stored.PartitionChangeRecord | None:
    """The record that starts a move to `replicas`, or ends one under way where they are None; None if all is so."""
    topic = image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {topic_name}:{index}.")
    if replicas is None:
        return _cancelled(topic_name, partition, directories, may_elect_unclean)
    check_assignment(replicas, image.brokers)
    settled = [broker for broker in partition.replicas if broker not in partition.adding_replicas]
    if not may_change_factor and len(replicas) != len(settled):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(settled)} to {len(replicas)} while "
            "allow.replication.factor.change is false."
        )
    return _moved(partition, list(replicas), directories)


def _moved(
    partition: PartitionState, target: list[int], directories: Callable[[Sequence[int]], list[bytes]]
) -> stored.PartitionChangeRecord | None:
    adding = [broker for broker in target if broker not in partition.isr]
    removing = [broker for broker in partition.replicas if broker not in target]
    if adding:
        merged = target + removing
        return stored.PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=partition.topic_id,
            replicas=merged,
            adding_replicas=[broker for broker in target if broker not in partition.replicas] or adding,
            removing_replicas=removing,
            directories=directories(merged),
        )
    if target == partition.replicas and not is_reassigning(partition):
        return None
    # All that shall stay are in sync: nothing to wait for.
    record = stored.PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=target,
        isr=[broker for broker in partition.isr if broker in target],
        adding_replicas=[],
        removing_replicas=[],
        directories=directories(target),
    )
    if partition.leader not in target:
        record.leader = target[0]
    return record


def _cancelled(
    topic_name: str,
    partition: PartitionState,
    directories: Callable[[Sequence[int]], list[bytes]],
    may_elect_unclean: bool,
) -> stored.PartitionChangeRecord:
    if not is_reassigning(partition):
        raise NoReassignmentInProgress()
    replicas = [broker for broker in partition.replicas if broker not in partition.adding_replicas]
    isr = [broker for broker in partition.isr if broker in replicas]
    if not isr and not may_elect_unclean:
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {topic_name}:{partition.index} because "
            "it would require an unclean leader election."
        )
    isr = isr or replicas[:1]
    record = stored.PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=replicas,
        isr=isr,
        adding_replicas=[],
        removing_replicas=[],
        directories=directories(replicas),
    )
    if partition.leader not in isr:
        record.leader = isr[0]
    return record
