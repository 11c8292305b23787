"""The features of Kafka 4.3.1 (KIP-584): the supported levels, the levels of a new cluster, and changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.enums import ConfigResourceType, FeatureUpgradeType
from ottla.errors import InvalidUpdateVersion
from ottla.lazy_imports import lazy
from ottla.metadata.image import KRAFT_VERSION
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.metadata import java_hash_order
    from ottla.metadata.image import MetadataImage
    from ottla.wire.schema import Message
else:
    java_hash_order = lazy("ottla.metadata.java_hash_order")

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"

METADATA_TRANSACTIONS = 13
"""The level of metadata.version (3.6-IV1) from which records can be written as a transaction."""

CHANGED_RECORDS = frozenset({8, 11, 13, 14, 15, 17, 23, 30})
"""The levels of metadata.version that added records or fields, as Kafka 4.3.1 counts them. A downgrade would lose
these, so Kafka only allows downgrades across the other levels."""

NEEDED_METADATA: dict[tuple[str, int], int] = {(ELIGIBLE_LEADERS, 1): 23}
"""The metadata.version that a level of a feature depends on."""

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
"""The features that `kafka-storage format` of 4.3.1 finalizes, in its order."""

_UPGRADE_TYPES = frozenset(FeatureUpgradeType) - {FeatureUpgradeType.UNKNOWN}


class FeatureUpdate(NamedTuple):
    """A requested level of a feature."""

    name: str
    level: int
    kind: int


def plan_updates(
    image: MetadataImage, node_id: int, updates: Iterable[FeatureUpdate], min_insync_replicas: int
) -> list[Message]:
    """The records of all updates; if one is refused, all are. The quorum itself writes its kraft.version.

    Kafka keeps them in a hash map: its order decides which error is returned, and the last update of a feature wins.
    """
    records: list[Message] = []
    wanted = {update.name: update for update in updates}
    metadata_version = (
        wanted[METADATA_VERSION].level if METADATA_VERSION in wanted else image.features[METADATA_VERSION]
    )
    for update in java_hash_order.by_hash(wanted).values():
        reason = _reason_against(image, node_id, update, metadata_version)
        if reason is not None:
            raise InvalidUpdateVersion(
                f"The update failed for all features since the following feature had an error: {reason}"
            )
        if update.name != KRAFT_VERSION and image.features.get(update.name, 0) != update.level:
            if update.name == ELIGIBLE_LEADERS and update.level:
                records += _set_min_isr_once(image, min_insync_replicas)
            records.append(stored.FeatureLevelRecord(name=update.name, feature_level=update.level))
    return records


def _set_min_isr_once(image: MetadataImage, min_insync_replicas: int) -> list[Message]:
    """Eligible leader replicas need one min.insync.replicas for all brokers (KIP-966)."""
    kind, name = ConfigResourceType.BROKER, "min.insync.replicas"
    records: list[Message] = []
    if name not in image.configs.get((kind, ""), {}):
        value = str(min_insync_replicas)
        records.append(stored.ConfigRecord(resource_type=kind, resource_name="", name=name, value=value))
    for (resource_type, broker), values in image.configs.items():
        if resource_type == kind and broker and name in values:
            records.append(stored.ConfigRecord(resource_type=kind, resource_name=broker, name=name, value=None))
    return records


def _reason_against(image: MetadataImage, node_id: int, update: FeatureUpdate, metadata_version: int) -> str | None:
    """The reason to refuse an update. `metadata_version` is the version that applies after all updates."""
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
    if name == KRAFT_VERSION and level < current:
        return refused + "Can't downgrade the version of this feature."
    needed = NEEDED_METADATA.get((name, level), 0)
    if metadata_version < needed:
        return f"{refused}{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
    if name == METADATA_VERSION and CHANGED_RECORDS.intersection(range(level + 1, current + 1)):
        downgrade = f"Unsupported metadata.version downgrade from {current} to {level}. "
        if kind == FeatureUpgradeType.UNSAFE_DOWNGRADE:
            return downgrade + "Unsafe metadata downgrade is not supported in this version."
        return downgrade + "Refusing to perform the requested downgrade because it might delete metadata information."
    return None
