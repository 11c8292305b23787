"""An Avro schema as objects. Every use of a named type is the same object, so recursive types are cycles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")


class Missing:
    """Marks a field without a default. None cannot mark it, because null is a valid default."""


MISSING = Missing()


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    type: AvroType
    doc: str | None = None
    default: Any = MISSING
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@dataclass(slots=True, eq=False)
class AvroType:
    """Any type; `kind` determines which attributes are used."""

    kind: str
    # For named types. The namespace may be empty.
    name: str = ""
    namespace: str = ""
    doc: str | None = None
    # Full names.
    aliases: list[str] = field(default_factory=list)
    fields: list[AvroField] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    enum_default: str | None = None
    size: int = 0
    # The items of an array or the values of a map.
    items: AvroType | None = None
    branches: list[AvroType] = field(default_factory=list)
    # All keys without a meaning in Avro, and logical types.
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name with its namespace, or the kind of an unnamed type."""
        if self.kind not in NAMED:
            return self.kind
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def element(self) -> AvroType:
        assert self.items is not None, "only arrays and maps have one"
        return self.items
