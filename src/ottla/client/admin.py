"""Topics, configs, quotas and groups: one function per operation. Errors are returned per resource name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.connection import ClientError
from ottla.client.every_broker import every_broker
from ottla.client.offsets import grouped
from ottla.client.routing import BOOTSTRAP_NODE, Client, PartitionResults, TopicPartition
from ottla.enums import ConfigResourceType, ConfigSource, QuotaMatchType
from ottla.errors import KafkaError, error_for
from ottla.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.partitions import CreatePartitionsRequest, DeleteRecordsRequest
from ottla.wire.messages.quorum import DescribeQuorumRequest
from ottla.wire.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from ottla.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from ottla.wire.messages.streams_groups import StreamsGroupDescribeRequest
from ottla.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.primitives import MalformedMessage

METADATA_TOPIC: Final = "__cluster_metadata"
_QUORUM_WAIT_S: Final = 1.0
"""Brokers forward requests about the quorum, and hold them while no controller is active."""

CONFIG_SOURCES: Final[dict[int, str]] = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster default",
    ConfigSource.STATIC_BROKER_CONFIG: "static",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "logger",
    ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG: "client metrics",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
}
OVERRIDES: Final[frozenset[int]] = frozenset(
    {
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ConfigSource.DYNAMIC_GROUP_CONFIG,
    }
)
"""The sources of configs that are set on the resource itself: topics, client metrics and groups."""
TIMEOUT_MS: Final = 30_000


class NewTopic(NamedTuple):
    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = {}
    assignment: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: Sequence[tuple[str, str | None, int]]


Results = dict[str, Any]
"""name -> result, or the KafkaError for that name."""


async def create_topics(client: Client, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Results:
    """Returns a CreatedTopic or a KafkaError for each topic."""
    config = CreateTopicsRequest.CreatableTopicConfig
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=-1 if topic.assignment else topic.partitions,
                replication_factor=-1 if topic.assignment else topic.replication_factor,
                assignments=[
                    assignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in topic.assignment.items()
                ],
                configs=[config(name=key, value=value) for key, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    response = await client.ask_controller(request)
    by_name = {topic.name: topic for topic in topics}
    results: Results = {}
    for result in response.topics:
        asked = by_name[result.name]
        results[result.name] = (
            error_for(result.error_code, result.error_message or None)
            if result.error_code
            else CreatedTopic(
                result.name,
                result.num_partitions if result.num_partitions >= 0 else asked.partitions,
                result.replication_factor if result.replication_factor >= 0 else asked.replication_factor,
            )
        )
    return results


async def delete_topics(client: Client, names: Sequence[str]) -> Results:
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[state(name=name) for name in names], topic_names=list(names), timeout_ms=TIMEOUT_MS
    )
    response = await client.ask_controller(request)
    return {
        result.name or "": error_for(result.error_code, result.error_message or None) if result.error_code else None
        for result in response.responses
    }


async def create_partitions(client: Client, counts: Mapping[str, int], *, validate_only: bool = False) -> Results:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[topic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    response = await client.ask_controller(request)
    return {
        result.name: error_for(result.error_code, result.error_message or None) if result.error_code else None
        for result in response.results
    }


async def delete_records(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Move the log start offsets of partitions; returns the new ones."""

    async def call(node_id: int, share: list[TopicPartition]) -> PartitionResults[int]:
        entry = DeleteRecordsRequest.DeleteRecordsPartition
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[entry(partition_index=index, offset=offsets[topic, index]) for index in indexes],
                )
                for topic, indexes in grouped(share).items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await client.ask(request, node_id)
        return {
            (topic.name, p.partition_index): error_for(p.error_code) if p.error_code else p.low_watermark
            for topic in response.topics
            for p in topic.partitions
        }

    return await client.by_leader(offsets, call)


async def partition_sizes(client: Client, *, partial: bool = False) -> dict[TopicPartition, int]:
    """The size of each partition on its leader in bytes; omits partitions whose broker does not report it."""
    await client.metadata()
    sizes: dict[TopicPartition, int] = {}

    async def of_node(node_id: int) -> None:
        try:
            response = await client.ask(DescribeLogDirsRequest(topics=None), node_id)
        except KafkaError:
            return
        for result in response.results:
            for topic in result.topics:
                for p in topic.partitions:
                    known = client.known.topics.get(topic.name)
                    partition = None if known is None else known.partitions.get(p.partition_index)
                    if partition is not None and partition.leader == node_id and not p.is_future_key:
                        sizes[topic.name, p.partition_index] = p.partition_size

    await every_broker(client, of_node, partial=partial)
    return sizes


# --- configs ---------------------------------------------------------------------------------------------------------


