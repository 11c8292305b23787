"""New locations for the replicas of a broker that will leave the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.errors import InvalidReplicaAssignment
from ottla.metadata.image import MetadataImage


class Move(NamedTuple):
    """A partition and its new replicas."""

    topic: str
    partition: int
    replicas: list[int]


def replicas_on(image: MetadataImage, broker_id: int) -> int:
    """The number of partitions with a replica on a broker, once all current moves are complete."""
    return sum(
        broker_id in partition.replicas and broker_id not in partition.removing_replicas
        for _, partition in image.partitions()
    )


def still_on(image: MetadataImage, broker_id: int) -> int:
    """The number of partitions with a replica on a broker now."""
    return sum(broker_id in partition.replicas for _, partition in image.partitions())


def drain_moves(image: MetadataImage, broker_id: int) -> Iterator[Move]:
    """One move for each partition of the broker: to the broker with the fewest replicas, in a rack that has none yet.

    If every other broker already has a replica, the partition loses one replica.
    """
    others = [each.broker_id for each in image.live_brokers() if each.broker_id != broker_id]
    if not others:
        raise InvalidReplicaAssignment(f"broker {broker_id} is the only one that is up: its partitions cannot move")
    racks = {broker.broker_id: broker.rack for broker in image.brokers.values()}
    load = {other: replicas_on(image, other) for other in others}
    for topic, partition in image.partitions():
        target = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
        if broker_id not in target:
            continue
        stay = [replica for replica in target if replica != broker_id]
        used = {racks.get(replica) for replica in stay}
        free = [other for other in others if other not in stay]
        if free:
            # Without racks, each broker counts as its own rack.
            crowded = {other for other in free if racks[other] is not None and racks[other] in used}
            chosen = min(free, key=lambda other: (other in crowded, load[other], other))
            load[chosen] += 1
            yield Move(topic.name, partition.index, [chosen if each == broker_id else each for each in target])
        elif stay:
            yield Move(topic.name, partition.index, stay)
        else:
            raise AssertionError("a live broker is free where no replica stays")
