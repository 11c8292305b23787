"""Valid topic names, and the settings of internal topics."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.errors import InvalidTopicException

if TYPE_CHECKING:
    from ottla.config import Config

NAME_LENGTH_MAX = 249
"""A partition's folder is `name-NNNNN`; with the suffix for deletion it must stay under 255 bytes."""

_LEGAL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException with Kafka's message unless `name` is a valid topic name."""
    if not name:
        detail = "the empty string is not allowed"
    elif name in (".", ".."):
        detail = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        detail = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_CHARACTERS.issuperset(name):
        detail = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicException(f"Topic name is invalid: {detail}")


def is_legal_topic_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH_MAX and name not in (".", "..") and _LEGAL_CHARACTERS.issuperset(name)


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' collide, because metric names do not distinguish them."""
    return name.replace(".", "_")


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number.

    Clients choose names of up to 32 KB. Only names of valid topic length are cached, 26 MB at most.
    """
    if len(text) <= NAME_LENGTH_MAX and text.isascii():
        return remembered_hash(text)
    return _hash(text)


@lru_cache(maxsize=65536)
def remembered_hash(text: str) -> int:
    """`java_hash` with a cache."""
    return _hash(text)


def _hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def internal_partition(key: str, partition_count: int) -> int:
    """The partition of an internal topic for a group or a transactional id.

    Kafka's abs returns 0 for the smallest integer, which has no positive counterpart.
    """
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def single_broker_settings(config: Config, existing: Container[str]) -> list[str]:
    """The missing configuration lines that let a single broker create the internal topics that do not exist yet."""
    lines = []
    if GROUP_METADATA_TOPIC not in existing and config["offsets.topic.replication.factor"] > 1:
        lines.append("offsets.topic.replication.factor=1")
    if TRANSACTION_STATE_TOPIC not in existing and config["transaction.state.log.replication.factor"] > 1:
        lines += ["transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1"]
    if SHARE_STATE_TOPIC not in existing and config["share.coordinator.state.topic.replication.factor"] > 1:
        lines += ["share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1"]
    return lines


def internal_topic_settings(name: str, config: Config) -> tuple[int, int, dict[str, str]]:
    """The partitions, replication factor and overrides of a new internal topic."""
    if name == GROUP_METADATA_TOPIC:
        return (
            config["offsets.topic.num.partitions"],
            config["offsets.topic.replication.factor"],
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                "compression.type": "producer",
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return (
            config["transaction.state.log.num.partitions"],
            config["transaction.state.log.replication.factor"],
            {
                "unclean.leader.election.enable": "false",
                "cleanup.policy": "compact",
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            },
        )
    if name == SHARE_STATE_TOPIC:
        return (
            config["share.coordinator.state.topic.num.partitions"],
            config["share.coordinator.state.topic.replication.factor"],
            {
                "cleanup.policy": "delete",
                "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
                "compression.type": "producer",
                "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
                "retention.ms": "-1",
            },
        )
    raise AssertionError(f"{name} is not an internal topic")
