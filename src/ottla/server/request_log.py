"""The recent requests of clients, with their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.answers import Reply
from ottla.enums import ApiKey
from ottla.errors import KafkaError, name_of
from ottla.server import request_contents as contents
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.api import Api, Registry, RequestContext, Route

KEPT_REQUESTS: Final = 2000
RECORDED_REQUESTS: Final = 10_000
"""How many recent requests a page can show."""
KEPT_BYTES: Final = 64 << 20
"""The most bytes of requests. Answers are not counted: they hold file regions, and bytes only if the broker keeps
its log in memory anyway."""
_PENDING_MAX: Final = 20_000
"""The most events that a watch keeps for its reader."""
_numbers: Final = count(1)
"""The numbers of requests, in the order of arrival at all brokers of this process."""


class Request:
    """A request and its result."""

    __slots__ = (
        "_named",
        "api",
        "at_ms",
        "broker",
        "client_id",
        "correlation_id",
        "ended_ns",
        "error",
        "fault",
        "number",
        "peer",
        "request",
        "request_bytes",
        "response",
        "started_ns",
        "version",
        "waited",
    )

    def __init__(self, api: Api, ctx: RequestContext, request: Message | None) -> None:
        self.number = next(_numbers)
        self.api = api.name
        self.version = ctx.version
        self.client_id = ctx.client_id
        self.correlation_id = ctx.correlation_id
        self.peer = ctx.connection.peer
        self.broker = ctx.services.node_id
        self.at_ms = ctx.services.clock.now_ms()
        self.started_ns = perf_counter_ns()
        """In real time, even if the broker's clock is virtual."""
        self.ended_ns: int | None = None
        self.waited = False
        """Whether the answer had to wait for something: more records, other members, replicas."""
        self.request_bytes = ctx.request_bytes
        self.request: Any = (
            request if request is None or api.key != ApiKey.PRODUCE else contents.without_records(request)
        )
        self.response: Message | None = None
        self.error: KafkaError | None = None
        self.fault: str | None = None
        topics_by_id = ctx.services.metadata.topics_by_id
        self._named = lambda topic_id: topics_by_id[topic_id].name if topic_id in topics_by_id else None

    @property
    def topics(self) -> list[str]:
        """The topics that it names."""
        if self.request is None:
            return []
        return list(dict.fromkeys(topic for topic, _ in contents.targets(self.request, self._named)))

    @property
    def groups(self) -> list[str]:
        return [] if self.request is None else list(dict.fromkeys(contents.groups(self.request)))

    @property
    def errors(self) -> list[str]:
        """Kafka's names of the errors in its answer."""
        if self.error is not None:
            return [name_of(self.error.code)]
        if self.response is None:
            return []
        return list(dict.fromkeys(name_of(code) for code in contents.error_codes(self.response)))

    @property
    def answered(self) -> bool:
        return self.response is not None or self.error is not None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        about = " ".join([*self.topics, *(f"group {group}" for group in self.groups)])
        outcome = ", ".join(self.errors) if self.answered else "not answered"
        fault = f" (fault: {self.fault})" if self.fault else ""
        return f"{self.api} v{self.version} {about}".rstrip() + (f" → {outcome}" if outcome else "") + fault

    def to_dict(self) -> dict[str, Any]:
        return {
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "at_ms": self.at_ms,
            "topics": self.topics,
            "groups": self.groups,
            "answered": self.answered,
            "errors": self.errors,
            "fault": self.fault,
        }


class ControlEvent:
    """An action on a broker, listed among its requests."""

    __slots__ = ("at_ms", "number", "started_ns", "text", "topics")

    api: Final = "Control"
    version: Final = 0
    client_id: Final = None
    broker: Final = None
    correlation_id: Final = 0
    request_bytes: Final = 0
    waited: Final = False
    peer: Final = ""
    request: Final = None
    response: Final = None
    error: Final = None
    fault: Final = None
    answered: Final = True

    def __init__(self, text: str, at_ms: int, topic: str | None = None) -> None:
        self.number = next(_numbers)
        self.text = text
        self.at_ms = at_ms
        self.started_ns = perf_counter_ns()
        self.topics = [] if topic is None else [topic]

    @property
    def ended_ns(self) -> int:
        return self.started_ns

    @property
    def groups(self) -> list[str]:
        return []

    @property
    def errors(self) -> list[str]:
        return []

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"control: {self.text}"

    def to_dict(self) -> dict[str, Any]:
        return {"api": self.api, "at_ms": self.at_ms, "control": self.text, "topics": self.topics}


