"""Requests that go to every broker, because each broker knows only its own part."""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.client.connection import ClientError
from ottla.client.routing import Client
from ottla.errors import KafkaError

Answer = TypeVar("Answer")

ANSWER_S: Final = 1.0
"""How long to wait for the other brokers after each answer, if a partial result is enough."""


async def every_broker(
    client: Client, ask: Callable[[int], Coroutine[Any, Any, Answer]], *, partial: bool = False
) -> dict[int, Answer]:
    """The answer of each broker. With `partial`, unreachable brokers are left out, unless all of them are."""
    nodes = list(client.known.nodes)
    if not partial:
        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    tasks = {asyncio.ensure_future(ask(node_id)): node_id for node_id in nodes}
    found: dict[int, Answer] = {}
    failed: BaseException | None = None
    left = set(tasks)
    try:
        while left:
            done, left = await asyncio.wait(left, timeout=ANSWER_S if found else None, return_when=FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                failed = task.exception() or failed
                if task.exception() is None:
                    found[tasks[task]] = task.result()
    finally:
        for task in left:
            task.cancel()
    if failed is not None and (not found or not isinstance(failed, (ClientError, KafkaError, OSError))):
        raise failed
    return found
