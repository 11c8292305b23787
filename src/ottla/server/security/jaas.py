"""JAAS lines, in the form that a broker needs: `some.LoginModule required key="value" other=value;`"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.config import ConfigError

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:\\.|[^"\\])*")|(?P<single>'(?:\\.|[^'\\])*')|(?P<mark>[=;])|(?P<word>[^\s=;"']+))"""
)


class LoginModule(NamedTuple):
    """One entry: the class (only its last part counts) and its options."""

    name: str
    options: dict[str, str]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


def parse_jaas(text: str, key: str) -> LoginModule:
    """The one entry of a `sasl.jaas.config`. Errors never show the line: it holds passwords."""

    def wrong(what: str) -> ConfigError:
        return ConfigError(f'{key}: {what} (the form is: LoginModule required name="value" …;)')

    tokens = list(_tokens(text, wrong))
    if not tokens or tokens[-1] != ("mark", ";"):
        raise wrong("a JAAS line ends with a semicolon")
    tokens.pop()
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise wrong("the name of a login module and one of required, requisite, sufficient, optional come first")
    options: dict[str, str] = {}
    rest = tokens[2:]
    if len(rest) % 3:
        raise wrong("an option is name=value")
    for position in range(0, len(rest), 3):
        (kind, name), equals, (_, value) = rest[position : position + 3]
        if kind == "mark" or equals != ("mark", "="):
            raise wrong("an option is name=value")
        options[name] = value
    return LoginModule(tokens[0][1], options)


def _tokens(text: str, wrong: object) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    text = text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            tokens.append(("word", ""))
            break
        position = found.end()
        kind = found.lastgroup or ""
        value = found[kind]
        if kind in ("quoted", "single"):
            kind, value = "text", re.sub(r"\\(.)", r"\1", value[1:-1])
        tokens.append((kind, value))
    return tokens
