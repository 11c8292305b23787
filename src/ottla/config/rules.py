"""Rules between keys, with Kafka's error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.config.keys import ConfigError

# The first must not be below the second.
_AT_LEAST = [
    f"group.{kind}.max.{name} group.{kind}.min.{name}"
    for kind in ("consumer", "share", "streams")
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
]
_AT_LEAST += [
    f"group.{kind}.{name} group.{kind}.min.{name}"
    for kind in ("consumer", "share", "streams")
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
]
_AT_LEAST += [
    f"group.share.{bound} group.share.{value}"
    for name in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks")
    for bound, value in ((f"max.{name}", name), (name, f"min.{name}"))
]
_AT_LEAST.append("group.share.max.share.sessions group.share.max.size")

# The first must not be above the second.
_AT_MOST = [
    f"group.{kind}.{name} group.{kind}.max.{name}"
    for kind in ("consumer", "share", "streams")
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
]
_AT_MOST.append("group.streams.num.standby.replicas group.streams.max.standby.replicas")


def check_broker(values: Mapping[str, Any]) -> None:
    """Raise if values are valid alone but not together. Takes resolved values: log.retention.ms is never None."""
    for pair in _AT_LEAST:
        first, second = pair.split()
        if values[first] < values[second]:
            raise _conflict(values, first, "greater than or equal to", second)
    for pair in _AT_MOST:
        first, second = pair.split()
        if values[first] > values[second]:
            raise _conflict(values, first, "less than or equal to", second)
    for kind in ("consumer", "share", "streams"):
        first, second = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if values[first] >= values[second]:
            raise _conflict(values, first, "less than", second)
    _check_assignors("group.share.assignors", values["group.share.assignors"])
    _check_logs(values)
    _check_network(values)
    if "classic" not in values["group.coordinator.rebalance.protocols"]:
        raise ConfigError(
            "Disabling the 'classic' protocol is not supported. (group.coordinator.rebalance.protocols is "
            f"{','.join(values['group.coordinator.rebalance.protocols'])})"
        )
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if not 0 <= values[key] <= 4:
            raise ConfigError(f"Unknown compression type id: {values[key]} ({key} takes 0 to 4)")


# There are no others. Kafka would load a class of that name.
_SHARE_ASSIGNORS = frozenset({"simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"})


def _check_assignors(key: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in _SHARE_ASSIGNORS:
            raise ConfigError(f"Class {name} cannot be found ({key} takes simple)")
    if len(names) != 1:
        raise ConfigError(f"{key} must contain exactly one assignor, but found {len(names)}")


def _check_logs(values: Mapping[str, Any]) -> None:
    if values["log.roll.ms"] < 1:
        raise ConfigError(f"log.roll.ms must be greater than or equal to 1 (it is {values['log.roll.ms']})")
    if values["log.roll.jitter.ms"] < 0:
        raise ConfigError(
            f"log.roll.jitter.ms must be greater than or equal to 0 (it is {values['log.roll.jitter.ms']})"
        )
    if values["log.retention.ms"] == 0:
        raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1 (it is 0)")
    threads = values["log.cleaner.threads"]
    if threads and values["log.cleaner.dedupe.buffer.size"] // threads <= 1024 * 1024:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread. "
            f"(it is {values['log.cleaner.dedupe.buffer.size']} for {threads})"
        )
    cordoned = [path for path in values["cordoned.log.dirs"] if path not in values["log.dirs"]]
    if cordoned and cordoned != ["*"]:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(cordoned)}"
        )
    wait = "replica.fetch.wait.max.ms"
    if values[wait] > values["replica.socket.timeout.ms"]:
        raise ConfigError(
            f"replica.socket.timeout.ms should always be at least {wait} to prevent unnecessary socket timeouts "
            f"({values['replica.socket.timeout.ms']} and {values[wait]})"
        )
    if values[wait] > values["replica.lag.time.max.ms"]:
        raise ConfigError(
            f"{wait} should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR "
            f"({values[wait]} and {values['replica.lag.time.max.ms']})"
        )


def _check_network(values: Mapping[str, Any]) -> None:
    queued = values["queued.max.request.bytes"]
    if 0 < queued < values["socket.request.max.bytes"]:
        raise ConfigError(
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes "
            f"({queued} and {values['socket.request.max.bytes']})"
        )
    overrides = parse_ip_limits(values["max.connections.per.ip.overrides"])
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )


def parse_ip_limits(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides, `host:count,…`, as a dict."""
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdecimal():
            raise ConfigError(f"max.connections.per.ip.overrides: '{entry}' is not host:count")
        limits[host.strip()] = int(count)
    return limits


def check_topic(values: Mapping[str, Any], broker: Mapping[str, Any]) -> None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values["remote.storage.enable"] and not broker["remote.log.storage.system.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


# A group key, and the broker keys that limit it.
_GROUP_BOUNDS = [
    (f"{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind in ("consumer", "share", "streams")
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
]
_GROUP_BOUNDS += [
    (f"share.{name}", f"group.share.min.{name}", f"group.share.max.{name}")
    for name in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
]
_GROUP_BOUNDS.append(("streams.num.standby.replicas", "", "group.streams.max.standby.replicas"))


def check_group(values: Mapping[str, Any], broker: Mapping[str, Any]) -> None:
    for key, lowest, highest in _GROUP_BOUNDS:
        if lowest and values[key] < broker[lowest]:
            raise ConfigError(f"{key} must be greater than or equal to {lowest}")
        if values[key] > broker[highest]:
            raise ConfigError(f"{key} must be less than or equal to {highest}")
    for kind in ("consumer", "share", "streams"):
        if values[f"{kind}.session.timeout.ms"] <= values[f"{kind}.heartbeat.interval.ms"]:
            raise ConfigError(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


CLIENT_MATCH_KEYS = frozenset(
    f"client_{name}"
    for name in ("instance_id", "id", "software_name", "software_version", "source_address", "source_port")
)


def check_client_metrics(values: Mapping[str, Any], _broker: Mapping[str, Any]) -> None:
    interval = values["interval.ms"]
    if not 100 <= interval <= 3_600_000:
        raise ConfigError(
            f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
    for pattern in values["match"]:
        name, expression = client_match(pattern)
        if name not in CLIENT_MATCH_KEYS or not expression or "=" in expression or not _is_expression(expression):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def client_match(pattern: str) -> tuple[str, str]:
    """(what is matched, regular expression). Java's split leaves out empty parts at the end."""
    name, _, expression = pattern.rstrip("=").partition("=")
    return name.strip(), expression.strip()


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _conflict(values: Mapping[str, Any], first: str, relation: str, second: str) -> ConfigError:
    return ConfigError(f"{first} must be {relation} {second} ({values[first]} and {values[second]})")
