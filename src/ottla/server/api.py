"""The registry of served requests: `@handles(SomeRequest)` on a function that its line in `handlers` announces.

ApiVersions, the documentation's table and the conformance tests are all derived from it. What is advertised cannot
drift from what is served: a handler that does not keep to its line cannot be registered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.answers import Answer
from ottla.enums import ResourceType
from ottla.errors import KafkaError
from ottla.metadata.image import CLUSTER_NAME
from ottla.server import apis as handlers

# With what compiles. It is needed soon, and later there may be no file handle left to read it.
from ottla.wire import interpreting as interpreting
from ottla.wire.frames import request_header_version, response_header_version
from ottla.wire.messages import API_NAMES, RESPONSES
from ottla.wire.primitives import Buffer
from ottla.wire.schema import WALKS, Decoder, Encoder, Message

if TYPE_CHECKING:
    from ottla.server.requester import Requester
    from ottla.server.security.quotas import Mutations
    from ottla.server.services import Services

RequestT = TypeVar("RequestT", bound=Message)

ALL_OPERATIONS: dict[int, int] = {ResourceType.TOPIC: 3576, ResourceType.GROUP: 3400, ResourceType.CLUSTER: 8096}
"""By the number of a resource's kind (topic, group, cluster): the bits of all operations that it knows."""

Handler = Callable[["RequestContext", Any], "Answer[Message | None]"]
"""None where the client expects no response."""


RUN_MAX = 256
"""Requests that a `Repeated` writes together: well under the buffers that one system call takes."""


class Repeated(Protocol):
    """A connection's latest request, kept as a model: the like of it can be served without decoding it."""

    route: Route | None
    """Set when there is a model."""

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Serve the frames from `start` on that are like the model, and add their answers to `out`.

        Returns where the first begins that is not.
        """


Model = Callable[["RequestContext", "Route", memoryview, Any, Any, bytes, "Repeated | None"], "Repeated | None"]
"""Makes one of a request that was just served: context, route and frame; request, response and the answer as it was
sent; the connection's model so far."""

ErrorResponder = Callable[["RequestContext", Any, KafkaError], "Message | None"]


