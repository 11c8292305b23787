"""TLS and SASL settings for connecting to a cluster, with the names of Kafka's client properties."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

_PEM_ITSELF: Final = {
    "ssl.truststore.certificates": "ssl.truststore.location",
    "ssl.keystore.key": "ssl.keystore.location",
    "ssl.keystore.certificate.chain": "ssl.keystore.location",
}
"""Properties with inline PEM data, and the properties for a file instead."""
READ: Final = (
    *("security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password"),
    *("ssl.truststore.location", "ssl.truststore.type", "ssl.keystore.location", "ssl.keystore.type"),
    *("ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm"),
)
"""The properties that are used here; a Kafka client has many more."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def _conversion(location: str, kind: str) -> str:
    """The commands that convert a Java key store to a PEM file."""
    steps = []
    if kind != "PKCS12":
        steps.append(
            f"keytool -importkeystore -srckeystore {location} -srcstoretype {kind} -destkeystore {location}.p12 "
            "-deststoretype PKCS12"
        )
        location += ".p12"
    steps.append(f"openssl pkcs12 -in {location} -nodes -out {location.removesuffix('.p12')}.pem")
    return " && ".join(steps)


@dataclass(frozen=True, slots=True)
class Security:
    """Transport and credentials; the default is plain text without authentication."""

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
        """From a Kafka client's properties. Stores must be PEM. Raises ValueError for properties it cannot use."""
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol}")
        mechanism = None
        if protocol.startswith("SASL"):
            mechanism = properties.get("sasl.mechanism", "").upper()
            if not mechanism:
                # Kafka's default is GSSAPI; a default of PLAIN would send a password to any server that asks for it.
                raise ValueError(f"security.protocol={protocol} needs sasl.mechanism: one of {', '.join(MECHANISMS)}")
            if mechanism not in MECHANISMS:
                raise ValueError(f"sasl.mechanism is one of {', '.join(MECHANISMS)}, not {mechanism}")
        for store in ("ssl.truststore", "ssl.keystore"):
            kind = properties.get(f"{store}.type", "PEM").upper()
            if kind != "PEM":
                location = properties.get(f"{store}.location", "STORE")
                raise ValueError(f"{store}.type must be PEM, not {kind}; convert it: {_conversion(location, kind)}")
        for inline, location in _PEM_ITSELF.items():
            if inline in properties and protocol.endswith("SSL"):
                raise ValueError(f"{inline} is not read here: put the PEM into a file, and name it as {location}")
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
        """The TLS context; None for plain text. Raises ValueError with the name of a file that cannot be used."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError:
            raise ValueError(f"ssl.truststore.location: there is no PEM certificate in {self.ca_file}") from None
        except OSError as error:
            raise ValueError(f"ssl.truststore.location: cannot read {self.ca_file}: {error.strerror}") from None
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            self._load_own(context, self.certificate_file)
        return context

    def _load_own(self, context: ssl.SSLContext, certificate_file: str) -> None:
        files = certificate_file if self.key_file is None else f"{certificate_file} and {self.key_file}"
        try:
            context.load_cert_chain(certificate_file, self.key_file, self.key_password)
        except ssl.SSLError as error:
            why = f" ({error.reason})" if error.reason else ""
            raise ValueError(f"ssl.keystore.location: no PEM certificate with its key in {files}{why}") from None
        except OSError as error:
            raise ValueError(f"ssl.keystore.location: cannot read {files}: {error.strerror}") from None
