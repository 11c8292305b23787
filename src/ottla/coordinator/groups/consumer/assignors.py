"""Server-side assignors of the consumer protocol: they decide which member reads which partition.

`uniform` spreads partitions evenly and moves as few as it can; `range` gives each member a contiguous slice of each
topic, so that equal partitions of different topics are assigned to the same member. Both only compute a target; members
reach it by reconciliation. An assignor is a pure function of the members' subscriptions and the previous target.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import NamedTuple

from ottla.metadata.java_hash_order import java_copy, java_map, java_names, uuid_hash

Target = dict[bytes, frozenset[int]]
"""Partitions by topic id."""


class MemberSpec(NamedTuple):
    """The assignor's view of a member."""

    instance_id: str | None
    topics: frozenset[bytes]
    target: Mapping[bytes, frozenset[int]]
    """The previous target."""


Members = Mapping[str, MemberSpec]
Assignor = Callable[[Members, Mapping[bytes, int]], dict[str, Target]]


def assign_range(members: Members, partition_counts: Mapping[bytes, int]) -> dict[str, Target]:
    """Static members come first, by instance id, so that a restart does not shuffle the slices."""
    order = sorted(members, key=lambda member_id: _slice_order(member_id, members[member_id].instance_id))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assignment: dict[str, Target] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + quota + (position < extra)
            if end > start:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assignment


def _slice_order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def assign_uniform(members: Members, partition_counts: Mapping[bytes, int]) -> dict[str, Target]:
    if not members:
        return {}
    subscriptions = {spec.topics for spec in members.values()}
    if len(subscriptions) == 1:
        return _uniform_same(members, next(iter(subscriptions)), partition_counts)
    return _uniform_mixed(members, partition_counts)


def _uniform_same(
    members: Members, topics: frozenset[bytes], partition_counts: Mapping[bytes, int]
) -> dict[str, Target]:
    """All members read the same topics: each keeps partitions up to its quota; those below it get the rest."""
    total = sum(partition_counts[topic_id] for topic_id in topics)
    quota, extra = divmod(total, len(members))
    kept: dict[str, dict[bytes, set[int]]] = {}
    room: list[tuple[str, int]] = []
    given: set[tuple[bytes, int]] = set()
    revoked: dict[tuple[bytes, int], None] = {}
    for position, member_id in enumerate(java_names(members)):
        target = members[member_id].target
        takes_extra = extra > 0
        left = quota + takes_extra
        mine = kept[member_id] = {}
        for topic_id in java_map(sorted(target.keys() & topics), uuid_hash):
            for index in java_copy(sorted(target[topic_id]), int):
                place = topic_id, index
                # A partition can be deleted, or be in two targets after a static member was replaced.
                if index >= partition_counts[topic_id] or place in given:
                    continue
                if left:
                    given.add(place)
                    mine.setdefault(topic_id, set()).add(index)
                    left -= 1
                else:
                    revoked[place] = None
        if left and takes_extra and len(members) - position > extra:
            left, takes_extra = left - 1, False  # a later member may have one more already
        extra -= takes_extra
        if left:
            room.append((member_id, left))
    # First partitions without an owner, then those that a member gave up, in the order of Kafka's hash maps.
    nobodys = (
        (topic_id, index)
        for topic_id in java_map(sorted(topics), uuid_hash)
        for index in range(partition_counts[topic_id])
        if (topic_id, index) not in given and (topic_id, index) not in revoked
    )
    waiting = chain(nobodys, [place for place in revoked if place not in given])
    for member_id, left in room:
        for topic_id, index in islice(waiting, left):
            kept[member_id].setdefault(topic_id, set()).add(index)
    return _freeze(kept)


def _uniform_mixed(members: Members, partition_counts: Mapping[bytes, int]) -> dict[str, Target]:
    """Subscriptions differ: keep valid partitions, give the rest to the least loaded members, then rebalance."""
    readers: dict[bytes, list[str]] = {}
    for member_id, spec in members.items():
        for topic_id in spec.topics:
            readers.setdefault(topic_id, []).append(member_id)
    kept: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    load = dict.fromkeys(members, 0)
    owner: dict[tuple[bytes, int], str] = {}
    for member_id, spec in members.items():
        for topic_id, indexes in spec.target.items():
            for index in sorted(indexes):
                if topic_id in spec.topics and index < partition_counts[topic_id] and (topic_id, index) not in owner:
                    owner[topic_id, index] = member_id
                    kept[member_id].setdefault(topic_id, set()).add(index)
                    load[member_id] += 1
    # Topics with few readers first: they have the least choice.
    for topic_id in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):
        heap = [(load[member_id], position, member_id) for position, member_id in enumerate(readers[topic_id])]
        heapq.heapify(heap)
        for index in range(partition_counts[topic_id]):
            if (topic_id, index) not in owner:
                count, position, member_id = heap[0]
                heapq.heapreplace(heap, (count + 1, position, member_id))
                owner[topic_id, index] = member_id
                kept[member_id].setdefault(topic_id, set()).add(index)
                load[member_id] += 1
    _level(readers, kept, load)
    return _freeze(kept)


def _level(readers: Mapping[bytes, list[str]], kept: dict[str, dict[bytes, set[int]]], load: dict[str, int]) -> None:
    """Move single partitions from a more loaded to a less loaded reader of the same topic until no move helps.

    Each move lowers the sum of the squared loads, so it ends.
    """
    moved = True
    while moved:
        moved = False
        for topic_id, member_ids in readers.items():
            while True:
                holders = [member_id for member_id in member_ids if kept[member_id].get(topic_id)]
                if not holders:
                    break
                fullest = max(holders, key=lambda member_id: load[member_id])
                emptiest = min(member_ids, key=lambda member_id: load[member_id])
                if load[fullest] - load[emptiest] < 2:
                    break
                index = max(kept[fullest][topic_id])
                kept[fullest][topic_id].discard(index)
                if not kept[fullest][topic_id]:
                    del kept[fullest][topic_id]
                kept[emptiest].setdefault(topic_id, set()).add(index)
                load[fullest] -= 1
                load[emptiest] += 1
                moved = True


def _freeze(kept: dict[str, dict[bytes, set[int]]]) -> dict[str, Target]:
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
        for member_id, topics in kept.items()
    }


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
