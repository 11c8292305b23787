"""Client properties, and SCRAM as RFC 5802 and RFC 7677 show it."""

import re
from pathlib import Path

import pytest

from ottla.client.sasl import Scram
from ottla.client.security import Security
from ottla.errors import SaslAuthenticationFailed


def test_scram_of_rfc_7677() -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.final(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(SaslAuthenticationFailed, match="signature is wrong"):
        scram.check(b"v=AAAA")
    with pytest.raises(SaslAuthenticationFailed, match="invalid-proof"):
        scram.check(b"e=invalid-proof")


def test_a_foreign_nonce_is_refused() -> None:
    scram = Scram("SCRAM-SHA-512", "user", "pencil", "mine")
    with pytest.raises(SaslAuthenticationFailed, match="nonce"):
        scram.final(b"r=theirs,s=AAAA,i=4096")


def test_names_with_commas_are_escaped() -> None:
    assert Scram("SCRAM-SHA-256", "a,b=c", "p", "n").first() == b"n,,n=a=2Cb=3Dc,r=n"


def test_properties() -> None:
    assert Security.from_properties({}) == Security()
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b";'
    found = Security.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas,
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (found.tls, found.mechanism, found.username, found.password) == (True, "SCRAM-SHA-512", "me", 'a"b')
    assert (found.ca_file, found.check_hostname) == ("ca.pem", False)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type must be PEM"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "PEM"}, "put the PEM into a file"),
    ],
)
def test_properties_that_cannot_be_used(properties: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Security.from_properties(properties)


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"ssl.truststore.location": "absent"}, "ssl.truststore.location: cannot read absent: No such file"),
        ({"ssl.truststore.location": "text"}, "ssl.truststore.location: there is no PEM certificate in text"),
        ({"ssl.keystore.location": "absent"}, "ssl.keystore.location: cannot read absent: No such file"),
        ({"ssl.keystore.location": "text"}, "ssl.keystore.location: no PEM certificate with its key in text"),
        ({"ssl.keystore.location": "absent", "ssl.key.location": "key"}, "cannot read absent and key: No such file"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    properties: dict[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(ValueError, match=told):
        Security.from_properties({"security.protocol": "SSL", **properties}).ssl_context()


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 2**31])
def test_a_broker_cannot_choose_any_number_of_iterations(iterations: int) -> None:
    """With few iterations an eavesdropper can guess the password easily; many keep the client busy."""
    scram = Scram("SCRAM-SHA-256", "alice", "secret", "nonce")
    with pytest.raises(SaslAuthenticationFailed, match=f"{iterations} iterations"):
        scram.final(f"r=nonce-more,s=c2FsdA==,i={iterations}".encode())
    assert scram.final(b"r=nonce-more,s=c2FsdA==,i=4096").startswith(b"c=biws,")


def test_a_login_needs_a_mechanism() -> None:
    """Kafka's default is GSSAPI; with a default of PLAIN a password would be sent to any server."""
    with pytest.raises(ValueError, match=r"needs sasl\.mechanism"):
        Security.from_properties({"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "b"})


def test_a_store_of_java_is_refused_with_the_lines_that_convert_it() -> None:
    keytool = "keytool -importkeystore -srckeystore ca.jks -srcstoretype JKS -destkeystore ca.jks.p12"
    for kind, first in (("JKS", keytool), ("PKCS12", "openssl pkcs12 -in ca.jks -nodes -out ca.jks.pem")):
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.type": kind,
            "ssl.truststore.location": "ca.jks",
        }
        with pytest.raises(ValueError, match=f"convert it: {re.escape(first)}"):
            Security.from_properties(properties)
