"""The assignor of share groups, `simple`: every member gets something, and every partition gets somebody.

With more members than partitions a partition has several readers; with fewer a member has several partitions. The
previous target is kept as far as balance allows. Members that all want the same topics are balanced over all
partitions, others topic by topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from ottla.coordinator.assignors import Members, Target

Place = tuple[bytes, int]


def assign_simple(members: Members, assignable: Mapping[bytes, frozenset[int]]) -> dict[str, Target]:
    """What each member gets of the partitions that may be handed out."""
    found: dict[str, set[Place]] = {member_id: set() for member_id in members}
    topics = {spec.topics for spec in members.values()}
    if len(topics) == 1:
        wanted = [(topic_id, index) for topic_id in sorted(next(iter(topics))) for index in _of(assignable, topic_id)]
        _balance(list(members), wanted, members, found)
    else:
        for topic_id in sorted({topic_id for each in topics for topic_id in each}):
            readers = [member_id for member_id, spec in members.items() if topic_id in spec.topics]
            _balance(readers, [(topic_id, index) for index in _of(assignable, topic_id)], members, found)
    return {member_id: _by_topic(places) for member_id, places in found.items()}


def _of(assignable: Mapping[bytes, frozenset[int]], topic_id: bytes) -> list[int]:
    return sorted(assignable.get(topic_id, ()))


def _balance(readers: Sequence[str], places: Sequence[Place], members: Members, found: dict[str, set[Place]]) -> None:
    """Share `places` out among `readers`, beginning with what they had."""
    if not places or not readers:
        return
    sharing = ceil(len(readers) / len(places))
    exact = sharing * len(places) / len(readers)
    quotas = {
        member_id: ceil(exact * (position + 1)) - ceil(exact * position) for position, member_id in enumerate(readers)
    }
    counts: dict[Place, int] = dict.fromkeys(places, 0)
    got: dict[str, set[Place]] = {}
    for member_id in readers:
        kept: set[Place] = set()
        before = members[member_id].target
        for place in places:
            if place[1] in before.get(place[0], ()) and len(kept) < quotas[member_id] and counts[place] < sharing:
                kept.add(place)
                counts[place] += 1
        got[member_id] = kept
    # Who lacks something takes what has the fewest readers.
    for member_id in readers:
        kept = got[member_id]
        if len(kept) < quotas[member_id]:
            free = sorted((place for place in places if place not in kept), key=lambda place: counts[place])
            for place in free[: quotas[member_id] - len(kept)]:
                kept.add(place)
                counts[place] += 1
    for place in places:
        if not counts[place]:
            least = min(readers, key=lambda member_id: len(got[member_id]))
            got[least].add(place)
            counts[place] += 1
    for member_id in readers:
        found[member_id] |= got[member_id]


def _by_topic(places: set[Place]) -> Target:
    target: dict[bytes, set[int]] = {}
    for topic_id, index in sorted(places):
        target.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in target.items()}
