"""Share sessions: epochs, limits, and what ends with them."""

import pytest

from ottla.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownServerError,
)
from ottla.server.share.sessions import FINAL_EPOCH, ShareSession, ShareSessions

A, B = (b"a" * 16, 0), (b"a" * 16, 1)
KEY = ("g", "m")


def opened(sessions: ShareSessions, member: str = "m", connection: object = "c") -> ShareSession:
    return sessions.for_fetching(("g", member), 0, [A], [], connection, acknowledges=False)


def test_epochs_follow_each_other() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.for_fetching(KEY, 1, [B], [], "c", acknowledges=True) is session
    assert list(session.places) == [A, B]
    assert sessions.for_acknowledging(KEY, 2) is session
    sessions.for_fetching(KEY, 3, [], [A], "c", acknowledges=False)
    assert list(session.places) == [B]
    for wrong in (1, 3, 5):
        with pytest.raises(InvalidShareSessionEpoch):
            sessions.go_on(KEY, wrong)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.for_acknowledging(KEY, 0)
    session.epoch = 2**31 - 1
    sessions.go_on(KEY, 2**31 - 1)
    assert session.epoch == 1


def test_invalid_first_and_last_epochs_are_refused() -> None:
    sessions = ShareSessions(1)
    for epoch in (1, FINAL_EPOCH):
        with pytest.raises(ShareSessionNotFound):
            sessions.for_fetching(KEY, epoch, [], [], "c", acknowledges=False)
    with pytest.raises(InvalidRequest):
        sessions.for_fetching(KEY, 0, [A], [], "c", acknowledges=True)
    opened(sessions)
    opened(sessions)  # replaces the first
    with pytest.raises(ShareSessionLimitReached):
        opened(sessions, "another")
    assert sessions.for_fetching(KEY, FINAL_EPOCH, [A], [], "c", acknowledges=False) is sessions.find(KEY)


def test_a_duplicate_partition_opens_no_session_and_closes_the_old_one() -> None:
    sessions = ShareSessions(1)
    opened(sessions)
    with pytest.raises(UnknownServerError):
        sessions.for_fetching(KEY, 0, [A, B, A], [], "c", acknowledges=False)
    assert len(sessions) == 0


def test_the_last_session_of_a_group() -> None:
    sessions = ShareSessions(10)
    gone: list[str] = []
    sessions.on_group_gone = gone.append
    first, second = opened(sessions, "m", "c1"), opened(sessions, "n", "c2")
    assert sessions.of_connection("c1") == [first]
    sessions.end(first)
    assert (gone, sessions.of_connection("c1"), len(sessions)) == ([], [], 1)
    sessions.end(first)
    sessions.connection_closed("c1")
    sessions.end(second)
    assert gone == [], "its member may be back soon"
    sessions.connection_closed("c2")
    sessions.connection_closed("c2")
    assert gone == ["g"]


def test_each_request_starts_with_the_next_partition() -> None:
    session = ShareSession(KEY, [A, B], "c")
    assert [session.rotated(epoch)[0] for epoch in (0, 1, 2, 3)] == [A, B, A, B]
    assert ShareSession(KEY, [], "c").rotated(5) == []
