"""Compiles constructors, and holds the common parts of encoding and decoding, compiled or interpreted."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import cache
from struct import Struct as Layout
from typing import Any

from .schema import FIXED, UNSET, Field, Message, Struct


@cache
def layout(code: str) -> Layout:
    return Layout(">" + code)


def least_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The smallest encoded size of a struct, which limits the count of an array of them."""
    size = int(flexible)
    for field in cls.FIELDS:
        if not field.exists(version) or field.is_tagged(version):
            continue
        if field.kind in FIXED:
            size += layout(FIXED[field.kind]).size
        elif field.kind == "struct":
            item = field.struct
            assert item is not None
            size += 1 if field.is_nullable(version) else least_size(item, version, flexible)
        elif flexible:
            size += 1
        else:
            size += 2 if field.kind == "string" else 4
    return size


def message_of(cls: type[Struct]) -> type[Message]:
    """The message that a struct belongs to."""
    message: Any = cls.OWNER
    while not issubclass(message, Message):
        message = message.OWNER
    found: type[Message] = message
    return found


def materialize(name: str, lines: list[str], namespace: dict[str, Any], label: str) -> Any:
    """Run generated source. It is added to linecache, so that tracebacks and debuggers show it."""
    source = "\n".join(lines) + "\n"
    filename = f"<ottla.wire {label}>"
    exec(compile(source, filename, "exec"), namespace)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return namespace[name]


def bind_class(cls: type[Struct], namespace: dict[str, Any]) -> str:
    """Make a class available to generated code, and return its name there. Structs of one message have unique names."""
    assert namespace.setdefault(cls.__name__, cls) is cls
    return str(cls.__name__)


def fresh_default(field: Field, namespace: dict[str, Any]) -> str:
    """An expression for a field's default. Mutable defaults are created each time."""
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
