"""Produce: appends record batches to the log, unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from ottla.answers import Answer, Reply, Steps, paced, then
from ottla.enums import AclOperation, AnsweredBy, QuotaType
from ottla.errors import (
    NONE,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from ottla.metadata.java_hash_order import java_computed_map, partition_hash, uuid_hash
from ottla.metadata.topics import INTERNAL_TOPICS
from ottla.records.validation import LONG_BYTES, shape_error
from ottla.server.acks_all import Acknowledgements, name_nodes
from ottla.server.api import GuardedBy, OnTransactionalId, Repeated, RequestContext, Route, handles
from ottla.server.apis.answers import own_message
from ottla.server.apis.produce_failure import failure
from ottla.server.apis.produce_repeated import FIRST_VERSION, RepeatedProduce
from ottla.server.transactions import TopicPartition, TransactionalProduce, holds_transaction
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.primitives import Buffer

ALL = -1
"""The value of acks for all in-sync replicas."""

_KNOWN_ACKS = (ALL, 1, 0)

ADMIN_CLIENT = "__admin_client"
"""The client id that may write to internal topics, for repair tools."""

NONE_REFUSED: Mapping[TopicPartition, KafkaError] = MappingProxyType({})

_NONE_MISSHAPEN: Mapping[tuple[str, bytes, int], KafkaError] = MappingProxyType({})

_SHAPE_ERRORS = (InvalidRecord.code, UnsupportedCompressionType.code)

_NOT_FOUND = (UnknownTopicOrPartition.code, UnknownTopicId.code)

_AFTER_SHAPE = (InvalidRequiredAcks, InvalidTopicException, NotEnoughReplicas, NotLeaderOrFollower)
"""Errors found before the records are checked. Kafka checks earlier whether the records are one batch, and reports that
instead."""

PartitionResponse = ProduceResponse.PartitionProduceResponse
TopicResponse = ProduceResponse.TopicProduceResponse


_Appended: TypeAlias = tuple[ProduceResponse | None, Acknowledgements | None]
"""The response (None for acks=0), and what it waits for."""


def _produce_error(ctx: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    if request.acks == 0:
        _end_unanswered(ctx)
        return None

    def hash_of(place: tuple[str, bytes, int]) -> int:
        name, topic_id, index = place
        return 31 * (31 + uuid_hash(topic_id)) + partition_hash((name, index))

    # Each partition occurs once, because Kafka keeps them in a map.
    places = [(topic.name, topic.topic_id, data.index) for topic in request.topic_data for data in topic.partition_data]
    topics: dict[tuple[str, bytes], TopicResponse] = {}
    for name, topic_id, index in java_computed_map(places, hash_of):
        answer = topics.setdefault((name, topic_id), TopicResponse(name=name, topic_id=topic_id))
        answer.partition_responses.append(
            PartitionResponse(index=index, error_code=error.code, base_offset=-1, error_message=own_message(error))
        )
    return ProduceResponse(responses=list(topics.values()))


def _end_unanswered(ctx: RequestContext) -> None:
    """No answer can carry the error; closing the connection makes the client refresh its metadata."""
    ctx.connection.close("a produce request with acks=0 failed")


def _model(
    ctx: RequestContext,
    route: Route,
    frame: memoryview,
    request: ProduceRequest,
    response: ProduceResponse,
    answer: bytes,
    last: Repeated | None,
) -> Repeated | None:
    """The template for the connection's next request; only if no guard runs before this handler."""
    topics = request.topic_data
    if (
        ctx.version < FIRST_VERSION
        or len(topics) != 1
        or len(topics[0].partition_data) != 1
        or route.handler is not produce
    ):
        return None
    if not isinstance(last, RepeatedProduce) or not last.is_like(ctx.version, request):
        return RepeatedProduce(ctx.version, request)
    last.learn(ctx.services, route, frame, request, response, answer)
    return last


