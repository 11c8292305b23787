"""Settings for clients of a broker in tests: the address, the login, and short back-offs, heartbeats and waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.embedded.login import Login
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import ssl
else:
    ssl = lazy("ssl")

ClientName: TypeAlias = Literal[
    "confluent", "librdkafka", "aiokafka", "kafka-python", "java", "spark", "sarama", "kafkajs"
]
Role: TypeAlias = Literal["common", "producer", "consumer"]
Settings: TypeAlias = dict[str, Any]

SESSION_TIMEOUT_MS: Final = 6000
"""The lowest value that Kafka allows by default."""
_ALIASES: Final = {"librdkafka": "confluent", "spark": "java"}

_COMMON: Final[dict[str, Settings]] = {
    "confluent": {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50},
    "aiokafka": {"retry_backoff_ms": 5},
    "kafka-python": {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50},
    "java": {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50},
    "sarama": {"Metadata.Retry.Backoff": "5ms"},
    "kafkajs": {"retry": {"initialRetryTime": 5, "maxRetryTime": 50}},
}
_PRODUCER: Final[dict[str, Settings]] = {
    "confluent": {"linger.ms": 0, "message.timeout.ms": 10_000},
    "aiokafka": {"linger_ms": 0},
    "kafka-python": {"linger_ms": 0},
    "java": {"linger.ms": 0, "delivery.timeout.ms": 10_000, "request.timeout.ms": 5000},
    "sarama": {"Producer.Retry.Backoff": "5ms", "Producer.Return.Successes": True},
}
_HEARTBEATS: Final[dict[str, int]] = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 50}
_CONSUMER: Final[dict[str, Settings]] = {
    "confluent": {**_HEARTBEATS, "fetch.wait.max.ms": 20},
    "aiokafka": {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 20},
    "kafka-python": {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 20},
    "java": {**_HEARTBEATS, "fetch.max.wait.ms": 20},
    "sarama": {
        "Consumer.Group.Session.Timeout": "6s",
        "Consumer.Group.Heartbeat.Interval": "50ms",
        "Consumer.MaxWaitTime": "20ms",
        "Consumer.Retry.Backoff": "5ms",
    },
    "kafkajs": {"sessionTimeout": SESSION_TIMEOUT_MS, "heartbeatInterval": 50, "maxWaitTimeInMs": 20},
}
_JAAS_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_config(
    bootstrap: str,
    client: ClientName,
    role: Role = "common",
    *,
    login: Login | None = None,
    user: str | None = None,
    mechanism: str = "PLAIN",
) -> Settings:
    """The settings of a client: the broker's address, the login, and short delays.

    `role` adds settings of a producer or a consumer. `user` is one of the broker's users, by default the first.
    """
    name = _ALIASES.get(client, client)
    if name not in _COMMON:
        raise ValueError(f"no settings are known for {client!r}; choose one of {', '.join([*_COMMON, *_ALIASES])}")
    of_roles: dict[str, dict[str, Settings]] = {"common": {}, "producer": _PRODUCER, "consumer": _CONSUMER}
    if role not in of_roles:
        raise ValueError(f"a client is not a {role!r}; choose one of {', '.join(of_roles)}")
    login = Login() if login is None else login
    credentials = login.credentials(user, mechanism)
    settings = {
        **_address(name, bootstrap),
        **_COMMON[name],
        **of_roles[role].get(name, {}),
        **_security(name, login, credentials, mechanism),
    }
    return {f"kafka.{key}": str(value) for key, value in settings.items()} if client == "spark" else settings


def _address(client: str, bootstrap: str) -> Settings:
    if client in ("sarama", "kafkajs"):
        return {"Addrs" if client == "sarama" else "brokers": bootstrap.split(",")}
    return {"bootstrap_servers" if client in ("aiokafka", "kafka-python") else "bootstrap.servers": bootstrap}


def _security(client: str, login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    if login.protocol == "PLAINTEXT":
        return {}
    make = {
        "confluent": _librdkafka,
        "java": _java,
        "aiokafka": _aiokafka,
        "kafka-python": _kafka_python,
        "sarama": _sarama,
        "kafkajs": _kafkajs,
    }
    return make[client](login, credentials, mechanism)


def _librdkafka(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found: Settings = {"security.protocol": login.protocol}
    if login.ca_file is not None:
        found["ssl.ca.location"] = login.ca_file
    if credentials is not None:
        found |= {
            "sasl.mechanism": mechanism,
            "sasl.username": credentials[0],
            "sasl.password": credentials[1],
        }
    return found


def _java(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found: Settings = {"security.protocol": login.protocol}
    if login.ca_file is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.ca_file}
    if credentials is not None:
        module = _JAAS_MODULES[mechanism]
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f'{module} required username="{credentials[0]}" password="{credentials[1]}";'
    return found


def _sasl_plain(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found: Settings = {"security_protocol": login.protocol}
    if credentials is not None:
        found |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": credentials[0],
            "sasl_plain_password": credentials[1],
        }
    return found


def _aiokafka(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found = _sasl_plain(login, credentials, mechanism)
    if login.ca_file is not None:
        found["ssl_context"] = ssl.create_default_context(cafile=login.ca_file)
    return found


def _kafka_python(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found = _sasl_plain(login, credentials, mechanism)
    if login.ca_file is not None:
        found["ssl_cafile"] = login.ca_file
    return found


def _sarama(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    """Named after the fields of sarama.Config; CAFile is for the RootCAs of Net.TLS.Config."""
    found: Settings = {}
    if login.ca_file is not None:
        found |= {"Net.TLS.Enable": True, "CAFile": login.ca_file}
    if credentials is not None:
        found |= {
            "Net.SASL.Enable": True,
            "Net.SASL.Mechanism": mechanism,
            "Net.SASL.User": credentials[0],
            "Net.SASL.Password": credentials[1],
        }
    return found


def _kafkajs(login: Login, credentials: tuple[str, str] | None, mechanism: str) -> Settings:
    found: Settings = {}
    if login.ca_file is not None:
        found["ssl"] = {"ca": [Path(login.ca_file).read_text()]}
    if credentials is not None:
        word = mechanism.lower()
        found["sasl"] = {"mechanism": word, "username": credentials[0], "password": credentials[1]}
    return found


def client_properties(login: Login, mechanism: str = "PLAIN") -> str:
    """A Java client's properties file with the login of the first user, for `--client-config` and Kafka's tools."""
    found = _java(login, login.credentials(None, mechanism), mechanism)
    return "".join(f"{key}={value}\n" for key, value in found.items())
