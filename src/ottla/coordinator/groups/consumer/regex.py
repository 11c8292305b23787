"""Subscriptions by regular expression (RE2 syntax), resolved by the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.errors import InvalidRegularExpression
from ottla.re2_patterns import InvalidPattern, compile_pattern


class ResolvedRegex(NamedTuple):
    """The matching topics, with the metadata version and the time of the lookup."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)


_JAVA_REASONS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Kafka uses RE2/J, whose error messages differ in wording."""


def _as_java_says(reason: str) -> str:
    kind, _, _ = reason.partition(": ")
    return _JAVA_REASONS.get(kind, kind)


def check(pattern: str) -> None:
    """Raise InvalidRegularExpression for a pattern that RE2 rejects."""
    try:
        compile_pattern(pattern)
    except InvalidPattern as error:
        reason = _as_java_says(str(error))
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
        ) from None


def resolve(
    patterns: Iterable[str],
    topics: Iterable[str],
    version: int,
    now_ms: int,
    may_see: Callable[[str], bool] | None = None,
) -> dict[str, ResolvedRegex]:
    """Match the full names of visible topics. A pattern that does not compile (another broker wrote it, or this one has
    no RE2) matches nothing."""
    names = list(topics)
    resolved = {}
    for pattern in patterns:
        try:
            compiled = compile_pattern(pattern)
        except (InvalidPattern, InvalidRegularExpression):
            matching: frozenset[str] = frozenset()
        else:
            matching = frozenset(name for name in names if compiled.fullmatch(name) is not None)
            if may_see is not None:
                matching = frozenset(filter(may_see, matching))
        resolved[pattern] = ResolvedRegex(matching, version, now_ms)
    return resolved
