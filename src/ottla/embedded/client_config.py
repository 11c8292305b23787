"""Settings with which a client is quick in tests: short back-offs, heartbeats and waits, by the names that it has."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

ClientName: TypeAlias = Literal["confluent", "aiokafka", "kafka-python", "java"]
Role: TypeAlias = Literal["common", "producer", "consumer"]
Settings: TypeAlias = dict[str, str | int]

SESSION_TIMEOUT_MS: Final = 6000
"""The least that Kafka allows by default."""

_COMMON: Final[dict[str, Settings]] = {
    "confluent": {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50},
    "aiokafka": {"retry_backoff_ms": 5},
    "kafka-python": {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50},
    "java": {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50},
}
_PRODUCER: Final[dict[str, Settings]] = {
    "confluent": {"linger.ms": 0, "message.timeout.ms": 10_000},
    "aiokafka": {"linger_ms": 0},
    "kafka-python": {"linger_ms": 0},
    "java": {"linger.ms": 0, "delivery.timeout.ms": 10_000, "request.timeout.ms": 5000},
}
_HEARTBEATS: Final[dict[str, int]] = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 50}
_CONSUMER: Final[dict[str, Settings]] = {
    "confluent": {**_HEARTBEATS, "fetch.wait.max.ms": 20},
    "aiokafka": {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 20},
    "kafka-python": {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 20},
    "java": {**_HEARTBEATS, "fetch.max.wait.ms": 20},
}


def client_config(bootstrap: str, client: ClientName, role: Role = "common") -> Settings:
    """What to give a client: where the broker is, and what makes the client quick. `role` adds what only that has."""
    if client not in _COMMON:
        raise ValueError(f"no settings are known for {client!r}; choose one of {', '.join(_COMMON)}")
    of_roles: dict[str, dict[str, Settings]] = {"common": {}, "producer": _PRODUCER, "consumer": _CONSUMER}
    if role not in of_roles:
        raise ValueError(f"a client is not a {role!r}; choose one of {', '.join(of_roles)}")
    key = "bootstrap_servers" if client in ("aiokafka", "kafka-python") else "bootstrap.servers"
    return {key: bootstrap, **_COMMON[client], **of_roles[role].get(client, {})}
