"""Elections requested by an administrator, and moves of replicas to other brokers (KIP-455).

A move has three steps: the new replicas are added, they catch up, the old ones are removed. A change without new
replicas (another order, fewer replicas) takes one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from ottla.metadata import partition_change as changes
from ottla.metadata.features import ELIGIBLE_LEADERS
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionState
from ottla.metadata.partition_change import PartitionChange
from ottla.metadata.replica_placement import check_assignment
from ottla.wire.stored import metadata as stored

Directories = Callable[[Sequence[int]], list[bytes]]


def _no_directories(replicas: Sequence[int]) -> list[bytes]:
    raise AssertionError("an election moves no replica")


def change_of(
    image: MetadataImage,
    partition: PartitionState,
    *,
    directories: Directories = _no_directories,
    min_isr: int = 1,
    election: int = changes.ONLINE,
    may_lead: Callable[[int], bool] | None = None,
) -> PartitionChange:
    """A change of a partition, based on the brokers in the image."""
    return PartitionChange(
        partition,
        may_lead=may_lead if may_lead is not None else lambda replica: image.may_lead(partition, replica),
        directories=directories,
        min_isr=min_isr,
        eligible_leaders=bool(image.features.get(ELIGIBLE_LEADERS)),
        election=election,
    )


def elect_leader(
    image: MetadataImage, topic_name: str, index: int, kind: int, min_isr: int = 1
) -> stored.PartitionChangeRecord:
    """The record that elects a partition's preferred leader, or in an unclean election any live replica (KIP-460)."""
    topic = image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {topic_name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {topic_name}-{index}")
    if partition.leader == partition.replicas[0] if kind == ElectionType.PREFERRED else partition.leader != NO_LEADER:
        raise ElectionNotNeeded()
    election = changes.PREFERRED if kind == ElectionType.PREFERRED else changes.UNCLEAN
    record = change_of(image, partition, min_isr=min_isr, election=election).record()
    if record is None:
        raise PreferredLeaderNotAvailable() if kind == ElectionType.PREFERRED else EligibleLeadersNotAvailable()
    return record


def is_reassigning(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def reassign(
    image: MetadataImage,
    topic_name: str,
    index: int,
    replicas: Sequence[int] | None,
    *,
    directories: Directories,
    may_change_factor: bool = True,
    may_elect_unclean: bool = False,
    min_isr: int = 1,
) -> stored.PartitionChangeRecord | None:
    """The record that starts a move to `replicas`, or cancels the current one if None; None if nothing changes."""
    topic = image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {topic_name}:{index}.")
    change = change_of(image, partition, directories=directories, min_isr=min_isr)
    if replicas is None:
        _cancel(change, topic_name, partition, may_elect_unclean)
        return change.record()
    check_assignment(replicas, image.brokers)
    settled = [broker for broker in partition.replicas if broker not in partition.adding_replicas]
    if not may_change_factor and len(replicas) != len(settled):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(settled)} to {len(replicas)} while "
            "allow.replication.factor.change is false."
        )
    change.removing = sorted(set(partition.replicas).difference(replicas))
    change.adding = sorted(set(replicas).difference(partition.replicas)) or change.adding
    change.replicas = [*replicas, *change.removing]
    # A new target during a move: a replica that is being added and is in the new target stays in that state.
    change.adding = sorted({*change.adding}.intersection(replicas))
    return change.record()


def _cancel(change: PartitionChange, topic_name: str, partition: PartitionState, may_elect_unclean: bool) -> None:
    if not is_reassigning(partition):
        raise NoReassignmentInProgress()
    replicas = [broker for broker in partition.replicas if broker not in partition.adding_replicas]
    isr = [broker for broker in partition.isr if broker in replicas]
    if not isr and not may_elect_unclean:
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {topic_name}:{partition.index} because "
            "it would require an unclean leader election."
        )
    if may_elect_unclean:
        change.election = changes.UNCLEAN
    change.replicas, change.isr = replicas, isr or replicas[:1]
    change.adding, change.removing = [], []
