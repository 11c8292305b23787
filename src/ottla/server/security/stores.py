"""Key stores and trust stores: PEM and PKCS12, from files or from the configuration itself, as PEM text for OpenSSL."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import ConfigError
from ottla.lazy_imports import lazy
from ottla.server.security.jwt import need_package

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    pkcs12 = lazy("cryptography.hazmat.primitives.serialization.pkcs12")

_JKS_MAGIC = bytes.fromhex("feedfeed")
_BEGIN = "-----BEGIN "

Setting = Callable[[str], str | None]
"""The value of an `ssl.` key for the current listener."""


class KeyStore(NamedTuple):
    """The chain of certificates and the private key, and the password of the key, if it has one."""

    pem: bytes
    password: str | None


def key_store(setting: Setting) -> KeyStore:
    """The key store of `ssl.keystore.*`."""
    kind = (setting("ssl.keystore.type") or "JKS").upper()
    location, key = setting("ssl.keystore.location"), setting("ssl.keystore.key")
    chain = setting("ssl.keystore.certificate.chain")
    if key or chain:
        if kind != "PEM" or location:
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain need ssl.keystore.type=PEM and no "
                "ssl.keystore.location"
            )
        if not key or not chain:
            raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
        return KeyStore(f"{_lines(key)}\n{_lines(chain)}\n".encode(), setting("ssl.key.password"))
    if not location:
        raise ConfigError("ssl.keystore.location is missing: a listener with TLS needs a certificate and its key")
    content = _read(location, "ssl.keystore.location")
    if kind == "PEM":
        if _BEGIN.encode() not in content:
            raise ConfigError(f"ssl.keystore.location: there is no PEM in {location}")
        return KeyStore(content, setting("ssl.key.password"))
    _refuse_jks(content, kind, location, "ssl.keystore")
    password = setting("ssl.keystore.password")
    return KeyStore(_pem_of_pkcs12(content, password, location, "ssl.keystore"), None)


def key_store_context(context: ssl.SSLContext, store: KeyStore) -> None:
    """Put a key and its certificates into a context."""
    with _as_file(store.pem) as path:
        try:
            context.load_cert_chain(path, password=lambda: store.password or "")
        except ssl.SSLError as error:
            why = _lacking(store.pem) or error.reason or "they cannot be read"
            raise ConfigError(f"the certificate and the key of ssl.keystore.* cannot be used: {why}") from None
        except OSError as error:
            raise ConfigError(f"the certificate and the key of ssl.keystore.* cannot be used: {error}") from None


def _lacking(pem: bytes) -> str | None:
    """What is missing in a PEM file; OpenSSL does not report it."""
    if b"PRIVATE KEY-----" not in pem:
        return "there is no private key"
    return None if b"BEGIN CERTIFICATE-----" in pem else "there is no certificate"


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Python's OpenSSL binding reads keys from files only: use a file in memory if possible, otherwise a private
    one.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ottla-key")
        path = f"/proc/self/fd/{fd}"
    else:
        fd, path = tempfile.mkstemp()
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        yield path
    finally:
        os.close(fd)
        if not path.startswith("/proc/"):
            os.unlink(path)


def trust_store(setting: Setting) -> str | None:
    """The trust store of `ssl.truststore.*` as PEM; None if nothing is set."""
    kind = (setting("ssl.truststore.type") or "JKS").upper()
    location, inline = setting("ssl.truststore.location"), setting("ssl.truststore.certificates")
    if inline:
        if kind != "PEM" or location:
            raise ConfigError(
                "ssl.truststore.certificates needs ssl.truststore.type=PEM and no ssl.truststore.location"
            )
        return _lines(inline)
    if not location:
        return None
    content = _read(location, "ssl.truststore.location")
    if kind == "PEM":
        return content.decode("ascii", "replace")
    _refuse_jks(content, kind, location, "ssl.truststore")
    pem = _pem_of_pkcs12(content, setting("ssl.truststore.password"), location, "ssl.truststore", trust=True)
    return pem.decode()


def _lines(pem: str) -> str:
    """PEM in a properties file may be on one line, with spaces instead of line ends."""

    def block(found: re.Match[str]) -> str:
        body = "".join(found[2].split())
        rows = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {found[1]}-----", *rows, f"-----END {found[1]}-----"]) + "\n"

    return re.sub(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----", block, pem)


def _read(location: str, key: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {location}: {error.strerror}") from None


def _refuse_jks(content: bytes, kind: str, location: str, key: str) -> None:
    if content.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{key}.location: {location} is a JKS store, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12, and set {key}.type=PKCS12"
        )
    # Java also reads PKCS12 as type JKS, which is the default of the key.
    if kind not in ("PKCS12", "JKS"):
        raise ConfigError(f"{key}.type: {kind} is not supported; use PEM or PKCS12")


def _pem_of_pkcs12(content: bytes, password: str | None, location: str, key: str, *, trust: bool = False) -> bytes:
    need_package(f"{key}.type=PKCS12", "cryptography")
    try:
        store = pkcs12.load_pkcs12(content, password.encode() if password is not None else None)
    except ValueError:
        raise ConfigError(f"{key}.location: {location} is not a PKCS12 store, or {key}.password is wrong") from None
    parts: list[bytes] = []
    if not trust:
        if store.key is None or store.cert is None:
            raise ConfigError(f"{key}.location: {location} holds no private key with a certificate")
        parts.append(
            store.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    certificates = ([store.cert] if store.cert is not None else []) + store.additional_certs
    parts += [entry.certificate.public_bytes(serialization.Encoding.PEM) for entry in certificates]
    if not parts:
        raise ConfigError(f"{key}.location: there is no certificate in {location}")
    return b"".join(parts)
