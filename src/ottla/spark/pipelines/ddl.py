"""Columns written as DDL (`id BIGINT NOT NULL, tags ARRAY<STRING>`), read without a JVM.

Spark parses DDL only in the JVM, so a typing error would show up seconds later, after Spark has started, as a stack
trace. The types are those of Spark's own grammar.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TOKEN: Final = re.compile(r"""\s*(?:`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|.)""", re.DOTALL)
_SIMPLE: Final = {
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "byte": "ByteType",
    "smallint": "ShortType",
    "short": "ShortType",
    "int": "IntegerType",
    "integer": "IntegerType",
    "bigint": "LongType",
    "long": "LongType",
    "float": "FloatType",
    "real": "FloatType",
    "double": "DoubleType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ltz": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
    "string": "StringType",
    "binary": "BinaryType",
    "variant": "VariantType",
    "void": "NullType",
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_LENGTHS: Final = {"char": "CharType", "character": "CharType", "varchar": "VarcharType"}
_NAMES: Final = (*_SIMPLE, *_DECIMALS, *_LENGTHS, "array", "map", "struct")
_MOST_DIGITS: Final = 38


def columns(text: str) -> StructType:
    """The columns. ValueError shows where the text is wrong."""
    reader = _Reader(text)
    if reader.peek().lower() == "struct" and reader.peek(1) == "<":
        found = reader.kind("the schema")
    else:
        found = reader.fields("")
    if reader.peek():
        raise ValueError(f"'{reader.peek()}' is not expected after {reader.behind()}")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(text.strip()) if match.group().strip()]
        self._at = 0

    def peek(self, ahead: int = 0) -> str:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else ""

    def behind(self) -> str:
        return f"'{self._tokens[self._at - 1]}'" if self._at else "the beginning"

    def _take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def _expect(self, wanted: str, where: str) -> None:
        if self.peek() != wanted:
            raise ValueError(f"{where}: '{wanted}' is missing after {self.behind()}")
        self._take()

    def _skip(self, *words: str) -> bool:
        """Skip these words, in any case, if they come next. Returns whether they did."""
        if [self.peek(ahead).lower() for ahead in range(len(words))] != list(words):
            return False
        self._at += len(words)
        return True

    def fields(self, until: str) -> Any:
        """The columns up to a closing sign, or to the end."""
        from pyspark.sql.types import StructField, StructType

        found: list[StructField] = []
        while self.peek() != until or not found:
            if found:
                self._expect(",", f"column '{found[-1].name}'")
            name = self._name()
            if name.lower() in (one.name.lower() for one in found):
                raise ValueError(f"two columns are named '{name}'")
            self._skip(":")
            kind = self.kind(f"column '{name}'")
            nullable = not self._skip("not", "null")
            comment = {"comment": self._take()[1:-1]} if self._skip("comment") else None
            found.append(StructField(name, kind, nullable, comment))
        return StructType(found)

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise ValueError(f"the name of a column is missing before '{token}'" if token else "a column is missing")
        return token

    def kind(self, where: str) -> Any:
        from pyspark.sql import types as T

        word = self._take()
        name = word.lower()
        if name in _SIMPLE:
            return getattr(T, _SIMPLE[name])()
        if name in _DECIMALS:
            digits = self._numbers(where) or [10]
            if len(digits) > 2 or not 0 < digits[0] <= _MOST_DIGITS or digits[-1] > digits[0]:
                raise ValueError(f"{where}: {word.upper()} can have at most {_MOST_DIGITS} digits, and a smaller scale")
            return T.DecimalType(*digits)
        if name in _LENGTHS:
            lengths = self._numbers(where)
            if len(lengths) != 1:
                raise ValueError(f"{where}: {word.upper()} needs a length, as in {word.upper()}(10)")
            return getattr(T, _LENGTHS[name])(lengths[0])
        if name in ("array", "map", "struct"):
            return self._nested(name, where)
        if not word or word == ",":
            raise ValueError(f"{where} has no type")
        near = get_close_matches(name, _NAMES, 1)
        hint = f"; did you mean {near[0].upper()}?" if near else ""
        raise ValueError(f"{where} has the unknown type '{word}'{hint}")

    def _nested(self, name: str, where: str) -> DataType:
        from pyspark.sql import types as T

        self._expect("<", where)
        made: Any
        if name == "array":
            made = T.ArrayType(self.kind(where))
        elif name == "map":
            key = self.kind(where)
            self._expect(",", where)
            made = T.MapType(key, self.kind(where))
        else:
            made = self.fields(">") if self.peek() != ">" else T.StructType()
        self._expect(">", where)
        return made

    def _numbers(self, where: str) -> list[int]:
        """`(10, 2)`, or nothing."""
        if self.peek() != "(":
            return []
        self._take()
        found: list[int] = []
        while True:
            if not self.peek().isdigit():
                raise ValueError(f"{where}: a number is missing after {self.behind()}")
            found.append(int(self._take()))
            if self.peek() != ",":
                break
            self._take()
        self._expect(")", where)
        return found
