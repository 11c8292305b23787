"""Which brokers hold the replicas of a new topic's partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.errors import InvalidReplicationFactor


def place_replicas(
    brokers: Sequence[int],
    racks: dict[int, str | None],
    partitions: int,
    replication_factor: int,
    randbelow: Callable[[int], int],
    first_partition: int = 0,
) -> list[list[int]]:
    """Spread the replicas evenly: leaders go round the brokers, followers are shifted so that no pair repeats.

    Where racks are known the brokers are walked rack by rack, so that neighbours in the walk are in different racks.
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
        )
    walk = _alternating_racks(brokers, racks)
    count = len(walk)
    start = randbelow(count)
    shift = randbelow(count) if count > 1 else 0
    placed = []
    for number in range(first_partition, first_partition + partitions):
        leader = (start + number) % count
        if number > 0 and leader == start:
            shift += 1
        replicas = [walk[leader]]
        for follower in range(replication_factor - 1):
            step = 1 + (shift + follower) % (count - 1)
            replicas.append(walk[(leader + step) % count])
        placed.append(replicas)
    return placed


def _alternating_racks(brokers: Sequence[int], racks: dict[int, str | None]) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks.get(broker), []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack, key=lambda rack: rack or "")]
    walk: list[int] = []
    while any(queues):
        for queue in queues:
            if queue:
                walk.append(queue.pop(0))
    return walk
