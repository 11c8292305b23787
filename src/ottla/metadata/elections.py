"""Who leads a partition when brokers come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from ottla.metadata.image import NO_LEADER, BrokerState, MetadataImage, PartitionState
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored


def elect_returned_broker(
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


def directory_of(folder_id: bytes, first_id: int, broker_id: int) -> bytes:
    """The id of the directory of a broker that shares a folder; `first_id` is the node that the folder names.

    Two brokers must not have the same one: Apache Kafka would never start with that metadata again.
    """
    number = int.from_bytes(folder_id, "big") ^ (broker_id - first_id)
    return (number % (1 << 128)).to_bytes(16, "big")


def is_in_folder(broker: BrokerState, folder_id: bytes, first_id: int) -> bool:
    """Whether a broker keeps its partitions in this folder; all once did so under the folder's own id."""
    return folder_id in broker.log_dirs or directory_of(folder_id, first_id, broker.broker_id) in broker.log_dirs


def sharing_a_folder(image: MetadataImage, brokers: Sequence[int], folder_id: bytes) -> Iterator[Message]:
    """The records with which these brokers, and no others, lead what is in the folder that they share.

    With those of the last start nothing moves. Otherwise each topic is distributed again, partition by partition:
    a new leader just opens the files that the old one closed. Brokers that shared the folder before are forgotten;
    partitions with replicas elsewhere stay as they are.
    """
    first_id = brokers[0]
    before = {broker_id for broker_id, broker in image.brokers.items() if is_in_folder(broker, folder_id, first_id)}
    if before == set(brokers):
        return
    for former in sorted(before.difference(brokers)):
        yield stored.UnregisterBrokerRecord(broker_id=former, broker_epoch=image.brokers[former].epoch)
    movable = before.union(brokers)
    for topic in image.topics.values():
        first = crc32(topic.name.encode())
        for index, partition in topic.partitions.items():
            leader = brokers[(first + index) % len(brokers)]
            if not movable.issuperset(partition.replicas) or partition.leader == leader:
                continue
            yield stored.PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=[leader],
                isr=[leader],
                leader=leader,
                directories=[directory_of(folder_id, first_id, leader)],
                adding_replicas=[] if partition.adding_replicas else None,
                removing_replicas=[] if partition.removing_replicas else None,
                eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
                last_known_elr=[] if partition.last_known_elr else None,
            )
