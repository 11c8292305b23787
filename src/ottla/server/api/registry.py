"""The APIs that a broker serves: those of the table, each with the handler that its module declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.api_table import APIS, ApiRow
from ottla.enums import AnsweredBy, ApiKey
from ottla.lazy_imports import import_late
from ottla.server.api.declaration import DECLARED, Declaration, ErrorResponder, Handler
from ottla.server.api.route import Model, Route
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.enums import QuotaType
    from ottla.metadata.image import MetadataImage
    from ottla.server.api.permissions import Permission

_DECLARED = (
    "carries_records",
    "handler",
    "may_create_topics",
    "model",
    "on_error",
    "permissions",
    "quota",
    "request",
    "response",
)


_ON_CONTROLLERS = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
    }
)
"""APIs that every controller serves, active or not."""


class Api:
    """One API as a broker serves it.

    Its row of the table is available from the start. The declaration of its handler is loaded with the handler's
    module when it is first needed.
    """

    __slots__ = (
        "_changed",
        "_wrap",
        "advertised",
        "answered_by",
        "changes_metadata",
        "key",
        "max_version",
        "min_version",
        "module",
        "name",
        *_DECLARED,
    )

    request: type[Message]
    response: type[Message]
    handler: Handler
    on_error: ErrorResponder
    model: Model | None
    permissions: tuple[Permission, ...]
    carries_records: bool
    quota: QuotaType
    may_create_topics: Callable[[MetadataImage, Any], bool] | None

    def __init__(self, key: int, row: ApiRow) -> None:
        self.key = int(key)  # workers use marshal, which refuses enum members
        self.name = row.name
        self.module = row.handler
        self.min_version, self.max_version = row.versions
        self.advertised = row.advertised
        self.answered_by = row.answered_by
        self.changes_metadata = row.changes_metadata
        self._changed: Api | None = None
        """The API of which this is a changed copy."""
        self._wrap: Callable[[Api], Handler] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in _DECLARED:
            raise AttributeError(f"an API has no {name!r}")
        if self._changed is None:
            value = getattr(_declaration(self), name)
        elif name == "handler" and self._wrap is not None:
            value = self._wrap(self._changed)
        else:
            value = getattr(self._changed, name)
        setattr(self, name, value)
        return value

    def replace(self, **changes: Any) -> Api:
        """A copy with another handler, other versions, …"""
        other = Api(self.key, APIS[self.key])
        other.min_version, other.max_version = self.min_version, self.max_version
        other._changed = self
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def wrapped(self, wrap: Callable[[Api], Handler]) -> Api:
        """A copy whose handler `wrap` creates when the first request arrives."""
        other = self.replace()
        other._wrap = wrap
        return other


class Registry:
    """The APIs that one broker serves: all registered ones, or only those of an older release."""

    __slots__ = ("_instruments", "_routes", "advertised", "apis")

    def __init__(self, apis: Iterable[Api]) -> None:
        self.apis: Mapping[int, Api] = {api.key: api for api in sorted(apis, key=lambda api: api.key)}
        self.advertised: dict[int, list[bytes]] = {}
        """The entries of ApiVersions, by its version: every connection begins with them."""
        self._routes: dict[int, Route] = {}
        self._instruments: list[Callable[[Route, int], None]] = []

    def instrument(self, instrument: Callable[[Route, int], None]) -> None:
        """Let `instrument` change every route before it is used, to count its requests."""
        self._instruments.append(instrument)
        self._routes.clear()

    def stop_instrumenting(self, instrument: Callable[[Route, int], None]) -> None:
        """Use the original routes again."""
        self._instruments.remove(instrument)
        self._routes.clear()

    def wrapped(self, wrap: Callable[[Api], Handler]) -> Registry:
        """A copy with wrapped handlers; requests are still counted."""
        other = Registry(api.wrapped(wrap) for api in self.apis.values())
        other._instruments = [*self._instruments]
        return other

    def route(self, api_key: int, version: int) -> Route | None:
        """The route of a served version; None for other versions."""
        route = self._routes.get(api_key << 16 | version)
        if route is not None:
            return route
        api = self.apis.get(api_key)
        if api is None or not api.min_version <= version <= api.max_version:
            return None
        route = self._routes[api_key << 16 | version] = Route(api, version)
        if self._instruments:
            route.compile()
            for instrument in self._instruments:
                instrument(route, version)
        return route


def _declaration(api: Api) -> Declaration:
    """The declaration of the API's handler."""
    if api.key not in DECLARED:
        import_late(f"ottla.server.apis.{api.module}")
    return DECLARED[api.key]


def registered_apis() -> Registry:
    """The registry of everything that a broker serves."""
    return Registry(
        Api(key, row) for key, row in APIS.items() if row.handler and row.answered_by is not AnsweredBy.QUORUM
    )


def controller_apis() -> Registry:
    """The APIs that a controller serves on its own listener."""
    served = [
        Api(key, row)
        for key, row in APIS.items()
        if row.handler and (row.answered_by in (AnsweredBy.CONTROLLER, AnsweredBy.QUORUM) or key in _ON_CONTROLLERS)
    ]
    return Registry(served)
