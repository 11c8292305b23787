"""Waits for requests of clients, for every kind of handle, by polling the list of requests."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.embedded.topic_handle import DEFAULT_TIMEOUT_S, refuse_on_loop
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio

    from ottla.embedded.rules import GroupName, TopicName
else:
    asyncio = lazy("asyncio")

R = TypeVar("R", covariant=True)
_POLL_S: Final = 0.01


class RequestWaits(ABC, Generic[R]):
    """The waits for requests that every broker handle has."""

    @abstractmethod
    def requests(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
    ) -> Sequence[R]:
        """The requests that arrived, oldest first."""

    def wait_for_request(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> R:
        """Block until `count` such requests have arrived since the start or the last reset, and return the last one."""
        refuse_on_loop("wait_for_request", "broker.wait_for_request_async")
        deadline = time.monotonic() + timeout
        while len(found := self.requests(api, client_id, topic, group)) < count:
            _check(api, len(found), count, timeout, deadline)
            time.sleep(_POLL_S)
        return found[-1]

    async def wait_for_request_async(
        self,
        api: str | None = None,
        client_id: str | None = None,
        topic: TopicName | None = None,
        group: GroupName | None = None,
        *,
        count: int = 1,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> R:
        """`wait_for_request` in tests on an asyncio loop, which keeps running."""
        deadline = time.monotonic() + timeout
        while len(found := self.requests(api, client_id, topic, group)) < count:
            _check(api, len(found), count, timeout, deadline)
            await asyncio.sleep(_POLL_S)
        return found[-1]


def _check(api: str | None, found: int, count: int, timeout: float, deadline: float) -> None:
    if time.monotonic() > deadline:
        what = "request" if api is None else f"{api} request"
        raise AssertionError(f"{found} of {count} such {what}s came within {timeout:g} s")
