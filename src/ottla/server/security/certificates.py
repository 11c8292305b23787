"""The names in a certificate: just enough of X.509 to see whether a new one is for the same server."""

from __future__ import annotations

import binascii
import re
import ssl
from collections.abc import Iterator
from typing import NamedTuple

from ottla.config import ConfigError

_PEM = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----", re.S
)
_SAN = bytes.fromhex("551d11")
_OBJECT_ID, _BMP_STRING, _VERSION, _EXTENSIONS = 0x06, 0x1E, 0xA0, 0xA3


class Names(NamedTuple):
    """The distinguished name, in a form that can be compared, and the alternative names."""

    subject: tuple[tuple[bytes, str], ...]
    alternatives: frozenset[bytes]


def names_of(pem: bytes) -> Names | None:
    """The names in the first certificate, which is the server's own; None if they cannot be read."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        return _names(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (ValueError, IndexError, binascii.Error):
        return None


def check_same_server(old: Names | None, new: Names | None, *, allow_dn: bool, allow_san: bool) -> None:
    """As in Kafka, a certificate that is replaced at run time may have other names only if the settings allow it."""
    if old is None or new is None:
        return
    if not allow_dn and new.subject != old.subject:
        raise ConfigError(
            "the new certificate has a different distinguished name than the old one (ssl.allow.dn.changes=true "
            "allows it)"
        )
    if not allow_san and not new.alternatives >= old.alternatives:
        raise ConfigError(
            "the new certificate lacks alternative names of the old one (ssl.allow.san.changes=true allows it)"
        )


class Attribute(NamedTuple):
    """One encoded attribute of a distinguished name."""

    name: bytes
    """The content of its object identifier."""
    kind: int
    """The tag of its value, such as that of a UTF8String."""
    value: bytes
    encoded: bytes
    """The value with its tag and length."""


def subject_of(certificate: bytes) -> list[list[Attribute]]:
    """The distinguished name in a certificate given as DER: its parts, in the order of the certificate."""
    return _attributes(_fields(certificate)[4][1])


def dotted(object_id: bytes) -> str:
    """An object identifier as text: 2.5.4.3."""
    numbers, value = [], 0
    for byte in object_id:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _fields(certificate: bytes) -> list[tuple[int, bytes]]:
    """The signed fields: serial number, algorithm, issuer, validity, subject, and more."""
    ((_, content),) = _parts(certificate)
    signed = _first(content)
    return [part for part in _parts(signed) if part[0] != _VERSION]


def _attributes(name: bytes) -> list[list[Attribute]]:
    return [[_attribute(pair) for _, pair in _parts(relative)] for _, relative in _parts(name)]


def _attribute(pair: bytes) -> Attribute:
    (_, name), (kind, value) = _parts(pair)
    return Attribute(name, kind, value, pair[2 + len(name) :])


def _names(certificate: bytes) -> Names:
    fields = _fields(certificate)
    pairs = []
    for attributes in _attributes(fields[4][1]):
        for name, kind, value, _ in attributes:
            text = value.decode("utf-16-be" if kind == _BMP_STRING else "utf-8", "replace")
            pairs.append((name, " ".join(text.split()).casefold()))
    alternatives: frozenset[bytes] = frozenset()
    for tag, extensions in fields:
        if tag != _EXTENSIONS:
            continue
        for _, extension in _parts(_first(extensions)):
            parts = list(_parts(extension))
            if parts[0] == (_OBJECT_ID, _SAN):
                listed = _first(parts[-1][1])
                alternatives = frozenset(bytes([kind]) + value for kind, value in _parts(listed))
    return Names(tuple(pairs), alternatives)


def _first(data: bytes) -> bytes:
    """The content of the first element. ValueError if there is none."""
    for _, content in _parts(data):
        return content
    raise ValueError("no element")


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each element of DER."""
    position = 0
    while position < len(data):
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + size > len(data):
            raise ValueError("longer than the data")
        yield tag, data[position : position + size]
        position += size
