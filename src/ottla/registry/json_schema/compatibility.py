"""Whether a JSON Schema accepts everything that another one accepts: the rules of Confluent's registry.

A rule compares two nodes and reports how the reader's node differs from the writer's. Only incompatible differences are
kept. The rules for objects and arrays are in `containers`.
"""

from __future__ import annotations

from collections import deque
from decimal import InvalidOperation
from typing import Any

from ..errors import InvalidSchema
from ..formats import Difference
from ..json_text import dumps, sorted_keys
from . import containers
from .differences import COMPATIBLE, COMPATIBLE_LENIENT, difference
from .limits import compare_limits, number
from .model import Node

# Schemas with many references between them have many pairs to compare. More than this would take too long.
MAX_COMPARISONS = 200_000
# More reasons than this do not help, and with many references there can be exponentially many.
MAX_FOUND = 100

# Two nodes, by their ids.
Pair = tuple[int, int]
# Why the reader refuses something: a type of difference or a pair of inner nodes, and the path to it from here.
Found = list[tuple[str | Pair, tuple[str, ...]]]


def find_differences(writer: Node, reader: Node, lenient: bool) -> list[Difference]:
    return Comparison(COMPATIBLE_LENIENT if lenient else COMPATIBLE).solve(writer, reader)


class Comparison:
    """Finds the pairs of nodes that are incompatible.

    Every pair counts as compatible until a rule finds a difference. Then all pairs that depend on it are compared
    again. So the comparison of recursive schemas ends, and comparisons are never nested, even for deeply nested
    schemas.
    """

    def __init__(self, compatible: frozenset[str]) -> None:
        self.compatible = compatible
        self.pairs: dict[Pair, tuple[Node, Node]] = {}
        self.results: dict[Pair, Found] = {}
        # For each pair, the pairs whose results depend on it.
        self.dependents: dict[Pair, set[Pair]] = {}
        # New pairs are taken from the right, so that the innermost come first; pairs to compare again wait on the left.
        self.waiting: deque[Pair] = deque()
        self.again: set[Pair] = set()
        self.current: Pair | None = None
        self.comparisons = 0

    def solve(self, writer: Node, reader: Node) -> list[Difference]:
        self.compare(writer, reader)
        first = self.waiting[0]
        while self.waiting:
            pair = self.current = self.waiting.pop()
            self.again.discard(pair)
            found = self._compare(*self.pairs[pair])
            if found and not self.results.get(pair):
                # Pairs that were not compared yet are waiting anyway.
                late = {one for one in self.dependents[pair] if one in self.results} - self.again
                self.again |= late
                self.waiting.extendleft(late)
            self.results[pair] = found
        return self._reasons(first)

    def _reasons(self, first: Pair) -> list[Difference]:
        """The differences themselves, with their paths from the root. Cyclic paths are not followed."""
        reasons: list[Difference] = []
        stack: list[tuple[str | Pair, tuple[str, ...], frozenset[Pair]]] = [(first, (), frozenset())]
        steps = 0
        while stack and len(reasons) < MAX_FOUND and steps < 100 * MAX_FOUND:
            steps += 1
            what, path, above = stack.pop()
            if isinstance(what, str):
                reasons.append(difference(what, "#/" + "/".join(path)))
            elif what not in above:
                inner = self.results[what]
                stack += [(one, (*path, *rest), above | {what}) for one, rest in reversed(inner)]
        return reasons

    def compare(self, writer: Node | None, reader: Node | None) -> Found:
        """The reasons known so far why the reader refuses something that the writer allows."""
        if writer is None or reader is None:
            return self.found("SCHEMA_ADDED") if writer is not reader and writer is None else []
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise InvalidSchema("the schema is too complex to compare with an earlier version")
        old, new = writer.target, reader.target
        pair = (id(old), id(new))
        if pair not in self.pairs:
            self.pairs[pair] = (old, new)
            self.dependents[pair] = set()
            self.waiting.append(pair)
        if self.current is not None:
            self.dependents[pair].add(self.current)
        return [(pair, ())] if self.results.get(pair) else []

    def at(self, path: str, found: Found) -> Found:
        return [(what, (path, *rest)) for what, rest in found]

    def found(self, type_: str, *path: str) -> Found:
        return [] if type_ in self.compatible else [(type_, path)]

    def _compare(self, old: Node, new: Node) -> Found:
        if self._within_combined(old, new):
            return []
        if old.kind != new.kind:
            if old.kind == "false" or new.is_empty:
                return []
            if old.raw.get("connect.type") == new.raw.get("connect.type") == "bytes":
                # Kafka Connect changed how it writes decimals; both forms are bytes.
                return []
            return self.found("TYPE_CHANGED")
        rule = RULES.get(old.kind)
        return rule(self, old, new) if rule else []

    def _within_combined(self, old: Node, new: Node) -> bool:
        """Whether a plain schema and a combined one are compatible because a part of the combined one is compatible."""
        if old.kind != "combined" and new.kind == "combined":
            if len(new.parts) == 1 or new.criterion != "allOf":
                return any(not self.compare(old, part) for part in new.parts)
        elif old.kind == "combined" and new.kind != "combined" and (len(old.parts) == 1 or old.criterion == "allOf"):
            return any(not self.compare(part, new) for part in old.parts)
        return False


