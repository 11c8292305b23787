"""Java's .properties syntax."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config import ConfigError
from ottla.config.properties import parse_properties, read_properties


def values(text: str) -> dict[str, str]:
    return {key: value for key, (value, _line) in parse_properties(text).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\n", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("# a=b\n! c=d\n\n e=f", {"e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x,\\\n   y", {"a": "x,y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a=x\\", {"a": "x"}),
        ("\\\n# still a comment\n\\\n", {}),
        ("a\\ b=c\\=d", {"a b": "c=d"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b # no comment", {"a": "b # no comment"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_line_numbers_are_where_an_entry_starts() -> None:
    assert parse_properties("#\na=1,\\\n2\n\nb=3") == {"a": ("1,2", 2), "b": ("3", 5)}


def test_bad_escape_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: \\u needs four hexadecimal digits"):
        parse_properties("a=1\nb=\\u12")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "a.properties"
    file.write_bytes("a=é".encode("latin-1"))
    assert read_properties(str(file)) == {"a": ("é", 1)}
    file.write_bytes("\ufeffa=é".encode())
    assert read_properties(str(file)) == {"a": ("é", 1)}
    with pytest.raises(ConfigError, match=r"cannot read .*none: No such file or directory"):
        read_properties(str(tmp_path / "none"))
    file.write_text("a=\\uzzzz")
    with pytest.raises(ConfigError, match=r"a\.properties: line 1"):
        read_properties(str(file))
