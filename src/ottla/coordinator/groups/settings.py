"""The broker's settings for groups, read once, so that the hot path uses plain attributes."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.runtime.interfaces import TypedSettings

INT32_MAX = 2**31 - 1


@dataclass(slots=True)
class GroupSettings:
    offsets_partitions: int = 50
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5000
    compression_codec: int = 0
    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT32_MAX
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5000
    streams_assignment_interval_ms: int = 1000
    streams_initial_rebalance_delay_ms: int = 3000
    streams_max_size: int = INT32_MAX
    streams_standby_replicas: int = 0
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_assignment_interval_ms: int = 1000
    consumer_max_size: int = INT32_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5000
    share_assignment_interval_ms: int = 1000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000

    @property
    def upgrade_enabled(self) -> bool:
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def downgrade_enabled(self) -> bool:
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    @classmethod
    def from_config(cls, config: TypedSettings) -> GroupSettings:
        """From any mapping of Kafka's names to typed values."""
        return cls(
            offsets_partitions=config["offsets.topic.num.partitions"],
            offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
            offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
            offsets_check_interval_ms=config["offsets.retention.check.interval.ms"],
            commit_timeout_ms=config["offsets.commit.timeout.ms"],
            compression_codec=int(config["offsets.topic.compression.codec"]),
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            min_session_timeout_ms=config["group.min.session.timeout.ms"],
            max_session_timeout_ms=config["group.max.session.timeout.ms"],
            max_size=config["group.max.size"],
            streams_session_timeout_ms=config["group.streams.session.timeout.ms"],
            streams_heartbeat_interval_ms=config["group.streams.heartbeat.interval.ms"],
            streams_assignment_interval_ms=config["group.streams.assignment.interval.ms"],
            streams_initial_rebalance_delay_ms=config["group.streams.initial.rebalance.delay.ms"],
            streams_max_size=config["group.streams.max.size"],
            streams_standby_replicas=config["group.streams.num.standby.replicas"],
            consumer_session_timeout_ms=config["group.consumer.session.timeout.ms"],
            consumer_heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
            consumer_assignment_interval_ms=config["group.consumer.assignment.interval.ms"],
            consumer_max_size=config["group.consumer.max.size"],
            consumer_assignors=tuple(config["group.consumer.assignors"]),
            consumer_migration_policy=str(config["group.consumer.migration.policy"]).lower(),
            consumer_regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
            share_session_timeout_ms=config["group.share.session.timeout.ms"],
            share_heartbeat_interval_ms=config["group.share.heartbeat.interval.ms"],
            share_assignment_interval_ms=config["group.share.assignment.interval.ms"],
            share_max_size=config["group.share.max.size"],
            share_initialize_retry_interval_ms=config["group.share.initialize.retry.interval.ms"],
        )
