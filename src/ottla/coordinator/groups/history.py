"""The history of groups: members that joined, left, timed out or changed their subscription, and the new generations.

In memory and bounded. Nothing depends on it; it explains to operators why a group rebalanced.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

EVENTS_MAX: Final = 200
"""For one group."""
ALL_EVENTS_MAX: Final = 2000
"""For one shard of the coordinator: 0.6 MB. There are 50 shards by default. Clients choose the names of groups and
their number."""

GENERATION: Final = "generation"
JOINED: Final = "joined"
LEFT: Final = "left"
TIMED_OUT: Final = "timed out"
CHANGED: Final = "changed subscription"
REJOINED: Final = "asked for a rebalance"


class GroupEvent(NamedTuple):
    at_ms: int
    kind: str
    member_id: str | None = None
    detail: str | None = None
    generation: int | None = None
    members: int | None = None
    """The number of members in the generation."""


class GroupHistory:
    """The events of the groups of one coordinator. Only the most recently active groups are kept."""

    __slots__ = ("_counts", "_events", "_size")

    def __init__(self) -> None:
        self._events: dict[str, deque[GroupEvent]] = {}
        self._counts: Counter[str] = Counter()
        self._size = 0
        """The number of events in `_events`."""

    def note(self, group_id: str, event: GroupEvent) -> None:
        events = self._events.pop(group_id, None)
        if events is None:
            events = deque(maxlen=EVENTS_MAX)
        self._events[group_id] = events  # the last group is the most recently active one
        last = events[-1] if events else None
        if last is not None and event.kind == LEFT and last.kind == TIMED_OUT and last.member_id == event.member_id:
            return  # the timeout was the cause
        self._size += len(events) < EVENTS_MAX
        events.append(event)
        self._counts[event.kind] += 1
        while self._size > ALL_EVENTS_MAX:
            self.forget(next(iter(self._events)))

    def forget(self, group_id: str) -> None:
        """The group is deleted."""
        self._size -= len(self._events.pop(group_id, ()))

    def count(self, kind: str) -> int:
        """The number of events of a kind, for all groups, including removed ones."""
        return self._counts[kind]

    def of(self, group_id: str) -> tuple[GroupEvent, ...]:
        """The events of a group, oldest first."""
        return tuple(self._events.get(group_id, ()))
