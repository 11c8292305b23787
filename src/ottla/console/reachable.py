"""Answers without waiting while a broker is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ottla.client.connection import ClientError
from ottla.errors import KafkaError

Key = TypeVar("Key")
Value = TypeVar("Value")

WAIT_S: Final = 3.0


async def if_reachable(ask: Callable[[], Awaitable[Mapping[Key, Value]]]) -> Mapping[Key, Value]:
    """The answer, or an empty mapping if a broker that it needs is unreachable. The page then shows the rest."""
    try:
        async with asyncio.timeout(WAIT_S):
            return await ask()
    except (ClientError, KafkaError, OSError):
        return {}
