"""Waiting for what takes real time: other processes, threads, Apache Kafka. In virtual time nothing needs it."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[], Found], what: object = "the condition", timeout_s: float = PATIENCE_S, pause_s: float = 0.02
) -> Found:
    """What the condition returns as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(pause_s)
    return found


async def wait_for_async(
    condition: Callable[[], Found],
    what: object = "the condition",
    timeout_s: float = PATIENCE_S,
    pause_s: float = 0.005,
) -> Found:
    """The same on an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        await asyncio.sleep(pause_s)
    return found
