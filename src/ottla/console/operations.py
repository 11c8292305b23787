"""The declaration of an operation of the JSON API, and the parts that are derived from it.

An operation is a function with `@operation("GET", "/topics", …)`. Its parameters are checked and converted before it is
called. Its route and its part of the OpenAPI description are derived from the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.console.console_source import ConsoleSource

PREFIX: Final = "/api/v1"
BODY_BYTES_MAX: Final = 16 << 20

Schema = Mapping[str, Any]
"""A JSON schema, as in OpenAPI."""


class BadRequest(Exception):
    """A parameter or a body that cannot be used; the message says why."""


class NotFound(Exception):
    """There is no such topic, group, broker or record."""


@dataclass(frozen=True)
class Parameter:
    """A value in the query. `kind` is string, integer or boolean."""

    name: str
    kind: str = "string"
    default: Any = None
    choices: Sequence[str] = ()
    minimum: int | None = None
    maximum: int | None = None
    help: str = ""

    def parse(self, text: str | None) -> Any:
        if text is None:
            return self.default
        if self.kind == "boolean":
            if text not in ("true", "false"):
                raise BadRequest(f"{self.name}={text!r} is not true or false")
            return text == "true"
        if self.kind == "integer":
            return self._parse_integer(text)
        if self.choices and text not in self.choices:
            raise BadRequest(f"{self.name}={text!r} is not one of {', '.join(self.choices)}")
        return text

    def _parse_integer(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise BadRequest(f"{self.name}={text!r} is not a whole number") from None
        if self.minimum is not None and value < self.minimum:
            raise BadRequest(f"{self.name}={value} is less than {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise BadRequest(f"{self.name}={value} is more than {self.maximum}")
        return value

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind}
        if self.default is not None:
            schema["default"] = self.default
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        return schema


@dataclass
class Call:
    """One call of an operation: its path, query and body."""

    source: ConsoleSource
    path: dict[str, str]
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None

    def text(self, name: str, default: str | None = None) -> str:
        """A string in the body."""
        value = self.body.get(name, default)
        if not isinstance(value, str):
            raise BadRequest(f"the body needs {name!r}, a string")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number in the body."""
        value = self.body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadRequest(f"the body needs {name!r}, a whole number")
        if not -(1 << 63) <= value < 1 << 63:
            raise BadRequest(f"{name}={value} does not fit into 64 bits")
        return value


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    handler: Handler
    summary: str
    query: Sequence[Parameter] = ()
    body: Schema | None = None
    changes: bool = False
    """Whether it changes the cluster: a console that is read-only refuses it."""
    gather: Callable[[Sequence[Any]], Any] | None = None
    """Merges the answers of several workers; set if an operation needs the inside of a broker."""


OPERATIONS: Final[list[Operation]] = []


@dataclass(frozen=True)
class Stream:
    """A stream: server-sent events, or lines of JSON. `begin` raises the errors of a bad call before the first
    event."""

    path: str
    begin: Callable[[Call], Awaitable[Any]]
    summary: str
    query: Sequence[Parameter] = ()
    media_type: str = "text/event-stream"
    file: str = ""
    """The name to save it under, with the parts of the path in braces; events have none."""


def operation(
    method: str,
    path: str,
    *,
    query: Sequence[Parameter] = (),
    body: Schema | None = None,
    changes: bool | None = None,
    gather: Callable[[Sequence[Any]], Any] | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a function as an operation; its docstring's first line is the summary."""

    def declare(handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").strip().split("\n")[0]
        changing = method != "GET" if changes is None else changes
        OPERATIONS.append(Operation(method, path, handler, summary, query, body, changing, gather))
        return handler

    return declare


def given_configs(call: Call) -> dict[str, str | None]:
    """The `configs` of a body; null means the default."""
    given = call.body.get("configs", {})
    if not isinstance(given, dict) or not all(value is None or isinstance(value, str) for value in given.values()):
        raise BadRequest("'configs' must be an object with texts, or null for the default")
    return given


def raise_error(result: Any) -> None:
    """Raise an error that was returned instead of a result."""
    if isinstance(result, KafkaError):
        raise result


def parse_body(raw: bytes) -> Any:
    if not raw.strip():
        return {}
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadRequest("the body must be a JSON object")
    return found


def openapi(version: str, streams: Sequence[Stream] = ()) -> dict[str, Any]:
    """The description of the whole API."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        described = _described(each.handler.__name__, each.summary, each.path, each.query, "application/json")
        if each.body is not None:
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": each.body}}}
        paths.setdefault(PREFIX + _plain(each.path), {})[each.method.lower()] = described
    for stream in streams:
        described = _described(stream.begin.__name__, stream.summary, stream.path, stream.query, stream.media_type)
        paths.setdefault(PREFIX + _plain(stream.path), {})["get"] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": version},
        "paths": paths,
    }


def _described(name: str, summary: str, path: str, query: Sequence[Parameter], media_type: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": name,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": schema} for name, schema in _path_schemas(path)),
            *({"name": one.name, "in": "query", "schema": one.schema(), "description": one.help} for one in query),
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {media_type: {"schema": {}}}},
            "default": {
                "description": "An error: what is wrong, and Kafka's name for it if it has one.",
                "content": {"application/json": {"schema": _ERROR}},
            },
        },
    }


_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
}


def _plain(path: str) -> str:
    """A path as in OpenAPI: without the types of its parts."""
    return path.replace(":int}", "}")


def _path_schemas(path: str) -> list[tuple[str, Schema]]:
    parts = [part[1:-1].partition(":") for part in path.split("/") if part.startswith("{")]
    text, number = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
    return [(name, number if kind == "int" else text) for name, _, kind in parts]
