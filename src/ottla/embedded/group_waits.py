"""Waits for a group, for every kind of handle: they poll until the group is in the expected state."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.embedded.topic_handle import DEFAULT_TIMEOUT_S, refuse_on_loop
from ottla.embedded.unknown_names import NotFoundError
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio

    from ottla.embedded.groups import Member
else:
    asyncio = lazy("asyncio")

_POLL_S: Final = 0.01


class GroupWaits(ABC):
    """The waits that every handle on a group has."""

    group_id: str

    @property
    @abstractmethod
    def state(self) -> str:
        """Kafka's name of its state; `Dead` for a group that does not exist."""

    @abstractmethod
    def members(self) -> list[Member]:
        """Its members, with the partitions that are assigned to them."""

    @abstractmethod
    def lag(self, of: object = None) -> int:
        """How many records the group has not read yet."""

    def wait_until_stable(self, members: int | None = None, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Block until the group has this many members (or any) and all have their partitions."""
        refuse_on_loop("wait_until_stable", "group.wait_until_stable_async")
        self._block(lambda: self._unstable(members), timeout)

    async def wait_until_stable_async(self, members: int | None = None, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """`wait_until_stable` in tests on an asyncio loop, which keeps running."""
        await self._await(lambda: self._unstable(members), timeout)

    def wait_until_caught_up(self, of: object = None, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Block until the group has committed and `lag(of)` is 0; with a topic, until it has read all of that topic."""
        refuse_on_loop("wait_until_caught_up", "group.wait_until_caught_up_async")
        self._block(lambda: self._behind(of), timeout)

    async def wait_until_caught_up_async(self, of: object = None, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """`wait_until_caught_up` in tests on an asyncio loop, which keeps running."""
        await self._await(lambda: self._behind(of), timeout)

    def _unstable(self, wanted: int | None) -> str | None:
        """Why the group is not stable yet; None if it is."""
        state, count = self.state, len(self.members())
        enough = count > 0 if wanted is None else count == wanted
        if state == "Stable" and enough:
            return None
        return f"it is {state} and has {count} members" + ("" if wanted is None else f", not {wanted}")

    def _behind(self, of: object) -> str | None:
        """A message about the records that the group has not read yet, or None."""
        try:
            lag = self.lag(of)
        except NotFoundError as error:
            return str(error)
        return None if lag == 0 else f"it has still to read {lag} records"

    def _block(self, look: Callable[[], str | None], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while (why := look()) is not None:
            self._check(why, timeout, deadline)
            time.sleep(_POLL_S)

    async def _await(self, look: Callable[[], str | None], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while (why := look()) is not None:
            self._check(why, timeout, deadline)
            await asyncio.sleep(_POLL_S)

    def _check(self, why: str, timeout: float, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise AssertionError(f"group {self.group_id} did not reach the expected state within {timeout:g} s: {why}")
