"""The features of Kafka 4.3.1 (KIP-584): what this broker supports, what a new cluster starts with, and changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.enums import ConfigResourceType, FeatureUpgradeType
from ottla.errors import InvalidUpdateVersion
from ottla.lazy_imports import lazy
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.metadata import java_hash_order
    from ottla.metadata.image import MetadataImage
    from ottla.wire.schema import Message
else:
    java_hash_order = lazy("ottla.metadata.java_hash_order")

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"

METADATA_TRANSACTIONS = 13
"""The level of metadata.version (3.6-IV1) from which records can be written as a transaction."""

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

_UPGRADE_TYPES = frozenset(FeatureUpgradeType) - {FeatureUpgradeType.UNKNOWN}


class FeatureUpdate(NamedTuple):
    """A level that somebody wants a feature to have."""

    name: str
    level: int
    kind: int


def plan_updates(
    image: MetadataImage, node_id: int, updates: Iterable[FeatureUpdate], min_insync_replicas: int
) -> list[Message]:
    """The records of all updates; one that is refused refuses them all.

    Kafka has them in a hash map: that decides which of several is complained about, and of one feature the last counts.
    """
    records: list[Message] = []
    for update in java_hash_order.by_hash({update.name: update for update in updates}).values():
        reason = _reason_against(image, node_id, update)
        if reason is not None:
            raise InvalidUpdateVersion(
                f"The update failed for all features since the following feature had an error: {reason}"
            )
        if image.features.get(update.name, 0) != update.level:
            if update.name == ELIGIBLE_LEADERS and update.level:
                records += _set_min_isr_once(image, min_insync_replicas)
            records.append(stored.FeatureLevelRecord(name=update.name, feature_level=update.level))
    return records


def _set_min_isr_once(image: MetadataImage, min_insync_replicas: int) -> list[Message]:
    """Eligible leader replicas need a min.insync.replicas that is set once, for all brokers (KIP-966)."""
    kind, name = ConfigResourceType.BROKER, "min.insync.replicas"
    records: list[Message] = []
    if name not in image.configs.get((kind, ""), {}):
        value = str(min_insync_replicas)
        records.append(stored.ConfigRecord(resource_type=kind, resource_name="", name=name, value=value))
    for (resource_type, broker), values in image.configs.items():
        if resource_type == kind and broker and name in values:
            records.append(stored.ConfigRecord(resource_type=kind, resource_name=broker, name=name, value=None))
    return records


def _reason_against(image: MetadataImage, node_id: int, update: FeatureUpdate) -> str | None:
    name, level, kind = update
    refused = f"Invalid update version {level} for feature {name}. "
    if kind not in _UPGRADE_TYPES:
        return refused + "The controller does not support the given upgrade type."
    if level < 0:
        return refused + "A feature version cannot be less than 0."
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None and level == 0:
        return refused + f"Feature {name} not found."
    if supported is None:
        return refused + f"Local controller {node_id} does not support this feature."
    low, high = supported
    if not low <= level <= high:
        return refused + f"Local controller {node_id} only supports versions {low}-{high}"
    current = image.features.get(name, 0)
    if level < current and kind == FeatureUpgradeType.UPGRADE:
        return (
            f"{refused}Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade."
        )
    if level > current and kind != FeatureUpgradeType.UPGRADE:
        return refused + "Can't downgrade to a newer version."
    if name == KRAFT_VERSION and level != current:
        # Kafka would go over to voters that can be added and removed; there is one here, and it stays.
        return refused + "The voters of this metadata quorum are fixed."
    if name == METADATA_VERSION and level < current:
        # Every version since 3.3 changed what records may hold, so that Kafka lets none of them go back.
        downgrade = f"Unsupported metadata.version downgrade from {current} to {level}. "
        if kind == FeatureUpgradeType.UNSAFE_DOWNGRADE:
            return downgrade + "Unsafe metadata downgrade is not supported in this version."
        return downgrade + "Refusing to perform the requested downgrade because it might delete metadata information."
    return None
