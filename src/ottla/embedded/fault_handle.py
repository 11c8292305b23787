"""The methods of every fault handle, whether the broker runs in this process or in another one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ottla.embedded.topic_handle import refuse_on_loop
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy("asyncio")

_POLL_S: Final = 0.002


class FaultHandle(ABC):
    """One fault: how often it fired, and how to remove it. As a context manager, it ends with the block."""

    id: int
    kind: str
    text: str

    @property
    @abstractmethod
    def fired(self) -> int:
        """How often it has fired."""

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether it can still fire."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the fault; its count stays."""

    def expect_fired(self, times: int | None = None) -> None:
        """Assert that it fired, or fired exactly this many times."""
        __tracebackhide__ = True  # pytest shows the line of the test
        fired = self.fired
        if times is None and not fired:
            raise AssertionError(f"the fault never fired: {self.text}")
        if times is not None and fired != times:
            raise AssertionError(f"the fault fired {fired} times, not {times}: {self.text}")

    def wait(self, times: int = 1, timeout: float = 5.0) -> None:
        """Block until it has fired this many times. On an event loop, use `await fault.wait_async(…)`."""
        refuse_on_loop("wait", "fault.wait_async")
        deadline = time.monotonic() + timeout
        while (fired := self.fired) < times:
            self._check(fired, times, timeout, deadline)
            time.sleep(_POLL_S)

    async def wait_async(self, times: int = 1, timeout: float = 5.0) -> None:
        """Wait until it has fired this many times."""
        deadline = time.monotonic() + timeout
        while (fired := self.fired) < times:
            self._check(fired, times, timeout, deadline)
            await asyncio.sleep(_POLL_S)

    def _check(self, fired: int, times: int, timeout: float, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise AssertionError(f"the fault fired {fired} of {times} times within {timeout:g} s: {self.text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.id}: {self.text}, fired {self.fired} times>"


def shown_faults(faults: Iterable[FaultHandle]) -> str:
    """The repr of all faults of a broker or a registry."""
    return f"<faults: {'; '.join(fault.text for fault in faults) or 'none'}>"