async def describe_configs(
    client: Client, kind: int, names: Sequence[str], *, keys: Sequence[str] | None = None, explain: bool = False
) -> dict[str, list[ConfigEntry] | KafkaError]:
    """The configs of resources of one kind; an error for each one that cannot be described."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = None if keys is None else list(keys)

    async def of(node_id: int, share: Sequence[str]) -> DescribeConfigsResponse:
        request = DescribeConfigsRequest(
            resources=[resource(resource_type=kind, resource_name=name, configuration_keys=wanted) for name in share],
            include_synonyms=explain,
            include_documentation=explain,
        )
        answer: DescribeConfigsResponse = await client.ask(request, node_id)
        return answer

    responses = [await client.retrying(lambda: of(*share)) for share in await _shares(client, kind, names)]  # noqa:B023
    found: dict[str, list[ConfigEntry] | KafkaError] = {}
    for result in (result for response in responses for result in response.results):
        if result.error_code:
            found[result.resource_name] = error_for(result.error_code, result.error_message or None)
            continue
        found[result.resource_name] = [
            ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source
                if entry.config_source >= 0
                else _source_before_v1(kind, is_default=entry.is_default),
                entry.read_only,
                entry.is_sensitive,
                entry.documentation,
                [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
            )
            for entry in sorted(result.configs, key=lambda entry: entry.name)
        ]
    return found


def _source_before_v1(kind: int, *, is_default: bool) -> ConfigSource:
    """The source of a config in version 0, which only has a flag for the default."""
    if is_default:
        return ConfigSource.DEFAULT_CONFIG
    is_topic = kind == ConfigResourceType.TOPIC
    return ConfigSource.DYNAMIC_TOPIC_CONFIG if is_topic else ConfigSource.DYNAMIC_BROKER_CONFIG


async def _shares(client: Client, kind: int, names: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The names to ask each broker for: a broker for its own configs, any broker for everything else."""
    if kind not in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [(BOOTSTRAP_NODE, list(names))]
    await client.metadata([])
    shares = []
    for name in names:
        node_id = int(name) if name.lstrip("-").isdigit() else BOOTSTRAP_NODE
        shares.append((node_id if node_id in client.known.nodes else BOOTSTRAP_NODE, [name]))
    return shares


async def alter_configs(
    client: Client,
    kind: int,
    name: str,
    changes: Sequence[tuple[str, int, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Apply changes of (key, operation, value), all or none."""
    alterable = IncrementalAlterConfigsRequest.AlterableConfig
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alterable(name=key, config_operation=what, value=value) for key, what, value in changes],
            )
        ],
        validate_only=validate_only,
    )
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
        ((node_id, _),) = await _shares(client, kind, [name])
        response = await client.ask(request, node_id)
    else:
        response = await client.ask_controller(request)
    for result in response.responses:
        if result.error_code:
            raise error_for(result.error_code, result.error_message or None)


Entity = Mapping[str, str | None]
"""Quota entity: type (`client-id`, `user`, `ip`) -> name; None is the default entity."""


async def describe_quotas(
    client: Client, entity: Entity | None
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """The quotas of one entity, or of all."""
    component = DescribeClientQuotasRequest.ComponentData
    request = DescribeClientQuotasRequest(
        components=[
            component(
                entity_type=kind,
                match_type=QuotaMatchType.DEFAULT if name is None else QuotaMatchType.EXACT,
                match=name,
            )
            for kind, name in (entity or {}).items()
        ],
        strict=entity is not None,
    )
    response = await client.retrying(lambda: client.ask(request))
    if response.error_code:
        raise error_for(response.error_code, response.error_message or None)
    return [
        ({e.entity_type: e.entity_name for e in entry.entity}, {value.key: value.value for value in entry.values})
        for entry in response.entries or ()
    ]


async def alter_quotas(
    client: Client, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas; None removes one."""
    op = AlterClientQuotasRequest.OpData
    part = AlterClientQuotasRequest.EntityData
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[op(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
            )
        ],
        validate_only=validate_only,
    )
    response = await client.ask_controller(request)
    for entry in response.entries:
        if entry.error_code:
            raise error_for(entry.error_code, entry.error_message or None)


# --- groups ----------------------------------------------------------------------------------------------------------


class GroupListing(NamedTuple):
    group: str
    kind: str
    protocol: str
    state: str


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]
    epoch: int | None = None
    target: Sequence[TopicPartition] | None = None
    """Only for groups with the KIP-848 protocol; None for others."""


class Group(NamedTuple):
    group: str
    kind: str
    state: str
    protocol: str
    assignor: str
    coordinator: int
    members: Sequence[Member]
    epoch: int | None = None
    assignment_epoch: int | None = None
    """Only for groups with the KIP-848 protocol; None for others."""


async def list_groups(client: Client) -> list[GroupListing]:
    """All groups. Asks every broker, because each only knows the groups that it coordinates."""
    return sorted(each for found in (await groups_by_coordinator(client)).values() for each in found)


async def groups_by_coordinator(client: Client, *, partial: bool = False) -> dict[int, list[GroupListing]]:
    """All groups, by the broker that coordinates them."""
    await client.metadata([])

    async def of_node(node_id: int) -> ListGroupsResponse:
        async def attempt() -> ListGroupsResponse:
            response: ListGroupsResponse = await client.ask(ListGroupsRequest(), node_id)
            if response.error_code:
                raise error_for(response.error_code)
            return response

        return await client.retrying(attempt)

    responses = await every_broker(client, of_node, partial=partial)
    return {
        node_id: [
            GroupListing(group.group_id, group.group_type or "classic", group.protocol_type, group.group_state)
            for group in response.groups
        ]
        for node_id, response in responses.items()
    }


async def describe_group(client: Client, group: str) -> Group:
    """A group of any type; the state of a group that does not exist is Dead."""
    coordinator = await client.retrying(lambda: client.coordinator(group))
    everywhere = await groups_by_coordinator(client, partial=True)  # only the coordinator's list matters
    listed = next((entry for found in everywhere.values() for entry in found if entry.group == group), None)
    kind = (listed.kind if listed else "classic").lower()
    if kind == "consumer":
        return await _describe_consumer_group(client, group, coordinator)
    if kind in ("share", "streams"):
        return await _describe_other_group(client, group, coordinator, kind)
    request = DescribeGroupsRequest(groups=[group])
    response = await client.ask_coordinator(group, request, highest=5)
    found = response.groups[0]
    if found.error_code:
        raise error_for(found.error_code)
    return Group(
        group,
        "classic",
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        coordinator,
        [
            Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, _classic_assignment(m, found))
            for m in found.members
        ],
    )


