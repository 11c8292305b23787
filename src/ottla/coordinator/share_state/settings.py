"""The broker's settings for the share coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.runtime.interfaces import TypedSettings


@dataclass(slots=True)
class ShareStateSettings:
    partitions: int = 50
    updates_per_snapshot: int = 500
    write_timeout_ms: int = 5000
    compression_codec: int = 0

    @classmethod
    def from_config(cls, config: TypedSettings) -> ShareStateSettings:
        return cls(
            partitions=config["share.coordinator.state.topic.num.partitions"],
            updates_per_snapshot=config["share.coordinator.snapshot.update.records.per.snapshot"],
            write_timeout_ms=config["share.coordinator.write.timeout.ms"],
            compression_codec=int(config["share.coordinator.state.topic.compression.codec"]),
        )
