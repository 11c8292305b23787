"""Compiles constructors, and holds what the generated code of both directions shares."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import cache
from struct import Struct as Layout
from typing import Any

from .schema import UNSET, Field, Struct


@cache
def layout(code: str) -> Layout:
    return Layout(">" + code)


def materialize(name: str, lines: list[str], namespace: dict[str, Any], label: str) -> Any:
    """Run generated source; it goes to linecache too, so that tracebacks and debuggers show it."""
    source = "\n".join(lines) + "\n"
    filename = f"<ottla.wire {label}>"
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return namespace[name]


def bind_class(cls: type[Struct], namespace: dict[str, Any]) -> str:
    """Make a class known to generated code; gives the name for it. The structs of one message have different names."""
    assert namespace.setdefault(cls.__name__, cls) is cls
    return str(cls.__name__)


def fresh_default(field: Field, namespace: dict[str, Any]) -> str:
    """An expression for a field's default; mutable ones are made anew each time."""
    if field.default is not UNSET:
        return repr(field.default)
    if field.kind == "array":
        return "[]"
    item = field.struct
    assert item is not None
    return f"{bind_class(item, namespace)}()"


def compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    namespace: dict[str, Any] = {"UNSET": UNSET}
    parameters, body = [], []
    for field in cls.FIELDS:
        if field.default is UNSET:
            parameters.append(f"{field.name}=UNSET")
            value = f"{fresh_default(field, namespace)} if {field.name} is UNSET else {field.name}"
        else:
            parameters.append(f"{field.name}={field.default!r}")
            value = field.name
        body.append(f"    self.{field.name} = {value}")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):"
    made: Callable[..., None] = materialize(
        "__init__", [head, *(body or ["    pass"])], namespace, f"{cls.__qualname__} constructor"
    )
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
