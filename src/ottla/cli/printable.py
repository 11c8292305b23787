"""Makes text from outside safe to show: names and messages may contain line breaks and terminal escape sequences."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

# C0 and C1 controls, DEL, the line and paragraph separators, and the marks that change the direction of text.
_ESCAPED: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_ESCAPED_BUT_LINES: Final = {code: shown for code, shown in _ESCAPED.items() if code not in (ord("\n"), ord("\t"))}


def escaped(text: str) -> str:
    """One line, without characters that move the cursor, change colours or fake a second line."""
    return text if text.isprintable() else text.translate(_ESCAPED)


def escaped_lines(text: str) -> str:
    """The same for text that may have several lines."""
    return text.translate(_ESCAPED_BUT_LINES)


class LogFormatter(logging.Formatter):
    """One line per message. The lines of a traceback are indented, so that none of them looks like a message."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return "\n".join("  " + escaped(line) for line in super().formatException(ei).split("\n"))
