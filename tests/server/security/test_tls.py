"""TLS listeners: records, client certificates, principals, reloading, and settings that cannot work."""

import asyncio
import re
import ssl
from contextlib import suppress
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import ExtensionOID, NameOID

from ottla.config import ConfigError
from ottla.enums import AlterConfigOp, ConfigResourceType
from ottla.errors import InvalidRequest, TopicAuthorizationFailed
from ottla.log.files import PosixDisk
from ottla.server.security.authorizer import STANDARD_AUTHORIZER
from ottla.server.security.certificates import names_of
from ottla.server.security.principals import PrincipalMapping, distinguished_name
from ottla.server.security.stores import trust_store
from ottla.server.security.tls import openssl_name
from ottla.wire.messages.configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.metadata import ApiVersionsRequest
from support.async_wire import AsyncWire
from support.requests import create_topic_request


def test_records_of_every_size_go_through(run: Any, run_broker: Any, certificates: Any, tmp_path: Any) -> None:
    async def main() -> None:
        disk = PosixDisk(str(tmp_path / "data"))
        async with run_broker(disk=disk, settings=certificates.settings()) as running:
            client = await running.connect(context=certificates.context())
            await client.create_topic("t")
            values = [bytes([n]) * size for n, size in enumerate((1, 100, 16_384, 70_000, 900_000))]
            for value in values:
                assert (await client.produce("t", value)).error_code == 0
            for offset, value in enumerate(values):
                response = await client.fetch("t", offset)
                records = bytes(response.responses[0].partitions[0].records)
                assert value in records

    run(main())


def test_many_requests_at_once_are_answered_in_order(run: Any, run_broker: Any, certificates: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=certificates.settings()) as running:
            client = await running.connect(context=certificates.context())
            for _ in range(500):
                client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
            for _ in range(500):
                assert (await client.receive()).error_code == 0

    run(main())


def test_a_slow_reader_gets_everything(run: Any, run_broker: Any, certificates: Any, tmp_path: Any) -> None:
    """The answer is larger than the socket buffers, and the peer reads it in small pieces."""

    async def main() -> None:
        disk = PosixDisk(str(tmp_path / "data"))
        async with run_broker(disk=disk, settings=certificates.settings()) as running:
            client = await running.connect(context=certificates.context())
            await client.create_topic("t")
            for n in range(12):
                assert (await client.produce("t", bytes([n]) * 900_000)).error_code == 0
            client.reader._limit = 4096  # type: ignore[attr-defined]
            for _ in range(3):
                response = await client.fetch("t", 0, 50 << 20)
                assert len(response.responses[0].partitions[0].records) > 12 * 900_000

    run(main())


def test_plain_text_is_refused_on_a_tls_listener(run: Any, run_broker: Any, certificates: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=certificates.settings()) as running:
            client = await running.connect()
            client.send(ApiVersionsRequest(), 0)
            assert b"\x00\x00\x00" not in await client.reader.read(100)  # an alert at most
            assert await client.is_closed()

    run(main())


@pytest.mark.parametrize("how", ["none", "requested", "required"])
def test_client_certificates_are_used_as_configured(run: Any, run_broker: Any, certificates: Any, how: str) -> None:
    async def main() -> None:
        settings = certificates.settings(ssl__client__auth=how)
        async with run_broker(settings=settings) as running:
            known = await running.connect(context=certificates.context(certificates.client("alice")))
            assert (await known.call(ApiVersionsRequest(), 0)).error_code == 0
            (connection,) = running.broker.connections
            expected = "User:ANONYMOUS" if how == "none" else "User:CN=alice,OU=test,O=Ottla"
            assert connection.principal == expected
            nameless = await running.connect(context=certificates.context())
            if how == "required":
                assert await nameless.is_closed()
            else:
                assert (await nameless.call(ApiVersionsRequest(), 0)).error_code == 0
            if how != "none":
                stranger = certificates.client("alice", trustme.CA())
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    client = await running.connect(context=certificates.context(stranger))
                    await client.call(ApiVersionsRequest(), 0)

    run(main())


def test_a_rule_makes_the_principal(run: Any, run_broker: Any, certificates: Any) -> None:
    async def main() -> None:
        settings = certificates.settings(
            ssl__client__auth="required", ssl__principal__mapping__rules="RULE:^CN=([a-z]+),OU=test.*$/$1/U,DEFAULT"
        )
        async with run_broker(settings=settings) as running:
            client = await running.connect(context=certificates.context(certificates.client("alice")))
            await client.call(ApiVersionsRequest(), 0)
            (connection,) = running.broker.connections
            assert connection.principal == "User:ALICE"

    run(main())


