"""Which brokers hold the replicas of a partition: chosen here, or named by an administrator and checked."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ottla.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def place_replicas(
    brokers: Sequence[int],
    racks: dict[int, str | None],
    partitions: int,
    replication_factor: int,
    randbelow: Callable[[int], int],
    first_partition: int = 0,
    fenced: Sequence[int] = (),
) -> list[list[int]]:
    """Spread the replicas evenly: leaders go round the brokers, followers are shifted so that no pair repeats.

    Where racks are known the brokers are walked rack by rack, so that neighbours in the walk are in different racks.
    Fenced brokers get a replica only where the live ones are too few: they may be back soon.
    """
    if not brokers:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced."
        )
    registered = len(brokers) + len(fenced)
    if replication_factor > registered:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {registered} broker(s) are registered or some "
            "brokers have all their log directories cordoned."
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
        for follower in range(min(replication_factor, count) - 1):
            step = 1 + (shift + follower) % (count - 1)
            replicas.append(walk[(leader + step) % count])
        replicas += [fenced[(number + missing) % len(fenced)] for missing in range(replication_factor - count)]
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


def check_assignment(replicas: Sequence[int], brokers: Container[int], factor: int | None = None) -> None:
    """Refuse a manual replica list that is empty, names an unknown broker, repeats one or has another length."""
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker
    if factor is not None and len(replicas) != factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
            f"not consistent with previous partitions, which have {factor} replica(s)."
        )
