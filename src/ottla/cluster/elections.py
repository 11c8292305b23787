"""Who leads a partition when brokers come and go."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cluster.metadata import NO_LEADER, MetadataImage, PartitionState
from ottla.wire.stored import metadata as stored


def returning_broker(
    image: MetadataImage, broker_id: int, *, new_epochs: bool
) -> Iterator[stored.PartitionChangeRecord]:
    """The changes after a broker registered again: it leads what nobody leads and it may lead.

    A sole broker that Apache Kafka shut down leaves partitions without a leader, the broker in their eligible leader
    replicas (KIP-966). `new_epochs` starts a new leader epoch where it leads already: after an unclean stop the
    end of a log may be gone, and consumers find that out by the epoch (KIP-320).
    """
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER and _may_lead(partition, broker_id):
            yield stored.PartitionChangeRecord(
                partition_id=partition.index,
                topic_id=topic.topic_id,
                leader=broker_id,
                isr=partition.isr or [broker_id],
                eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
                last_known_elr=[] if partition.last_known_elr else None,
            )
        elif new_epochs and partition.leader == broker_id:
            yield stored.PartitionChangeRecord(partition_id=partition.index, topic_id=topic.topic_id, leader=broker_id)


def _may_lead(partition: PartitionState, broker_id: int) -> bool:
    return broker_id in partition.isr or broker_id in partition.eligible_leader_replicas