class Watcher(Protocol):
    """The log calls `note` twice for a request: when it arrives, and when it has its answer or will never get one."""

    def note(self, request: Request | ControlEvent) -> None: ...


class RequestLog:
    """The last requests, oldest first, with limits on their number and bytes.

    `when_watched` is called with True before the first watch begins and with False after the last one has ended: a
    broker that records only for watchers starts and stops recording then.
    """

    def __init__(
        self, kept_max: int = KEPT_REQUESTS, when_watched: Callable[[RequestLog, bool], None] | None = None
    ) -> None:
        self._kept: deque[Any] = deque()
        self._kept_max = kept_max
        self._bytes = 0
        self._watches: list[Watcher] = []
        self._when_watched = when_watched

    def add(self, request: Request | ControlEvent) -> None:
        self._kept.append(request)
        self._bytes += request.request_bytes
        while len(self._kept) > self._kept_max or self._bytes > KEPT_BYTES:
            self._bytes -= self._kept.popleft().request_bytes
        for watch in self._watches:
            watch.note(request)

    def ended(self, request: Request, response: Any, error: BaseException | None = None) -> None:
        """A request has its answer, or will never get one."""
        request.ended_ns = perf_counter_ns()
        request.response = response
        if isinstance(error, KafkaError):
            request.error = error
        for watch in self._watches:
            watch.note(request)

    def serve(self, request: Request, serve: Callable[[], Any]) -> Any:
        """Add a request, and its result when `serve` has served it."""
        self.add(request)
        try:
            result = serve()
        except Exception as error:
            self.ended(request, None, error)
            raise
        if isinstance(result, Reply):
            request.waited = True
            result.when_done(lambda reply: self.ended(request, None if reply.error else reply.value, reply.error))
        else:
            self.ended(request, result)
        return result

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def attach(self, watcher: Watcher) -> None:
        """Report each request when it arrives and when it is answered, until `detach`."""
        self._watches.append(watcher)

    def detach(self, watcher: Watcher) -> None:
        if watcher in self._watches:
            self._watches.remove(watcher)

    def watch(self) -> RequestWatch:
        """Follow requests from now on; `unwatch` ends it."""
        if not self._watches and self._when_watched is not None:
            self._when_watched(self, True)
        watch = RequestWatch()
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: RequestWatch) -> None:
        self._watches.remove(watch)
        if not self._watches and self._when_watched is not None:
            self._when_watched(self, False)

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._kept))

    def find(
        self, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None
    ) -> list[Request]:
        return [
            request
            for request in self
            if (api is None or request.api == api)
            and (client_id is None or request.client_id == client_id)
            and (topic is None or topic in request.topics)
            and (group is None or group in request.groups)
        ]


class RequestWatch:
    """The events for one reader: each request when it arrives, and again when it is answered."""

    def __init__(self) -> None:
        self._news: dict[int, Any] = {}
        self.missed = 0
        """Requests that the reader missed."""

    def note(self, request: Request | ControlEvent) -> None:
        if request.number not in self._news and len(self._news) >= _PENDING_MAX:
            self.missed += 1
            return
        self._news[request.number] = request

    def take(self, most: int) -> list[Request]:
        """The oldest events, up to a limit."""
        numbers = list(islice(self._news, most))
        return [self._news.pop(number) for number in numbers]


def recorded_while_watched(registry: Registry) -> RequestLog:
    """The requests that a broker serves while they are watched. Before that, nothing is recorded."""

    def instrument(route: Route, version: int) -> None:
        api, handler = route.api, route.handler
        route.handler = lambda ctx, request: log.serve(Request(api, ctx, request), lambda: handler(ctx, request))

    def when_watched(log: RequestLog, watched: bool) -> None:
        if watched:
            registry.instrument(instrument)
        else:
            registry.stop_instrumenting(instrument)

    log = RequestLog(RECORDED_REQUESTS, when_watched)
    return log
