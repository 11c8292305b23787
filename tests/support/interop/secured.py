"""A broker with every kind of listener, an authorizer and users, from one server.properties: Ottla, or Apache Kafka."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ottla.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
)
from support.kafka import Kafka
from support.ports import free_ports
from support.processes import start_and_wait
from support.wire import Wire

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
USERS = ("admin", "alice", "bob", "carol")


def key_and_chain(leaf: trustme.LeafCert) -> bytes:
    """The key and the chain in PEM; Java reads only PKCS8 keys."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + b"".join(blob.bytes() for blob in leaf.cert_chain_pems)


class Secured:
    """A running broker; `addresses` by the protocol of the listener."""

    def __init__(self, kind: str, folder: Path, **more: object) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = trustme.CA()
        self.trust = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.trust))
        self.server_pem = folder / "server.pem"
        leaf = self.authority.issue_cert("localhost", "127.0.0.1", common_name="localhost")
        self.server_pem.write_bytes(key_and_chain(leaf))
        plain, tls, sasl, both, self.controller = free_ports(5)
        self.addresses = {"PLAINTEXT": plain, "SSL": tls, "SASL_PLAINTEXT": sasl, "SASL_SSL": both}
        self.properties = {**self._properties(), **{key: str(value) for key, value in more.items()}}
        self.log = folder / ("server.log" if kind == "kafka" else "ottla.log")
        self.start()

    def _properties(self) -> dict[str, str]:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.addresses.items())
        users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
        properties = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server_pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/L,DEFAULT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            "delegation.token.secret.key": "token-key",
            "group.initial.rebalance.delay.ms": "0",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            properties[f"{prefix}.plain.sasl.jaas.config"] = f"{PLAIN_MODULE} {users};"
            properties[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM_MODULE};"
            properties[f"{prefix}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM_MODULE};"
            properties[f"{prefix}.oauthbearer.sasl.jaas.config"] = (
                f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="broker";'
            )
        return properties

    def start(self) -> None:
        if self.kind == "kafka":
            settings = [f"{key}={value}" for key, value in self.properties.items()]
            self._kafka = Kafka(self.folder, *settings, port=self.addresses["PLAINTEXT"], controller=self.controller)
            return
        # The same keys in the same kind of file; only the data folder and Kafka's single-node settings are added.
        path = self.folder / "ottla.properties"
        lines = {**self.properties, "log.dirs": str(self.folder / "data"), "node.id": "1"}
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        command = [sys.executable, "-m", "ottla.cli.main", "serve", str(path), "--preset", "kafka"]
        self._process, _ = start_and_wait(command, self.log)

    @property
    def pid(self) -> int:
        return self._kafka.pid if self.kind == "kafka" else self._process.pid

    def stop(self) -> None:
        if self.kind == "kafka":
            self._kafka.stop()
            return
        self._process.terminate()
        self._process.wait(20)

    def bootstrap(self, protocol: str) -> str:
        host = "localhost" if protocol.endswith("SSL") else "127.0.0.1"
        return f"{host}:{self.addresses[protocol]}"

    def wire(self, user: str | None = None, client_id: str = "wire") -> Wire:
        """A raw connection: of the super user on the plain listener, or of a user by SASL PLAIN."""
        if user is None:
            return Wire(("127.0.0.1", self.addresses["PLAINTEXT"]), client_id)
        wire = Wire(("127.0.0.1", self.addresses["SASL_PLAINTEXT"]), client_id)
        wire.log_in(user)
        return wire

    def identity(self, name: str) -> Path:
        """The key and certificate of a client, in one PEM file."""
        path = self.folder / f"client-{name}.pem"
        if not path.exists():
            leaf = self.authority.issue_cert(f"{name}@example.org", common_name=name, organization_name="Ottla")
            path.write_bytes(key_and_chain(leaf))
        return path


@contextlib.contextmanager
def acls(broker: Secured, admin: Wire) -> Iterator[Callable[..., None]]:
    """Yields a function that adds ACLs, and removes all of them afterwards."""

    def settle() -> None:
        if broker.kind == "kafka":
            time.sleep(0.5)  # Kafka applies them a moment after the answer, Ottla before it

    def add(
        kind: int,
        name: str,
        operation: int,
        principal: str = "User:alice",
        *,
        pattern: int = PatternType.LITERAL,
        permission: int = AclPermissionType.ALLOW,
        host: str = "*",
    ) -> None:
        creation = CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )
        assert admin.call(CreateAclsRequest(creations=[creation]), 3).results[0].error_code == 0
        settle()

    yield add
    everything = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        pattern_type_filter=PatternType.ANY,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )
    everything.resource_name_filter = everything.principal_filter = everything.host_filter = None
    assert admin.call(DeleteAclsRequest(filters=[everything]), 3).filter_results[0].error_code == 0
    settle()
