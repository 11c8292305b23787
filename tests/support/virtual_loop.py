"""An event loop whose time jumps instead of passing."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class _JumpingSelector:
    """Polls the real selector; instead of waiting for a timer, it moves the loop's time forward."""

    def __init__(self, inner: selectors.BaseSelector, loop: VirtualLoop) -> None:
        self._inner = inner
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or self._loop._threads:
            # Only the outside world can continue from here. The real wait is bounded so that a thread's result is
            # noticed.
            return self._inner.select(timeout if timeout is None else min(timeout, 0.01))
        events = self._inner.select(0)
        if not events and timeout > 0:
            self._loop._elapsed_s += timeout
        return events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that sleeps without waiting: when nothing is ready, its time jumps to the next timer.

    It is also a `Clock`. Loopback sockets work, because the other end can read written bytes immediately. The loop
    waits in real time for work in threads.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0
        self._threads = 0
        super().__init__(cast(selectors.BaseSelector, _JumpingSelector(selectors.DefaultSelector(), self)))

    def time(self) -> float:
        return self._elapsed_s

    def now_ms(self) -> int:
        return self._start_ms + int(self._elapsed_s * 1000.0)

    def monotonic_ms(self) -> float:
        return self._elapsed_s * 1000.0

    def run_in_executor(  # type: ignore[override]  # typeshed narrows the callable's arguments; asyncio does not
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        self._threads += 1
        future: asyncio.Future[_T] = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done, context=contextvars.Context())
        return future

    def _thread_done(self, _future: asyncio.Future[Any]) -> None:
        self._threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Threads end in real time, so a limit in virtual time would pass before they do.
        self._threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._threads -= 1


def run_virtual(main: Coroutine[Any, Any, _T], *, start_ms: int = 1_700_000_000_000) -> _T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start_ms)) as runner:
        return runner.run(main)
