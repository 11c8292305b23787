"""Certificates for a broker in tests: a certificate authority, and a certificate for the broker's host names."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
else:
    ec = lazy("cryptography.hazmat.primitives.asymmetric.ec")
    hashes = lazy("cryptography.hazmat.primitives.hashes")
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    x509 = lazy("cryptography.x509")

CA_FILE: Final = "ca.pem"
SERVER_FILE: Final = "server.pem"
_VALID: Final = datetime.timedelta(days=3650)


def make_certificates(folder: Path, hosts: Iterable[str]) -> None:
    """Write `ca.pem` for clients and `server.pem`, key and chain, for the broker, unless they exist."""
    if (folder / CA_FILE).exists() and (folder / SERVER_FILE).exists():
        return
    try:
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    except ImportError:
        raise RuntimeError("tls=True makes certificates with cryptography: pip install 'ottla[security]'") from None
    issuer = _name("Ottla test authority")
    authority = _builder(issuer, issuer, authority_key).add_extension(x509.BasicConstraints(True, 0), critical=True)
    authority = authority.add_extension(_key_usage(signs=True), critical=True)
    own = _builder(_name("ottla"), issuer, key).add_extension(_alternatives(hosts), critical=False)
    own = own.add_extension(x509.BasicConstraints(False, None), critical=True)
    own = own.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_pem = _pem(authority.sign(authority_key, hashes.SHA256()))
    (folder / CA_FILE).write_bytes(authority_pem)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / SERVER_FILE, key_pem + _pem(own.sign(authority_key, hashes.SHA256())) + authority_pem)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can ever read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _name(common_name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _builder(subject: Any, issuer: Any, key: Any) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + _VALID)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _key_usage(*, signs: bool) -> Any:
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{name: signs and name in ("key_cert_sign", "crl_sign") for name in names})


def _alternatives(hosts: Iterable[str]) -> Any:
    names: list[Any] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _pem(certificate: Any) -> bytes:
    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem
