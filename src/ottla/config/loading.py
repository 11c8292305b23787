"""The sources of settings: preset, properties file, environment, command line. The last one wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.keys import ConfigError, ConfigKey, to_text
from ottla.lazy_imports import lazy

if TYPE_CHECKING:
    import difflib

    from ottla.config import properties
else:
    difflib = lazy("difflib")
    properties = lazy("ottla.config.properties")

_ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

PRESETS: dict[str, dict[str, str]] = {
    # Kafka's values, but without the three seconds of waiting for the first member of a group.
    "dev": {
        **_ONE_REPLICA,
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
    },
    # Exactly Kafka's defaults, except that internal topics can be created on one broker.
    "kafka": _ONE_REPLICA,
    # For tests: no unnecessary waiting, and expiry within a second.
    "test": {
        **_ONE_REPLICA,
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.min.session.timeout.ms": "500",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
        "offsets.retention.check.interval.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        "producer.id.expiration.check.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "0",
    },
}

SHOW_NEW_TOPICS_AT_ONCE = frozenset({"test"})
"""Presets in which the Metadata request that creates a topic also returns it. In Kafka the topic is missing at first,
and clients retry after 100 ms. Tests do not have to wait for that."""

ENVIRONMENT_PREFIX = "OTTLA_"
# Prefixes of names that scripts, helpers and other commands read. No broker key starts with one.
_RESERVED_VARIABLES = (
    "OTTLA_BOOTSTRAP",
    "OTTLA_COMMAND",
    "OTTLA_CONSOLE_",
    "OTTLA_CONTEXT",
    "OTTLA_PLAIN_SYSTEM",
    "OTTLA_PYTHON",
    "OTTLA_REGISTRY",
    "OTTLA_TEST_",
    "OTTLA_VENV",
)

LISTENER_PREFIX = "listener.name."
# Settings with these prefixes belong to plugins or labels. Kafka accepts any name after them.
_FREE_NAMES = ("super.users", "allow.everyone.if.no.acl.found")  # read by the authorizer itself, as in Kafka
_FREE_PREFIXES = ("rsm.config.", "rlmm.config.", "metrics.context.", "client.quota.callback.static.")
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")

REMOVED_KEYS: Final[dict[str, str]] = {
    "port": "listeners=PLAINTEXT://HOST:PORT",
    "host.name": "listeners=PLAINTEXT://HOST:PORT",
    "advertised.port": "advertised.listeners=PLAINTEXT://HOST:PORT",
    "advertised.host.name": "advertised.listeners=PLAINTEXT://HOST:PORT",
    "log.message.format.version": "",
    "message.format.version": "",
    "inter.broker.protocol.version": "",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and .after.max.ms",
    "offsets.commit.required.acks": "",
    "delegation.token.master.key": "delegation.token.secret.key",
    "quota.producer.default": "`ottla configs set client --default producer_byte_rate=…`",
    "quota.consumer.default": "`ottla configs set client --default consumer_byte_rate=…`",
    "broker.id.generation.enable": "",
    "reserved.broker.max.id": "",
    "control.plane.listener.name": "controller.listener.names",
    "password.encoder.secret": "",
    "password.encoder.old.secret": "",
}
"""Keys of older Kafka releases and their replacements; empty if there is none."""


class Setting(NamedTuple):
    """One setting and its source, for messages."""

    text: str
    origin: str


def collect(
    path: str | None,
    overrides: Mapping[str, object],
    environ: Mapping[str, str],
    preset: str | None,
    keys: Mapping[str, ConfigKey],
    origin: str,
) -> tuple[dict[str, Setting], list[str]]:
    """All settings, with the winning one for each key, and warnings about unknown variables."""
    settings: dict[str, Setting] = {}
    if preset is not None:
        if preset not in PRESETS:
            raise ConfigError(f"there is no preset '{preset}'; choose one of {', '.join(PRESETS)}")
        settings.update((key, Setting(text, f"preset {preset}")) for key, text in PRESETS[preset].items())
    if path is not None:
        for key, (text, line) in properties.read_properties(path).items():
            settings[key] = Setting(text, f"{path}, line {line}")
    variables, warnings = from_environment(environ, keys)
    settings.update(variables)
    settings.update((key, Setting(to_text(value), origin)) for key, value in overrides.items())
    return settings, warnings


def from_environment(environ: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> tuple[dict[str, Setting], list[str]]:
    """`OTTLA_LOG_RETENTION_MS=5` sets log.retention.ms: upper case, with underscores for dots."""
    names = [
        name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and not name.startswith(_RESERVED_VARIABLES)
    ]
    if not names:
        return {}, []
    by_variable = {variable_name(key): key for key in keys}
    settings: dict[str, Setting] = {}
    warnings: list[str] = []
    for name in sorted(names):
        key = by_variable.get(name) or _listener_key(name, by_variable)
        if key is None:
            warnings.append(f"unknown setting {name} in the environment{_hint(name, by_variable)}")
        else:
            settings[key] = Setting(environ[name], f"environment variable {name}")
    return settings, warnings


def variable_name(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_").replace("-", "_")


def _listener_key(variable: str, by_variable: Mapping[str, str]) -> str | None:
    """OTTLA_LISTENER_NAME_EXTERNAL_SSL_KEYSTORE_LOCATION as listener.name.external.ssl.keystore.location."""
    prefix = variable_name(LISTENER_PREFIX)
    if not variable.startswith(prefix):
        return None
    rest = variable[len(prefix) :]
    # The longest matching key: listener names can contain underscores.
    candidates = [name[len(ENVIRONMENT_PREFIX) :] for name in by_variable]
    fitting = [name for name in candidates if rest.endswith("_" + name)]
    if not fitting:
        return None
    suffix = max(fitting, key=len)
    listener = rest[: -len(suffix) - 1].lower()
    for mechanism in _MECHANISMS:
        ending = "_" + mechanism.replace("-", "_")
        if listener.endswith(ending):
            listener = f"{listener.removesuffix(ending)}.{mechanism}"
    return f"{LISTENER_PREFIX}{listener}.{by_variable[ENVIRONMENT_PREFIX + suffix]}"


def base_key(name: str, keys: Mapping[str, ConfigKey]) -> ConfigKey | None:
    """The row of a key, even if it is set for one listener (and one SASL mechanism)."""
    key = keys.get(name)
    if key is None and name.startswith(LISTENER_PREFIX):
        parts = name[len(LISTENER_PREFIX) :].split(".")
        for start in range(1, len(parts)):
            key = keys.get(".".join(parts[start:]))
            if key is not None:
                return key
    return key


def unknown_warnings(settings: Mapping[str, Setting], keys: Mapping[str, ConfigKey]) -> list[str]:
    """One warning for each key that matches neither the table nor a prefix."""
    return [
        f"unknown configuration key '{name}' ({setting.origin}){_removed(name) or _hint(name, keys)}"
        for name, setting in settings.items()
        if base_key(name, keys) is None and name not in _FREE_NAMES and not name.startswith(_FREE_PREFIXES)
    ]


def _removed(name: str) -> str:
    """The replacement of a key from an older Kafka release."""
    if name.startswith("zookeeper."):
        return "; remove it: there is no ZooKeeper any more"
    successor = REMOVED_KEYS.get(name)
    if successor is None:
        return ""
    return f"; use {successor} instead" if successor else "; remove it: Kafka 4 does not have it any more"


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; did you mean '{close[0]}'?" if close else "; it is ignored"
