"""How to connect to a cluster that is not open to everyone, with the names of Kafka's own client properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Security:
    """Transport and credentials; the default is plain text and nobody's name."""

    tls: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """From a Kafka client's properties. Stores must be PEM; ValueError says what cannot be used."""
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol}")
        mechanism = None
        if protocol.startswith("SASL"):
            mechanism = properties.get("sasl.mechanism", "PLAIN").upper()
            if mechanism not in MECHANISMS:
                raise ValueError(f"sasl.mechanism is one of {', '.join(MECHANISMS)}, not {mechanism}")
        for store in ("ssl.truststore", "ssl.keystore"):
            if properties.get(f"{store}.type", "PEM").upper() != "PEM":
                raise ValueError(f"{store}.type must be PEM: convert the store with keytool and openssl")
        jaas = {
            key: re.sub(r"\\(.)", r"\1", value) for key, value in _JAAS.findall(properties.get("sasl.jaas.config", ""))
        }
        return cls(
            tls=protocol.endswith("SSL"),
            mechanism=mechanism,
            username=properties.get("sasl.username", jaas.get("username", "")),
            password=properties.get("sasl.password", jaas.get("password", "")),
            ca_file=properties.get("ssl.truststore.location"),
            certificate_file=properties.get("ssl.keystore.location"),
            key_file=properties.get("ssl.key.location"),
            key_password=properties.get("ssl.key.password"),
            check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        import ssl

        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        return context
