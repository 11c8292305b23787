"""Incremental fetch sessions (KIP-227): a consumer lists its partitions once, then only the changes.

| request: id, epoch | what it means                                                       |
|--------------------|---------------------------------------------------------------------|
| 0, -1              | a full fetch without a session (and all of v0–v6)                    |
| n, -1              | close session n, then as above                                       |
| any, 0             | a full fetch that opens a session (and closes n)                     |
| n, e > 0           | the e-th incremental fetch of session n: changes in, changes out     |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

EVICTION_MS = 120_000
"""A session that was unused for this long is evicted for a new one when the cache is full (Kafka's constant)."""

PARTITIONS_MAX = 500_000
"""The most partitions of all sessions together, about 150 MB. Kafka limits only the number of sessions, and a session
may have as many partitions as fit into its requests. A fetch beyond the limit is served without a session."""

_INT32_MAX = 0x7FFFFFFF

PartitionKey = tuple[bytes | str, int]


class SessionPartition:
    """One partition of a fetch, and what the session last sent to its client about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = wanted.partition
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.update(wanted)

    def update(self, wanted: FetchRequest.FetchPartition) -> None:
        self.max_bytes = wanted.partition_max_bytes
        self.fetch_offset = wanted.fetch_offset
        self.current_leader_epoch = wanted.current_leader_epoch
        self.log_start_offset = wanted.log_start_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch


class FetchSession:
    """The partitions of one consumer, in the order in which they are read next."""

    __slots__ = ("created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.epoch = INITIAL_EPOCH + 1
        self.created_ms = self.last_used_ms = now_ms

    def add(self, request: FetchRequest) -> None:
        """Add the partitions that a request adds or changes."""
        by_id = self.uses_topic_ids
        for topic in request.topics:
            name = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                key = (name, wanted.partition)
                partition = self.partitions.get(key)
                if partition is None:
                    self.partitions[key] = SessionPartition(topic.topic, topic.topic_id, wanted)
                else:
                    partition.update(wanted)

    def forget(self, request: FetchRequest) -> None:
        by_id = self.uses_topic_ids
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((name, index), None)

    def served(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that just got data go to the end of the queue, so that a busy one cannot starve the others."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchPlan:
    """The partitions to read for one Fetch request, whether or not it belongs to a session."""

    __slots__ = ("full", "partitions", "session")

    def __init__(
        self, partitions: dict[PartitionKey, SessionPartition], session: FetchSession | None, full: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.full = full


class FetchSessionCache:
    """All sessions of a broker; limited, and the least recently used is removed first."""

    def __init__(self, slots: int, clock: Clock, randbelow: Callable[[int], int]) -> None:
        self._slots = slots
        self._clock = clock
        self._randbelow = randbelow
        self._sessions: dict[int, FetchSession] = {}
        self.partitions = 0
        """The partitions of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def plan(self, request: FetchRequest, version: int) -> FetchPlan:
        """The plan for a request. Opens, changes or closes its session."""
        session_id, epoch = request.session_id, request.session_epoch
        if version < 7 or epoch == FINAL_EPOCH:
            if session_id != NO_SESSION:
                self._drop(session_id)
            return FetchPlan(_requested(request, version), None, full=True)
        if epoch == INITIAL_EPOCH:
            if session_id != NO_SESSION:
                self._drop(session_id)
            session = self._open(request, version)
            if session is None:
                return FetchPlan(_requested(request, version), None, full=True)
            return FetchPlan(session.partitions, session, full=True)
        return self._incremental(request, version)

    def close(self, session: FetchSession) -> None:
        """Remove a session that its client does not know."""
        self._drop(session.session_id)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)

    def _incremental(self, request: FetchRequest, version: int) -> FetchPlan:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound()
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch()
        if session.uses_topic_ids != (version >= 13):
            raise FetchSessionTopicIdError()
        before = len(session.partitions)
        session.add(request)
        session.forget(request)
        self.partitions += len(session.partitions) - before
        if not session.partitions or self.partitions > PARTITIONS_MAX:
            # No partition is left: Kafka closes the session and answers without one. Or there are too many.
            self._drop(session.session_id)
            return FetchPlan(session.partitions, None, full=True)
        session.epoch = session.epoch + 1 if session.epoch < _INT32_MAX else 1
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchPlan(session.partitions, session, full=False)

    def _open(self, request: FetchRequest, version: int) -> FetchSession | None:
        if not self._make_room():
            return None
        session_id = 1 + self._randbelow(_INT32_MAX - 1)
        while session_id in self._sessions:
            session_id = 1 + self._randbelow(_INT32_MAX - 1)
        session = FetchSession(session_id, version >= 13, self._clock.monotonic_ms())
        session.add(request)  # there is nothing to forget yet
        if self.partitions + len(session.partitions) > PARTITIONS_MAX:
            return None
        self._sessions[session_id] = session
        self.partitions += len(session.partitions)
        return session

    def _make_room(self) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        # The dict is ordered by last use, so the first one is the least recently used.
        oldest = next(iter(self._sessions.values()))
        if self._clock.monotonic_ms() - oldest.last_used_ms <= EVICTION_MS:
            return False
        self._drop(oldest.session_id)
        return True


def _requested(request: FetchRequest, version: int) -> dict[PartitionKey, SessionPartition]:
    by_id = version >= 13
    return {
        (topic.topic_id if by_id else topic.topic, wanted.partition): SessionPartition(
            topic.topic, topic.topic_id, wanted
        )
        for topic in request.topics
        for wanted in topic.partitions
    }
