"""Producer ids, requested from the controller block by block (Kafka's ProducerIdManager)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.answers import Answer, Reply
from ottla.errors import CoordinatorLoadInProgress
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.server.peers import Channel
    from ottla.wire import messages
else:
    messages = lazy("ottla.wire.messages")

Allocate = Callable[[], Reply[range]]
"""Asks the controller for a block of ids; fails if the controller cannot be reached."""


def over_channel(channel: Channel, controller_id: int, node_id: int, epoch: Callable[[], int]) -> Allocate:
    """Get blocks with a request to the controller."""

    def allocate() -> Reply[range]:
        allocated: Reply[range] = Reply()

        def answered(reply: Reply[messages.AllocateProducerIdsResponse]) -> None:
            if reply.error is not None or reply.value.error_code:
                allocated.fail(reply.error or CoordinatorLoadInProgress())
            else:
                first = reply.value.producer_id_start
                allocated.resolve(range(first, first + reply.value.producer_id_len))

        request = messages.AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch())
        channel.send(controller_id, request).listen(answered)
        return allocated

    return allocate


class ProducerIds:
    """The ids that this broker may give to producers."""

    def __init__(self, allocate: Allocate, *, refill_at: int = 0) -> None:
        """When `refill_at` ids are left, the next block is requested, so that no client waits for it. With 0,
        `allocate` answers immediately and is called when an id is needed."""
        self._allocate = allocate
        self._refill_at = refill_at
        self._ids: deque[int] = deque()
        self._asking = False
        self._waiting: list[Reply[None]] = []

    def next(self) -> int:
        """An id that no producer has had before."""
        if len(self._ids) <= self._refill_at:
            self._ask()
        if not self._ids:
            raise CoordinatorLoadInProgress
        return self._ids.popleft()

    def wait(self) -> Answer[None]:
        """None if there are ids; otherwise a reply that completes when they arrive."""
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
            self._allocate().listen(self._allocated)

    def _allocated(self, block: Reply[range]) -> None:
        self._asking = False
        if block.error is None:
            self._ids.extend(block.value)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.resolve(None)