@handles(
    ProduceRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=[OnTransactionalId(AclOperation.WRITE), GuardedBy("records.produce", "WRITE on each topic")],
    on_error=_produce_error,
    model=_model,
    quota=QuotaType.PRODUCE,
)
def produce(ctx: RequestContext, request: ProduceRequest) -> Answer[ProduceResponse | None]:
    """v0–v13. v0–v2 carry message sets (4.0 dropped them, 3.9 is the model) and are stored as batches; v3 batches and
    transactional ids; v8 record errors (KIP-467); v10 names the new leader (KIP-951); v11 TRANSACTION_ABORTABLE; v12
    partitions join the transaction implicitly (KIP-890); v13 topic ids (KIP-516).

    With one replica an append is committed when it is written, so acks=all does not wait; with more replicas it
    waits for the in-sync ones (server/acks_all.py).
    """
    if not holds_transaction(request):
        return _appended(ctx, request, NONE_REFUSED)
    refused = TransactionalProduce(ctx.services, ctx.version).refused(
        request.transactional_id, _writable(ctx, request.topic_data)
    )
    if not isinstance(refused, Reply):
        return _appended(ctx, request, refused)
    _own_records(request)
    return refused.then(lambda refusals: _appended(ctx, request, refusals))


def _appended(
    ctx: RequestContext, request: ProduceRequest, refused: Mapping[TopicPartition, KafkaError]
) -> Answer[ProduceResponse | None]:
    def acknowledged(appended: _Appended) -> Answer[ProduceResponse | None]:
        response, waits = appended
        return response if response is None or waits is None else waits.answer(response)

    return then(paced(_appending(ctx, request, refused), lambda: _own_records(request)), acknowledged)


def _own_records(request: ProduceRequest) -> None:
    """Copy the records: their frame is reused before the request is answered."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _appending(
    ctx: RequestContext, request: ProduceRequest, refused: Mapping[TopicPartition, KafkaError]
) -> Steps[_Appended]:
    by_id = ctx.version >= 13
    responses = []
    failed = False
    waits: Acknowledgements | None = None
    may_wait = request.acks == ALL and ctx.services.replicas.context is not None
    topics, misshapen = _each_once(request.topic_data, ctx.version)
    for topic in topics:
        partition_responses = []
        name = _name_of(ctx, topic.topic_id) if by_id else topic.name
        for data in topic.partition_data:
            refusal = refused.get((name, data.index)) if refused and name is not None else None
            if refusal is None:
                outcome = yield from _append(ctx, name, data, request.acks)
            else:
                outcome = _refuse(ctx, name, data, refusal)
            if misshapen and outcome.error_code not in _NOT_FOUND:
                error = misshapen.get((topic.name, topic.topic_id, data.index))
                if error is not None:
                    outcome = failure(ctx.services, ctx.version, name, data.index, None, error)
            if outcome.error_code:
                failed = True
            elif may_wait and name is not None:
                partition = ctx.connection.services.replicas.leader(name, data.index)
                if partition.leadership is not None:
                    if waits is None:
                        waits = Acknowledgements(ctx, request.timeout_ms)
                    waits.add(partition, outcome)
            partition_responses.append(outcome)
        responses.append(
            TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses)
        )
    if request.acks == 0:
        if failed:
            _end_unanswered(ctx)
        return None, None
    response = ProduceResponse(responses=_refused_last(responses) if failed else responses)
    if failed and ctx.version >= 10:
        name_nodes(ctx, response)
    return response, waits


def _each_once(
    topics: list[ProduceRequest.TopicProduceData], version: int
) -> tuple[list[ProduceRequest.TopicProduceData], Mapping[tuple[str, bytes, int], KafkaError]]:
    """If a partition occurs twice, its last records count, as in Kafka; a topic without partitions gets no answer.

    Records that are not a batch do not count, but the answer contains their error.
    """
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics, _NONE_MISSHAPEN
    by_topic: dict[tuple[str, bytes], dict[int, ProduceRequest.PartitionProduceData]] = {}
    misshapen: dict[tuple[str, bytes, int], KafkaError] = {}
    for topic in topics:
        key = topic.name, topic.topic_id
        partitions = by_topic.setdefault(key, {})
        for data in topic.partition_data:
            known = partitions.get(data.index)
            if known is None:
                partitions[data.index] = data
                continue
            place = *key, data.index
            error = _shape_error(data, version)
            if place not in misshapen:
                first_error = _shape_error(known, version)
                if first_error is not None:
                    misshapen[place] = first_error
            if error is None:
                partitions[data.index] = data
            else:
                misshapen[place] = error
    once = [
        ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in by_topic.items()
        if partitions
    ]
    return once, misshapen


def _writable(
    ctx: RequestContext, topics: list[ProduceRequest.TopicProduceData]
) -> Iterator[tuple[TopicPartition, Buffer]]:
    """The partitions that can be written. The others have their own errors, and Kafka does not check their
    transaction, not even whether all records are from one producer."""
    for topic in _each_once(topics, ctx.version)[0]:
        name = _name_of(ctx, topic.topic_id) if ctx.version >= 13 else topic.name
        found = ctx.services.metadata.topics.get(name) if name is not None else None
        if found is None:
            continue
        for data in topic.partition_data:
            if data.index in found.partitions and data.records is not None and _shape_error(data, ctx.version) is None:
                yield (found.name, data.index), data.records


def _shape_error(data: ProduceRequest.PartitionProduceData, version: int) -> KafkaError | None:
    return None if data.records is None else shape_error(data.records, version)


def _refused_last(responses: list[TopicResponse]) -> list[TopicResponse]:
    """In Kafka's order: first written partitions, then unknown ones, then those without a valid batch."""

    def rank(outcome: PartitionResponse) -> int:
        if outcome.error_code in _NOT_FOUND:
            return 1
        return 2 if outcome.error_code in _SHAPE_ERRORS and outcome.log_start_offset < 0 else 0

    outcomes = [(rank(outcome), topic, outcome) for topic in responses for outcome in topic.partition_responses]
    if len({rank for rank, _, _ in outcomes}) == 1:
        return responses
    by_topic: dict[tuple[str, bytes], TopicResponse] = {}
    for _, topic, outcome in sorted(outcomes, key=lambda ranked: ranked[0]):
        merged = by_topic.setdefault(
            (topic.name, topic.topic_id), TopicResponse(name=topic.name, topic_id=topic.topic_id)
        )
        merged.partition_responses.append(outcome)
    return list(by_topic.values())


