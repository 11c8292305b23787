"""Reads and writes JSON like Confluent's registry: compact, in the original order, with numbers as Java prints them.

Schemas are stored as text and compared by the hash of that text, so numbers must survive unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from math import isinf
from typing import Any

from .errors import InvalidSchema

# Java's JSON parser has a similar limit. This one also keeps every recursive function here within Python's stack.
MAX_NESTING = 100


def _refuse_constant(name: str) -> Any:
    raise InvalidSchema(f"{name} is not a JSON number")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InvalidSchema(f"{text} is not a number that can be stored") from error


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidSchema("a number in it has too many digits") from error


def loads(text: str) -> Any:
    """Parse JSON. Numbers with a point or an exponent become `Decimal`. Excessive nesting is an error, not a crash."""
    try:
        value = json.loads(text, parse_float=_decimal, parse_int=_integer, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise InvalidSchema(f"nested deeper than {MAX_NESTING} levels") from error
    check_nesting(value)
    if "\\ud" in text.lower():
        try:
            dumps(value).encode()
        except UnicodeEncodeError as error:
            raise InvalidSchema("a string in it has an unpaired surrogate, which is not a character") from error
    return value


def check_nesting(value: Any) -> None:
    """Refuse a value that is nested too deeply for recursive functions."""
    level = [value]
    for _ in range(MAX_NESTING):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise InvalidSchema(f"nested deeper than {MAX_NESTING} levels")


def java_double(number: Decimal) -> str:
    """A double as Java's `Double.toString` prints it."""
    value = float(number)
    if isinf(value):
        raise InvalidSchema(f"{number} is too large for a double")
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def dumps(value: Any, decimal: Callable[[Decimal], str] = str) -> str:
    """Write JSON without whitespace. `decimal` prints the numbers that have a point or an exponent."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, dict):
        members = (f"{encode_basestring(key)}:{dumps(item, decimal)}" for key, item in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(dumps(item, decimal) for item in value) + "]"
    return decimal(value) if isinstance(value, Decimal) else str(value)


def sorted_keys(value: Any) -> Any:
    """The same value with the members of every object sorted by name."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sorted_keys(item) for item in value]
    return value
