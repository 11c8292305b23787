"""The roles of a replica in the quorum, one class per role.

    Unattached    has no leader to follow. A voter starts an election when its timeout ends
    Prospective   asks whether it could win, without a new epoch (pre-vote, KIP-996)
    Candidate     has started an epoch and asks for votes
    Follower      fetches from the leader of the epoch
    Leader        serves the log; see `leader.py`
    Resigned      was the leader, and notifies the others until there is a new one

An observer (a replica without a vote) is Unattached or Follower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.raft.raft_log import OffsetAndEpoch


@dataclass(slots=True)
class Unattached:
    election_at_ms: float


@dataclass(slots=True)
class Election:
    """The common part of Prospective and Candidate."""

    ends_at_ms: float
    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)


class Prospective(Election):
    """Pre-vote."""


class Candidate(Election):
    """The real vote."""


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot that is being fetched from the leader."""

    snapshot: OffsetAndEpoch
    content: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Follower:
    leader_id: int
    fetch_by_ms: float
    """If the leader does not answer by then, an election starts."""
    has_fetched: bool = False
    """Whether it has contact with the leader: then it refuses pre-votes (KIP-996)."""
    is_caught_up: bool = False
    """Whether it has everything that was committed at the time of the leader's last answer."""
    download: SnapshotDownload | None = None


@dataclass(slots=True)
class Resigned:
    successors: list[int]
    ends_at_ms: float
    told: set[int] = field(default_factory=set)
