"""Names of certificates as principals: the distinguished name in Java's form, and the mapping rules."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.config import ConfigError
from ottla.server.security.certificates import Attribute, dotted, subject_of

# The short names of RFC 2253, by their object identifiers; Java writes every other attribute as a number.
_SHORT = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
# How the kinds of text in a certificate are decoded; a value of another kind is written as bytes.
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
_SPECIAL = re.compile(r'([,+"\\<>;=])')


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate, given as DER, as RFC 2253 text, most specific part first, as Java writes it.

    Only the subject is read: alternative names and the rest may hold anything. Raises ValueError or IndexError for
    bytes that are not a certificate.
    """
    return ",".join("+".join(map(_attribute, part)) for part in reversed(subject_of(certificate)))


def _attribute(attribute: Attribute) -> str:
    short, encoding = _SHORT.get(attribute.name), _ENCODINGS.get(attribute.kind)
    if short is not None and encoding is not None:
        return f"{short}={_escaped(attribute.value.decode(encoding, 'replace'))}"
    return f"{short or dotted(attribute.name)}=#{attribute.encoded.hex()}"


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value).replace("\0", "\\00")
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
    """`ssl.principal.mapping.rules`: the first rule whose pattern matches the whole name determines the principal."""

    def __init__(self, rules: str) -> None:
        self._rules: list[_Rule] = []
        text = rules.strip() or "DEFAULT"
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: cannot read '{text[position:]}' "
                    "(RULE:pattern/replacement/ with L or U at the end, or DEFAULT; separated by commas)"
                )
            position = found.end()
            if found[1]:
                self._rules.append(_Rule(None, "", ""))
                continue
            try:
                pattern = re.compile(found[2])
            except re.error as error:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: '{found[2]}' is not a valid pattern: {error}"
                ) from None
            self._rules.append(_Rule(pattern, found[3], found[4]))

    def name(self, subject: str) -> str | None:
        """The name of the user, or None if no rule matches."""
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
    """Java's replacement text: $1 is a group, a backslash escapes the next character."""

    def piece(part: re.Match[str]) -> str:
        if part[1] is not None:
            return part[1]
        digits, rest = part[2], ""
        # In $12 with fewer than twelve groups, the 2 is text; a reference to a missing group is plain text.
        while len(digits) > 1 and int(digits) > len(found.groups()):
            digits, rest = digits[:-1], digits[-1] + rest
        return (found[int(digits)] or "") + rest if int(digits) <= len(found.groups()) else part[0]

    return _REFERENCE.sub(piece, replacement)
