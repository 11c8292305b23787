"""Reads the usual forms of a command line without argparse, for which a broker that starts would have to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

Options = Mapping[str, Mapping[str, Any]]
"""Long options, each with the keywords that argparse's `add_argument` takes: one table for both readers."""


def read_at_once(words: Sequence[str], options: Options, operand: str) -> Any:
    """What argparse would make of the words, or None where it has to look itself: at anything unusual, and mistakes.

    An option is its whole name, with its value in the next word or behind an equals sign; one word may stand alone.
    """
    values: dict[str, Any] = {operand: None}
    for name, keywords in options.items():
        values[_target(name, keywords)] = keywords.get("default", False if _is_flag(keywords) else None)
    left = iter(words)
    for word in left:
        if word and not word.startswith("-"):
            if values[operand] is not None:
                return None
            values[operand] = word
            continue
        name, equals, text = word.partition("=")
        keywords = options.get(name, {})
        if not keywords or (_is_flag(keywords) and equals):
            return None
        value: Any = True
        if not _is_flag(keywords):
            value = _value(text if equals else next(left, ""), keywords)
            if value is None:
                return None
        target = _target(name, keywords)
        values[target] = [*values[target], value] if keywords.get("action") == "append" else value
    return SimpleNamespace(**values)


def _target(name: str, keywords: Mapping[str, Any]) -> str:
    return str(keywords.get("dest", name.removeprefix("--").replace("-", "_")))


def _is_flag(keywords: Mapping[str, Any]) -> bool:
    return keywords.get("action") == "store_true"


def _value(text: str, keywords: Mapping[str, Any]) -> Any:
    """None for what has to be refused, and for what may be an option."""
    if not text or text.startswith("-"):
        return None
    try:
        value = keywords.get("type", str)(text)
    except Exception:  # argparse finds it again, and says it
        return None
    return value if value in keywords.get("choices", (value,)) else None
