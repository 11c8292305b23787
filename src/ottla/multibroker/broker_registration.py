"""The checks of a controller when a broker registers over the wire, in Kafka's order (KIP-631, KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import (
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    UnsupportedVersion,
)
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import KRAFT_VERSION, MetadataImage
from ottla.wire.messages import BrokerRegistrationRequest
from ottla.wire.primitives import uuid_to_base64

FOLDERS_ASSIGNED = 17
"""The level of metadata.version (3.7-IV2) from which brokers must report their data folders."""

RESERVED_FOLDERS = 100
"""Ids below this number have a special meaning, such as "unassigned" and "lost"."""


def check_registration(request: BrokerRegistrationRequest, image: MetadataImage, cluster_id: str) -> None:
    if request.cluster_id != cluster_id:
        raise InconsistentClusterId(f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}")
    known = image.brokers.get(request.broker_id)
    if known is not None and not known.fenced and known.incarnation_id != request.incarnation_id:
        raise DuplicateBrokerRegistration(
            f"Another broker is registered with that broker id {request.broker_id}, and its session has not expired."
        )
    if image.features.get(METADATA_VERSION, 0) >= FOLDERS_ASSIGNED:
        _check_folders(request, image)
    _check_features(request, image.features)


def _check_folders(request: BrokerRegistrationRequest, image: MetadataImage) -> None:
    if not request.log_dirs:
        raise InvalidRegistration("No directories specified in request")
    if any(int.from_bytes(folder, "big") < RESERVED_FOLDERS for folder in request.log_dirs):
        raise InvalidRegistration("Reserved directory ID in request")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise InvalidRegistration("Duplicate directory ID in request")
    for broker in image.brokers.values():
        for folder in request.log_dirs:
            if broker.broker_id != request.broker_id and folder in broker.log_dirs:
                raise InvalidRegistration(
                    f"Broker {broker.broker_id} is already registered with directory {uuid_to_base64(folder)}"
                )


def _check_features(request: BrokerRegistrationRequest, finalized: Mapping[str, int]) -> None:
    supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for name, (lowest, highest) in supported.items():
        if not lowest <= finalized.get(name, 0) <= highest:
            raise _unsupported(name, finalized.get(name, 0))
    if METADATA_VERSION not in supported:
        raise InvalidRegistration("Request features do not contain 'metadata.version'")
    for name, level in finalized.items():
        if level > 0 and name not in supported and name != KRAFT_VERSION:
            raise _unsupported(name, level)


def _unsupported(name: str, level: int) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"Unable to register because the broker does not support finalized version {level} of {name}."
    )