def _strings(comparison: Comparison, old: Node, new: Node) -> Found:
    found = compare_limits(comparison, old.raw.get("maxLength"), new.raw.get("maxLength"), "maxLength", "MAX_LENGTH")
    found += compare_limits(comparison, old.raw.get("minLength"), new.raw.get("minLength"), "minLength", "MIN_LENGTH")
    before, after = old.raw.get("pattern"), new.raw.get("pattern")
    if before == after:
        return found
    change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
    return found + comparison.found(f"PATTERN_{change}", "pattern")


def _numbers(comparison: Comparison, old: Node, new: Node) -> Found:
    found: Found = []
    for keyword, name in (
        ("maximum", "MAXIMUM"),
        ("minimum", "MINIMUM"),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ):
        found += compare_limits(comparison, old.raw.get(keyword), new.raw.get(keyword), keyword, name)
    before, after = number(old.raw.get("multipleOf")), number(new.raw.get("multipleOf"))
    if before != after:
        found += comparison.found(f"MULTIPLE_OF_{_multiples(before, after)}", "multipleOf")
    if old.integer != new.integer:
        found += comparison.found("TYPE_EXTENDED" if old.integer else "TYPE_NARROWED")
    return found


def _multiples(before: Any, after: Any) -> str:
    if before is None:
        return "ADDED"
    if after is None:
        return "REMOVED"
    try:
        if before and after % before == 0:
            return "EXPANDED"
        if after and before % after == 0:
            return "REDUCED"
    except InvalidOperation:
        # The magnitudes are too different to divide.
        pass
    return "CHANGED"


def _constants(comparison: Comparison, old: Node, new: Node) -> Found:
    return [] if _same(old.raw["const"], new.raw["const"]) else comparison.found("ENUM_ARRAY_CHANGED", "const")


def _enums(comparison: Comparison, old: Node, new: Node) -> Found:
    before, after = _values(old.raw["enum"]), _values(new.raw["enum"])
    if before == after:
        return []
    change = "EXTENDED" if after >= before else "NARROWED" if before >= after else "CHANGED"
    return comparison.found(f"ENUM_ARRAY_{change}", "enum")


def _values(values: Any) -> set[str]:
    return {dumps(sorted_keys(value)) for value in values} if isinstance(values, list) else set()


def _same(one: Any, other: Any) -> bool:
    return dumps(sorted_keys(one)) == dumps(sorted_keys(other))


def _negations(comparison: Comparison, old: Node, new: Node) -> Found:
    # `not` is compared in the opposite direction: forbidding less means allowing more.
    forbidden = comparison.compare(new.child(new.raw["not"]), old.child(old.raw["not"]))
    return comparison.found("NOT_TYPE_EXTENDED" if forbidden else "NOT_TYPE_NARROWED", "not")


def _combinations(comparison: Comparison, old: Node, new: Node) -> Found:
    if old.criterion != new.criterion and not (
        new.criterion == "anyOf"
        or (len(old.parts) == 1 and (len(new.parts) == 1 or new.criterion == "oneOf"))
        or (len(new.parts) == 1 and old.criterion == "allOf")
    ):
        return comparison.found("COMBINED_TYPE_CHANGED")
    before = list({part.key: part for part in old.parts}.values())
    after = list({part.key: part for part in new.parts}.values())
    found: Found = []
    if len(before) < len(after):
        found += comparison.found("PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED")
    elif len(before) > len(after):
        found += comparison.found("PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED")
    fits = [[index for index, part in enumerate(after) if not comparison.compare(one, part)] for one in before]
    if _matching(fits) < min(len(before), len(after)):
        found += comparison.found("COMBINED_TYPE_SUBSCHEMAS_CHANGED")
    return found


def _matching(fits: list[list[int]]) -> int:
    """The size of a maximum bipartite matching. `fits` lists, for each left index, the right indexes that fit."""
    partner: dict[int, int] = {}
    for start in range(len(fits)):
        # Breadth first along alternating paths; `came` maps each right index to the left index it was reached from.
        came: dict[int, int] = {}
        queue = [start]
        free: int | None = None
        for left in queue:
            for right in fits[left]:
                if right in came:
                    continue
                came[right] = left
                if right not in partner:
                    free = right
                    break
                queue.append(partner[right])
            if free is not None:
                break
        while free is not None:
            left = came[free]
            previous = next((right for right, owner in partner.items() if owner == left), None)
            partner[free] = left
            free = previous if left != start else None
    return len(partner)


RULES = {
    "string": _strings,
    "number": _numbers,
    "const": _constants,
    "enum": _enums,
    "not": _negations,
    "combined": _combinations,
    "object": containers.compare_objects,
    "array": containers.compare_arrays,
}
