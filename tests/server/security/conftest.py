"""Settings of secured listeners, and certificates made on the spot."""

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" '
    'user_alice="alice-secret" user_bob="bob-secret";'
)


@pytest.fixture
def sasl_settings() -> Callable[..., dict[str, object]]:
    """A SASL_PLAINTEXT listener with the users admin, alice and bob, and additional settings."""

    def settings(mechanisms: str = "PLAIN", **more: object) -> dict[str, object]:
        return {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": mechanisms,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
            "connection.failed.authentication.delay.ms": 0,
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    return settings


@pytest.fixture
def acl_settings(sasl_settings: Callable[..., dict[str, object]]) -> dict[str, object]:
    return {**sasl_settings(), "authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}


class Certificates:
    """An authority, its server's key store, and clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.trust = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.trust))
        self.server = folder / "server.pem"
        self.issue_server()

    def issue_server(self, common_name: str = "localhost", *names: str) -> None:
        leaf = self.authority.issue_cert(
            *(names or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_name="Ottla",
            organization_unit_name="test",
        )
        self.server.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())

    def client(self, name: str, authority: trustme.CA | None = None) -> trustme.LeafCert:
        return (authority or self.authority).issue_cert(
            f"{name}@example.org", common_name=name, organization_name="Ottla", organization_unit_name="test"
        )

    def signed(
        self, subject: x509.Name, *extensions: x509.ExtensionType
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """A client's certificate with any content, and its key."""
        issuer = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        issuer_key: Any = load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(issuer_key, hashes.SHA256()), key

    def context_of(self, subject: x509.Name, *extensions: x509.ExtensionType) -> ssl.SSLContext:
        """A client that shows a certificate with any content."""
        certificate, key = self.signed(subject, *extensions)
        path = self.folder / "client.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
        context = self.context()
        context.load_cert_chain(path)
        return context

    def context(self, identity: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.trust))
        if identity is not None:
            identity.configure_cert(context)
        return context

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "connection.failed.authentication.delay.ms": 0,
            **{key.replace("__", "."): value for key, value in more.items()},
        }


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)
