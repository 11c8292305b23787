"""Java's .properties syntax, the format of Kafka's server.properties."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.keys import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Each key with its value and its first line number. The last occurrence of a key wins, as in Java."""
    entries: dict[str, tuple[str, int]] = {}
    for line, number in _logical_lines(text):
        key, value = _split(line)
        entries[_unescape(key, number)] = (_unescape(value, number), number)
    return entries


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines without comments and leading blanks, joined if a backslash ends them."""
    pending, start = "", 0
    # Only these end a line in Java. str.splitlines would also split at form feeds and Unicode separators.
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line, start
        pending = ""
    if pending:
        yield pending, start


def _split(line: str) -> tuple[str, str]:
    """Split at the first `=`, `:` or blank without a backslash."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            parts.append(char)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(f"line {line_number}: \\u needs four hexadecimal digits, not '{digits}'")
            parts.append(chr(int(digits, 16)))
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Characters beyond the first plane come as two escapes, and are combined into one character here.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_properties(path: str) -> dict[str, tuple[str, int]]:
    """The entries of a file. Decoded as UTF-8 if valid, otherwise as Latin-1, as in Java."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
