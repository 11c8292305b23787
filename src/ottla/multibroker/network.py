"""The way between the nodes of a cluster: messages that arrive, arrive late, wait for a sleeper, or do not arrive.

Without any trouble a message arrives in the next turn of the event loop. To a node that is down nothing arrives, and
the sender learns it at once, as by a connection that was reset. Between two nodes on different sides of a partition
messages hang, as TCP goes on trying: they arrive when the network is whole again, unless the sender loses patience
first (`request.timeout.ms`), takes the connection for broken and is told so. A node that is paused gets its messages
when it goes on, as a stopped process finds them in its sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
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
    """A message that a cut keeps from arriving."""

    __slots__ = ("arrive", "lost", "patience", "source", "target")

    def __init__(self, source: int, target: int, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        self.source = source
        self.target = target
        self.arrive = arrive
        self.lost = lost
        self.patience: TimerHandle | None = None


class Network:
    """Who reaches whom, and how fast."""

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
        """Called when ways opened that were closed."""

    # -- what is the matter ------------------------------------------------------------------------------------

    def up(self, node: int) -> None:
        self._up.add(node)

    def down(self, node: int) -> None:
        self._up.discard(node)
        for message in self._held.pop(node, ()):
            message()  # finds that there is nobody
        for hanging in tuple(self._hanging):
            if hanging.source == node:
                self._give_up(hanging)
            elif hanging.target == node:
                hanging.arrive = hanging.lost  # whoever starts there again has other connections

    def pause(self, node: int) -> None:
        self._held.setdefault(node, [])

    def resume(self, node: int) -> None:
        for message in self._held.pop(node, ()):
            self._loop.call_soon(message)
        self.on_change()

    def is_paused(self, node: int) -> bool:
        return node in self._held

    def cut(self, sides: Collection[Collection[int]]) -> None:
        """Nobody reaches a node on another side; nodes that are on none reach all."""
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
        """One way; 0 makes it as fast as before."""
        if delay_ms > 0:
            self._delays_ms[source, target] = delay_ms
        else:
            self._delays_ms.pop((source, target), None)

    def reaches(self, source: int, target: int) -> bool:
        return source in self._up and target in self._up and not self._is_cut(source, target)

    def _is_cut(self, source: int, target: int) -> bool:
        return bool(self._cut) and frozenset((source, target)) in self._cut

    def is_direct(self, source: int, target: int) -> bool:
        """Whether what one says is with the other at once, and back."""
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
        """Have `target` do something, now or later, and tell `source` what came of it."""

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
            except KafkaError as error:
                reply(None, error)
                return
            if isinstance(result, Reply):
                result.when_done(done)
            else:
                reply(result, None)

        self.send(source, target, deliver, lost)

    def call(self, source: int, target: int, serve: Callable[[], Any]) -> Reply[Any]:
        """The same as `ask`; the answer is a reply."""
        reply: Reply[Any] = Reply()

        def answered(value: Any, error: Exception | None) -> None:
            if error is None:
                reply.resolve(value)
            else:
                reply.fail(error)

        self.ask(source, target, serve, answered)
        return reply


def sides_of(groups: Iterable[Iterable[int]], everybody: Iterable[int], controller: int) -> list[list[int]]:
    """The sides of a partition; the controller, unless it is named, is with the most, or else the first named."""
    sides = [list(group) for group in groups]
    named = [node for side in sides for node in side]
    known = set(everybody)
    unknown = [node for node in named if node not in known]
    if unknown:
        raise ValueError(f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(known)))}")
    if len(set(named)) != len(named):
        raise ValueError("a broker can only be on one side of a partition")
    rest = [node for node in sorted(known) if node not in named and node != controller]
    if len(sides) == 1 and rest:
        sides.append(rest)
    if len(sides) < 2:
        raise ValueError("a partition needs two sides: partition_network([1], [2, 3])")
    if controller not in named:
        max(sides, key=len).append(controller)
    return sides
