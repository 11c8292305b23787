"""Which replica a consumer should read from (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.services import Services

RACK_AWARE = "RackAwareReplicaSelector"


def nearest_replica(services: Services, partition: Partition, offset: int, rack: str) -> int | None:
    """An in-sync follower in the consumer's rack that has the requested offset; None to read from the leader."""
    selector: str | None = services.config["replica.selector.class"]
    leadership = partition.leadership
    if not selector or leadership is None or not selector.endswith(RACK_AWARE):
        return None
    image = services.metadata
    candidates = [
        (follower.log_end_offset, -follower.broker_id)
        for follower in leadership.followers.values()
        if follower.broker_id in partition.state.isr
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and image.is_active(follower.broker_id)
        and image.brokers[follower.broker_id].rack == rack
    ]
    own = image.brokers.get(services.node_id)
    if own is not None and own.rack == rack:
        return None
    return -max(candidates)[1] if candidates else None
