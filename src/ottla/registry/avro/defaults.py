"""Whether a field's default fits the field's type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from .types import AvroType

RANGES = {"int": 2**31, "long": 2**63}


def is_valid_default(type_: AvroType, value: Any) -> bool:
    kind = type_.kind
    if kind in ("string", "bytes", "enum", "fixed"):
        return isinstance(value, str)
    if kind in RANGES:
        return isinstance(value, int) and not isinstance(value, bool) and -RANGES[kind] <= value < RANGES[kind]
    if kind in ("float", "double"):
        return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "array":
        return isinstance(value, list) and all(is_valid_default(type_.element, item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(is_valid_default(type_.element, item) for item in value.values())
    if kind == "union":
        return any(is_valid_default(branch, value) for branch in type_.branches)
    # A field that the default leaves out uses its own default, which was checked with that field.
    return isinstance(value, dict) and all(
        is_valid_default(field.type, value[field.name]) if field.name in value else field.has_default
        for field in type_.fields
    )
