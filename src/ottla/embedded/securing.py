"""`tls=True, users={…}, acls=[…]`: their effect on the broker's settings, its metadata, and the settings of clients."""

from __future__ import annotations

import shutil
import socket
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.client.access import MECHANISMS, Acl, salted
from ottla.client.access_rules import parse_rules
from ottla.embedded import certificates
from ottla.embedded.login import Login
from ottla.metadata import acls as metadata_acls
from ottla.metadata import scram
from ottla.metadata.image import Acl as StoredAcl

if TYPE_CHECKING:
    from ottla.server.broker import Broker as Server

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MECHANISMS: Final = ("PLAIN", *MECHANISMS)
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_WILDCARDS: Final = ("", "0.0.0.0", "::")


@dataclass
class Securing:
    """The security of a broker, checked before anything is created."""

    tls: bool = False
    users: Mapping[str, str] = field(default_factory=dict)
    acls: Sequence[str] | None = None
    folder: Path | None = None
    """The folder for the certificates; without one, they are removed with the broker."""

    def __post_init__(self) -> None:
        for user, password in self.users.items():
            if not user or not isinstance(password, str) or not password:
                raise ValueError(f"users: {user!r} needs a name and a password, as in {{'alice': 'secret'}}")
            if '"' in user + password or "\\" in user + password or any(char in user for char in " =,"):
                raise ValueError(f"users: the name or the password of {user!r} has a character that JAAS cannot hold")
        self._rules: list[Acl] = [
            rule for text in ([] if self.acls is None else self.acls) for rule in parse_rules(text)
        ]
        if self.acls is not None and not self.users and not self.tls:
            raise ValueError("acls= without users= leaves everybody anonymous: add users={'alice': 'secret'}")

    @property
    def is_used(self) -> bool:
        return self.tls or bool(self.users) or self.acls is not None

    @property
    def protocol(self) -> str:
        if self.users:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"

    def settings(self, host: str) -> dict[str, object]:
        """Create the certificates and return Kafka's broker settings."""
        found: dict[str, object] = {}
        if self.tls:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._certificates(host))}
        if self.users:
            listener = f"listener.name.{self.protocol.lower()}"
            entries = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
            found["sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
            found[f"{listener}.plain.sasl.jaas.config"] = f"{_PLAIN_MODULE} {entries};"
            for mechanism in MECHANISMS:
                found[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{_SCRAM_MODULE};"
        if self.protocol != "PLAINTEXT":
            found["security.inter.broker.protocol"] = self.protocol
        if self.users:
            found["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        if self.acls is not None:
            found["authorizer.class.name"] = AUTHORIZER
        return found

    def _certificates(self, host: str) -> Path:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="ottla-tls-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        hosts = [*_LOCAL, socket.gethostname()]
        certificates.make_certificates(self.folder, hosts if host in _WILDCARDS else [*hosts, host])
        return self.folder / certificates.SERVER_FILE

    def login(self) -> Login:
        """The login data for clients; call `settings` first."""
        ca_file = str(self.folder / certificates.CA_FILE) if self.tls and self.folder is not None else None
        return Login(self.protocol, ca_file, dict(self.users))

    def apply(self, server: Server) -> None:
        """Write the users and the rules into the metadata of a server that has just started."""
        image = server.metadata
        for number in MECHANISMS.values():
            missing = [user for user in self.users if (user, number) not in image.credentials]
            new = [scram.NewCredential(user, **salted(number, self.users[user])._asdict()) for user in missing]
            records, _ = scram.alter_credentials(image, [], new)
            if records:
                server.controller.commit(records)
        records, errors = metadata_acls.create_acls(
            image, [StoredAcl(*rule) for rule in self._rules], server.chance.uuid
        )
        for error in errors:
            if error is not None:
                raise ValueError(f"acls: {error.message}")
        if records:
            server.controller.commit(records)
