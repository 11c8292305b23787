"""The features of Kafka 4.3.1 (KIP-584): what this broker supports and what a new cluster is formatted with."""

from __future__ import annotations

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "eligible.leader.replicas.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}

FORMATTED_FEATURES: dict[str, int] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""What `kafka-storage format` of 4.3.1 finalizes, in its order."""
