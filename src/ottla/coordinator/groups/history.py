"""What happened to groups: who joined, left, timed out or changed its subscription, and the generations that followed.

In memory and bounded. Nothing depends on it; people who ask why a group rebalanced read it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

EVENTS_MAX: Final = 200
"""Of one group."""
GROUPS_MAX: Final = 1000

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
    """How many the generation has."""


class GroupHistory:
    """The events of the groups of one coordinator; those of the groups that were busy last are kept."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: dict[str, deque[GroupEvent]] = {}

    def note(self, group_id: str, event: GroupEvent) -> None:
        events = self._events.pop(group_id, None)
        if events is None:
            events = deque(maxlen=EVENTS_MAX)
            if len(self._events) >= GROUPS_MAX:
                del self._events[next(iter(self._events))]
        self._events[group_id] = events  # the last one is the one that was busy last
        last = events[-1] if events else None
        if last is not None and event.kind == LEFT and last.kind == TIMED_OUT and last.member_id == event.member_id:
            return  # the timeout was the cause
        events.append(event)

    def of(self, group_id: str) -> tuple[GroupEvent, ...]:
        """Oldest first."""
        return tuple(self._events.get(group_id, ()))
