"""What a topic may be called, and the settings of the broker's own topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.errors import InvalidTopicException

if TYPE_CHECKING:
    from ottla.config import Config

NAME_LENGTH_MAX = 249
"""A partition's folder is `name-NNNNN`; with a deletion's suffix it must stay under 255 bytes."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException, in the words that Kafka's clients show, unless `name` is a legal topic name."""
    if not name:
        detail = "the empty string is not allowed"
    elif name in (".", ".."):
        detail = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        detail = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.match(name):
        detail = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicException(f"Topic name is invalid: {detail}")


def is_legal_topic_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH_MAX and name not in (".", "..") and _LEGAL_NAME.match(name) is not None


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' collide, because metric names cannot tell them apart."""
    return name.replace(".", "_")


def internal_partition(key: str, partitions: int) -> int:
    """The partition of an internal topic that keeps `key`: Java's string hash, without its sign."""
    code = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code & 0x80000000 else code
    # Java's abs() of the smallest int is negative; Kafka takes 0 for it.
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def internal_topic_settings(name: str, config: Config) -> tuple[int, int, dict[str, str]]:
    """Partitions, replication factor and overrides with which the broker creates one of its own topics."""
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
