"""Explicit changes of leaders and in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.metadata.reassignment import change_of, reassign
from ottla.wire.stored import metadata as stored

if TYPE_CHECKING:
    from ottla.multibroker.cluster_view import ClusterServer


def lead_here(server: ClusterServer, topic: str, index: int, broker_id: int) -> None:
    """An election with a given winner. Nothing is lost, because the winner must be in sync."""
    state = server.state(topic, index)
    if broker_id == state.leader:
        return
    if broker_id not in state.replicas:
        raise ValueError(f"broker {broker_id} has no replica of {topic}-{index}; {state.replicas} have one")
    if broker_id not in state.isr or not server.metadata.is_active(broker_id):
        raise ValueError(f"broker {broker_id} is not in sync for {topic}-{index} and cannot lead; {state.isr} are")
    server.controller.commit(
        [stored.PartitionChangeRecord(partition_id=index, topic_id=state.topic_id, leader=broker_id)]
    )


def drop_from_isr(server: ClusterServer, topic: str, index: int, brokers: Iterable[int]) -> None:
    """Remove replicas from the ISR and keep them out; ELR and min.insync.replicas behave as after a real lag."""
    gone = set(brokers)
    state = server.state(topic, index)
    unknown = sorted(gone.difference(state.replicas))
    if unknown:
        raise ValueError(f"broker {unknown[0]} has no replica of {topic}-{index}; {state.replicas} have one")
    if state.leader in gone:
        raise ValueError(f"broker {state.leader} leads {topic}-{index}: a leader is always in sync; move it first")
    server.nodes.kept_out.update((topic, index, broker) for broker in gone)
    change = change_of(server.metadata, state, min_isr=server.controller.min_isr(topic))
    change.isr = [broker for broker in state.isr if broker not in gone]
    record = change.record()
    if record is not None:
        server.controller.commit([record])


def move_replicas(server: ClusterServer, topic: str, index: int, replicas: Sequence[int] | None) -> None:
    """Like AlterPartitionReassignments."""
    controller = server.controller
    try:
        record = reassign(
            server.metadata,
            topic,
            index,
            replicas,
            directories=controller.directories,
            may_elect_unclean=controller.may_elect_unclean(topic),
            min_isr=controller.min_isr(topic),
        )
    except KafkaError as error:
        raise ValueError(f"{topic}-{index} cannot be moved to {replicas}: {error.message}") from error
    if record is not None:
        controller.commit([record])
