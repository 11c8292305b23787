"""The cost of TLS and ACLs: the same loads as elsewhere, on separate brokers with security enabled.

A JVM is slow after a start because it compiles while it runs. So each load runs twice, and the second run counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.bench.lines.requests import per_request
from ottla.bench.lines.topics import per_gb, topic
from ottla.bench.load import drive
from ottla.bench.model import Figure, NotMeasurable, Size, at_least, at_most, line
from ottla.bench.targets import Target, free_port
from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.lazy_imports import lazy
from ottla.wire.messages.security import CreateAclsRequest

if TYPE_CHECKING:
    import trustme
    from cryptography.hazmat.primitives import serialization
else:
    trustme = lazy("trustme")
    serialization = lazy("cryptography.hazmat.primitives.serialization")

PARTITIONS = 4
RECORD_BYTES = 1024
ACLS = 100
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CPU = Figure("cpu_gb", "CPU s/GB", False)

_numbers = itertools.count(1)


@contextmanager
def _started(target: Target, label: str, settings: dict[str, str], listeners: str = "") -> Iterator[Target]:
    maker = target.fresh().with_settings(f"{label}-{next(_numbers)}", settings)
    folder, port = maker.prepare()
    if listeners:
        maker.settings = {**maker.settings, **_with_tls(port, listeners)}
    broker = maker.launch(folder, port)
    try:
        broker.await_ready()
        yield broker
    finally:
        broker.stop()


def _with_tls(port: int, tls_port: str) -> dict[str, str]:
    """Settings for a second listener with TLS next to the plain one; Kafka's controller keeps its own listener."""
    plain, tls = f"PLAINTEXT://127.0.0.1:{port}", f"SSL://127.0.0.1:{tls_port}"
    return {
        "listeners": f"{plain},{tls},CONTROLLER://127.0.0.1:{port + 1000}",
        "advertised.listeners": f"{plain},{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }


def _certificate(folder: Path) -> dict[str, str]:
    try:
        authority = trustme.CA()
    except ImportError:
        raise NotMeasurable("needs trustme, which makes certificates (pip install trustme)") from None
    folder.mkdir(parents=True, exist_ok=True)
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    store = folder / "server.pem"
    # Java only reads keys in PKCS8.
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    store.write_bytes(pem + b"".join(part.bytes() for part in leaf.cert_chain_pems))
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}


@contextmanager
def _tls(target: Target) -> Iterator[tuple[Target, Target]]:
    """A broker with a TLS listener: its plain address for preparations, and the TLS address to measure."""
    maker = target.fresh()
    settings = _certificate(maker.data / "certificates")
    port = free_port(maker.base_port + 50)
    with _started(target, "tls", settings, str(port)) as plain:
        yield plain, Target(plain.name, ("127.0.0.1", port), plain.pid)


_CLIENT = {"client": {"security.protocol": "ssl", "enable.ssl.certificate.verification": False}}


@line(
    "tls-produce", "librdkafka produces 1 KB records through TLS", Figure("mb_s", "MB/s", True, (at_least(0.5),)), CPU
)
def tls_produce(target: Target, size: Size) -> dict[str, float]:
    with _tls(target) as (plain, tls), topic(plain, PARTITIONS) as name:
        options = {"topic": name, "partitions": PARTITIONS, "record_bytes": RECORD_BYTES, **_CLIENT}
        limit = size.pick(200_000, 10_000) * RECORD_BYTES
        drive(tls, "rdkafka_produce", limit_bytes=limit, **options)
        return per_gb(drive(tls, "rdkafka_produce", limit_bytes=limit, **options))


@line(
    "tls-consume", "librdkafka consumes 1 KB records through TLS", Figure("mb_s", "MB/s", True, (at_least(0.5),)), CPU
)
def tls_consume(target: Target, size: Size) -> dict[str, float]:
    limit = size.pick(200_000, 10_000) * RECORD_BYTES
    with _tls(target) as (plain, tls), topic(plain, PARTITIONS) as name:
        options = {"topic": name, "partitions": PARTITIONS, "record_bytes": RECORD_BYTES, "limit_bytes": limit}
        drive(plain, "rdkafka_produce", **options)
        drive(tls, "rdkafka_consume", **options, **_CLIENT)
        return per_gb(drive(tls, "rdkafka_consume", **options, **_CLIENT))


@line(
    "acl-requests",
    f"produce requests of one record, 5 under way, under {ACLS} ACLs",
    Figure("rate", "requests/s", True, (at_least(2),)),
    Figure("cpu_us", "CPU µs", False, (at_most(0.5),)),
)
def acl_requests(target: Target, size: Size) -> dict[str, float]:
    # There is no super user, so ACLs decide on every request.
    settings = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with _started(target, "acl", settings) as broker, topic(broker, 1) as name:
        with broker.client() as client:
            client.call(CreateAclsRequest(creations=_acls(name)), 3)
        seconds = size.pick(3.0, 0.5)
        options = {"topic": name, "record_bytes": 100, "depth": 5, "limit_seconds": seconds}
        drive(broker, "requests", **options)
        return per_request(drive(broker, "requests", **options))


def _acls(name: str) -> list[CreateAclsRequest.AclCreation]:
    creation = CreateAclsRequest.AclCreation
    rules = [(name, PatternType.LITERAL, "User:ANONYMOUS")]
    rules += [(f"topic-{n}", PatternType.LITERAL, f"User:user-{n}") for n in range(ACLS // 2)]
    rules += [(f"{name[:1]}{n}", PatternType.PREFIXED, f"User:user-{n}") for n in range(ACLS - len(rules))]
    return [
        creation(
            resource_type=ResourceType.TOPIC,
            resource_name=resource,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=AclOperation.ALL,
            permission_type=AclPermissionType.ALLOW,
        )
        for resource, pattern, principal in rules
    ]
