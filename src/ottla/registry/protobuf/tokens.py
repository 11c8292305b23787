"""Splits the text of a .proto file into words, numbers, strings and signs."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import InvalidSchema

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+ | //[^\n]* | /\*.*?\*/)
  | (?P<word>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<number>(?:\d|\.\d)[\w.]*(?:(?<=[eE])[+-]\d+)?)
  | (?P<string>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
  | (?P<sign>[{}\[\]()<>=;:,+\-.] | /(?!\*))
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
END = "the end of the file"


class Token(NamedTuple):
    # "word", "number", "string", "sign" or "end".
    kind: str
    text: str
    position: int


def tokenize(text: str) -> list[Token]:
    """All tokens of a file, followed by an "end" token."""
    tokens: list[Token] = []
    position = 1 if text.startswith("\ufeff") else 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(
                f"Syntax error in {place(text, position)}: unexpected {text[position : position + 10]!r}"
            )
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            tokens.append(Token(kind, match.group(), position))
        position = match.end()
    tokens.append(Token("end", END, len(text)))
    return tokens


def place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - (text.rfind(chr(10), 0, position) + 1) + 1}"


def unquote(literal: str) -> str:
    """The value of a string literal. Bytes above 127 are written as characters up to U+00FF."""

    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        if code[0] in "xXuU" and len(code) > 1:
            number = int(code[1:], 16)
            return chr(number) if number <= 0x10FFFF else "\ufffd"
        return _SIMPLE.get(code, code)

    value = _ESCAPE.sub(replace, literal[1:-1])
    # Two escapes can form one character. Half of a character is not valid text, so no answer could contain it.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if "\\" in literal else value
