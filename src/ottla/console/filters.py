"""Filters for records: text in the key, value and headers, and conditions on JSON values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from ottla.console.operations import BadRequest
from ottla.records.record import Record

_CONDITION: Final = re.compile(
    r"^\s*(?P<path>[^=!<>~]+?)\s*(?:(?P<operator>==|=|!=|>=|<=|>|<|~)\s*(?P<wanted>.*?)\s*)?$"
)
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")

Condition = Callable[[Record], bool]


class RecordFilter:
    """All conditions must hold. `json` is a path into the value and a comparison: `user.age >= 18`, `items[0].id`."""

    def __init__(self, *, key: str = "", value: str = "", header: str = "", json: str = "") -> None:
        self._conditions: list[Condition] = []
        if key:
            wanted_key = key.encode()
            self._conditions.append(lambda record: wanted_key in (record.key or b""))
        if value:
            wanted_value = value.encode()
            self._conditions.append(lambda record: wanted_value in (record.value or b""))
        if header:
            self._conditions.append(_header_condition(header))
        if json:
            self._conditions.append(_json_condition(json))

    @property
    def is_open(self) -> bool:
        """Whether every record passes."""
        return not self._conditions

    def matches(self, record: Record) -> bool:
        return all(condition(record) for condition in self._conditions)


def _header_condition(text: str) -> Condition:
    """`name` requires the header; `name=text` requires the text in it."""
    name, separator, wanted = (part.strip() for part in text.partition("="))

    def condition(record: Record) -> bool:
        return any(
            key == name and (not separator or wanted.encode() in (content or b"")) for key, content in record.headers
        )

    return condition


def _json_condition(text: str) -> Condition:
    found = _CONDITION.match(text)
    if found is None:
        raise BadRequest(f"json={text!r} is not a path with a comparison, such as user.age >= 18")
    steps = _steps(found["path"], text)
    operator = found["operator"]
    compare = None if operator is None else _comparison(operator, _literal(found["wanted"]), text)

    def condition(record: Record) -> bool:
        try:
            value = json.loads(record.value or b"")
            for step in steps:
                value = value[step]
        except (ValueError, LookupError, TypeError, RecursionError):
            return False
        return True if compare is None else compare(value)

    return condition


def _steps(path: str, text: str) -> list[str | int]:
    path = path.removeprefix("$")
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise BadRequest(f"json={text!r}: cannot read the path at {path[position:]!r}")
        steps.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    return steps


def _literal(text: str) -> Any:
    """A number, true, false, null or quoted text, as in JSON; anything else is plain text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _comparison(operator: str, wanted: Any, text: str) -> Callable[[Any], bool]:
    if operator in ("=", "=="):
        return lambda value: bool(value == wanted) or _as_text(value) == wanted
    if operator == "!=":
        return lambda value: value != wanted and _as_text(value) != wanted
    if operator == "~":
        part = _as_text(wanted)
        return lambda value: part in _as_text(value)
    if not isinstance(wanted, (int, float)) or isinstance(wanted, bool):
        raise BadRequest(f"json={text!r}: {operator} compares with a number")
    number: float = wanted

    def ordered(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if operator == ">":
            return value > number
        if operator == "<":
            return value < number
        return value >= number if operator == ">=" else value <= number

    return ordered


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
