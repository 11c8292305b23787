"""Waiting fetches: a single one is served before the producer's answer, several are served after it."""

import logging
from collections.abc import Callable

import pytest

from ottla.server.wakeups import Wakeups


class Loop:
    """Callbacks for the next iteration of an event loop."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def iterate(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def test_a_single_fetch_is_served_at_once() -> None:
    loop, served = Loop(), list[str]()
    wakeups = Wakeups(loop.soon.append)
    wakeups.add(lambda: served.append("fetch"))
    wakeups.serve_single()
    assert served == ["fetch"]
    loop.iterate()
    assert served == ["fetch"], "it is not served twice"


def test_several_fetches_wait_for_the_next_iteration() -> None:
    loop, served = Loop(), list[int]()
    wakeups = Wakeups(loop.soon.append)
    for number in range(3):
        wakeups.add(lambda number=number: served.append(number))  # type: ignore[misc]
    wakeups.serve_single()
    assert served == []
    assert len(loop.soon) == 1
    loop.iterate()
    assert served == [0, 1, 2]


def test_an_error_in_one_fetch_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    loop, served = Loop(), list[str]()
    wakeups = Wakeups(loop.soon.append)

    def fail() -> None:
        raise RuntimeError("bug")

    wakeups.add(fail)
    wakeups.add(lambda: served.append("second"))
    with caplog.at_level(logging.ERROR):
        loop.iterate()
    assert served == ["second"]
    assert "a waiting fetch cannot be answered" in caplog.text