def test_a_new_certificate_applies_to_new_connections(run: Any, run_broker: Any, certificates: Any) -> None:
    async def main() -> None:
        async with run_broker(settings=certificates.settings(ssl__allow__dn__changes="true")) as running:
            old = await running.connect(context=certificates.context())
            certificates.issue_server("another name")
            tls = running.broker.security._tls["SSL"]
            assert tls.reload_changed_files()
            assert not tls.reload_changed_files()
            new = await running.connect(context=certificates.context())
            subject = new.writer.get_extra_info("peercert")["subject"]
            assert (("commonName", "another name"),) in subject
            assert (await old.call(ApiVersionsRequest(), 0)).error_code == 0
            certificates.server.write_text("garbage")
            with pytest.raises(ConfigError):
                tls.reload_changed_files()
            again = await running.connect(context=certificates.context())
            assert (await again.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main())


@pytest.mark.parametrize(
    ("allowed", "names", "refusal"),
    [
        ((), ("localhost", "localhost", "127.0.0.1"), None),
        ((), ("localhost", "localhost", "127.0.0.1", "more.example.org"), None),
        ((), ("LocalHost", "localhost", "127.0.0.1"), None),
        ((), ("other", "localhost", "127.0.0.1"), "distinguished name"),
        ((), ("localhost", "localhost"), "alternative names"),
        (("san",), ("other", "localhost", "127.0.0.1"), "distinguished name"),
        (("dn",), ("localhost", "localhost"), "alternative names"),
        (("dn", "san"), ("other", "localhost"), None),
    ],
    ids=str,
)
def test_a_new_certificate_needs_the_same_names_unless_allowed(
    run: Any, run_broker: Any, certificates: Any, allowed: tuple[str, ...], names: tuple[str, ...], refusal: str | None
) -> None:
    more = {f"ssl__allow__{kind}__changes": "true" for kind in allowed}

    async def main() -> None:
        async with run_broker(settings=certificates.settings(**more)) as running:
            before = await running.connect(context=certificates.context())
            certificates.issue_server(*names)
            tls = running.broker.security._tls["SSL"]
            if refusal is None:
                assert tls.reload_changed_files()
            else:
                with pytest.raises(ConfigError, match=refusal):
                    tls.reload_changed_files()
                assert not tls.reload_changed_files()  # logged once
            after = await running.connect(context=certificates.context())
            serials = [one.writer.get_extra_info("peercert")["serialNumber"] for one in (before, after)]
            assert (serials[0] == serials[1]) is (refusal is not None)

    run(main())


def test_certificates_that_cannot_be_read_have_no_names(certificates: Any) -> None:
    pem = certificates.server.read_bytes()
    names = names_of(pem)
    assert names is not None
    assert [text for _, text in names.subject] == ["ottla", "test", "localhost"]
    assert names.alternatives == {b"\x82localhost", b"\x87\x7f\0\0\x01"}
    assert names_of(b"") is None
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(b"-----BEGIN CERT") : pem.index(b"-----END CERT") + 25].decode())
    for cut in range(0, len(der), 7):
        names_of(ssl.DER_cert_to_PEM_cert(der[:cut]).encode())  # any result is fine, but it must not fail


def _pkcs12(pem: bytes, password: bytes) -> bytes:
    key = load_pem_private_key(pem, None)
    certificate = load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :])
    made: bytes = pkcs12.serialize_key_and_certificates(b"s", key, certificate, None, BestAvailableEncryption(password))  # type: ignore[arg-type]
    return made


