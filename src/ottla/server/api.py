"""The registry of served requests: `@handles(SomeRequest)` is the only list there is.

ApiVersions, the documentation's table and the conformance tests are all derived from it, so that what is advertised
cannot drift from what is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.cluster.acls import CLUSTER_NAME
from ottla.errors import KafkaError
from ottla.wire.frames import request_header_version, response_header_version
from ottla.wire.messages import API_NAMES, REQUESTS, RESPONSES
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.connection import Connection
    from ottla.server.security.quotas import Mutations

RequestT = TypeVar("RequestT", bound=Message)

ALL_OPERATIONS = {2: 3576, 3: 3400, 4: 8096}
"""By the number of a resource's kind (topic, group, cluster): the bits of all operations that it knows."""

Handler = Callable[["RequestContext", Any], "Message | Awaitable[Message | None] | None"]


class Repeated(Protocol):
    """A connection's latest request, kept as a model: the like of it can be served without decoding it."""

    route: Route | None
    """Which requests may be compared with it; None for none yet."""

    def answer(self, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
        """Serve the request at `position` and give the whole answer; None if it is not like the model."""


Model = Callable[["RequestContext", "Route", memoryview, int, Any, Any, bytes, "Repeated | None"], "Repeated | None"]
"""Makes one of a request that was just served: context, route, frame and position; request, response and the answer as
it was sent; the connection's model so far."""

ErrorResponder = Callable[["RequestContext", Any, KafkaError], "Message | None"]


class RequestContext:
    """Who asks, and how: everything a handler may know beside the request itself."""

    __slots__ = ("api_key", "client_id", "connection", "correlation_id", "request_bytes", "version")

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        request_bytes: int,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request_bytes = request_bytes

    @property
    def broker(self) -> Broker:
        return self.connection.broker

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it, `/127.0.0.1`."""
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.listener.name

    @property
    def principal(self) -> str:
        return self.connection.principal

    def may(self, operation: int, kind: int, name: str = CLUSTER_NAME, *, audit: bool = True) -> bool:
        """Whether who asks may do this with a resource; without an authorizer everybody may do everything."""
        connection = self.connection
        authorizer = connection.broker.authorizer
        return authorizer is None or authorizer.allows(
            connection.principal, connection.client_host[1:], operation, kind, name, audit=audit
        )

    def may_any(self, operation: int, kind: int) -> bool:
        """Whether there is any resource of this kind that who asks may do this with."""
        connection = self.connection
        authorizer = connection.broker.authorizer
        return authorizer is None or authorizer.allows_any(
            connection.principal, connection.client_host[1:], operation, kind
        )

    def mutations(self, *, strict: bool) -> Mutations | None:
        """The asker's quota for changes to topics, if there is one."""
        quotas = self.connection.broker.quotas
        return None if quotas is None else quotas.mutations(self, strict=strict)

    def operations(self, kind: int, name: str = CLUSTER_NAME) -> int:
        """What who asks may do with a resource, as the bit field of the answers."""
        connection = self.connection
        authorizer = connection.broker.authorizer
        if authorizer is None:
            return ALL_OPERATIONS[kind]
        return authorizer.operations(connection.principal, connection.client_host[1:], kind, name)


@dataclass(frozen=True, slots=True)
class Api:
    """One served API: the request it takes, the function that answers and the versions it knows."""

    key: int
    name: str
    handler: Handler
    min_version: int
    max_version: int
    on_error: ErrorResponder
    advertised: bool = True
    model: Model | None = None

    @property
    def request(self) -> type[Message]:
        return REQUESTS[self.key]

    @property
    def response(self) -> type[Message]:
        return RESPONSES[self.key]


_CARRY_RECORDS = frozenset({1, 78})
"""Fetch and ShareFetch: their answers hold file regions, all others are plain bytes."""

_REGISTERED: dict[int, Api] = {}


def handles(
    request: type[RequestT],
    *,
    versions: tuple[int, int] | None = None,
    on_error: ErrorResponder | None = None,
    advertised: bool = True,
    model: Model | None = None,
) -> Callable[[Callable[[RequestContext, RequestT], Any]], Callable[[RequestContext, RequestT], Any]]:
    """Register a function as the handler of `request`.

    `versions` narrows what is served where the definition knows more (unstable versions). `on_error` builds the answer
    for an error of the whole request; without it the response's own `error_code` (and `error_message`) carry it.
    What is not `advertised` is served to who asks, but ApiVersions does not name it. With a `model` a connection that
    repeats itself is served the short way.
    """

    def register(handler: Callable[[RequestContext, RequestT], Any]) -> Callable[[RequestContext, RequestT], Any]:
        low, high = versions if versions is not None else (request.MIN_VERSION, request.MAX_VERSION)
        _register(request.API_KEY, handler, low, high, on_error, advertised, model)
        return handler

    return register


def handles_key(
    key: int, versions: tuple[int, int], *, on_error: ErrorResponder | None = None
) -> Callable[[Callable[[RequestContext, Any], Any]], Callable[[RequestContext, Any], Any]]:
    """As `handles`, for what few clients ask for: its messages are not loaded before somebody does."""

    def register(handler: Callable[[RequestContext, Any], Any]) -> Callable[[RequestContext, Any], Any]:
        _register(key, handler, *versions, on_error)
        return handler

    return register


def _register(
    key: int,
    handler: Handler,
    min_version: int,
    max_version: int,
    on_error: ErrorResponder | None,
    advertised: bool = True,
    model: Model | None = None,
) -> None:
    name = API_NAMES[key]
    assert key not in _REGISTERED, f"{name} is handled twice"
    on_error = on_error if on_error is not None else _top_level_error
    _REGISTERED[key] = Api(key, name, handler, min_version, max_version, on_error, advertised, model)


def _top_level_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    response = RESPONSES[ctx.api_key]()
    if not hasattr(response, "error_code"):
        raise AssertionError(f"{type(request).__name__} needs an on_error of its own") from error
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


class Route:
    """A handler with the compiled codecs of one version, ready for the dispatch loop."""

    __slots__ = (
        "api",
        "carries_records",
        "decode",
        "encode",
        "flexible_request",
        "flexible_response",
        "handler",
        "model",
        "response_type",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.handler = api.handler
        self.model = api.model
        self.response_type = api.response
        self.decode = api.request.decoder(version)
        self.encode = api.response.encoder(version)
        self.carries_records = api.key in _CARRY_RECORDS
        self.flexible_request = request_header_version(api.key, version) >= 2
        self.flexible_response = response_header_version(api.key, version) >= 1


class Registry:
    """What one broker serves: all registered APIs, or the part that an older release had."""

    __slots__ = ("_instrument", "_routes", "apis")

    def __init__(self, apis: Iterable[Api]) -> None:
        self.apis: Mapping[int, Api] = {api.key: api for api in sorted(apis, key=lambda api: api.key)}
        self._routes: dict[int, Route] = {}
        self._instrument: Callable[[Route, int], None] | None = None

    def instrument(self, instrument: Callable[[Route, int], None]) -> None:
        """Let `instrument` change every route before it is used, to count what goes through it."""
        self._instrument = instrument
        self._routes.clear()

    def changed(self, change: Callable[[Api], Api]) -> Registry:
        """The same with other handlers; what counts requests goes on counting."""
        other = Registry(map(change, self.apis.values()))
        other._instrument = self._instrument
        return other

    def route(self, api_key: int, version: int) -> Route | None:
        """The route of a served version; None for anything else."""
        route = self._routes.get(api_key << 16 | version)
        if route is not None:
            return route
        api = self.apis.get(api_key)
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        route = self._routes[api_key << 16 | version] = Route(api, version)
        if self._instrument is not None:
            self._instrument(route, version)
        return route


def registered_apis() -> Registry:
    """The registry of everything that has a handler."""
    from ottla.server import handlers

    handlers.load()
    return Registry(_REGISTERED.values())
