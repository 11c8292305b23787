"""The leader of an epoch: the progress of each replica, the committed offset, and waiting fetches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.wire.messages import FetchRequest
from ottla.wire.schema import Message

Answer = Callable[[Message], None]

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this time is removed, as in Kafka."""


@dataclass(slots=True)
class Progress:
    """The progress of another replica."""

    end_offset: int = -1
    last_fetch_ms: float = -1.0
    """Monotonic time; -1 if it never fetched in this epoch."""
    last_fetch_wall_ms: int = -1
    last_caught_up_wall_ms: int = -1
    leader_end_at_last_fetch: int = -1
    has_acknowledged: bool = False
    """Whether it knows the leader of this epoch."""


@dataclass(slots=True)
class WaitingFetch:
    request: FetchRequest
    answer: Answer
    until_ms: float


class Leader:
    """One epoch of leadership."""

    def __init__(self, node: ReplicaKey, epoch: int, start_offset: int, check_quorum_at_ms: float) -> None:
        self.node = node
        self.epoch = epoch
        self.start_offset = start_offset
        """The start of the epoch in the log. Nothing counts as committed before a record of this epoch is."""
        self.replicas: dict[ReplicaKey, Progress] = {}
        self.waiting: list[WaitingFetch] = []
        self.check_quorum_at_ms = check_quorum_at_ms
        self._heard: set[int] = set()
        self.begin_at_ms = 0.0

    def progress_of(self, key: ReplicaKey) -> Progress:
        found = self.replicas.get(key)
        if found is None:
            found = self.replicas[key] = Progress()
        return found

    def progress_of_voter(self, voters: VoterSet, node_id: int) -> tuple[ReplicaKey, Progress] | None:
        voter = voters.get(node_id)
        if voter is None:
            return None
        candidates = [
            (key, progress)
            for key, progress in self.replicas.items()
            if voter.is_replica(key.node_id, key.directory_id)
        ]
        return max(candidates, key=lambda found: found[1].last_fetch_ms, default=None)

    def fetched(
        self, key: ReplicaKey, offset: int, end_offset: int, now_ms: float, wall_ms: int, voters: VoterSet
    ) -> bool:
        """A replica fetched from `offset`, so it has everything below. Returns the result of `heard_from`."""
        progress = self.progress_of(key)
        if offset >= end_offset:
            progress.last_caught_up_wall_ms = wall_ms
        elif progress.leader_end_at_last_fetch >= 0 and offset >= progress.leader_end_at_last_fetch:
            progress.last_caught_up_wall_ms = max(progress.last_caught_up_wall_ms, progress.last_fetch_wall_ms)
        progress.end_offset = offset
        progress.last_fetch_ms, progress.last_fetch_wall_ms = now_ms, wall_ms
        progress.leader_end_at_last_fetch = end_offset
        progress.has_acknowledged = True
        return self.heard_from(key, voters)

    def heard_from(self, key: ReplicaKey, voters: VoterSet) -> bool:
        """Count a voter. Returns whether a majority was counted, which extends the leadership."""
        if not voters.has(*key):
            return False
        self._heard.add(key.node_id)
        needed = voters.majority - (1 if voters.has(*self.node) else 0)
        if len(self._heard & voters.ids) < needed:
            return False
        self._heard.clear()
        return True

    def committed_offset(self, voters: VoterSet, own_end_offset: int) -> int:
        """The offset that a majority of the voters has; -1 until it reaches this leader's own epoch."""
        ends = []
        for voter in voters:
            if voter.is_replica(*self.node):
                ends.append(own_end_offset)
            else:
                found = self.progress_of_voter(voters, voter.node_id)
                ends.append(-1 if found is None else found[1].end_offset)
        if not ends:
            return -1
        offset = sorted(ends, reverse=True)[voters.majority - 1]
        return offset if offset > self.start_offset else -1

    def forget_silent_observers(self, voters: VoterSet, now_ms: float) -> None:
        for key, progress in list(self.replicas.items()):
            if not voters.has(*key) and now_ms - progress.last_fetch_ms > OBSERVER_SESSION_MS:
                del self.replicas[key]