def _classic_assignment(member: Any, group: Any) -> list[TopicPartition]:
    if group.protocol_type != "consumer" or len(member.member_assignment) < 2:
        return []
    version = min(int.from_bytes(member.member_assignment[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        assignment, _ = ConsumerProtocolAssignment.decoder(version)(member.member_assignment, 2)
    except MalformedMessage:
        return []  # an assignor's private format
    return [(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions]


async def _describe_consumer_group(client: Client, group: str, coordinator: int) -> Group:
    response = await client.ask_coordinator(group, ConsumerGroupDescribeRequest(group_ids=[group]))
    found = response.groups[0]
    if found.error_code:
        raise error_for(found.error_code, found.error_message or None)
    members = [
        Member(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            _assigned(m.assignment.topic_partitions),
            m.member_epoch,
            _assigned(m.target_assignment.topic_partitions),
        )
        for m in found.members
    ]
    return Group(
        group,
        "consumer",
        found.group_state,
        "consumer",
        found.assignor_name,
        coordinator,
        members,
        found.group_epoch,
        found.assignment_epoch,
    )


async def _describe_other_group(client: Client, group: str, coordinator: int, kind: str) -> Group:
    request: Any
    if kind == "share":
        request = ShareGroupDescribeRequest(group_ids=[group])
    else:
        request = StreamsGroupDescribeRequest(group_ids=[group])
    found = (await client.ask_coordinator(group, request)).groups[0]
    if found.error_code:
        raise error_for(found.error_code, found.error_message or None)
    if kind == "share":
        assigned = {m.member_id: _assigned(m.assignment.topic_partitions) for m in found.members}
    else:
        assigned = {m.member_id: _read_by_tasks(m.assignment.active_tasks, found.topology) for m in found.members}
    members = [
        Member(m.member_id, getattr(m, "instance_id", None), m.client_id, m.client_host, assigned[m.member_id])
        for m in found.members
    ]
    return Group(group, kind, found.group_state, kind, getattr(found, "assignor_name", ""), coordinator, members)


def _read_by_tasks(tasks: Iterable[Any], topology: Any) -> list[TopicPartition]:
    """The partitions of source and repartition topics that active tasks read."""
    topics = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in topology.subtopologies or ()
    }
    return [(topic, index) for task in tasks for topic in topics[task.subtopology_id] for index in task.partitions]


def _assigned(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.topic_name, index) for topic in topics for index in topic.partitions]


async def share_offsets(client: Client, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """(start offset, lag) of each partition of a share group; the lag is -1 if the broker does not know it."""
    entry = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[entry(group_id=group, topics=None)])
    response = await client.ask_coordinator(group, request)
    found = response.groups[0]
    if found.error_code:
        raise error_for(found.error_code, found.error_message or None)
    return {
        (topic.topic_name, p.partition_index): (p.start_offset, p.lag)
        for topic in found.topics
        for p in topic.partitions
        if not p.error_code
    }


async def set_share_offsets(client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the start offsets of a share group without members."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offsets[topic, index]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in grouped(offsets).items()
        ],
    )
    response = await client.ask_coordinator(group, request)
    for answer in [response, *(p for topic in response.responses for p in topic.partitions)]:
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message or None)


async def delete_groups(client: Client, groups: Sequence[str]) -> Results:
    results: Results = {}
    for group in groups:
        response = await client.ask_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
        code = response.results[0].error_code
        results[group] = error_for(code) if code else None
    return results


def quorum_request() -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumRequest(topics=[topic])


async def quorum_leader(client: Client) -> int | None:
    """The active controller; None if no controller is active, or if the cluster does not report it. In Metadata,
    brokers may report any broker as the controller.
    """
    try:
        async with asyncio.timeout(_QUORUM_WAIT_S):
            response = await client.ask(quorum_request())
    except (KafkaError, ClientError, TimeoutError):
        return None
    leader = response.topics[0].partitions[0].leader_id if response.topics and not response.error_code else -1
    return leader if leader >= 0 else None