class RequestContext:
    """Who asks, and how: everything a handler may know beside the request itself."""

    __slots__ = ("api_key", "client_id", "connection", "correlation_id", "request_bytes", "version")

    def __init__(
        self,
        connection: Requester,
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
    def services(self) -> Services:
        """The part of the broker that handlers use."""
        return self.connection.services

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
        authorizer = connection.services.access.authorizer
        return authorizer is None or authorizer.allows(
            connection.principal, connection.client_host[1:], operation, kind, name, audit=audit
        )

    def may_any(self, operation: int, kind: int) -> bool:
        """Whether there is any resource of this kind that who asks may do this with."""
        connection = self.connection
        authorizer = connection.services.access.authorizer
        return authorizer is None or authorizer.allows_any(
            connection.principal, connection.client_host[1:], operation, kind
        )

    def mutations(self, *, strict: bool) -> Mutations | None:
        """The asker's quota for changes to topics, if there is one."""
        quotas = self.connection.services.access.quotas
        return None if quotas is None else quotas.mutations(self, strict=strict)

    def operations(self, kind: int, name: str = CLUSTER_NAME) -> int:
        """What who asks may do with a resource, as the bit field of the answers."""
        connection = self.connection
        authorizer = connection.services.access.authorizer
        if authorizer is None:
            return ALL_OPERATIONS[kind]
        return authorizer.operations(connection.principal, connection.client_host[1:], kind, name)


_FROM_FAMILY = ("handler", "model", "on_error", "request", "response")


class Api:
    """One served API: the versions it knows, the request it takes and the function that answers.

    To advertise it takes no more than its line in `handlers`; what its module has to say is imported when it is asked
    for, and set from then on.
    """

    __slots__ = ("advertised", "changes", "family", "key", "max_version", "min_version", "name", *_FROM_FAMILY)

    request: type[Message]
    response: type[Message]
    handler: Handler
    on_error: ErrorResponder
    model: Model | None

    def __init__(self, key: int, name: str, family: str, versions: tuple[int, int], *, advertised: bool) -> None:
        self.key = key
        self.name = name
        self.family = family
        self.min_version, self.max_version = versions
        self.advertised = advertised
        self.changes: dict[str, Any] = {}
        """What is not as the family has it."""

    def __getattr__(self, name: str) -> Any:
        if name not in _FROM_FAMILY:
            raise AttributeError(f"an API has no {name!r}")
        value = getattr(_handled(self), name)
        setattr(self, name, value)
        return value

    def replace(self, **changes: Any) -> Api:
        """The same with another handler, other versions, …"""
        other = Api(self.key, self.name, self.family, (self.min_version, self.max_version), advertised=self.advertised)
        other.changes = {**self.changes, **changes}
        for name, value in other.changes.items():
            setattr(other, name, value)
        return other


_CARRY_RECORDS = frozenset({1, 78})
"""Fetch and ShareFetch: their answers hold file regions, all others are plain bytes."""

_REGISTERED: dict[int, Api] = {}
"""Those whose family is imported."""


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
        key = request.API_KEY
        assert key not in _REGISTERED, f"{request.__name__} is handled twice"
        served = versions if versions is not None else (request.MIN_VERSION, request.MAX_VERSION)
        api = _announced().get(key)
        assert api is not None, f"`handlers` does not know {request.__name__}"
        assert (api.min_version, api.max_version, api.advertised) == (*served, advertised), (
            f"`handlers` has other versions of {request.__name__}"
        )
        api.request = request
        api.response = RESPONSES[key]
        api.handler = handler
        api.on_error = on_error if on_error is not None else _top_level_error
        api.model = model
        _REGISTERED[key] = api
        return handler

    return register


def _top_level_error(ctx: RequestContext, request: Message, error: KafkaError) -> Message:
    response = RESPONSES[ctx.api_key]()
    if not hasattr(response, "error_code"):
        raise AssertionError(f"{type(request).__name__} needs an on_error of its own") from error
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


_FEW_BYTES: Final = 512
"""A walk over a message of this size takes less time than to compile its codec, which the client would wait for."""


class Route:
    """A handler with the compiled codecs of one version, ready for the dispatch loop."""

    __slots__ = (
        "_answers",
        "_requests",
        "_version",
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
        # The first request of its kind is not made to wait until both are compiled, nor are a few small ones after it:
        # often enough it is the only one.
        self.decode: Decoder = self._decode_early
        self.encode: Encoder = self._encode_early
        self._requests = 0
        self._answers = 0
        self._version = version
        self.carries_records = api.key in _CARRY_RECORDS
        self.flexible_request = request_header_version(api.key, version) >= 2
        self.flexible_response = response_header_version(api.key, version) >= 1

    def compile(self) -> None:
        """For who keeps what is there now."""
        self.decode = self.api.request.decoder(self._version)
        self.encode = self.api.response.encoder(self._version)

    def _decode_early(self, frame: Buffer, position: int) -> tuple[Any, int]:
        self._requests += 1
        if self._requests == 1 or (self._requests <= WALKS and len(frame) - position <= _FEW_BYTES):
            return self.api.request.decoder_for_now(self._version)(frame, position)
        self.decode = self.api.request.decoder(self._version)
        return self.decode(frame, position)

    def _encode_early(self, response: Message, parts: list[Any]) -> None:
        self._answers += 1
        if self._answers > WALKS:
            self.encode = self.response_type.encoder(self._version)
            self.encode(response, parts)
            return
        self.response_type.encoder_for_now(self._version)(response, parts)
        if sum(map(len, parts)) > _FEW_BYTES:
            self._answers = WALKS


class Registry:
    """What one broker serves: all registered APIs, or the part that an older release had."""

    __slots__ = ("_instrument", "_routes", "advertised", "apis")

    def __init__(self, apis: Iterable[Api]) -> None:
        self.apis: Mapping[int, Api] = {api.key: api for api in sorted(apis, key=lambda api: api.key)}
        self.advertised: dict[int, list[bytes]] = {}
        """The entries of ApiVersions, by its version: every connection begins with them."""
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
            route.compile()
            self._instrument(route, version)
        return route


@cache
def _announced() -> Mapping[int, Api]:
    """Everything that has a handler, by its key."""
    keys = {name: key for key, name in API_NAMES.items()}
    return {
        keys[name]: Api(keys[name], name, family, versions, advertised=name not in handlers.UNADVERTISED)
        for family, apis in handlers.FAMILIES.items()
        for name, versions in apis.items()
    }


def _handled(api: Api) -> Api:
    """The API as its family registered it."""
    if api.key not in _REGISTERED:
        handlers.load(api.family)
    return _REGISTERED[api.key]


def registered_apis() -> Registry:
    """The registry of everything that has a handler."""
    return Registry(_announced().values())
