"""Share sessions: which partitions a member reads on this broker, so that its requests do not have to list them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownServerError,
)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

Place = tuple[bytes, int]
"""Topic id and partition."""
SessionKey = tuple[str, str]
"""Group and member."""


class ShareSession:
    __slots__ = ("connection", "epoch", "is_new", "key", "places", "unheard")

    def __init__(self, key: SessionKey, places: Iterable[Place], connection: Any) -> None:
        self.key = key
        self.epoch = 1
        """The epoch that the next request must have."""
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.unheard: set[Place] = set(self.places)
        """Partitions that the next answer must include even without records: those of a new session, and added ones."""
        self.is_new = True
        self.connection = connection

    def next(self) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def rotated(self, epoch: int) -> list[Place]:
        """Each request starts with another partition, so that none starves."""
        places = list(self.places)
        turn = epoch % len(places) if places and epoch > 0 else 0
        return places[turn:] + places[:turn]


class ShareSessions:
    __slots__ = ("_by_connection", "_groups_of", "_limit", "_members", "_sessions", "on_group_gone")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Any, set[SessionKey]] = {}
        self._groups_of: dict[Any, set[str]] = {}
        """The groups whose sessions a connection has had."""
        self._members: dict[str, int] = {}
        self.on_group_gone: Callable[[str], None] = lambda group_id: None
        """Called when a connection was closed and one of its groups has no sessions left."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound
        return session

    def begin(self, key: SessionKey, places: Iterable[Place], connection: Any) -> ShareSession:
        """Start a new session; it may replace an older one."""
        old = self._sessions.get(key)
        if old is None:
            if len(self._sessions) >= self._limit:
                raise ShareSessionLimitReached
            self._members[key[0]] = self._members.get(key[0], 0) + 1
        else:
            self._by_connection[old.connection].discard(key)
        session = self._sessions[key] = ShareSession(key, places, connection)
        self._by_connection.setdefault(connection, set()).add(key)
        self._groups_of.setdefault(connection, set()).add(key[0])
        return session

    def go_on(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self.find(key)
        if session.epoch != epoch:
            raise InvalidShareSessionEpoch
        if session.is_new:
            session.is_new = False
            session.unheard.clear()
        session.next()
        return session

    def for_acknowledging(self, key: SessionKey, epoch: int) -> ShareSession:
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch
        return self.find(key) if epoch == FINAL_EPOCH else self.go_on(key, epoch)

    def for_fetching(
        self,
        key: SessionKey,
        epoch: int,
        places: Iterable[Place],
        forgotten: Iterable[Place],
        connection: Any,
        *,
        acknowledges: bool,
    ) -> ShareSession:
        if epoch == FINAL_EPOCH:
            return self.find(key)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise InvalidRequest
            places = list(places)
            if len(set(places)) < len(places):
                self.end_of(key)
                raise UnknownServerError("")  # as with Kafka, whose new sessions cannot have a partition twice
            return self.begin(key, places, connection)
        session = self.go_on(key, epoch)
        for place in places:
            if place not in session.places:
                session.places[place] = None
                session.unheard.add(place)
        for place in forgotten:
            session.places.pop(place, None)
            session.unheard.discard(place)
        return session

    def end_of(self, key: SessionKey) -> None:
        session = self._sessions.get(key)
        if session is not None:
            self.end(session)

    def end(self, session: ShareSession) -> None:
        if self._sessions.get(session.key) is not session:
            return
        del self._sessions[session.key]
        keys = self._by_connection.get(session.connection)
        if keys is not None:
            keys.discard(session.key)
            if not keys:
                del self._by_connection[session.connection]
        group_id = session.key[0]
        self._members[group_id] -= 1
        if not self._members[group_id]:
            del self._members[group_id]

    def connection_closed(self, connection: Any) -> None:
        """End the sessions of a closed connection. Until then a group without sessions is kept: its members may be
        back soon.
        """
        for group_id in self._groups_of.pop(connection, ()):
            if group_id not in self._members:
                self.on_group_gone(group_id)

    def of_connection(self, connection: Any) -> list[ShareSession]:
        return [self._sessions[key] for key in self._by_connection.get(connection, ())]