def _refuse(
    ctx: RequestContext, topic: str | None, data: ProduceRequest.PartitionProduceData, error: KafkaError
) -> PartitionResponse:
    """Refuse the records because of their transaction."""
    response = PartitionResponse(
        index=data.index, error_code=error.code, base_offset=-1, error_message=own_message(error)
    )
    if isinstance(error, OutOfOrderSequenceNumber) and topic is not None:
        response.log_start_offset = ctx.services.replicas.leader(topic, data.index).log_start_offset
    return response


def _name_of(ctx: RequestContext, topic_id: bytes) -> str | None:
    topic = ctx.services.metadata.topics_by_id.get(topic_id)
    return topic.name if topic is not None else None


def _append(
    ctx: RequestContext, topic: str | None, data: ProduceRequest.PartitionProduceData, acks: int
) -> Steps[PartitionResponse]:
    partition = None
    try:
        if topic is None:
            raise UnknownTopicId()
        partition = ctx.connection.services.replicas.leader(topic, data.index)
        if acks not in _KNOWN_ACKS:
            raise InvalidRequiredAcks()
        if partition.leadership is not None and acks == ALL:
            partition.leadership.check_enough_replicas()
        if topic in INTERNAL_TOPICS and data.records and ctx.client_id != ADMIN_CLIENT:
            raise InvalidTopicException(f"Cannot append to internal topic {topic}")
        size = partition.bytes_to_check(data.records or b"")
        if size:
            yield size
        # Read the records only now: if other requests ran in between, they were copied.
        validated = yield from partition.checked(data.records or b"", ctx.version, in_thread=size > LONG_BYTES)
        if ctx.connection.services.replicas.leader(topic, data.index) is not partition:
            raise NotLeaderOrFollower  # it was moved or recreated while the records were checked
        info = partition.append_checked(validated)
    except _AFTER_SHAPE as error:
        found = _shape_error(data, ctx.version) or error
        return failure(ctx.services, ctx.version, topic, data.index, partition, found)
    except KafkaError as error:
        return failure(ctx.services, ctx.version, topic, data.index, partition, error)
    return PartitionResponse(
        index=data.index,
        error_code=NONE,
        base_offset=info.first_offset,
        log_append_time_ms=info.append_time_ms,
        log_start_offset=info.log_start_offset,
    )
