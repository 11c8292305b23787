"""CreatePartitions, ElectLeaders and the reassignment of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ottla.enums import AclOperation, AnsweredBy, ConfigResourceType, ElectionType, ResourceType
from ottla.errors import NONE, ElectionNotNeeded, InvalidRequest, KafkaError, RequestTimedOut
from ottla.metadata.image import PartitionState, TopicState
from ottla.metadata.java_hash_order import java_names, timeline_map
from ottla.metadata.reassignment import elect_leader, is_reassigning, reassign
from ottla.metadata.topics import java_hash
from ottla.server.api import OnCluster, OnEach, RequestContext, handles
from ottla.server.apis.answers import own_message
from ottla.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.schema import Message

Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
Elected = ElectLeadersResponse.PartitionResult
Reassigned = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment

FIRST_STRICT_VERSION = 3
"""The version of CreatePartitions since which a quota refuses requests; clients of older versions only have to wait
(KIP-599).
"""


def _grown(name: str, error: KafkaError | None) -> Grown:
    if error is None:
        return Grown(name=name, error_code=NONE)
    return Grown(name=name, error_code=error.code, error_message=own_message(error))


def _create_error(ctx: RequestContext, request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_grown(topic.name, error) for topic in request.topics])


@handles(
    CreatePartitionsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnEach(AclOperation.ALTER, ResourceType.TOPIC, "topics", answers="results"),
    on_error=_create_error,
)
def create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """v0–v3 (KIP-195): the new number of partitions of a topic, never fewer.

    v2 flexible; v3 may be throttled (KIP-599).

    The partitions are ready when the answer is sent.
    """
    counts = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0 and 1 in counts.values():
        raise RequestTimedOut()
    twice = java_names(name for name, count in counts.items() if count > 1)
    results = [_grown(name, InvalidRequest("Duplicate topic name.")) for name in twice]
    by_name = {topic.name: topic for topic in request.topics}
    wanted = [by_name[name] for name in java_names(counts) if counts[name] == 1]
    quota = ctx.mutations(strict=ctx.version >= FIRST_STRICT_VERSION)
    outcomes = ctx.services.controller.create_partitions(
        [
            (
                topic.name,
                topic.count,
                None if topic.assignments is None else [chosen.broker_ids for chosen in topic.assignments],
            )
            for topic in wanted
        ],
        request.validate_only,
        None if quota is None else quota.admit,
    )
    results += [_grown(topic.name, outcome) for topic, outcome in zip(wanted, outcomes, strict=True)]
    return CreatePartitionsResponse(results=results, throttle_time_ms=0 if quota is None else quota.throttle_ms)


def _elect_error(ctx: RequestContext, request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    result = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            result(
                topic=topic.topic,
                partition_result=[
                    Elected(partition_id=index, error_code=error.code, error_message=own_message(error))
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@handles(
    ElectLeadersRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_elect_error,
)
def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """v0–v2. v0 preferred leaders; v1 unclean elections (KIP-460) and an error for the whole request; v2 flexible.

    If all partitions are requested, those that need no election are left out of the answer.
    """
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        raise RequestTimedOut()
    kind = request.election_type if ctx.version >= 1 else ElectionType.PREFERRED
    if kind not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise InvalidRequest(f"Unknown election type {kind}")
    image = ctx.services.metadata
    wanted: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        wanted = [
            (name, timeline_map(image.topics[name].partitions, lambda index: index))
            for name in timeline_map(image.topics, java_hash)
        ]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[Message] = []
    response = ElectLeadersResponse()
    for name, indexes in wanted:
        results: list[Elected] = []
        for index in indexes:
            try:
                records.append(elect_leader(image, name, index, kind, ctx.services.controller.min_isr(name)))
                results.append(Elected(partition_id=index, error_code=NONE, error_message=None))
            except ElectionNotNeeded as error:
                if request.topic_partitions is not None:
                    results.append(Elected(partition_id=index, error_code=error.code, error_message=error.message))
            except KafkaError as error:
                results.append(Elected(partition_id=index, error_code=error.code, error_message=error.message))
        response.replica_election_results.append(
            ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=results)
        )
    ctx.services.controller.commit(records)
    return response


def _reassign_error(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    result = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=own_message(error),
        responses=[
            result(
                name=topic.name,
                partitions=[_reassigned(wanted.partition_index, error) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _reassigned(index: int, error: KafkaError | None = None) -> Reassigned:
    if error is None:
        return Reassigned(partition_index=index, error_code=NONE, error_message=None)
    return Reassigned(partition_index=index, error_code=error.code, error_message=own_message(error))


@handles(
    AlterPartitionReassignmentsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    permission=OnCluster(AclOperation.ALTER),
    on_error=_reassign_error,
)
def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """v0–v1 (KIP-455). v1 may forbid a change of the replication factor (KIP-860)."""
    broker = ctx.services
    if request.timeout_ms <= 0 and request.topics:
        raise RequestTimedOut()
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_code=NONE, error_message="")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_code=NONE, error_message=None
    )
    records: list[Message] = []
    for topic in request.topics:
        config = broker.config.topic(broker.metadata.configs.get((ConfigResourceType.TOPIC, topic.name), {}))
        results: list[Reassigned] = []
        for wanted in topic.partitions:
            try:
                record = reassign(
                    broker.metadata,
                    topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    directories=broker.controller.directories,
                    may_change_factor=request.allow_replication_factor_change,
                    may_elect_unclean=config["unclean.leader.election.enable"],
                    min_isr=config["min.insync.replicas"],
                )
                if record is not None:
                    records.append(record)
                results.append(_reassigned(wanted.partition_index))
            except KafkaError as error:
                results.append(_reassigned(wanted.partition_index, error))
        response.responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name, partitions=results)
        )
    broker.controller.commit(records)
    return response


@handles(
    ListPartitionReassignmentsRequest,
    answered_by=AnsweredBy.CONTROLLER,
    changes_metadata=False,
    permission=OnCluster(AclOperation.DESCRIBE),
)
def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """v0 (KIP-455): the current moves, of all topics or of some partitions."""
    image = ctx.services.metadata
    response = ListPartitionReassignmentsResponse(error_code=NONE, error_message=None)
    if request.topics is None:
        for topic in image.topics.values():
            _list(response, topic, list(topic.partitions.values()))
    else:
        for wanted in request.topics:
            known = image.topics.get(wanted.name)
            if known is not None:
                indexes = [index for index in wanted.partition_indexes if index in known.partitions]
                _list(response, known, [known.partitions[index] for index in indexes])
    return response


def _list(
    response: ListPartitionReassignmentsResponse, topic: TopicState, partitions: Sequence[PartitionState]
) -> None:
    ongoing = [
        Ongoing(
            partition_index=partition.index,
            replicas=partition.replicas,
            adding_replicas=partition.adding_replicas,
            removing_replicas=partition.removing_replicas,
        )
        for partition in partitions
        if is_reassigning(partition)
    ]
    if ongoing:
        response.topics.append(
            ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=topic.name, partitions=ongoing)
        )
