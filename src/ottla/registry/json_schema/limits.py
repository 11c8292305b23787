"""The compatibility rule for numbers that bound something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compatibility import Comparison, Found


def compare_limits(comparison: Comparison, old: Any, new: Any, keyword: str, name: str) -> Found:
    """A number that bounds something: whether it was added, removed, raised or lowered."""
    old, new = number(old), number(new)
    if old is None and new is None:
        return []
    if old is None:
        return comparison.found(f"{name}_ADDED", keyword)
    if new is None:
        return comparison.found(f"{name}_REMOVED", keyword)
    if old == new:
        return []
    return comparison.found(f"{name}_{'INCREASED' if old < new else 'DECREASED'}", keyword)


def number(value: Any) -> Any:
    """A number of the schema; None if there is none, or something else in its place."""
    return None if value is None or isinstance(value, (bool, str, list, dict)) else value
