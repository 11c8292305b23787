"""TLS on a listener: its settings as an OpenSSL context, and the names in client certificates.

How bytes travel inside TLS is in `tls_transport.py`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.config import Config, ConfigError
from ottla.server.net.transport import TransportError
from ottla.server.security.certificates import Names, check_same_server, names_of
from ottla.server.security.principals import PrincipalMapping, distinguished_name
from ottla.server.security.stores import KeyStore, key_store, key_store_context, trust_store

if TYPE_CHECKING:
    from ottla.server.net.connection import Connection

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_TLS13_SUITES = ("TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256")
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsListener:
    """The TLS settings of one listener; `reload` applies a changed certificate to new connections."""

    def __init__(self, config: Config, listener: str, *, sasl: bool) -> None:
        self.name = listener
        self._sasl = sasl
        self._files: dict[str, tuple[int, int, int]] = {}
        self._names: Names | None = None
        self.context: ssl.SSLContext
        self.mapping: PrincipalMapping
        self._settings: dict[str, Any] = {}
        self.configure(config)

    def configure(self, config: Config) -> bool:
        """Apply settings; returns whether they changed. After an error the old ones stay."""
        settings = self._settings_of(config)
        if settings == self._settings:
            return False
        self._apply(settings)
        return True

    def check(self, config: Config) -> None:
        """Check that `configure` would work; raises ConfigError if not."""
        self._prepare(self._settings_of(config))

    def _settings_of(self, config: Config) -> dict[str, Any]:
        settings = {name: config.for_listener(self.name, name) for name in _SETTINGS}
        if self._sasl and f"listener.name.{self.name.lower()}.ssl.client.auth" not in config:
            # With SASL, Kafka uses certificates only if the listener's own settings say so (KIP-684).
            settings["ssl.client.auth"] = "none"
        return settings

    def _prepare(self, settings: dict[str, Any]) -> tuple[ssl.SSLContext, PrincipalMapping, Names | None]:
        mapping = PrincipalMapping(settings["ssl.principal.mapping.rules"])
        store = key_store(settings.get)
        context, names = _context(settings, store), names_of(store.pem)
        check_same_server(
            self._names,
            names,
            allow_dn=settings["ssl.allow.dn.changes"],
            allow_san=settings["ssl.allow.san.changes"],
        )
        return context, mapping, names

    def _apply(self, settings: dict[str, Any]) -> None:
        files = _fingerprints(settings)
        self.context, self.mapping, self._names = self._prepare(settings)
        self._settings, self._files = settings, files

    def reload_changed_files(self) -> bool:
        """Reload the files of the stores if they changed; after an error the old ones stay."""
        files = _fingerprints(self._settings)
        if files == self._files:
            return False
        self._files = files  # unusable files are read again when they change again
        self._apply(self._settings)
        return True


_SETTINGS = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.principal.mapping.rules",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
)


def _fingerprints(settings: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    found = {}
    for key in ("ssl.keystore.location", "ssl.truststore.location"):
        location = settings[key]
        if location:
            with suppress(OSError):
                status = os.stat(location)
                found[location] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def _context(settings: dict[str, Any], store: KeyStore) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_versions(context, settings["ssl.enabled.protocols"], settings["ssl.cipher.suites"])
    key_store_context(context, store)
    context.verify_mode = _CLIENT_AUTH[settings["ssl.client.auth"]]
    if context.verify_mode is not ssl.CERT_NONE:
        trusted = trust_store(settings.get)
        if trusted is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            try:
                context.load_verify_locations(cadata=trusted)
            except (ssl.SSLError, ValueError):
                raise ConfigError("there is no certificate that can be read in ssl.truststore.*") from None
    return context


def _set_versions(context: ssl.SSLContext, protocols: Iterable[str], suites: Iterable[str]) -> None:
    unknown = [name for name in protocols if name not in _VERSIONS]
    if unknown:
        raise ConfigError(f"ssl.enabled.protocols: {unknown[0]} is unknown (choose from {', '.join(_VERSIONS)})")
    versions = sorted(_VERSIONS[name] for name in protocols)
    if not versions:
        raise ConfigError("ssl.enabled.protocols is empty")
    low, high = versions[0], versions[-1]
    older = [openssl_name(name) for name in suites if not name.startswith(_TLS13_SUITES)]
    newer = [name for name in suites if name.startswith(_TLS13_SUITES)]
    if older and not newer:
        high = min(high, ssl.TLSVersion.TLSv1_2)
    if newer and not older:
        low = ssl.TLSVersion.TLSv1_3
    if low > high:
        raise ConfigError("ssl.cipher.suites and ssl.enabled.protocols have no version of TLS in common")
    context.minimum_version, context.maximum_version = low, high
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(older)}") from None


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 as OpenSSL calls it, ECDHE-RSA-AES256-GCM-SHA384."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.removesuffix("_SHA256") if "CHACHA20" in cipher else cipher
    name = cipher.replace("_", "-")
    return name if exchange == "RSA" else f"{exchange.replace('_', '-')}-{name}"


class ClientCertificate:
    """The authentication of an SSL listener: the principal is the name in the client's certificate, if it has one."""

    __slots__ = ("_connection", "_mapping")

    def __init__(self, connection: Connection, mapping: PrincipalMapping) -> None:
        self._connection = connection
        self._mapping = mapping

    def opened(self, certificate: bytes | None) -> None:
        """The TLS handshake is done. Raises if the certificate, given as DER, has no usable name."""
        if certificate is None:
            return
        try:
            subject = distinguished_name(certificate)
        except (ValueError, IndexError):
            raise TransportError("the subject of the client's certificate cannot be read") from None
        name = self._mapping.name(subject)
        if name is None:
            raise TransportError("no rule of ssl.principal.mapping.rules matches the certificate")
        self._connection.authenticated(f"User:{name}")
