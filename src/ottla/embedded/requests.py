"""What clients asked: the requests that a broker got, with their answers, as far back as they are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ottla.embedded import request_contents as contents
from ottla.enums import ApiKey
from ottla.errors import KafkaError, name_of
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.api import Api, RequestContext

KEPT_REQUESTS: Final = 2000
_numbers: Final = count(1)
"""In the order of arrival, over all brokers of this process."""


class Request:
    """A request that arrived, and what became of it."""

    __slots__ = (
        "_named",
        "api",
        "at_ms",
        "client_id",
        "correlation_id",
        "error",
        "fault",
        "number",
        "peer",
        "request",
        "response",
        "version",
    )

    def __init__(self, api: Api, ctx: RequestContext, request: Message | None) -> None:
        self.number = next(_numbers)
        self.api = api.name
        self.version = ctx.version
        self.client_id = ctx.client_id
        self.correlation_id = ctx.correlation_id
        self.peer = ctx.connection.peer
        self.at_ms = ctx.services.clock.now_ms()
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
    """Something that was done to a broker rather than asked of it, in its place among the requests."""

    __slots__ = ("at_ms", "number", "text", "topics")

    api: Final = "Control"
    version: Final = 0
    client_id: Final = None
    correlation_id: Final = 0
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
        self.topics = [] if topic is None else [topic]

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


class RequestLog:
    """The last requests, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque(maxlen=KEPT_REQUESTS)

    def add(self, request: Request | ControlEvent) -> None:
        self._kept.append(request)

    def clear(self) -> None:
        self._kept.clear()

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
