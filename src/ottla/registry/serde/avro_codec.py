"""Avro's binary encoding, with fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro

from ..avro.schema import AvroSchema
from ..formats import Source
from .codec import BadValue
from .framing import Framed


class AvroCodec:
    bytes_as = "latin-1"

    def __init__(self, source: Source) -> None:
        text = AvroSchema.parse(source).resolved()
        # If the whole schema is "bytes", serializers write the value without any encoding.
        self._is_bytes = text == '"bytes"'
        # With full names.
        self._parsed: Any = fastavro.parse_schema(json.loads(text))

    def decode(self, framed: Framed) -> Any:
        if self._is_bytes:
            return framed.payload
        try:
            return fastavro.schemaless_reader(io.BytesIO(framed.payload), self._parsed, None)
        except (EOFError, ValueError, IndexError, KeyError, OverflowError, ArithmeticError, RecursionError) as error:
            raise BadValue(f"its bytes do not fit the schema: {error or type(error).__name__}") from error

    def encode(self, value: Any) -> bytes:
        fitted = _Fitting().fit(self._parsed, value, "value")
        if self._is_bytes:
            return bytes(fitted)
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed, fitted)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, ArithmeticError) as error:
            raise BadValue(f"it does not fit the schema: {error}") from error
        return out.getvalue()


_NUMBERS: dict[str, Any] = {"int": int, "long": int, "float": (int, float), "double": (int, float)}


class _Fitting:
    """Makes JSON fit a schema: text becomes bytes where the schema has bytes, and a union picks its branch.

    The value may name its branch, as in Avro's own JSON ({"string": "x"}). Otherwise the first branch that fits is
    used.
    """

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def fit(self, schema: Any, value: Any, place: str) -> Any:
        if isinstance(schema, list):
            return self._union(schema, value, place)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self.fit(kind, value, place)
        if kind in self._named:
            return self.fit(self._named[kind], value, place)
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = schema
        fit = getattr(self, f"_{kind}", None)
        return self._leaf(schema, kind, value, place) if fit is None else fit(schema, value, place)

    def _record(self, schema: dict[str, Any], value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise BadValue(f"{place}: expected an object, found {value!r}")
        known = {field["name"] for field in schema["fields"]}
        unknown = [name for name in value if name not in known]
        if unknown:
            raise BadValue(f"{place}.{unknown[0]}: the schema has no such field; it has {', '.join(sorted(known))}")
        fitted = {}
        for field in schema["fields"]:
            name = field["name"]
            if name in value:
                fitted[name] = self.fit(field["type"], value[name], f"{place}.{name}")
            elif "default" in field:
                first = field["type"][0] if isinstance(field["type"], list) else field["type"]
                fitted[name] = self.fit(first, field["default"], f"{place}.{name}")
            else:
                raise BadValue(f"{place}.{name}: missing, and it has no default")
        return fitted

    def _array(self, schema: dict[str, Any], value: Any, place: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise BadValue(f"{place}: expected a list, found {value!r}")
        return [self.fit(schema["items"], item, f"{place}[{index}]") for index, item in enumerate(value)]

    def _map(self, schema: dict[str, Any], value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise BadValue(f"{place}: expected an object, found {value!r}")
        return {key: self.fit(schema["values"], item, f"{place}.{key}") for key, item in value.items()}

    def _enum(self, schema: dict[str, Any], value: Any, place: str) -> Any:
        if value not in schema["symbols"]:
            raise BadValue(f"{place}: {value!r} is not one of {', '.join(schema['symbols'])}")
        return value

    def _fixed(self, schema: dict[str, Any], value: Any, place: str) -> Any:
        return self._leaf(schema, "bytes", value, place)

    def _union(self, schema: list[Any], value: Any, place: str) -> Any:
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in schema:
                full = _branch_name(branch)
                if name in (full, full.rpartition(".")[2]):
                    is_named = isinstance(branch, dict) or branch in self._named
                    return (full, self.fit(branch, inner, place)) if is_named else self.fit(branch, inner, place)
        for branch in schema:
            try:
                return self.fit(branch, value, place)
            except BadValue:
                continue
        names = ", ".join(_branch_name(branch) for branch in schema)
        raise BadValue(f"{place}: {value!r} fits no branch of the union {names}")

    def _leaf(self, schema: Any, kind: str, value: Any, place: str) -> Any:
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if kind == "null":
            fits = value is None
        elif kind == "boolean":
            fits = isinstance(value, bool)
        elif kind == "string":
            fits = isinstance(value, str) or logical is not None
        elif kind == "bytes":
            if logical == "decimal":
                return _decimal(value, place)
            if isinstance(value, str):
                return _latin(value, place)
            fits = isinstance(value, (bytes, bytearray))
        elif kind in _NUMBERS:
            fits = (logical is not None and not isinstance(value, (str, bool))) or (
                isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
            )
        else:
            fits = True  # fastavro reports what is wrong
        if not fits:
            raise BadValue(f"{place}: expected {kind}, found {value!r}")
        return value


def _branch_name(branch: Any) -> str:
    return str(branch.get("name", branch["type"]) if isinstance(branch, dict) else branch)


def _decimal(value: Any, place: str) -> Any:
    try:
        return value if isinstance(value, (bytes, Decimal)) else Decimal(str(value))
    except ArithmeticError:
        raise BadValue(f"{place}: {value!r} is not a decimal number") from None


def _latin(value: str, place: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise BadValue(f"{place}: bytes stand in JSON as characters up to U+00FF") from None
