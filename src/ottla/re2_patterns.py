"""Regular expressions that clients send. They run on RE2, as in Kafka: no pattern takes exponential time there.

The engine is the package google-re2. It has no wheels for musl (Alpine), so a broker starts and serves without it; only
a request with a regular expression needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import InvalidRegularExpression
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import re2
else:
    re2 = lazy("re2")

MISSING: Final = (
    "this broker cannot evaluate regular expressions, because the package google-re2 is not installed; "
    "install it with: pip install 'ottla[regex]'"
)


class InvalidPattern(Exception):
    """RE2 refuses the pattern. The text is RE2's reason."""


def compile_pattern(pattern: str) -> Any:
    """The compiled pattern; InvalidPattern if RE2 refuses it, InvalidRegularExpression if there is no RE2."""
    try:
        options = re2.Options()
    except ImportError:
        raise InvalidRegularExpression(MISSING) from None
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidPattern(reason) from None
