"""The compatibility rule for limits such as `maxLength`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compatibility import Comparison, Found


def compare_limits(comparison: Comparison, old: Any, new: Any, keyword: str, name: str) -> Found:
    """Compare a limit: whether it was added, removed, raised or lowered."""
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
    """A number from the schema; None if it is missing or not a number."""
    return None if value is None or isinstance(value, (bool, str, list, dict)) else value
