"""What only a broker's own process can show and do: its console has it, a console of another cluster has not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.http.requests import HttpRequest
    from ottla.server import request_log
    from ottla.server.broker import Broker
    from ottla.server.request_log import RequestLog
else:
    request_log = lazy("ottla.server.request_log")

FROM_OUTSIDE: Final = (
    "This console looks at the cluster from outside, and the Kafka protocol does not tell. "
    "Open the console of the broker itself: `ottla serve` prints its address."
)

OF_WORKERS: Final = (
    "What `ottla serve --workers N` does is spread over several processes, and this console is in none of them. "
    "Serve with one worker to see this page."
)

Control = Callable[["HttpRequest"], Awaitable[Any]]
"""Answers what the control endpoint answers: faults, the clock, stops and starts."""


class Inside:
    """The brokers of this process. They are asked for each time: brokers stop, and start again."""

    def __init__(
        self,
        servers: Callable[[], Mapping[int, Broker]],
        request_logs: Callable[[], Sequence[RequestLog]],
        control: Control | None = None,
    ) -> None:
        self.servers = servers
        """The running brokers, by id."""
        self.request_logs = request_logs
        self.control = control
        """Set where a broker can be troubled."""


def inside_of(broker: Broker) -> Inside:
    """A broker that is alone in its process. Its requests are recorded while somebody looks at them."""
    logs: list[RequestLog] = []

    def request_logs() -> list[RequestLog]:
        if not logs:
            logs.append(request_log.recorded_while_watched(broker.registry))
        return logs

    return Inside(lambda: {broker.node_id: broker} if broker.is_running else {}, request_logs)
