"""How an operation of the JSON API is declared, and what is derived from the declaration.

An operation is a function with `@operation("GET", "/topics", …)`. Its parameters are checked and converted before it is
called, its route is made from it, and so is its part of the OpenAPI description.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.console.cluster_source import ClusterSource

PREFIX: Final = "/api/v1"
BODY_BYTES_MAX: Final = 16 << 20

Schema = Mapping[str, Any]
"""A JSON schema, as OpenAPI has them."""


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
    """One call of an operation: what the path, the query and the body say."""

    source: ClusterSource
    path: dict[str, str]
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None

    def text(self, name: str, default: str | None = None) -> str:
        """A text in the body."""
        value = self.body.get(name, default)
        if not isinstance(value, str):
            raise BadRequest(f"the body needs {name!r}, a text")
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


OPERATIONS: Final[list[Operation]] = []


def operation(
    method: str,
    path: str,
    *,
    query: Sequence[Parameter] = (),
    body: Schema | None = None,
    changes: bool | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a function as an operation; its docstring's first line is the summary."""

    def declare(handler: Handler) -> Handler:
        summary = (handler.__doc__ or "").strip().split("\n")[0]
        changing = method != "GET" if changes is None else changes
        OPERATIONS.append(Operation(method, path, handler, summary, query, body, changing))
        return handler

    return declare


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


def openapi(version: str) -> dict[str, Any]:
    """The description of the whole API."""
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        described: dict[str, Any] = {
            "summary": each.summary,
            "operationId": each.handler.__name__,
            "parameters": [
                *(
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                    for name in _path_names(each.path)
                ),
                *(
                    {"name": one.name, "in": "query", "schema": one.schema(), "description": one.help}
                    for one in each.query
                ),
            ],
            "responses": {
                "200": {"description": "The answer.", "content": {"application/json": {"schema": {}}}},
                "default": {
                    "description": "An error: what is wrong, and Kafka's name for it if it has one.",
                    "content": {"application/json": {"schema": _ERROR}},
                },
            },
        }
        if each.body is not None:
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": each.body}}}
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": version},
        "paths": paths,
    }


_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
}


def _path_names(path: str) -> list[str]:
    return [part[1:-1].partition(":")[0] for part in path.split("/") if part.startswith("{")]
