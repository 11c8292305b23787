"""Offsets: of partitions by timestamp, and of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.connection import GroupHasMembers
from ottla.client.routing import Client, PartitionResults, TopicPartition
from ottla.enums import IsolationLevel, OffsetTimestamp
from ottla.errors import IllegalGeneration, KafkaError, UnknownMemberId, error_for
from ottla.wire.messages.fetch import ListOffsetsRequest
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest


class Found(NamedTuple):
    """An offset by timestamp; -1 if no record is that recent."""

    offset: int
    timestamp: int
    leader_epoch: int


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class MemberIdentity(NamedTuple):
    """The member that commits, with its generation (classic) or epoch (consumer protocol)."""

    member_id: str
    generation: int
    instance_id: str | None = None


def grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


async def list_offsets(
    client: Client, wanted: Mapping[TopicPartition, int], isolation: int = IsolationLevel.READ_UNCOMMITTED
) -> dict[TopicPartition, Found]:
    """The first offset at or after each timestamp, or at EARLIEST or LATEST."""

    async def call(node_id: int, share: list[TopicPartition]) -> PartitionResults[Found]:
        entry = ListOffsetsRequest.ListOffsetsPartition
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[entry(partition_index=index, timestamp=wanted[topic, index]) for index in indexes],
                )
                for topic, indexes in grouped(share).items()
            ],
            timeout_ms=30_000,
        )
        response = await client.ask(request, node_id)
        return {
            (topic.name, p.partition_index): error_for(p.error_code)
            if p.error_code
            else Found(p.offset if not p.old_style_offsets else p.old_style_offsets[0], p.timestamp, p.leader_epoch)
            for topic in response.topics
            for p in topic.partitions
        }

    return await client.by_leader(wanted, call)


async def bounds(
    client: Client, partitions: Iterable[TopicPartition], isolation: int = IsolationLevel.READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """The start and end offsets of each partition."""
    wanted = list(partitions)
    starts = await list_offsets(client, dict.fromkeys(wanted, OffsetTimestamp.EARLIEST))
    ends = await list_offsets(client, dict.fromkeys(wanted, OffsetTimestamp.LATEST), isolation)
    return {tp: (starts[tp].offset, ends[tp].offset) for tp in wanted}


async def committed(
    client: Client, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, for all of its partitions or for these; omits partitions without a commit.

    With `stable`, a commit in an open transaction raises UNSTABLE_OFFSET_COMMIT instead of returning the previous one
    (KIP-447).
    """
    topics: Any = None
    old_topics: Any = None
    if partitions is not None:
        wanted = grouped(partitions)
        new, old = OffsetFetchRequest.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [new(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        old_topics = [old(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    request = OffsetFetchRequest(
        group_id=group,
        topics=old_topics,
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=stable,
    )
    response = await client.ask_coordinator(group, request)
    answer: Any = response.groups[0] if response.groups else response
    if answer.error_code:
        raise error_for(answer.error_code)
    found: dict[TopicPartition, Committed] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                raise error_for(p.error_code)
            if p.committed_offset >= 0:
                found[topic.name, p.partition_index] = Committed(
                    p.committed_offset, p.committed_leader_epoch, p.metadata or ""
                )
    return found


async def committed_of_groups(
    client: Client, node_id: int, groups: Iterable[str], topics: Mapping[str, Iterable[int]] | None = None
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of many groups of one coordinator in one request (KIP-709), for some topics or all.

    Omits groups that cannot be read.
    """
    entry = OffsetFetchRequest.OffsetFetchRequestTopics
    wanted: Any = (
        None
        if topics is None
        else [entry(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()]
    )
    of_group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[of_group(group_id=group, topics=wanted) for group in groups])
    response = await client.ask(request, node_id, highest=9)  # from v10 on, topics are identified by id
    return {
        answer.group_id: {
            (topic.name, p.partition_index): p.committed_offset
            for topic in answer.topics
            for p in topic.partitions
            if not p.error_code and p.committed_offset >= 0
        }
        for answer in response.groups
        if not answer.error_code
    }


async def commit(
    client: Client, group: str, offsets: Mapping[TopicPartition, Committed], member: MemberIdentity | None = None
) -> None:
    """Commit as a member, or without one, which the broker only allows while the group has no members."""
    if not offsets:
        return
    entry = OffsetCommitRequest.OffsetCommitRequestPartition
    identity = member or MemberIdentity("", -1)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    entry(
                        partition_index=index,
                        committed_offset=offsets[topic, index].offset,
                        committed_leader_epoch=offsets[topic, index].leader_epoch,
                        committed_metadata=offsets[topic, index].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in grouped(offsets).items()
        ],
    )
    response = await client.ask_coordinator(group, request)
    for topic in response.topics:
        for p in topic.partitions:
            # The broker's answer to a commit without a member while the group has members.
            if member is None and p.error_code in (IllegalGeneration.code, UnknownMemberId.code):
                raise GroupHasMembers(f"group '{group}' has members; stop its consumers before its offsets are set")
            if p.error_code:
                raise _named(error_for(p.error_code), f"{topic.name}-{p.partition_index}")


async def delete_offsets(client: Client, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete the commits of partitions that no member subscribes to."""
    for (topic, index), error in (await try_delete_offsets(client, group, partitions)).items():
        if error is not None:
            raise _named(error, f"{topic}-{index}")


async def try_delete_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Like `delete_offsets`, but returns the error of each partition. An error of the whole group is raised."""
    entry = OffsetDeleteRequest.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic, partitions=[entry(partition_index=index) for index in indexes]
            )
            for topic, indexes in grouped(partitions).items()
        ],
    )
    response = await client.ask_coordinator(group, request)
    if response.error_code:
        raise error_for(response.error_code)
    return {
        (topic.name, p.partition_index): error_for(p.error_code) if p.error_code else None
        for topic in response.topics
        for p in topic.partitions
    }


def _named(error: KafkaError, what: str) -> KafkaError:
    return type(error)(f"{what}: {error.message}")