def test_pkcs12_and_inline_pem_stores_work(run: Any, run_broker: Any, certificates: Any) -> None:
    pem = certificates.server.read_bytes()
    store = certificates.folder / "server.p12"
    store.write_bytes(_pkcs12(pem, b"store-secret"))
    key, _, chain = pem.decode().partition("-----BEGIN CERTIFICATE")
    encrypted = load_pem_private_key(key.encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"key-secret")
    )
    locked = certificates.folder / "locked.pem"
    locked.write_bytes(encrypted + b"-----BEGIN CERTIFICATE" + chain.encode())
    inline = {
        "ssl.keystore.location": "",
        "ssl.keystore.key": " ".join(key.split("\n")),
        "ssl.keystore.certificate.chain": " ".join(("-----BEGIN CERTIFICATE" + chain).split("\n")),
    }
    from_store = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "store-secret",
    }

    async def main(more: dict[str, object]) -> None:
        async with run_broker(settings={**certificates.settings(), **more}) as running:
            client = await running.connect(context=certificates.context())
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0

    run(main(from_store))
    run(main({**from_store, "ssl.keystore.type": "JKS"}))  # Java reads PKCS12 under this name too
    run(main(inline))
    run(main({"ssl.keystore.location": str(locked), "ssl.key.password": "key-secret"}))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ssl.keystore.location": "/nowhere/at/all.pem"}, "ssl.keystore.location: cannot read"),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.type": "BKS"}, "BKS is not supported"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.key"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols: SSLv3"),
        ({"ssl.cipher.suites": "TLS_NULL_WITH_NOTHING"}, "ssl.cipher.suites"),
        ({"ssl.principal.mapping.rules": "NONSENSE"}, "ssl.principal.mapping.rules"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    run: Any, run_broker: Any, certificates: Any, more: dict[str, object], words: str
) -> None:
    async def main() -> None:
        async with run_broker(settings={**certificates.settings(), **more}):
            pytest.fail("it started")

    with pytest.raises(ConfigError, match=words):
        run(main())


@pytest.mark.parametrize(("left", "told"), [("CERTIFICATE", "no private key"), ("PRIVATE KEY", "no certificate")])
def test_a_key_store_error_says_what_is_missing(
    run: Any, run_broker: Any, certificates: Any, left: str, told: str
) -> None:
    blocks = re.findall(
        rf"-----BEGIN [A-Z ]*{left}-----.*?-----END [A-Z ]*{left}-----\n", certificates.server.read_text(), re.S
    )
    certificates.server.write_text("".join(blocks))

    async def main() -> None:
        async with run_broker(settings=certificates.settings()):
            pytest.fail("it started")

    with pytest.raises(ConfigError, match=f"cannot be used: there is {told}"):
        run(main())


def test_a_jks_store_is_named_with_its_conversion(run: Any, run_broker: Any, certificates: Any) -> None:
    store = certificates.folder / "server.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))

    async def main() -> None:
        async with run_broker(
            settings={**certificates.settings(), "ssl.keystore.type": "JKS", "ssl.keystore.location": str(store)}
        ):
            pytest.fail("it started")

    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        run(main())


def test_protocol_versions_and_suites_can_be_restricted(run: Any, run_broker: Any, certificates: Any) -> None:
    async def version(**more: object) -> tuple[str, str]:
        async with run_broker(settings=certificates.settings(**more)) as running:
            client = await running.connect(context=certificates.context())
            tls = client.writer.get_extra_info("ssl_object")
            return tls.version(), tls.cipher()[0]

    assert run(version())[0] == "TLSv1.3"
    assert run(version(ssl__enabled__protocols="TLSv1.2"))[0] == "TLSv1.2"
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    name, cipher = run(version(ssl__cipher__suites=suite))
    assert name == "TLSv1.2"
    assert cipher.endswith("AES128-GCM-SHA256")


def test_java_names_of_suites_are_translated() -> None:
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384") == "ECDHE-RSA-AES256-GCM-SHA384"
    assert openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("ECDHE-RSA-AES256-SHA") == "ECDHE-RSA-AES256-SHA"


def test_distinguished_names_are_written_as_java_does(certificates: Any) -> None:
    def part(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
        return x509.RelativeDistinguishedName([x509.NameAttribute(*attribute) for attribute in attributes])

    subject = x509.Name(
        [
            part((NameOID.COUNTRY_NAME, "DE")),
            part((NameOID.ORGANIZATION_NAME, "Acme, Inc.")),
            part((NameOID.COMMON_NAME, "a+b"), (NameOID.USER_ID, "u1")),
            part((NameOID.EMAIL_ADDRESS, "a@b.c")),
        ]
    )
    certificate, _ = certificates.signed(subject)
    assert distinguished_name(certificate.public_bytes(Encoding.DER)) == (
        "1.2.840.113549.1.9.1=#16056140622e63,CN=a\\+b+UID=u1,O=Acme\\, Inc.,C=DE"
    )


NOT_UTF8 = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("30048202fffe"))
"""One DNS name of two bytes that are not valid UTF-8."""


