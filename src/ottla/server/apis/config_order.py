"""The order of keys in DescribeConfigs answers: that of Kafka's hash maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.metadata.java_hash_order import java_map, scala_map
from ottla.metadata.topics import java_hash

if TYPE_CHECKING:
    from ottla.config.describe import DescribedConfig

_BUCKETS = {"topic": 64, "broker": 512, "group": 32, "client-metrics": 16}
"""Kafka's map has all keys of the kind, even if few are requested."""

# Within a bucket, keys are in the order of Kafka's definitions. Kafka defines these before their neighbours in
# the bucket, but our tables have them later.
_FIRST = {
    "topic": ("segment.bytes", "retention.ms", "flush.messages", "max.compaction.lag.ms", "retention.bytes"),
    "broker": (
        "remote.log.metadata.manager.listener.name",
        "group.consumer.max.session.timeout.ms",
        "metadata.log.segment.bytes",
        "fetch.purgatory.purge.interval.requests",
        "group.streams.num.standby.replicas",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.copy.quota.window.size.seconds",
        "sasl.oauthbearer.scope",
        "group.consumer.max.size",
        "remote.fetch.max.wait.ms",
        "remote.log.reader.threads",
        "transaction.partition.verification.enable",
        "remote.log.manager.fetch.quota.window.size.seconds",
        "remote.log.manager.copier.thread.pool.size",
        "group.consumer.min.assignment.interval.ms",
        "remote.log.storage.manager.class.name",
        "producer.purgatory.purge.interval.requests",
        "group.share.assignors",
        "group.share.max.assignment.interval.ms",
        "group.streams.session.timeout.ms",
        "group.share.assignment.interval.ms",
        "connection.failed.authentication.delay.ms",
        "sasl.mechanism.controller.protocol",
        "share.fetch.purgatory.purge.interval.requests",
        "log.cleaner.enable",
        "remote.log.metadata.manager.impl.prefix",
        "replica.fetch.backoff.ms",
        "group.share.delivery.count.limit",
        "socket.connection.setup.timeout.ms",
        "remote.log.manager.expiration.thread.pool.size",
        "config.providers",
        "compression.lz4.level",
        "log.roll.hours",
        "remote.log.metadata.manager.class.name",
        "remote.log.manager.task.interval.ms",
        "remote.log.metadata.manager.class.path",
        "group.share.max.size",
    ),
}


def in_order(kind: str, described: Sequence[DescribedConfig]) -> list[DescribedConfig]:
    """`kind` as in Config.describe."""
    entries = {entry.name: entry for entry in described}
    if kind == "cluster":
        return [entries[name] for name in scala_map(entries, java_hash)]
    # Keys that are in no table, or shown only when set, come first.
    unknown = [name for name, entry in entries.items() if entry.key is None or entry.key.internal]
    known = [name for name in entries if name not in unknown]
    first = {name: place for place, name in enumerate(_FIRST.get(kind, ()))}
    known.sort(key=lambda name: first.get(name, len(first)))
    return [entries[name] for name in (*java_map(unknown, java_hash), *java_map(known, java_hash, _BUCKETS[kind]))]
