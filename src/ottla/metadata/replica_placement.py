"""The placement of replicas on brokers: automatic, or checked if an administrator chose it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ottla.errors import InvalidReplicaAssignment, InvalidReplicationFactor

T = TypeVar("T")
RandBelow: TypeAlias = Callable[[int], int]


def place_replicas(
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    randbelow: RandBelow,
    fenced: Sequence[int] = (),
) -> list[list[int]]:
    """Spread the replicas as Kafka's StripedReplicaPlacer does: over racks first, then over the brokers in them.

    The first replicas rotate over the racks, and the other replicas of a partition go to the next racks. Fenced
    brokers, which may return soon, get a replica only after all live brokers of their rack, and never the first one.
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
    walk = _Racks(brokers, fenced, racks, randbelow)
    return [walk.place(replication_factor) for _ in range(partitions)]


class _Brokers:
    """The brokers of a rack. Each is used once for a partition; the next partition starts with another one."""

    def __init__(self, brokers: list[int], randbelow: RandBelow) -> None:
        self.brokers = sorted(brokers)
        self._start = randbelow(len(brokers)) if brokers else 0
        self._partition = 0
        self._given = 0

    def next(self, partition: int) -> int | None:
        count = len(self.brokers)
        if not count:
            return None
        if self._partition != partition:
            self._partition, self._given = partition, 0
            self._start = (self._start + 1) % count
        if self._given == count:
            return None
        self._given += 1
        return self.brokers[(self._given - 1 + self._start) % count]


class _Racks:
    """The racks in order, and the fenced and live brokers of each."""

    def __init__(
        self, live: Sequence[int], fenced: Sequence[int], racks: Mapping[int, str | None], randbelow: RandBelow
    ) -> None:
        self._randbelow = randbelow
        self._names = sorted(
            {racks.get(broker) for broker in (*live, *fenced)}, key=lambda name: (bool(name), name or "")
        )
        self._racks = {
            name: [
                _Brokers([broker for broker in each if racks.get(broker) == name], randbelow) for each in (fenced, live)
            ]
            for name in self._names
        }
        self._start = randbelow(len(self._names))
        self._live_count = len(live)
        self._placed = 0

    def place(self, replication_factor: int) -> list[int]:
        if self._placed == self._live_count > 1:
            # Every broker was first once: shuffle, so that the same sets do not repeat.
            self._placed = 0
            self._shuffle()
        count = len(self._names)
        start = self._start % count
        index = first_index = start
        while (first := self._racks[self._names[first_index]][1].next(self._placed)) is None:
            first_index = (first_index + 1) % count
        replicas, passed = [first], False
        while len(replicas) < replication_factor:
            found = None
            if index == first_index and not passed:
                passed = True  # this rack was used already
            else:
                fenced, live = self._racks[self._names[index]]
                found = live.next(self._placed)
                if found is None:
                    found = fenced.next(self._placed)
            index = (index + 1) % count
            if found is not None:
                replicas.append(found)
        self._placed += 1
        self._start = start + 1
        return replicas

    def _shuffle(self) -> None:
        _shuffle(self._names, self._randbelow)
        for rack in self._racks.values():
            for each in rack:
                _shuffle(each.brokers, self._randbelow)


def _shuffle(items: list[T], randbelow: RandBelow) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = randbelow(last + 1)
        items[last], items[other] = items[other], items[last]


def check_assignment(replicas: Sequence[int], brokers: Container[int], factor: int | None = None) -> None:
    """Refuse a manual replica list that is empty, has an unknown or repeated broker, or has a wrong length."""
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
