"""Elections asked for by an administrator, and moves of replicas to other brokers (KIP-455).

A move goes in three steps: the new replicas are added, they catch up, the old ones are removed. A change that needs no
catching up (another order, fewer replicas) is done in one.
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
    """A change of a partition by what the image knows of the brokers."""
    return PartitionChange(
        partition,
        may_lead=may_lead if may_lead is not None else image.is_active,
        directories=directories,
        min_isr=min_isr,
        eligible_leaders=bool(image.features.get(ELIGIBLE_LEADERS)),
        election=election,
    )


def elect_leader(
    image: MetadataImage, topic_name: str, index: int, kind: int, min_isr: int = 1
) -> stored.PartitionChangeRecord:
    """The record that gives a partition its preferred leader back, or after a loss any leader at all (KIP-460)."""
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
    """The record that starts a move to `replicas`, or ends one under way where they are None; None if all is so."""
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
    # A new target in the middle of a move: a replica that is being added and is still wanted stays so.
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
