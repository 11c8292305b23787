"""Parses Avro schemas from JSON with the rules and the error messages of Apache Avro's Java library."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidSchema
from ..json_text import dumps, java_double
from .defaults import is_valid_default
from .text import to_text
from .types import MISSING, NAMED, PRIMITIVES, AvroField, AvroType

# Keys that have a meaning in Avro; all others are kept as properties.
TYPE_KEYS = {
    "type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size", "aliases",
}  # fmt: skip
ENUM_KEYS = {*TYPE_KEYS, "default"}
FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}
ORDERS = ("ascending", "descending", "ignore")
# The maximum of Java's int: the limit for the size of a fixed.
MAX_INT = 2**31 - 1


class Parser:
    """Knows the names defined so far: those of the references first, then those of the schema itself."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.names: dict[str, AvroType] = {}
        # Names whose definitions are being parsed; inner types may already use them.
        self.open: set[str] = set()

    def parse(self, value: Any, namespace: str = "") -> AvroType:
        if isinstance(value, str):
            return self._named(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchema(f"Schema not yet supported: {dumps(value)}")
        kind = value.get("type")
        if kind is None:
            raise InvalidSchema(f"No type: {dumps(value)}")
        if not isinstance(kind, str):
            # {"type": {...}} means the inner type. Keys next to it have no meaning and are dropped.
            return self.parse(kind, namespace)
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_properties(value, TYPE_KEYS))
        if kind in NAMED:
            return self._definition(kind, value, namespace)
        if kind == "array":
            items = self._part(value, "items", "Array has no items type", namespace)
            return AvroType(kind, items=items, properties=_properties(value, TYPE_KEYS))
        if kind == "map":
            values = self._part(value, "values", "Map has no values type", namespace)
            return AvroType(kind, items=values, properties=_properties(value, TYPE_KEYS))
        return self._named(kind, namespace)

    def _part(self, value: dict[str, Any], key: str, problem: str, namespace: str) -> AvroType:
        if key not in value:
            raise InvalidSchema(f"{problem}: {dumps(value)}")
        return self.parse(value[key], namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        if full_name in self.names:
            return self.names[full_name]
        if name in self.names and name not in self.open:
            # The name is not in the enclosing namespace, but it is defined without a namespace.
            return self.names[name]
        raise InvalidSchema(f"Undefined schema: {full_name}")

    def _union(self, value: list[Any], namespace: str) -> AvroType:
        union = AvroType("union")
        seen: set[str] = set()
        for item in value:
            branch = self.parse(item, namespace)
            if branch.kind == "union":
                raise InvalidSchema(f"Nested union: {dumps(value)}")
            if branch.full_name in seen:
                raise InvalidSchema(f"Duplicate in union:{branch.full_name}")
            seen.add(branch.full_name)
            union.branches.append(branch)
        return union

    def _definition(self, kind: str, value: dict[str, Any], enclosing: str) -> AvroType:
        name, namespace = self._name_of(value, enclosing)
        type_ = AvroType(kind, name, namespace, doc=_text(value, "doc"))
        earlier = self.names.get(type_.full_name)
        if type_.full_name in self.open:
            raise InvalidSchema(f"Can't redefine: {type_.full_name}")
        if name in PRIMITIVES and not namespace:
            raise InvalidSchema(f"Schemas may not be named after primitives: {name}")
        self.names[type_.full_name] = type_
        type_.properties = _properties(value, ENUM_KEYS if kind == "enum" else TYPE_KEYS)
        if kind == "enum":
            self._enum(type_, value)
        elif kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_INT:
                raise InvalidSchema(f"Invalid or no size: {dumps(value)}")
            type_.size = size
        else:
            self.open.add(type_.full_name)
            self._fields(type_, value)
            self.open.remove(type_.full_name)
        for alias in _aliases(value):
            type_.aliases.append(alias if "." in alias or not namespace else f"{namespace}.{alias}")
        if earlier is None:
            return type_
        # A second, identical definition is allowed.
        if to_text(type_) != to_text(earlier):
            raise InvalidSchema(f"Can't redefine: {type_.full_name}")
        self.names[type_.full_name] = earlier
        return earlier

    def _name_of(self, value: dict[str, Any], enclosing: str) -> tuple[str, str]:
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f"No name in schema: {dumps(value)}")
        given = value.get("namespace")
        namespace = given if isinstance(given, str) else enclosing
        if "." in name:
            namespace, _, name = name.rpartition(".")
        self._check_name(name)
        if self.strict and namespace:
            for part in namespace.split("."):
                self._check_name(part)
        return name, namespace

    def _enum(self, type_: AvroType, value: dict[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise InvalidSchema(f"Enum has no symbols: {dumps(value)}")
        for symbol in symbols:
            self._check_name(symbol)
            if symbol in type_.symbols:
                raise InvalidSchema(f"Duplicate enum symbol: {symbol}")
            type_.symbols.append(symbol)
        default = value.get("default")
        if default is not None:
            if default not in symbols:
                raise InvalidSchema(
                    f"The Enum Default: {default} is not in the enum symbol set: [{', '.join(symbols)}]"
                )
            type_.enum_default = default

    def _fields(self, type_: AvroType, value: dict[str, Any]) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"Record has no fields: {dumps(value)}")
        positions: dict[str, int] = {}
        for position, item in enumerate(fields):
            field = self._field(item, type_.namespace)
            first = positions.setdefault(field.name, position)
            if first != position:
                both = f"{_shown(field, position)} and {_shown(type_.fields[first], first)}"
                raise InvalidSchema(f"Duplicate field {field.name} in record {type_.full_name}: {both}.")
            type_.fields.append(field)

    def _field(self, value: Any, namespace: str) -> AvroField:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise InvalidSchema(f"No field name: {dumps(value)}")
        name = value["name"]
        self._check_name(name)
        if "type" not in value:
            raise InvalidSchema(f"No field type: {dumps(value)}")
        type_ = self.parse(value["type"], namespace)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ORDERS:
            raise InvalidSchema(f"Invalid order of field {name}: {dumps(order)}")
        default = value.get("default", MISSING)
        if self.strict and default is not MISSING and not is_valid_default(type_, default):
            raise InvalidSchema(
                f"Invalid default for field {name}: {dumps(default, java_double)} not a {to_text(type_)}"
            )
        return AvroField(
            name,
            type_,
            _text(value, "doc"),
            default,
            order.lower(),
            list(dict.fromkeys(_aliases(value))),
            _properties(value, FIELD_KEYS),
        )

    def _check_name(self, name: str) -> None:
        if not name:
            raise InvalidSchema("Empty name")
        if not (name[0].isalpha() or name[0] == "_"):
            raise InvalidSchema(f"Illegal initial character: {name}")
        if not all(char.isalnum() or char == "_" for char in name) or (self.strict and not name.isascii()):
            raise InvalidSchema(f"Illegal character in: {name}")


def _shown(field: AvroField, position: int) -> str:
    return f"{field.name} type:{field.type.kind.upper()} pos:{position}"


def _properties(value: dict[str, Any], known: set[str]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in known}


def _text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) else None


def _aliases(value: dict[str, Any]) -> list[str]:
    aliases = value.get("aliases")
    if aliases is None:
        return []
    if not isinstance(aliases, list):
        raise InvalidSchema(f"aliases not an array: {dumps(value)}")
    if not all(isinstance(alias, str) for alias in aliases):
        raise InvalidSchema(f"alias not a string: {dumps(value)}")
    return aliases
