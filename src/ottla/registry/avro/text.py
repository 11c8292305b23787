"""An Avro schema as text, in the order of Apache Avro's Java `Schema.toString()`, because registries store that."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from ..json_text import dumps, java_double, sorted_keys
from .types import NAMED, AvroField, AvroType


def to_text(type_: AvroType, known: Iterable[AvroType] = ()) -> str:
    """The schema's text. Types in `known` come from references and are written as names only."""
    return dumps(_Writer({named.full_name for named in known}).type(type_, ""), java_double)


def to_normalized_text(type_: AvroType, known: Iterable[AvroType] = ()) -> str:
    """Like `to_text`, with properties and aliases in a fixed order."""
    return dumps(_NormalWriter({named.full_name for named in known}).type(type_, ""), java_double)


class _Writer:
    """Builds the JSON value; `seen` holds the named types defined so far."""

    def __init__(self, seen: set[str]) -> None:
        self.seen = seen

    def type(self, type_: AvroType, namespace: str) -> Any:
        if type_.kind == "union":
            return [self.type(branch, namespace) for branch in type_.branches]
        if type_.kind in NAMED:
            return self._named(type_, namespace)
        value: dict[str, Any] = {"type": type_.kind}
        if type_.items is not None:
            value["items" if type_.kind == "array" else "values"] = self.type(type_.items, namespace)
        value.update(self.properties(type_.properties, type_))
        return type_.kind if len(value) == 1 else value

    def _named(self, type_: AvroType, namespace: str) -> Any:
        if type_.full_name in self.seen:
            return type_.name if type_.namespace == namespace else type_.full_name
        self.seen.add(type_.full_name)
        value: dict[str, Any] = {"type": type_.kind, "name": type_.name}
        if type_.namespace != namespace:
            value["namespace"] = type_.namespace
        if type_.doc is not None:
            value["doc"] = type_.doc
        if type_.kind == "enum":
            value["symbols"] = type_.symbols
            if type_.enum_default is not None:
                value["default"] = type_.enum_default
        elif type_.kind == "fixed":
            value["size"] = type_.size
        else:
            value["fields"] = [self._field(field, type_.namespace) for field in type_.fields]
        value.update(self.properties(type_.properties, type_))
        if type_.aliases:
            value["aliases"] = [_relative(alias, type_.namespace) for alias in self.aliases(type_.aliases)]
        return value

    def _field(self, field: AvroField, namespace: str) -> dict[str, Any]:
        value: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            value["doc"] = field.doc
        if field.has_default:
            value["default"] = self.default(field.default, field.type)
        if field.order != "ascending":
            value["order"] = field.order
        if field.aliases:
            value["aliases"] = self.aliases(field.aliases)
        value.update(self.properties(field.properties))
        return value

    def properties(self, properties: dict[str, Any], type_: AvroType | None = None) -> dict[str, Any]:
        """The properties of `type_`, or of a field if `type_` is None."""
        return properties

    def aliases(self, aliases: list[str]) -> list[str]:
        return list(dict.fromkeys(aliases))

    def default(self, value: Any, type_: AvroType) -> Any:
        return value


class _NormalWriter(_Writer):
    def properties(self, properties: dict[str, Any], type_: AvroType | None = None) -> dict[str, Any]:
        first = ["logicalType"] if "logicalType" in properties else []
        if type_ is not None and _is_decimal(type_):
            first += [name for name in ("precision", "scale") if properties.get(name)]
        rest = sorted(set(properties) - set(first))
        return {name: sorted_keys(properties[name]) for name in (*first, *rest)}

    def aliases(self, aliases: list[str]) -> list[str]:
        return sorted(set(aliases))

    def default(self, value: Any, type_: AvroType) -> Any:
        return sorted_keys(_as_typed(value, type_))


def _as_typed(value: Any, type_: AvroType) -> Any:
    """A default with each number printed according to its type: 0 becomes 0.0 for a double."""
    if type_.kind in ("float", "double") and isinstance(value, int):
        return Decimal(value)
    if type_.kind == "union" and type_.branches:
        return _as_typed(value, type_.branches[0])
    if type_.kind == "array" and isinstance(value, list):
        return [_as_typed(item, type_.element) for item in value]
    if type_.kind == "map" and isinstance(value, dict):
        return {key: _as_typed(item, type_.element) for key, item in value.items()}
    if type_.kind in ("record", "error") and isinstance(value, dict):
        types = {field.name: field.type for field in type_.fields}
        return {key: _as_typed(item, types[key]) if key in types else item for key, item in value.items()}
    return value


def _is_decimal(type_: AvroType) -> bool:
    """Whether Avro treats the type as a decimal, and not as a type with properties that it ignores."""
    properties = type_.properties
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if properties.get("logicalType") != "decimal" or type_.kind not in ("bytes", "fixed"):
        return False
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or not precision:
        return False
    return type_.kind == "bytes" or 10**precision <= 2 ** (8 * min(type_.size, 10_000) - 1)


def _relative(name: str, namespace: str) -> str:
    """A full name, without its namespace if that is the enclosing one."""
    before, _, last = name.rpartition(".")
    return last if before == namespace else name
