"""The login to a cluster: client properties from a file, a mapping and the environment, for Ottla's client and Java's.

Both clients accept nearly the same properties. This module builds the additional ones for the official connector, so
that one file works for both sources: JAAS lines from a name and a password, and PEM from separate files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.errors import PipelineError

_VARIABLE: Final = re.compile(r"\$\{env:([^}]+)\}")
_MODULES: Final = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM: Final = "scram.ScramLoginModule"
_OURS_ONLY: Final = ("sasl.username", "sasl.password", "ssl.key.location")
REDACTED: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key"
"""The names of settings and options that Spark hides when it shows them."""


def client_properties(given: Mapping[str, object] | str | os.PathLike[str] | None) -> dict[str, str]:
    """From a mapping, or a file of Kafka client properties. `${env:NAME}` is replaced with an environment variable."""
    if not given:
        return {}
    if isinstance(given, str | os.PathLike):
        properties = _from_file(os.fspath(given))
    elif isinstance(given, Mapping):
        properties = {str(key): _text(value) for key, value in given.items()}
    else:
        raise PipelineError("client_config is a file of properties, or the properties themselves")
    return {key: _resolved(key, value) for key, value in properties.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_file(path: str) -> dict[str, str]:
    from ottla.config import ConfigError
    from ottla.config.properties import read_properties

    try:
        return {key: text for key, (text, _) in read_properties(path).items()}
    except (ConfigError, OSError) as error:
        raise PipelineError(f"the client config: {error}") from None


def _resolved(key: str, value: str) -> str:
    def variable(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise PipelineError(f"{key} of the client config names the variable {found[1]}, which is not set")
        return os.environ[found[1]]

    return _VARIABLE.sub(variable, value)


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The same login for the official connector."""
    found = {key: value for key, value in properties.items() if key not in _OURS_ONLY}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        mechanism = found.setdefault("sasl.mechanism", "PLAIN").upper()
        if "sasl.jaas.config" not in found and "sasl.username" in properties:
            module = _MODULES.get(mechanism, _SCRAM)
            name, password = (_quoted(properties.get(key, "")) for key in _OURS_ONLY[:2])
            found["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module} required username={name} password={password};"
            )
    if protocol.endswith("SSL"):
        if "ssl.truststore.location" in found:
            found.setdefault("ssl.truststore.type", "PEM")
        if "ssl.keystore.location" in found:
            found.setdefault("ssl.keystore.type", "PEM")
        if "ssl.key.location" in properties:
            # Java reads the certificate and the key from one file, or as text.
            found["ssl.keystore.key"] = _content(properties["ssl.key.location"])
            chain = found.pop("ssl.keystore.location", None)
            found["ssl.keystore.certificate.chain"] = _content(chain) if chain else ""
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise PipelineError(f"{path} of the client config cannot be read: {error.strerror}") from None
