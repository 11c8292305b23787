"""Waiting for what takes real time: other processes, threads, Apache Kafka. In virtual time nothing needs it."""

import asyncio
import time
from collections.abc import Callable, Container
from typing import Any, TypeVar

from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)

PATIENCE_S = 90.0
NO_LEADER_YET = (UnknownTopicOrPartition.code, LeaderNotAvailable.code, NotLeaderOrFollower.code)
"""Errors that Apache Kafka returns for a moment for a new topic."""
NO_COORDINATOR_YET = (CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code)
"""Errors that a coordinator returns while its topic is created or loaded."""

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[], Found], what: object = "the condition", timeout_s: float = PATIENCE_S, pause_s: float = 0.02
) -> Found:
    """The result of the condition as soon as it is true. `what` describes it in the error, as a string or a
    function."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what() if callable(what) else what}"
        time.sleep(pause_s)
    return found


async def wait_for_async(
    condition: Callable[[], Found],
    what: object = "the condition",
    timeout_s: float = PATIENCE_S,
    pause_s: float = 0.005,
) -> Found:
    """The same on an event loop, which continues meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what() if callable(what) else what}"
        await asyncio.sleep(pause_s)
    return found


def ask_until_ready(
    ask: Callable[[], Any], not_ready: Container[int] = NO_COORDINATOR_YET, timeout_s: float = PATIENCE_S
) -> Any:
    """Asks again while the answer has one of these error codes. Returns the first other answer."""
    deadline = time.monotonic() + timeout_s
    while (answer := ask()).error_code in not_ready:
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer
