"""Settings from the environment, as in the images of Apache Kafka, Confluent and Bitnami.

`KAFKA_LOG_RETENTION_MS` is log.retention.ms: one underscore is a dot, two are an underscore, three are a dash.
Confluent's image reads two as a dash and three as an underscore; only keys of a single listener contain these
characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# Variables of Kafka's scripts and of the images; none of them is a setting of the broker.
NO_SETTINGS = frozenset(
    {
        "VERSION",
        "HEAP_OPTS",
        "LOG4J_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JMX_PORT",
        "JMX_HOSTNAME",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL",
        "HOME",
        "CONF_DIR",
        "BASE_DIR",
        "MOUNTED_CONF_DIR",
        "VOLUME_DIR",
        "DAEMON_USER",
        "DAEMON_GROUP",
        "KRAFT_CLUSTER_ID",
        "CLUSTER_ID",
        "INITIAL_CONTROLLERS",
        "SKIP_KRAFT_STORAGE_INIT",
        "ENABLE_KRAFT",
        "REST_BOOTSTRAP_SERVERS",
        "REST_HOST_NAME",
        "REST_LISTENERS",
        "SSL_KEYSTORE_FILENAME",
        "SSL_KEYSTORE_CREDENTIALS",
        "SSL_KEY_CREDENTIALS",
        "SSL_TRUSTSTORE_FILENAME",
        "SSL_TRUSTSTORE_CREDENTIALS",
    }
)
# There is no ZooKeeper and no separate controller, and Confluent's own settings mean nothing here.
WITHOUT_EFFECT = ("process.roles", "controller.quorum.", "zookeeper.", "confluent.", "metric.reporters")
# Bitnami's image creates users from these; its TLS variables are files, and variables of other programs are not read.
BITNAMI_USERS = frozenset({"CLIENT_USERS", "CLIENT_PASSWORDS", "INTER_BROKER_USER", "INTER_BROKER_PASSWORD"})
STORES = {"KEYSTORE": "SSL_KEYSTORE_CREDENTIALS", "TRUSTSTORE": "SSL_TRUSTSTORE_CREDENTIALS"}
SECRETS = "/etc/kafka/secrets"


class Found(NamedTuple):
    """Settings of the broker, the id of the cluster if one is given, and messages for the log."""

    settings: dict[str, str]
    cluster_id: str | None
    notes: list[str]


def key_of(variable: str) -> str:
    """Convert LOG_RETENTION_MS to log.retention.ms; `__` is an underscore and `___` a dash."""
    signs = {1: ".", 2: "_", 3: "-"}
    return re.sub("_{1,3}", lambda found: signs[len(found[0])], variable).lower()


def from_environment(environ: Mapping[str, str]) -> Found:
    settings: dict[str, str] = {}
    notes: list[str] = []
    for variable in sorted(environ):
        name = variable.removeprefix("KAFKA_")
        if name == variable or name in NO_SETTINGS:
            continue
        if name in BITNAMI_USERS:
            notes.append(f"{variable} has no effect: set the users in KAFKA_CFG_LISTENER_NAME_…_SASL_JAAS_CONFIG")
            continue
        # Bitnami's prefix overrides the plain one, as in its image.
        key = key_of(name.removeprefix("CFG_"))
        if key in settings and not name.startswith("CFG_"):
            continue
        if key.startswith(WITHOUT_EFFECT):
            notes.append(f"{variable}={environ[variable]} has no effect: Ottla is broker and controller in one")
            continue
        settings[key] = environ[variable]
    settings = _confluent_keys(settings)
    _tidy_listeners(settings)
    _add_stores(settings, environ)
    _one_id(settings, notes)
    cluster_id = environ.get("CLUSTER_ID") or environ.get("KAFKA_KRAFT_CLUSTER_ID") or environ.get("KAFKA_CLUSTER_ID")
    return Found(settings, cluster_id or None, notes)


def _confluent_keys(settings: dict[str, str]) -> dict[str, str]:
    """Keys of a single listener, where they only make sense in Confluent's mapping."""
    addresses = f"{settings.get('listeners', '')},{settings.get('advertised.listeners', '')}"
    listeners = {each.partition("://")[0].strip().lower() for each in addresses.split(",")}
    found = {}
    for key, value in settings.items():
        swapped = key.translate({ord("-"): "_", ord("_"): "-"})
        name, other = (text.removeprefix("listener.name.").split(".")[0] for text in (key, swapped))
        is_confluent = key.startswith("listener.name.") and name not in listeners and other in listeners
        found[swapped if is_confluent or ".scram_sha_" in key else key] = value
    return found


def _tidy_listeners(settings: dict[str, str]) -> None:
    """Some modules leave a comma at the end. If only the advertised addresses are known, listen on all interfaces."""
    for key in ("listeners", "advertised.listeners"):
        if key in settings:
            settings[key] = ",".join(part for part in (each.strip() for each in settings[key].split(",")) if part)
    if "listeners" not in settings and settings.get("advertised.listeners"):
        settings["listeners"] = re.sub(r"://(\[[^\]]*\]|[^:,]*):", "://0.0.0.0:", settings["advertised.listeners"])


def _one_id(settings: dict[str, str], notes: list[str]) -> None:
    """Use one value for node.id and broker.id; -1 meant that ZooKeeper assigns it."""
    if settings.get("broker.id") == "-1":
        del settings["broker.id"]
    if "node.id" in settings and settings.get("broker.id", settings["node.id"]) != settings["node.id"]:
        notes.append(f"broker.id={settings['broker.id']} is ignored: node.id={settings['node.id']} is used")
        del settings["broker.id"]


def _add_stores(settings: dict[str, str], environ: Mapping[str, str]) -> None:
    """Add stores and their passwords from the names of files in /etc/kafka/secrets, as in Kafka's image."""
    for kind, credentials in STORES.items():
        if file := environ.get(f"KAFKA_SSL_{kind}_FILENAME"):
            settings.setdefault(f"ssl.{kind.lower()}.location", f"{SECRETS}/{file}")
        if file := environ.get(f"KAFKA_{credentials}"):
            settings.setdefault(f"ssl.{kind.lower()}.password", _read(file))
    if file := environ.get("KAFKA_SSL_KEY_CREDENTIALS"):
        settings.setdefault("ssl.key.password", _read(file))


def _read(name: str) -> str:
    with open(f"{SECRETS}/{name}", encoding="utf-8") as file:
        return file.read().strip()
