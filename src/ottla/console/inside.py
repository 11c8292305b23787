"""The features that only the console in a broker's own process has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from ottla.console.console_source import AskRegistry
    from ottla.http.requests import HttpRequest
    from ottla.server import request_log
    from ottla.server.broker import Broker
    from ottla.server.request_log import RequestLog
else:
    request_log = lazy("ottla.server.request_log")

FROM_OUTSIDE: Final = (
    "This console sees the cluster from outside, and the Kafka protocol does not provide this. "
    "An Ottla broker shows it in its own console; `ottla serve` prints the address."
)

Control = Callable[["HttpRequest"], Awaitable[Any]]
"""Answers requests like the control endpoint does: faults, the clock, stopping and starting."""


class Inside:
    """The brokers of this process. They are looked up for each call, because brokers may stop and start again."""

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
        """Set if faults can be injected."""
        self.registry: Callable[[], AskRegistry | None] = lambda: None
        """The schema registry of this process, if it serves one now."""


def inside_of(broker: Broker) -> Inside:
    """A single broker in its process. Its requests are recorded while a page shows them."""
    logs: list[RequestLog] = []

    def request_logs() -> list[RequestLog]:
        if not logs:
            logs.append(request_log.recorded_while_watched(broker.registry))
        return logs

    return Inside(lambda: {broker.node_id: broker} if broker.is_running else {}, request_logs)
