"""Keys of topics, groups and client metrics subscriptions, with the broker keys that they fall back to."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    MEDIUM,
    STRING,
    ConfigKey,
    GzipLevel,
    ListOf,
    OffsetReset,
    OneOf,
    Range,
    ThrottledReplicas,
    table,
)

TOPIC_KEYS: Mapping[str, ConfigKey] = table(
    ConfigKey(
        "cleanup.policy", LIST, ("delete",), MEDIUM, ListOf("compact", "delete"), synonyms=("log.cleanup.policy",)
    ),
    ConfigKey("compression.gzip.level", INT, -1, MEDIUM, GzipLevel(), synonyms=("compression.gzip.level",)),
    ConfigKey("compression.lz4.level", INT, 9, MEDIUM, Range(1, 17), synonyms=("compression.lz4.level",)),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        MEDIUM,
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
    ),
    ConfigKey("compression.zstd.level", INT, 3, MEDIUM, Range(-131_072, 22), synonyms=("compression.zstd.level",)),
    ConfigKey("delete.retention.ms", LONG, 86_400_000, MEDIUM, Range(0), synonyms=("log.cleaner.delete.retention.ms",)),
    ConfigKey("file.delete.delay.ms", LONG, 60_000, MEDIUM, Range(0), synonyms=("log.segment.delete.delay.ms",)),
    ConfigKey("flush.messages", LONG, MAX_LONG, MEDIUM, Range(1), synonyms=("log.flush.interval.messages",)),
    ConfigKey(
        "flush.ms",
        LONG,
        MAX_LONG,
        MEDIUM,
        Range(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    ConfigKey("follower.replication.throttled.replicas", LIST, (), MEDIUM, ThrottledReplicas()),
    ConfigKey("index.interval.bytes", INT, 4096, MEDIUM, Range(0), synonyms=("log.index.interval.bytes",)),
    ConfigKey("internal.segment.bytes", INT, None, MEDIUM, internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, (), MEDIUM, ThrottledReplicas()),
    ConfigKey("local.retention.bytes", LONG, -2, MEDIUM, Range(-2), synonyms=("log.local.retention.bytes",)),
    ConfigKey("local.retention.ms", LONG, -2, MEDIUM, Range(-2), synonyms=("log.local.retention.ms",)),
    ConfigKey(
        "max.compaction.lag.ms", LONG, MAX_LONG, MEDIUM, Range(1), synonyms=("log.cleaner.max.compaction.lag.ms",)
    ),
    ConfigKey("max.message.bytes", INT, 1_048_588, MEDIUM, Range(0), synonyms=("message.max.bytes",)),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        MEDIUM,
        Range(0),
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        MEDIUM,
        Range(0),
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        MEDIUM,
        OneOf("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, MEDIUM, Range(0, 1), synonyms=("log.cleaner.min.cleanable.ratio",)
    ),
    ConfigKey("min.compaction.lag.ms", LONG, 0, MEDIUM, Range(0), synonyms=("log.cleaner.min.compaction.lag.ms",)),
    ConfigKey("min.insync.replicas", INT, 1, MEDIUM, Range(1), synonyms=("min.insync.replicas",)),
    ConfigKey("preallocate", BOOLEAN, False, MEDIUM, synonyms=("log.preallocate",)),
    ConfigKey("remote.log.copy.disable", BOOLEAN, False, MEDIUM),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, False, MEDIUM),
    ConfigKey("remote.storage.enable", BOOLEAN, False, MEDIUM),
    ConfigKey("retention.bytes", LONG, -1, MEDIUM, synonyms=("log.retention.bytes",)),
    ConfigKey(
        "retention.ms",
        LONG,
        604_800_000,
        MEDIUM,
        Range(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    ConfigKey("segment.bytes", INT, 1_073_741_824, MEDIUM, Range(1_048_576), synonyms=("log.segment.bytes",)),
    ConfigKey("segment.index.bytes", INT, 10_485_760, MEDIUM, Range(4), synonyms=("log.index.size.max.bytes",)),
    ConfigKey("segment.jitter.ms", LONG, 0, MEDIUM, Range(0), synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    ConfigKey("segment.ms", LONG, 604_800_000, MEDIUM, Range(1), synonyms=("log.roll.ms", "log.roll.hours")),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, MEDIUM, synonyms=("unclean.leader.election.enable",)),
)

GROUP_KEYS: Mapping[str, ConfigKey] = table(
    ConfigKey(
        "consumer.assignment.interval.ms",
        INT,
        1000,
        MEDIUM,
        Range(0),
        synonyms=("group.consumer.assignment.interval.ms",),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        INT,
        5000,
        MEDIUM,
        Range(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
    ),
    ConfigKey(
        "consumer.session.timeout.ms", INT, 45_000, MEDIUM, Range(1), synonyms=("group.consumer.session.timeout.ms",)
    ),
    ConfigKey(
        "share.assignment.interval.ms", INT, 1000, MEDIUM, Range(0), synonyms=("group.share.assignment.interval.ms",)
    ),
    ConfigKey("share.auto.offset.reset", STRING, "latest", MEDIUM, OffsetReset()),
    ConfigKey("share.delivery.count.limit", INT, 5, MEDIUM, Range(2), synonyms=("group.share.delivery.count.limit",)),
    ConfigKey(
        "share.heartbeat.interval.ms", INT, 5000, MEDIUM, Range(1), synonyms=("group.share.heartbeat.interval.ms",)
    ),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted", MEDIUM, OneOf("read_committed", "read_uncommitted")),
    ConfigKey(
        "share.partition.max.record.locks",
        INT,
        2000,
        MEDIUM,
        Range(100),
        synonyms=("group.share.partition.max.record.locks",),
    ),
    ConfigKey(
        "share.record.lock.duration.ms",
        INT,
        30_000,
        MEDIUM,
        Range(1000),
        synonyms=("group.share.record.lock.duration.ms",),
    ),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, True, MEDIUM),
    ConfigKey("share.session.timeout.ms", INT, 45_000, MEDIUM, Range(1), synonyms=("group.share.session.timeout.ms",)),
    ConfigKey(
        "streams.assignment.interval.ms",
        INT,
        1000,
        MEDIUM,
        Range(0),
        synonyms=("group.streams.assignment.interval.ms",),
    ),
    ConfigKey(
        "streams.heartbeat.interval.ms", INT, 5000, MEDIUM, Range(1), synonyms=("group.streams.heartbeat.interval.ms",)
    ),
    ConfigKey(
        "streams.initial.rebalance.delay.ms",
        INT,
        3000,
        MEDIUM,
        Range(0),
        synonyms=("group.streams.initial.rebalance.delay.ms",),
    ),
    ConfigKey(
        "streams.num.standby.replicas", INT, 0, MEDIUM, Range(0), synonyms=("group.streams.num.standby.replicas",)
    ),
    ConfigKey(
        "streams.session.timeout.ms", INT, 45_000, MEDIUM, Range(1), synonyms=("group.streams.session.timeout.ms",)
    ),
)

CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = table(
    ConfigKey("interval.ms", INT, 300_000, MEDIUM),
    ConfigKey("match", LIST, (), MEDIUM, ListOf()),
    ConfigKey("metrics", LIST, (), MEDIUM, ListOf()),
)

TOPIC_ORDER = (
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
    "flush.messages",
    "flush.ms",
    "retention.bytes",
    "retention.ms",
    "max.message.bytes",
    "index.interval.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "min.cleanable.dirty.ratio",
    "cleanup.policy",
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "preallocate",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "remote.storage.enable",
    "local.retention.ms",
    "local.retention.bytes",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "internal.segment.bytes",
)
"""The order of Kafka's definitions: with several invalid values, the first one is reported."""

GROUP_ORDER = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    "share.assignment.interval.ms",
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms",
    "streams.assignment.interval.ms",
)
"""The same for groups."""
