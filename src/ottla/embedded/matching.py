"""Compares records with those that a test expects: by value, as JSON, in part, in any order, with matchers and a diff.

An expectation has the form of a record for `append`: a value, (key, value), (key, value, headers) or a `Record`. Text
and bytes are compared exactly. Anything else is compared with the value parsed as JSON, so spaces and the order of keys
do not matter. Keys and headers are compared only if they are given. Matchers can replace a key, a value, a header, or a
part of JSON.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.embedded.records import Record, shown

_ALIGNED_MAX: Final = 1_000_000
"""The maximum number of pairs to compare for a diff; longer lists are compared position by position."""
_SHOWN_MAX: Final = 120


class _Any:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
"""Matches any key, value, header, or part of JSON."""


class Approx:
    """Matches numbers within a tolerance: `approx(9.99, within=0.01)`."""

    def __init__(self, number: float, within: float) -> None:
        self.number = number
        self.within = within

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, (int, float)) and not isinstance(other, bool) and abs(other - self.number) <= self.within
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.number:g} ± {self.within:g}"


def approx(number: float, within: float = 1e-6) -> Approx:
    """A number that may be off by `within`."""
    return Approx(number, within)


class Expectation(NamedTuple):
    """One expected record; `UNSAID` parts are not compared."""

    key: Any
    value: Any
    headers: Any


UNSAID: Final = object()


def expectation(given: object) -> Expectation:
    """The expectation for one item of the list."""
    if isinstance(given, Record):
        return Expectation(given.key, given.value, given.headers)
    if not isinstance(given, tuple):
        return Expectation(UNSAID, given, UNSAID)
    if not 2 <= len(given) <= 3:
        raise ValueError(f"expect takes values, (key, value) or (key, value, headers), not a tuple of {len(given)}")
    return Expectation(given[0], given[1], given[2] if len(given) == 3 else UNSAID)


def mismatch(expected: Expectation, record: Record, partial: bool) -> str | None:
    """Why a record is not the expected one; None if it is. With `partial`, it may have more fields and headers."""
    if expected.key is not UNSAID and (why := _part_mismatch("key", expected.key, record, partial)):
        return why
    if why := _part_mismatch("value", expected.value, record, partial):
        return why
    return None if expected.headers is UNSAID else _headers_mismatch(expected.headers, record, partial)


def _part_mismatch(part: str, expected: Any, record: Record, partial: bool) -> str | None:
    """Compare a key or a value. It is decoded first if it has a schema and the test does not expect bytes."""
    found = record.key if part == "key" else record.value
    if found is None or found[:1] != b"\0" or record.decoder is None or isinstance(expected, _BYTES):
        return _bytes_mismatch(part, expected, found, partial)
    try:
        decoded = record.decoded_key if part == "key" else record.decoded
    except ValueError:
        return _bytes_mismatch(part, expected, found, partial)
    return _json_mismatch(part, expected, decoded, partial)


_BYTES: Final = (bytes, bytearray, memoryview)


def _bytes_mismatch(place: str, expected: Any, found: bytes | None, partial: bool) -> str | None:
    """A key, a value or the value of a header."""
    if isinstance(expected, str):
        expected = expected.encode()
    if isinstance(expected, _BYTES):
        wanted = bytes(expected)
        return None if wanted == found else f"{place}: expected {shown(wanted)}, found {shown(found)}"
    if not _is_json(expected) and expected == found:
        return None  # None, ANY, or another matcher that accepts bytes
    if found is None or expected is None:
        return f"{place}: expected {_text(expected)}, found {shown(found)}"
    if isinstance(expected, re.Pattern):
        text = found if isinstance(expected.pattern, bytes) else found.decode(errors="replace")
        return None if expected.fullmatch(text) else f"{place}: {shown(found)} does not match {_text(expected)}"
    try:
        parsed = json.loads(found)
    except ValueError:
        return f"{place}: expected {_text(expected)}, found {shown(found)}, which is not JSON"
    return _json_mismatch(place, expected, parsed, partial)


def _is_json(expected: Any) -> bool:
    return isinstance(expected, (Mapping, list, bool, int, float))


def _json_mismatch(place: str, expected: Any, found: Any, partial: bool) -> str | None:
    if isinstance(expected, Mapping):
        if not isinstance(found, dict):
            return f"{place}: expected an object, found {_text(found)}"
        for key in expected:
            if key not in found:
                return f"{place}.{key}: missing"
            if why := _json_mismatch(f"{place}.{key}", expected[key], found[key], partial):
                return why
        extra = [] if partial else [key for key in found if key not in expected]
        return f"{place}.{extra[0]}: not expected, found {_text(found[extra[0]])}" if extra else None
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{place}: expected {_text(expected)}, found {_text(found)}"
        pairs = enumerate(zip(expected, found, strict=True))
        return next((why for n, (e, f) in pairs if (why := _json_mismatch(f"{place}[{n}]", e, f, partial))), None)
    if isinstance(expected, re.Pattern):
        matches = isinstance(found, str) and expected.fullmatch(found) is not None
    else:
        matches = bool(expected == found)
        if _is_json(expected):  # True is 1 in Python, but not in JSON
            matches = matches and isinstance(expected, bool) == isinstance(found, bool)
    return None if matches else f"{place}: expected {_text(expected)}, found {_text(found)}"


def _headers_mismatch(expected: Any, record: Record, partial: bool) -> str | None:
    """Compare pairs in their order, and a mapping (or any headers with `partial`) by name."""
    found = list(record.headers)
    wanted = list(expected.items() if isinstance(expected, Mapping) else expected)
    if not partial and not isinstance(expected, Mapping) and [n for n, _ in wanted] != [n for n, _ in found]:
        return f"headers: expected {_headers(wanted)}, found {_headers(found)}"
    for name, value in wanted:
        same = [pair for pair in found if pair[0] == name]
        if not same:
            return f"header {name}: missing"
        reasons = [_bytes_mismatch(f"header {name}", value, pair[1], partial) for pair in same]
        if all(reasons):
            return reasons[0]
        found.remove(same[reasons.index(None)])
    return None if partial or not found else f"header {found[0][0]}: not expected"


def difference(
    expected: Sequence[object], found: Sequence[Record], *, any_order: bool = False, partial: bool = False
) -> str | None:
    """The difference between the records and the expected ones, as a diff; None if there is none."""
    wanted = [expectation(given) for given in expected]
    if len(wanted) == len(found) and not any(
        mismatch(each, record, partial) for each, record in zip(wanted, found, strict=True)
    ):
        return None
    pairs = _best_pairs(wanted, found, partial) if any_order else _aligned(wanted, found, partial)
    if len(pairs) == len(wanted) == len(found):
        return None
    return "\n".join(_lines(wanted, found, pairs, any_order, partial))


def _aligned(wanted: list[Expectation], found: Sequence[Record], partial: bool) -> dict[int, int]:
    """Match as many records as possible with expected ones, in order; prefer the one at the same position."""
    in_place = {
        n: n for n, (each, record) in enumerate(zip(wanted, found, strict=False)) if not mismatch(each, record, partial)
    }
    if len(wanted) * len(found) > _ALIGNED_MAX:
        return in_place
    same = [[not mismatch(each, record, partial) for record in found] for each in wanted]
    best = [[0] * (len(found) + 1) for _ in range(len(wanted) + 1)]
    for i in reversed(range(len(wanted))):
        for j in reversed(range(len(found))):
            best[i][j] = best[i + 1][j + 1] + 1 if same[i][j] else max(best[i + 1][j], best[i][j + 1])
    if len(in_place) == best[0][0]:
        return in_place
    pairs: dict[int, int] = {}
    i = j = 0
    while i < len(wanted) and j < len(found):
        if same[i][j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _best_pairs(wanted: list[Expectation], found: Sequence[Record], partial: bool) -> dict[int, int]:
    """Match as many pairs as possible, in any order; a pair may change to make room for another."""
    fits = [[j for j, record in enumerate(found) if not mismatch(each, record, partial)] for each in wanted]
    owner: dict[int, int] = {}
    for start in range(len(wanted)):
        came_from: dict[int, int] = {}  # record -> the expectation that it is matched with
        queue = deque([start])
        free: int | None = None
        while queue and free is None:
            i = queue.popleft()
            for j in fits[i]:
                if j in came_from:
                    continue
                came_from[j] = i
                if j not in owner:
                    free = j
                    break
                queue.append(owner[j])
        while free is not None:
            i = came_from[free]
            taken = next((j for j, each in owner.items() if each == i), None)
            owner[free] = i
            free = taken
    return {i: j for j, i in owner.items()}


def _lines(
    wanted: list[Expectation], found: Sequence[Record], pairs: dict[int, int], any_order: bool, partial: bool
) -> list[str]:
    lines: list[str] = []
    missing = [i for i in range(len(wanted)) if i not in pairs]
    extra = [j for j in range(len(found)) if j not in pairs.values()]
    as_json = any(isinstance(each.value, (Mapping, list)) for each in wanted)
    if any_order:
        lines += [f"  {_found_line(found[j], as_json=as_json)}" for j in sorted(pairs.values())]
        return lines + _replaced([wanted[i] for i in missing], [found[j] for j in extra], partial, as_json=as_json)
    i = j = 0
    for at, to in [*sorted(pairs.items()), (len(wanted), len(found))]:
        lines += _replaced(wanted[i:at], found[j:to], partial, as_json=as_json)
        if at < len(wanted):
            lines.append(f"  {_found_line(found[to], as_json=as_json)}")
        i, j = at + 1, to + 1
    return lines


def _replaced(wanted: Sequence[Expectation], found: Sequence[Record], partial: bool, *, as_json: bool) -> list[str]:
    lines: list[str] = []
    for number in range(max(len(wanted), len(found))):
        if number < len(wanted):
            lines.append(f"- {_expected_line(wanted[number])}")
        if number < len(found):
            lines.append(f"+ {_found_line(found[number], as_json=as_json)}")
        if number < len(wanted) and number < len(found):
            lines.append(f"? {mismatch(wanted[number], found[number], partial) or 'expected elsewhere'}")
    return lines


def _expected_line(expected: Expectation) -> str:
    key = "" if expected.key is UNSAID or expected.key is None else f"{_text(expected.key)} → "
    pairs = () if expected.headers is UNSAID else expected.headers
    headers = _headers(pairs.items() if isinstance(pairs, Mapping) else pairs)
    return f"{key}{_text(expected.value)}" + (f" {headers}" if headers else "")


def _found_line(record: Record, *, as_json: bool) -> str:
    """A record for people; with `as_json`, objects and lists have the same format as the expected ones."""
    key = "" if record.key is None else f"{record.shown_part('key')} → "
    headers = _headers(record.headers)
    value = (_object_text(record.value) if as_json else None) or record.shown_part("value")
    return f"{key}{value}" + (f" {headers}" if headers else "")


def _object_text(value: bytes | None) -> str | None:
    """A JSON object or list for people; None for anything else."""
    try:
        parsed = None if value is None else json.loads(value)
    except ValueError:
        return None
    return _text(parsed) if isinstance(parsed, (dict, list)) else None


def _headers(pairs: Any) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in pairs)


def _text(value: Any) -> str:
    """An expectation, or a part of one, for people."""
    if isinstance(value, str):
        value = value.encode()
    if value is None or isinstance(value, bytes):
        return shown(value)
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/" if isinstance(value.pattern, str) else repr(value.pattern)
    if isinstance(value, (Mapping, list, tuple)):
        text = _json_text(value)
        return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
    return json.dumps(value) if isinstance(value, (bool, int, float)) else repr(value)


def _json_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_json_text(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return _text(value)
