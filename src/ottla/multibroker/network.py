"""The network between the nodes of a cluster: messages can arrive, arrive late, wait for a paused node, or be lost.

Normally a message arrives in the next iteration of the event loop. If the target is down, the sender gets an error
immediately, as with a connection reset. Between two nodes on different sides of a partition messages hang, as with TCP:
they arrive when the network is repaired, unless the sender times out first (`request.timeout.ms`). A paused node gets
its messages when it resumes, as a stopped process finds them in its sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.errors import KafkaError
from ottla.server.peers import Unreachable

if TYPE_CHECKING:
    from ottla.clock import Timer, TimerHandle

Answered = Callable[[Any, Exception | None], None]


REQUEST_TIMEOUT_MS = 30_000
"""Kafka's default of `request.timeout.ms`, and of `replica.socket.timeout.ms`."""


class _Hanging:
    """A message that waits because of a cut."""

    __slots__ = ("arrive", "lost", "patience", "source", "target")

    def __init__(self, source: int, target: int, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        self.source = source
        self.target = target
        self.arrive = arrive
        self.lost = lost
        self.patience: TimerHandle | None = None


class Network:
    """Which nodes can reach each other, and how fast."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timer: Timer) -> None:
        self._loop = loop
        self._timer = timer
        self._up: set[int] = set()
        self._cut: set[frozenset[int]] = set()
        self._delays_ms: dict[tuple[int, int], float] = {}
        self._held: dict[int, list[Callable[[], None]]] = {}
        self._hanging: list[_Hanging] = []
        self.request_timeout_ms: float = REQUEST_TIMEOUT_MS
        self.on_change: Callable[[], None] = lambda: None
        """Called when a cut or a pause ends."""

    # -- problems ----------------------------------------------------------------------------------------------

    def up(self, node: int) -> None:
        self._up.add(node)

    def down(self, node: int) -> None:
        self._up.discard(node)
        for message in self._held.pop(node, ()):
            message()  # the node is down
        for hanging in tuple(self._hanging):
            if hanging.source == node:
                self._give_up(hanging)
            elif hanging.target == node:
                hanging.arrive = hanging.lost  # a restarted broker has new connections

    def pause(self, node: int) -> None:
        self._held.setdefault(node, [])

    def resume(self, node: int) -> None:
        for message in self._held.pop(node, ()):
            self._loop.call_soon(message)
        self.on_change()

    def is_paused(self, node: int) -> bool:
        return node in self._held

    def cut(self, sides: Collection[Collection[int]]) -> None:
        """Cut the network between the sides; nodes that are on none of the sides reach all others."""
        for number, side in enumerate(sides):
            for other in list(sides)[number + 1 :]:
                self._cut.update(frozenset((a, b)) for a in side for b in other if a != b)

    def heal(self) -> None:
        self._cut.clear()
        self._delays_ms.clear()
        arriving, self._hanging = self._hanging, []
        for message in arriving:
            if message.patience is not None:
                message.patience.cancel()
            self._loop.call_soon(message.arrive)
        self.on_change()

    def slow(self, source: int, target: int, delay_ms: float) -> None:
        """Delay one direction; 0 removes the delay."""
        if delay_ms > 0:
            self._delays_ms[source, target] = delay_ms
        else:
            self._delays_ms.pop((source, target), None)

    def reaches(self, source: int, target: int) -> bool:
        return source in self._up and target in self._up and not self._is_cut(source, target)

    def _is_cut(self, source: int, target: int) -> bool:
        return bool(self._cut) and frozenset((source, target)) in self._cut

    def is_direct(self, source: int, target: int) -> bool:
        """Whether messages between two nodes are neither cut nor delayed."""
        return (
            self.reaches(source, target)
            and not self._held.keys() & {source, target}
            and (source, target) not in self._delays_ms
            and (target, source) not in self._delays_ms
        )

    def describe(self) -> dict[str, Any]:
        return {
            "cut": sorted(sorted(pair) for pair in self._cut),
            "slow": [{"from": a, "to": b, "delay_ms": ms} for (a, b), ms in sorted(self._delays_ms.items())],
            "paused": sorted(self._held),
        }

    # -- messages ----------------------------------------------------------------------------------------------

    def send(self, source: int, target: int, deliver: Callable[[], None], lost: Callable[[], None]) -> None:
        delay_ms = self._delays_ms.get((source, target), 0.0)

        def arrive() -> None:
            if source not in self._up or target not in self._up:
                lost()
            elif self._is_cut(source, target):
                self._hang(source, target, arrive, lost)
            elif target in self._held:
                self._held[target].append(arrive)
            else:
                deliver()

        if delay_ms and self.reaches(source, target):
            self._timer.schedule(delay_ms, arrive)
        else:
            self._loop.call_soon(arrive)

    def _hang(self, source: int, target: int, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        message = _Hanging(source, target, arrive, lost)
        self._hanging.append(message)
        message.patience = self._timer.schedule(self.request_timeout_ms, lambda: self._give_up(message))

    def _give_up(self, message: _Hanging) -> None:
        if message.patience is not None:
            message.patience.cancel()
        if message in self._hanging:
            self._hanging.remove(message)
            message.lost()

    def ask(self, source: int, target: int, serve: Callable[[], Any], answered: Answered) -> None:
        """Call `target`, now or later, and pass the result to `source`."""

        def lost() -> None:
            answered(None, Unreachable(f"node {target} cannot be reached from node {source}"))

        def reply(value: Any, error: Exception | None) -> None:
            self.send(target, source, lambda: answered(value, error), lost)

        def done(result: Reply[Any]) -> None:
            error = result.error
            if error is None:
                reply(result.value, None)
            elif isinstance(error, Exception):
                reply(None, error)
            else:
                reply(None, Unreachable(f"node {target} went away"))

        def deliver() -> None:
            try:
                result = serve()
            except (KafkaError, Unreachable) as error:
                reply(None, error)
                return
            if isinstance(result, Reply):
                result.when_done(done)
            else:
                reply(result, None)

        self.send(source, target, deliver, lost)

    def call(self, source: int, target: int, serve: Callable[[], Any]) -> Reply[Any]:
        """Like `ask`, but returns a reply."""
        reply: Reply[Any] = Reply()

        def answered(value: Any, error: Exception | None) -> None:
            if error is None:
                reply.resolve(value)
            else:
                reply.fail(error)

        self.ask(source, target, serve, answered)
        return reply


def sides_of(groups: Iterable[Iterable[int]], brokers: Iterable[int], controllers: Sequence[int]) -> list[list[int]]:
    """The sides of a partition.

    Controllers that no side lists join the largest side (the first one of equal sides), unless they are also brokers.
    If the sides list only controllers, brokers reach all of them.
    """
    sides = [list(group) for group in groups]
    named = [node for side in sides for node in side]
    known = sorted(brokers)
    if len(set(named)) != len(named):
        raise ValueError("a node can only be on one side of a partition")
    names_brokers = any(node in known for node in named)
    rest = [node for node in (known if names_brokers else controllers) if node not in named]
    if len(sides) == 1 and rest:
        sides.append(rest)
    if len(sides) < 2:
        raise ValueError("a partition needs two sides: partition_network([1], [2, 3])")
    if names_brokers and not any(node in named or node in known for node in controllers):
        max(sides, key=len).extend(controllers)
    return sides
