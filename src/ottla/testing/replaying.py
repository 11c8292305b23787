"""Uses a recording of requests as a regression test."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from os import PathLike

from ottla.client.replaying import DEFAULT_TIMEOUT_S, Replayed, replay


def replay_requests(
    path: str | PathLike[str], bootstrap: str, *, client_id: str | None = None, timeout: float = DEFAULT_TIMEOUT_S
) -> Replayed:
    """Send the requests of a recording (`broker.record`) again, to any broker.

    The result has `differences`, the requests whose answers have other errors than in the recording, and `errors`,
    which counts the requests for each error.
    """
    with ThreadPoolExecutor(1) as thread:  # the caller may be on its own event loop
        work = replay(path, bootstrap, client_id=client_id, timeout_s=timeout)
        return thread.submit(asyncio.run, work).result()
