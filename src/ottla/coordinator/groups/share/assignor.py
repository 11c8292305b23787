"""The assignor of share groups, `simple`: every member gets a partition, and every partition gets a member.

With more members than partitions, a partition has several readers; with fewer, a member has several partitions. If all
members have the same subscription, they are balanced over all partitions, otherwise topic by topic. The previous target
is kept as far as balance allows: a member with more than its share gives up the rest, a partition with too many readers
loses some, and the remaining places go in turn to members that have too few. The order is that of Kafka's hash maps, so
that a group that moves between Kafka and this broker keeps its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from ottla.coordinator.groups.consumer.assignors import Members, Target
from ottla.metadata.java_hash_order import JavaOrder, java_copy, java_map, java_names, uuid_hash

Place = tuple[bytes, int]

_UNSIGNED = 0xFFFFFFFF
_NOBODY = -1


def assign_simple(members: Members, assignable: Mapping[bytes, frozenset[int]]) -> dict[str, Target]:
    """Assign the assignable partitions to the members."""
    found: dict[str, set[Place]] = {member_id: set() for member_id in members}
    order = java_names(members)
    topics = {spec.topics for spec in members.values()}
    if len(topics) == 1:
        wanted = java_map(sorted(next(iter(topics))), uuid_hash)
        places = [(topic_id, index) for topic_id in wanted for index in sorted(assignable.get(topic_id, ()))]
        _Balance(order, order, set(wanted), members, places, _place_hash).into(found)
    else:
        for topic_id in {topic_id for each in topics for topic_id in each}:
            readers = [member_id for member_id in order if topic_id in members[member_id].topics]
            places = [(topic_id, index) for index in sorted(assignable.get(topic_id, ()))]
            _Balance(order, readers, {topic_id}, members, places, _index_hash).into(found)
    return {member_id: _by_topic(places) for member_id, places in found.items()}


def _place_hash(place: Place) -> int:
    return (31 * uuid_hash(place[0]) + place[1]) & _UNSIGNED


def _index_hash(place: Place) -> int:
    return place[1]


def _same(position: int) -> int:
    return position


def _for(count: int) -> int:
    """The number of buckets with which Kafka's assignor creates its maps."""
    return int((count + 1) / 0.75 + 1)


class _Balance:
    """Distributes places among the readers. Members are identified by their position."""

    def __init__(
        self,
        order: Sequence[str],
        readers: Sequence[str],
        topics: set[bytes],
        members: Members,
        places: Sequence[Place],
        hash_of: Callable[[Place], int],
    ) -> None:
        self._order = order
        self._hash_of = hash_of
        self._sharing = ceil(len(readers) / len(places)) if places else 0
        exact = self._sharing * len(places) / len(readers)
        positions = {member_id: position for position, member_id in enumerate(order)}
        self._quotas = {
            positions[member_id]: ceil(exact * (turn + 1)) - ceil(exact * turn)
            for turn, member_id in enumerate(readers)
        }
        self._turns: JavaOrder[Place] = JavaOrder(self._hash_of, buckets=_for(len(places)))
        self._readers: dict[Place, JavaOrder[int]] = {}
        self._got: dict[int, JavaOrder[Place]] = {}
        for position, member_id in enumerate(order):
            target = members[member_id].target
            for topic_id in java_map(sorted(target), uuid_hash):
                if topic_id in topics:
                    for index in java_copy(sorted(target[topic_id]), _same):
                        self._keep(position, (topic_id, index))
        self._cut_members()
        self._cut_places()
        for place in places:
            self._known(place)
        self._share_out(len(order))

    def _known(self, place: Place) -> JavaOrder[int]:
        if place not in self._readers:
            self._turns.compute(place)
            self._readers[place] = JavaOrder(_same)
        return self._readers[place]

    def _keep(self, position: int, place: Place) -> None:
        self._known(place).add(position)
        self._got.setdefault(position, JavaOrder(self._hash_of)).add(place)

    def _cut_members(self) -> None:
        for position in sorted(self._got):
            got, quota = self._got[position], self._quotas.get(position, 0)
            for place in list(got)[: max(len(got) - quota, 0)]:
                got.remove(place)
                self._readers[place].remove(position)

    def _cut_places(self) -> None:
        for place in self._turns:
            readers = self._readers[place]
            for position in list(readers)[: max(len(readers) - self._sharing, 0)]:
                readers.remove(position)
                self._got[position].remove(place)

    def _share_out(self, member_count: int) -> None:
        unfilled: JavaOrder[int] = JavaOrder(_same, buckets=_for(member_count))
        for position, quota in self._quotas.items():
            if len(self._got.get(position, ())) < quota:
                unfilled.add(position)
        turn = iter(list(unfilled))
        has_given = False
        for place in self._turns:
            readers = self._readers[place]
            left = self._sharing - len(readers)
            while left > 0 and len(unfilled):
                position = next(turn, _NOBODY)
                if position == _NOBODY:
                    if not has_given:
                        break  # no member with too few can take this one
                    turn, has_given = iter(list(unfilled)), False
                    continue
                if position in readers:
                    continue
                got = self._got.setdefault(position, JavaOrder(self._hash_of))
                got.add(place)
                left -= 1
                has_given = True
                if len(got) >= self._quotas[position]:
                    unfilled.remove(position)

    def into(self, found: dict[str, set[Place]]) -> None:
        for position, got in self._got.items():
            found[self._order[position]].update(got)


def _by_topic(places: set[Place]) -> Target:
    target: dict[bytes, set[int]] = {}
    for topic_id, index in sorted(places):
        target.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in target.items()}
