"""Producer ids, taken from the controller block by block (Kafka's ProducerIdManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.answers import Answer, Reply
from ottla.errors import CoordinatorLoadInProgress

Allocated = Callable[[range | None], None]
"""Gets the new block, or None where the controller cannot be reached."""


class ProducerIds:
    """The ids that this broker may give to producers."""

    def __init__(self, allocate: Callable[[Allocated], None], *, refill_at: int = 0) -> None:
        """With `refill_at` ids left the next block is asked for, so that nobody has to wait for it. With 0 `allocate`
        answers at once, and is asked when an id is needed."""
        self._allocate = allocate
        self._refill_at = refill_at
        self._ids: deque[int] = deque()
        self._asking = False
        self._waiting: list[Reply[None]] = []

    def next(self) -> int:
        """An id that nobody ever had."""
        if len(self._ids) <= self._refill_at:
            self._ask()
        if not self._ids:
            raise CoordinatorLoadInProgress
        return self._ids.popleft()

    def wait(self) -> Answer[None]:
        """None if there are ids, or a reply that comes with them."""
        if self._ids or not self._refill_at:
            return None
        self._ask()
        if self._ids or not self._asking:
            return None
        waiting: Reply[None] = Reply()
        self._waiting.append(waiting)
        return waiting

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._allocate(self._allocated)

    def _allocated(self, block: range | None) -> None:
        self._asking = False
        self._ids.extend(block or ())
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.resolve(None)
