"""Requests and answers, independent of any library: an adapter fills in requests and sends answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import errors, names
from ..catalog import Catalog
from ..errors import RegistryError
from ..operations import Outcome
from ..state import State

V1 = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES = (V1, "application/vnd.schemaregistry+json", "application/json")


@dataclass(frozen=True, slots=True)
class Request:
    """A request that an adapter parsed. `path` is still percent-encoded, `query` is not."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: bytes = b""
    content_type: str | None = None
    accept: str | None = None
    # The name of the client, if it authenticated.
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that an adapter sends. `body` is JSON, or verbatim text if `raw`; None means no body."""

    status: int
    body: Any
    media_type: str = V1
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Info:
    """The information that the registry reports about itself."""

    version: str = ""
    commit: str = ""
    kafka_cluster: str = ""
    registry_cluster: str = "schema-registry"


class Call:
    """One request for a handler: the parts of the path, the query, the body."""

    def __init__(self, catalog: Catalog, info: Info, params: Mapping[str, str], request: Request, body: Any) -> None:
        self.catalog = catalog
        self.info = info
        self.params = params
        self.request = request
        self.body = body

    @property
    def state(self) -> State:
        return self.catalog.state

    @property
    def subject(self) -> str:
        """The subject in the path, or the target of its alias."""
        return self.aliased(self.params["subject"])

    def aliased(self, named: str) -> str:
        """A subject in the request, or the target of its alias."""
        subject = names.normalize(named)
        alias = (self.state.configs.get(subject) or {}).get("alias")
        return names.beside(subject, alias) if alias else subject

    @property
    def version(self) -> int:
        """The version in the path; -1 for the latest."""
        return parse_version(self.params["version"])

    @property
    def id(self) -> int:
        return int(self.params["id"])

    def text(self, name: str, default: str = "") -> str:
        values = self.request.query.get(name)
        return values[0] if values else default

    def texts(self, name: str) -> list[str]:
        return list(self.request.query.get(name, ()))

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        try:
            return int(text) if text else default
        except ValueError:
            # The same answer as for an unknown path, as in Confluent's registry.
            raise RegistryError(404, 404, "HTTP 404 Not Found") from None

    def page(self, items: list[Any], most: int | None = None) -> list[Any]:
        """The part of a list that `offset` and `limit` select."""
        offset, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        if limit < 0 or (most is not None and limit > most):
            limit = most if most is not None else len(items)
        return items[offset : offset + limit]

    def object(self) -> dict[str, Any]:
        """The body, which must be a JSON object."""
        if not isinstance(self.body, dict):
            raise errors.bad_request("The request body is not a JSON object")
        return self.body


Handler = Callable[[Call], Outcome[Any]]


def parse_version(text: str) -> int:
    if text.lower() == "latest":
        return -1
    try:
        version = int(text)
    except ValueError:
        raise errors.invalid_version(text) from None
    if version != -1 and not 1 <= version <= 2**31 - 1:
        raise errors.invalid_version(text)
    return version


def without_empty(value: dict[str, Any]) -> dict[str, Any]:
    """An answer without its empty fields."""
    return {name: item for name, item in value.items() if item is not None and item != "" and item != [] and item != {}}


def answer_type(accept: str | None) -> str | None:
    """The media type of the answer: the one that the client prefers, or None if it accepts none of them."""
    ranges = [_media_range(text) for text in (accept or "*/*").split(",")]
    qualities = [
        max((quality for wanted, quality in ranges if wanted in (media_type, "application/*", "*/*")), default=0.0)
        for media_type in MEDIA_TYPES
    ]
    best = max(qualities)
    return MEDIA_TYPES[qualities.index(best)] if best > 0 else None


def _media_range(text: str) -> tuple[str, float]:
    """A media type or a pattern from an Accept header, and its quality value."""
    wanted, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return wanted, float(value)
            except ValueError:
                return wanted, 0.0
    return wanted, 1.0


def check_content_type(content_type: str | None) -> None:
    given = (content_type or V1).partition(";")[0].strip().lower()
    if given not in MEDIA_TYPES:
        raise RegistryError(415, 415, "HTTP 415 Unsupported Media Type")
