"""The settings of one log, resolved once from the topic configs: the append path reads attributes, not a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

_GIB: Final = 1 << 30
_DAY_MS: Final = 24 * 60 * 60 * 1000
_NEVER: Final = (1 << 63) - 1


class TopicSettings(Protocol):
    """Any object that supports `settings["segment.bytes"]`."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(slots=True, kw_only=True)
class LogConfig:
    """Kafka 4.3's defaults."""

    segment_bytes: int = _GIB
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * (1 << 20)
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    delete: bool = True
    compact: bool = False
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _NEVER
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    max_message_bytes: int = 1024 * 1024 + 12
    producer_id_expiration_ms: int = _DAY_MS
    refuse_damage: bool = False
    """Refuse to open a log that is damaged in the middle, instead of cutting it there."""

    @classmethod
    def from_topic_config(cls, topic: TopicSettings, producer_id_expiration_ms: int = _DAY_MS) -> LogConfig:
        """Resolve a topic's configs. `producer.id.expiration.ms` is a broker setting."""
        policy = topic["cleanup.policy"]
        policies = {part.strip() for part in policy.split(",")} if isinstance(policy, str) else set(policy)
        return cls(
            segment_bytes=_segment_bytes(topic),
            segment_ms=topic["segment.ms"],
            segment_jitter_ms=topic["segment.jitter.ms"],
            segment_index_bytes=topic["segment.index.bytes"],
            index_interval_bytes=topic["index.interval.bytes"],
            retention_ms=topic["retention.ms"],
            retention_bytes=topic["retention.bytes"],
            delete="delete" in policies,
            compact="compact" in policies,
            delete_retention_ms=topic["delete.retention.ms"],
            min_cleanable_dirty_ratio=topic["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=topic["min.compaction.lag.ms"],
            max_compaction_lag_ms=topic["max.compaction.lag.ms"],
            file_delete_delay_ms=topic["file.delete.delay.ms"],
            flush_messages=topic["flush.messages"],
            flush_ms=topic["flush.ms"],
            max_message_bytes=topic["max.message.bytes"],
            producer_id_expiration_ms=producer_id_expiration_ms,
        )


def _segment_bytes(topic: TopicSettings) -> int:
    """Kafka's internal key allows values below the minimum of `segment.bytes`."""
    try:
        internal: int | None = topic["internal.segment.bytes"]
    except KeyError:
        internal = None
    size: int = topic["segment.bytes"] if internal is None else internal
    return size
