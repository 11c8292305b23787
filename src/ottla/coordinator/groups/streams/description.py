"""StreamsGroupDescribe: a group with its topology and its members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.groups.modern import members_in_order
from ottla.coordinator.groups.streams.group import StreamsMember
from ottla.coordinator.groups.streams.tasks import NO_TARGET, Assigned, Target, task_ids
from ottla.coordinator.groups.streams.topology import ConfiguredTopology, InternalTopic, TopicInfo, Topology
from ottla.errors import UnknownServerError
from ottla.wire.messages.streams_groups import StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup
_Subtopology = StreamsGroupDescribeResponse.Subtopology
_Topic = StreamsGroupDescribeResponse.TopicInfo
_KeyValue = StreamsGroupDescribeResponse.KeyValue


def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
    group = shard.streams.require(shard.seen(group_id).group, group_id)
    if group.topology is None:
        raise UnknownServerError
    configured = group.configured
    if configured is not None and (not configured.is_ready or shard.written_offset <= group.configured_offset):
        configured = None
    return DescribedGroup(
        group_id=group_id,
        group_epoch=group.epoch,
        group_state=group.state_name,
        assignment_epoch=group.target_epoch,
        topology=_as_brought(group.topology) if configured is None else _configured(configured),
        members=[
            _member(member, group.target.get(member.member_id, NO_TARGET)) for member in members_in_order(group.members)
        ],
    )


def _configured(topology: ConfiguredTopology) -> StreamsGroupDescribeResponse.Topology:
    return StreamsGroupDescribeResponse.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=name,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.sink_topics),
                state_changelog_topics=_internal(each.changelog_topics.values()),
                repartition_source_topics=_internal(each.repartition_topics.values()),
            )
            for name, each in (topology.subtopologies or {}).items()
        ],
    )


def _internal(topics: Iterable[InternalTopic]) -> list[_Topic]:
    return [
        _Topic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[_KeyValue(key=key, value=value) for key, value in topic.configs.items()],
        )
        for topic in sorted(topics)
    ]


def _as_brought(topology: Topology) -> StreamsGroupDescribeResponse.Topology:
    """The topology as the first member described it, for a topology that is not configured yet."""
    return StreamsGroupDescribeResponse.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=name,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_told(each.state_changelog_topics),
                repartition_source_topics=_told(each.repartition_source_topics),
            )
            for name, each in sorted(topology.subtopologies.items())
        ],
    )


def _told(topics: Iterable[TopicInfo]) -> list[_Topic]:
    return [
        _Topic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[_KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Target) -> StreamsGroupDescribeResponse.Member:
    endpoint = member.endpoint
    return StreamsGroupDescribeResponse.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupDescribeResponse.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[_KeyValue(key=key, value=value) for key, value in member.tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Assigned | Target) -> StreamsGroupDescribeResponse.Assignment:
    ids = StreamsGroupDescribeResponse.TaskIds
    return StreamsGroupDescribeResponse.Assignment(
        active_tasks=task_ids(ids, tasks.active),
        standby_tasks=task_ids(ids, tasks.standby),
        warmup_tasks=task_ids(ids, tasks.warmup),
    )
