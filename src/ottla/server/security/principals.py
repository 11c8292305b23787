"""Names of certificates as principals: the distinguished name in the form that Java writes, and the mapping rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.config import ConfigError

# The short names of RFC 2253; Java writes every other attribute as a number with its encoded value.
_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_NUMBERS = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13),
}
_SPECIAL = re.compile(r'([,+"\\<>;=])')


def distinguished_name(certificate: dict[str, Any]) -> str:
    """The subject of a certificate (as `SSLSocket.getpeercert` gives it) as RFC 2253 text, most specific part first."""
    parts: Iterable[Sequence[tuple[str, str]]] = certificate.get("subject", ())
    return ",".join("+".join(_attribute(name, value) for name, value in part) for part in reversed(list(parts)))


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        return f"{short}={_escaped(value)}"
    number, tag = _NUMBERS.get(name, (name, 0x0C))
    raw = value.encode()
    if len(raw) > 127:
        return f"{number}={_escaped(value)}"
    return f"{number}=#{bytes((tag, len(raw))).hex()}{raw.hex()}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


class PrincipalMapping:
    """`ssl.principal.mapping.rules`: the first rule whose pattern fits the whole name makes the principal."""

    def __init__(self, rules: str) -> None:
        self._rules: list[_Rule] = []
        text = rules.strip() or "DEFAULT"
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: cannot read '{text[position:]}' "
                    "(RULE:pattern/replacement/ with L or U behind, or DEFAULT; commas between)"
                )
            position = found.end()
            if found[1]:
                self._rules.append(_Rule(None, "", ""))
                continue
            try:
                pattern = re.compile(found[2])
            except re.error as error:
                raise ConfigError(f"ssl.principal.mapping.rules: '{found[2]}' is no pattern: {error}") from None
            self._rules.append(_Rule(pattern, found[3], found[4]))

    def name(self, subject: str) -> str | None:
        """The name of the user, or None if no rule fits."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            if rule.pattern.fullmatch(subject) is None:
                continue
            name = rule.pattern.sub(lambda found, rule=rule: _expanded(rule.replacement, found), subject)  # type: ignore[misc]
            return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        return None


_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


def _expanded(replacement: str, found: re.Match[str]) -> str:
    """Java's replacement text: $1 is a group, a backslash makes the next character stand for itself."""

    def piece(part: re.Match[str]) -> str:
        if part[1] is not None:
            return part[1]
        digits, rest = part[2], ""
        # Of $12 with fewer than twelve groups the 2 is text; a group that is not there at all is text as a whole.
        while len(digits) > 1 and int(digits) > len(found.groups()):
            digits, rest = digits[:-1], digits[-1] + rest
        return (found[int(digits)] or "") + rest if int(digits) <= len(found.groups()) else part[0]

    return _REFERENCE.sub(piece, replacement)
