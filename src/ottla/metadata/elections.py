"""Leader elections when brokers start or return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from ottla.metadata.image import MIGRATING, NO_LEADER, UNASSIGNED, BrokerState, MetadataImage, PartitionState
from ottla.wire.schema import Message
from ottla.wire.stored import metadata as stored


def elect_returned_broker(
    image: MetadataImage, broker_id: int, *, new_epochs: bool
) -> Iterator[stored.PartitionChangeRecord]:
    """The changes after a broker registered again: it leads the partitions without a leader that it may lead.

    When a single Apache Kafka broker shuts down, it leaves its partitions without a leader, with itself in their
    eligible leader replicas (KIP-966). `new_epochs` starts a new leader epoch for partitions that it already leads:
    after an unclean stop the end of a log may be lost, and consumers detect that by the epoch (KIP-320).
    """
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER and _may_lead(image, partition, broker_id):
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


def _may_lead(image: MetadataImage, partition: PartitionState, broker_id: int) -> bool:
    if not image.has_online_folder(partition, broker_id):
        return False
    return (
        broker_id in partition.isr
        or broker_id in partition.eligible_leader_replicas
        or (not partition.isr and not partition.eligible_leader_replicas and partition.last_known_elr == [broker_id])
    )


def assign_folders(
    image: MetadataImage, broker_id: int, assigned: Iterable[tuple[bytes, int, bytes]]
) -> list[stored.PartitionChangeRecord]:
    """The changes that assign a broker's replicas to its folders: (topic id, partition, id of the folder)."""
    records = []
    for topic_id, index, directory in assigned:
        partition = image.topics_by_id[topic_id].partitions[index]
        directories = list(partition.directories) or [MIGRATING] * len(partition.replicas)
        directories[partition.replicas.index(broker_id)] = directory
        records.append(stored.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories))
    return records


def directory_of(folder_id: bytes, first_id: int, broker_id: int) -> bytes:
    """The directory id of a broker that shares a folder; `first_id` is the node id in the folder's metadata.

    Two brokers must not have the same id: Apache Kafka would refuse to start with that metadata.
    """
    number = int.from_bytes(folder_id, "big") ^ (broker_id - first_id)
    return (number % (1 << 128)).to_bytes(16, "big")


def shares_folders(broker: BrokerState, folder_ids: Iterable[bytes], first_id: int) -> bool:
    """Whether a broker keeps its partitions in these folders. Older versions used a folder's own id for all."""
    return any(
        folder_id in broker.log_dirs or directory_of(folder_id, first_id, broker.broker_id) in broker.log_dirs
        for folder_id in folder_ids
    )


def sharing_folders(
    image: MetadataImage, brokers: Sequence[int], folder_ids: Sequence[bytes], *, is_spread: bool = False
) -> Iterator[Message]:
    """The records that make these brokers, and no others, the leaders of all partitions in their shared folders.

    With `is_spread` there may be folders besides `folder_ids` that cannot be used now.

    If the brokers are the same as at the last start, nothing moves. Otherwise each topic is distributed again,
    partition by partition: a new leader just opens the files that the old one closed. Brokers that no longer share the
    folder are removed; partitions with replicas elsewhere do not change.
    """
    first_id = brokers[0]
    before = {broker_id for broker_id, broker in image.brokers.items() if shares_folders(broker, folder_ids, first_id)}
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
                directories=[
                    _directory_at(leader, partition, folder_ids, first_id)
                    if is_spread
                    else directory_of(folder_ids[0], first_id, leader)
                ],
                adding_replicas=[] if partition.adding_replicas else None,
                removing_replicas=[] if partition.removing_replicas else None,
                eligible_leader_replicas=[] if partition.eligible_leader_replicas else None,
                last_known_elr=[] if partition.last_known_elr else None,
            )


def _directory_at(leader: int, partition: PartitionState, folder_ids: Sequence[bytes], first_id: int) -> bytes:
    """The directory id of a partition that stays in its folder, with another leader."""
    known = partition.directories[0] if partition.directories else UNASSIGNED
    if known in (UNASSIGNED, MIGRATING):
        return UNASSIGNED
    folder_id = known if known in folder_ids else directory_of(known, first_id, partition.replicas[0])
    return directory_of(folder_id, first_id, leader)
