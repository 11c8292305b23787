"""Regular expressions in schemas. They come from clients, so RE2 runs them: it never takes exponential time."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from ..errors import InvalidSchema

_UNICODE_CLASS = re.compile(r"\\[pP](\{[^}]*\}|.)")
_OPTIONS = re2.Options()
# Errors in patterns are reported here, not on standard error.
_OPTIONS.log_errors = False


@lru_cache(1000)
def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error:
        return None


def check_pattern(pattern: str) -> None:
    """Refuse an invalid regular expression. Look-around is valid, although RE2 does not support it."""
    if _compiled(pattern) is not None:
        return
    try:
        re.compile(_UNICODE_CLASS.sub("x", pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidSchema(f"'{pattern[:200]}' is not a regular expression: {error}") from error


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a property's name. Look-around never matches, because only RE2 is safe to run."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.search(name) is not None