def test_a_certificate_whose_alternative_name_is_no_text_is_not_anonymous(
    run: Any, run_broker: Any, certificates: Any
) -> None:
    """Python cannot parse such a certificate. Its client gets the name in the subject, and never ANONYMOUS, which may
    do everything."""
    mallory = certificates.context_of(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mallory")]), NOT_UTF8)

    async def main() -> None:
        settings = certificates.settings(ssl__client__auth="required", super__users="User:ANONYMOUS")
        settings["authorizer.class.name"] = STANDARD_AUTHORIZER
        async with run_broker(settings=settings) as running:
            client = await running.connect(context=mallory)
            answer = await client.call(create_topic_request("t"), 5)
            assert answer.topics[0].error_code == TopicAuthorizationFailed.code
            [connection] = running.broker.connections
            assert connection.principal == "User:CN=mallory"

    run(main())


def test_a_request_with_the_last_handshake_message_waits_for_the_name(
    run: Any, run_broker: Any, certificates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request in the same segment as the client's last handshake message is not served if the name is refused, by a
    rule or by an error in the broker."""

    async def attempt(running: Any) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = certificates.context(certificates.client("mallory"))
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection(*running.broker.addresses[0][:2])
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(AsyncWire(reader, writer).frame(create_topic_request("t"), 5))
        writer.write(outgoing.read())
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        assert "t" not in running.broker.metadata.topics

    async def main() -> None:
        refusing = certificates.settings(
            ssl__client__auth="required", ssl__principal__mapping__rules="RULE:^CN=alice.*$/alice/"
        )
        async with run_broker(settings=refusing) as running:
            await attempt(running)
        async with run_broker(settings=certificates.settings(ssl__client__auth="required")) as running:
            monkeypatch.setattr("ottla.server.security.tls.distinguished_name", _fails)
            await attempt(running)

    run(main())


def _fails(certificate: bytes) -> str:
    raise RuntimeError("a mistake of ours")


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT", "CN=Duke,OU=Tech,O=X", "duke@tech"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "O=x,CN=Admin.1", "admin.1"),
        ("RULE:^CN=(.*)$/$1$2/", "CN=a", "a$2"),
        ("RULE:^CN=(.*)$/\\$1/", "CN=a", "$1"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^O=(.*)$/$1/", "CN=a", None),
    ],
)
def test_mapping_rules_make_principals(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name(subject) == name


def test_a_trust_store_may_be_missing() -> None:
    assert trust_store(lambda key: None) is None


def test_a_certificate_is_changed_by_alter_configs(run: Any, run_broker: Any, certificates: Any) -> None:
    """The new store must work, or the change is refused and the old one stays."""
    other = certificates.folder / "other.pem"
    leaf = certificates.authority.issue_cert("localhost", common_name="other name")
    other.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())

    async def main() -> None:
        async with run_broker(settings=certificates.settings()) as running:
            client = await running.connect(context=certificates.context())

            async def alter(path: str) -> Any:
                resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=ConfigResourceType.BROKER,
                    resource_name="1",
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name="listener.name.ssl.ssl.keystore.location",
                            config_operation=AlterConfigOp.SET,
                            value=path,
                        )
                    ],
                )
                return (await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses[0]

            async def served() -> str:
                new = await running.connect(context=certificates.context())
                subject = dict(pair for part in new.writer.get_extra_info("peercert")["subject"] for pair in part)
                return str(subject["commonName"])

            assert await served() == "localhost"
            assert (await alter("/nowhere.pem")).error_code == InvalidRequest.code
            assert await served() == "localhost"
            refused = await alter(str(other))
            assert (refused.error_code, await served()) == (InvalidRequest.code, "localhost")
            assert "ssl.allow.dn.changes" in refused.error_message
            leaf = certificates.authority.issue_cert(
                "localhost",
                "127.0.0.1",
                "more.example.org",
                common_name="localhost",
                organization_name="Ottla",
                organization_unit_name="test",
            )
            other.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
            assert (await alter(str(other))).error_code == 0
            new = await running.connect(context=certificates.context())
            assert ("DNS", "more.example.org") in new.writer.get_extra_info("peercert")["subjectAltName"]

    run(main())
