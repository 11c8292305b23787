"""The placement of partitions: elections and reassignments, on any cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.offsets import grouped
from ottla.client.routing import Client, TopicPartition
from ottla.enums import ElectionType
from ottla.errors import ElectionNotNeeded, KafkaError, error_for
from ottla.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

Outcomes = dict[TopicPartition, KafkaError | None]
"""The error for each partition; None for success."""


class Reassignment(NamedTuple):
    """A move in progress."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


async def elect_leaders(
    client: Client, partitions: Iterable[TopicPartition] | None = None, *, election: int = ElectionType.PREFERRED
) -> Outcomes:
    """Elect leaders for these partitions, or for all. The result omits partitions that need no election."""
    entry = ElectLeadersRequest.TopicPartitions
    wanted = (
        None
        if partitions is None
        else [entry(topic=topic, partitions=indexes) for topic, indexes in grouped(partitions).items()]
    )
    response = await client.ask_controller(ElectLeadersRequest(election_type=election, topic_partitions=wanted))
    if response.error_code:
        raise error_for(response.error_code)
    return {
        (topic.topic, p.partition_id): error_for(p.error_code, p.error_message or None) if p.error_code else None
        for topic in response.replica_election_results
        for p in topic.partition_result
        if p.error_code != ElectionNotNeeded.code
    }


async def reassign(client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
    """Assign new replicas to partitions, the preferred leader first. None cancels a move in progress."""
    entry = AlterPartitionReassignmentsRequest.ReassignablePartition
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    entry(partition_index=index, replicas=None if (to := wanted[topic, index]) is None else list(to))
                    for index in indexes
                ],
            )
            for topic, indexes in grouped(wanted).items()
        ]
    )
    response = await client.ask_controller(request)
    if response.error_code:
        raise error_for(response.error_code, response.error_message or None)
    return {
        (topic.name, p.partition_index): error_for(p.error_code, p.error_message or None) if p.error_code else None
        for topic in response.responses
        for p in topic.partitions
    }


async def reassignments(client: Client) -> dict[TopicPartition, Reassignment]:
    """The moves in progress."""
    response = await client.ask_controller(ListPartitionReassignmentsRequest(topics=None))
    if response.error_code:
        raise error_for(response.error_code, response.error_message or None)
    return {
        (topic.name, p.partition_index): Reassignment(p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    }
