"""TLS: the settings of a listener as an OpenSSL context, and a connection that speaks through it.

A connection keeps driving its socket itself; TLS happens between two memory buffers, so that frames, back-pressure and
long polls stay what they are. File bytes cannot go past user space here: they are read and encrypted in chunks.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ottla.config import Config, ConfigError
from ottla.log.files import FileRegion
from ottla.server.net.connection import Connection
from ottla.server.security.certificates import Names, check_same_server, names_of
from ottla.server.security.principals import PrincipalMapping, distinguished_name
from ottla.server.security.sasl import SaslMixin
from ottla.server.security.stores import KeyStore, key_store, key_store_context, trust_store

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_TLS13_SUITES = ("TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256")
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

_CHUNK_BYTES = 256 << 10
"""File bytes encrypted at a time: many TLS records (16 KB each) in one system call, and little memory a connection."""

CIPHER_BYTES = 256 << 10
"""Bytes received at a time; one buffer serves all connections."""


class TlsListener:
    """The TLS settings of one listener; `reload` puts a changed certificate in force for new connections."""

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
        """Take over settings; whether they were other ones. On an error the old ones stay."""
        settings = self._settings_of(config)
        if settings == self._settings:
            return False
        self._apply(settings)
        return True

    def check(self, config: Config) -> None:
        """Whether `configure` would work; raises ConfigError if not."""
        self._prepare(self._settings_of(config))

    def _settings_of(self, config: Config) -> dict[str, Any]:
        settings = {name: config.for_listener(self.name, name) for name in _SETTINGS}
        if self._sasl and f"listener.name.{self.name.lower()}.ssl.client.auth" not in config:
            # Kafka takes certificates beside SASL only where the listener itself says so (KIP-684).
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
        """Look at the files of the stores, and load them anew if they changed; an error leaves the old ones."""
        files = _fingerprints(self._settings)
        if files == self._files:
            return False
        self._files = files  # files that are of no use are looked at again when they change again
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
        raise ConfigError(f"ssl.enabled.protocols: {unknown[0]} is not known (choose from {', '.join(_VERSIONS)})")
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


class TlsConnection(Connection):
    """A connection inside TLS. The item at the head of the queue stays there until its last encrypted byte is taken."""

    __slots__ = ("_cipher", "_incoming", "_is_open", "_outgoing", "_tls", "_tls_listener")

    def begin_tls(self, listener: TlsListener) -> None:
        self._tls_listener = listener
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._cipher: memoryview | None = None
        self._is_open = False

    # -- reading -------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._pending is not None or self._out:
            self._readable_while_busy()
            return
        buffer = self.broker.security.cipher_buffer
        try:
            received = self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error), logging.DEBUG)
            return
        if received == 0:
            self.close()
            return
        self.last_active_ms = self.broker.clock.monotonic_ms()
        self._incoming.write(buffer[:received])
        self._decrypt()
        if not self._out:
            self._keep_watching()

    def _decrypt(self) -> None:
        """Serve what has arrived, as long as nothing holds the connection up."""
        if not self._is_open and not self._shake_hands():
            return
        while not (self._pending is not None or self._out or self._closed or self._closing):
            partial = self._partial
            target = self.broker.buffers.shared if partial is None else partial[self._have : self._need]
            filled = self._fill(target)
            if filled == 0:
                break
            if partial is None:
                self._consume(target, 0, filled)
            else:
                self._consume_partial(partial, filled)
            if self._out and not self._closed:
                self._flush()
        if not self._closed and self._outgoing.pending and not self._out:
            self._flush()  # TLS itself had something to say

    def _fill(self, target: memoryview) -> int:
        filled, size = 0, len(target)
        try:
            while filled < size:
                count: Any = self._tls.read(size - filled, target[filled:])  # a count, as it was given a buffer
                if not count:
                    if filled == 0:
                        self._say_goodbye()
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if filled == 0:
                self.close(f"TLS: {error.reason}")
                return 0
        return filled

    def _say_goodbye(self) -> None:
        """The peer ended the session: so do we."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()
        self.close()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            if not self._closed:
                self.log_refusal("TLS handshake with %s failed: %s", self.peer, error.reason or error)
                self.mute(self.broker.config["connection.failed.authentication.delay.ms"], self.close)
            return False
        self._is_open = True
        certificate = self._tls.getpeercert()
        if certificate and self.listener.security_protocol == "SSL":
            name = self._tls_listener.mapping.name(distinguished_name(certificate))
            if name is None:
                self.close("no rule of ssl.principal.mapping.rules fits the certificate")
                return False
            self.principal = f"User:{name}"
        self._flush()
        return not self._closed

    def _go_on(self) -> None:
        super()._go_on()
        # What was decrypted or received already makes no socket readable.
        if not self._closed and (self._incoming.pending or self._tls.pending()):
            self._decrypt()

    # -- writing -------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        out = self._out
        try:
            while self._push() and out:
                self._encrypt_head()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, ssl.SSLError) as error:
            self.close(str(error), logging.DEBUG)
            return
        if self._closed:
            return
        if self._cipher is not None and not out:
            out.append(b"")  # keeps the connection busy until the handshake's bytes are taken
        if out:
            if not self._writing and self._pin_regions():
                self._writing = True
                self._loop.add_writer(self._fd, self._on_writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _push(self) -> bool:
        """Hand encrypted bytes to the socket; False if it did not take all."""
        cipher = self._cipher
        while True:
            if cipher is None:
                if not self._outgoing.pending:
                    break
                cipher = memoryview(self._outgoing.read())
            self._cipher = cipher
            sent = self._sock.send(cipher)
            if sent < len(cipher):
                self._cipher = cipher[sent:]
                return False
            self._cipher = cipher = None
        out = self._out
        if out and len(out[0]) == 0:
            item = out.popleft()
            if item.__class__ is FileRegion:
                item.release()
        return True

    def _encrypt_head(self) -> None:
        """Encrypt the next piece of the queue; small answers that wait behind each other go together."""
        out = self._out
        head = out[0]
        if head.__class__ is FileRegion:
            fd = head.fileno()
            if fd is None:
                out.popleft()
                out.extendleft(reversed(head.parts()))
                return
            chunk = os.pread(fd, min(len(head), _CHUNK_BYTES), head.position)
            if not chunk:
                raise OSError("log file shorter than the answer that was begun")
            self._tls.write(chunk)
            head.skip(len(chunk))
            return
        size = 0
        while out and out[0].__class__ is not FileRegion and size < _CHUNK_BYTES:
            piece = memoryview(out[0])[:_CHUNK_BYTES]
            if len(piece):
                self._tls.write(piece)
            size += len(piece)
            if len(piece) < len(out[0]):
                out[0] = memoryview(out[0])[len(piece) :]
                return
            out.popleft()
        out.appendleft(b"")


class SaslTlsConnection(SaslMixin, TlsConnection):
    """SASL_SSL."""

    __slots__ = ("_sasl",)
