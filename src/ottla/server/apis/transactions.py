"""Transactions: adding partitions and offsets, the end, the markers, and descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.answers import Answer, Reply, attempt, gather, in_slices, then
from ottla.coordinator.groups import requests
from ottla.coordinator.transactions.shard import Marker
from ottla.coordinator.transactions.state import EPOCH_BUMP_VERSION, Identity, TopicPartition
from ottla.enums import AclOperation, AnsweredBy, ResourceType
from ottla.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidProducerEpoch,
    KafkaError,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ottla.metadata.java_hash_order import (
    java_concurrent_map,
    java_map,
    java_names,
    long_hash,
    partition_hash,
    scala_map,
    scala_set,
)
from ottla.metadata.topics import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, java_hash
from ottla.replication.partition import Partition
from ottla.server.api import GuardedBy, OnCluster, OnEach, OnGroup, OnTransactionalId, RequestContext, handles
from ottla.server.apis.answers import Unknown
from ottla.server.apis.groups import client_of
from ottla.server.transaction_markers import when_committed
from ottla.server.transactions import ABORTABLE_OFFSETS_VERSION, ADDING_OFFSETS_VERSION, Refusals
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# For the authorizer: a kind of resource, and an operation.

FIRST_FENCED_VERSION = 2
"""For requests of a running transaction; older clients know only INVALID_PRODUCER_EPOCH (KIP-588)."""
FIRST_BATCHED_VERSION = 4
FIRST_BUMPING_END_VERSION = 5
FIRST_LOADING_VERSION = 2
"""For TxnOffsetCommit: older clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

_NO_PRODUCER = -1
_DESCRIBED_AT_A_TIME = 1000
"""Transactions described in one step, which takes a few milliseconds; other requests run between two steps."""

AddTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
AddTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
AddResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
AddTopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
AddPartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def _code_for(ctx: RequestContext, error: KafkaError) -> int:
    if isinstance(error, ProducerFenced) and ctx.version < FIRST_FENCED_VERSION:
        return InvalidProducerEpoch.code
    return error.code


# -- AddPartitionsToTxn


def _add_error(
    ctx: RequestContext, request: AddPartitionsToTxnRequest, error: KafkaError
) -> AddPartitionsToTxnResponse:
    if ctx.version >= FIRST_BATCHED_VERSION:
        return AddPartitionsToTxnResponse(error_code=error.code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_same_for_all(request.v3_and_below_topics, _code_for(ctx, error))
    )


@handles(
    AddPartitionsToTxnRequest,
    answered_by=AnsweredBy.TRANSACTION_COORDINATOR,
    permission=GuardedBy(
        "transactions.add_partitions_to_txn",
        "WRITE on the transactional id and on each topic; from v4 on CLUSTER_ACTION on the cluster",
    ),
    on_error=_add_error,
)
def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> Answer[AddPartitionsToTxnResponse]:
    """v0–v5. v2 PRODUCER_FENCED (KIP-588); v4 brokers send many transactions at once and may only ask whether the
    partitions are in the transaction (KIP-890); v5 TRANSACTION_ABORTABLE.

    If one partition cannot be added, none of its transaction is.
    """
    if ctx.version < FIRST_BATCHED_VERSION:
        only = AddTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return then(_added(ctx, only, only.topics), _single)
    # If an id occurs twice, Kafka adds the partitions of its last entry, and answers an error with those of its first.
    last = {transaction.transactional_id: transaction.topics for transaction in request.transactions}
    first = {transaction.transactional_id: transaction.topics for transaction in reversed(request.transactions)}
    names = [transaction.transactional_id for transaction in request.transactions]
    outcomes = []
    for name, transaction in zip(names, request.transactions, strict=True):
        transaction.topics = last[name]
        outcomes.append(_added(ctx, transaction, first[name]))
    return then(gather(outcomes), lambda results: _batched(zip(names, results, strict=True)))


Codes = dict[TopicPartition, int]
TopicResults = list[AddTopicResult]


def _single(results: TopicResults) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _batched(outcomes: Iterable[tuple[str, TopicResults]]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddResult(transactional_id=name, topic_results=results) for name, results in outcomes]
    )


def _added(ctx: RequestContext, transaction: AddTransaction, topics: Sequence[AddTopic]) -> Answer[TopicResults]:
    """`topics` are the topics in an answer that has one error for all of them."""
    partitions = _partitions_of(transaction.topics)
    refused = _unwritable(ctx, partitions)
    if refused:
        return _topic_results(
            {
                partition: refused.get(partition, OperationNotAttempted.code)
                for partition in scala_map(partitions, partition_hash)
            }
        )
    coordinator = ctx.services.transactions.coordinator
    producer = Identity(transaction.producer_id, transaction.producer_epoch)
    transactional_id = transaction.transactional_id
    if transaction.verify_only:
        asked = java_map(partitions, partition_hash)
        try:
            missing = coordinator.missing_partitions(transactional_id, producer, partitions)
        except KafkaError as error:
            code = _code_for(ctx, error)
            return _topic_results(dict.fromkeys(asked, code))
        return _topic_results(
            {partition: missing[partition].code if partition in missing else NONE for partition in asked}
        )
    version = EPOCH_BUMP_VERSION if ctx.version >= FIRST_BATCHED_VERSION else 0
    return attempt(
        lambda: then(
            coordinator.add_partitions(transactional_id, producer, partitions, version),
            lambda _: _same_for_all(topics, NONE),
        ),
        lambda error: _same_for_all(topics, _code_for(ctx, error)),
    )


def _unwritable(ctx: RequestContext, partitions: Iterable[TopicPartition]) -> Codes:
    refused: Codes = {}
    topics = ctx.services.metadata.topics
    from_client = ctx.version < FIRST_BATCHED_VERSION
    for name, index in partitions:
        if from_client and (name in INTERNAL_TOPICS or not ctx.may(AclOperation.WRITE, ResourceType.TOPIC, name)):
            refused[name, index] = TopicAuthorizationFailed.code
        elif name not in topics or index not in topics[name].partitions:
            refused[name, index] = UnknownTopicOrPartition.code
    return refused


def _partitions_of(
    topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic],
) -> dict[TopicPartition, None]:
    return {(topic.name, index): None for topic in topics for index in topic.partitions}


def _topic_results(codes: Codes) -> list[AddTopicResult]:
    by_topic: dict[str, AddTopicResult] = {}
    for (name, index), code in codes.items():
        result = by_topic.get(name)
        if result is None:
            result = by_topic[name] = AddTopicResult(name=name, results_by_partition=[])
        result.results_by_partition.append(AddPartitionResult(partition_index=index, partition_error_code=code))
    return [by_topic[name] for name in java_names(by_topic)]


def _same_for_all(topics: Iterable[AddTopic], code: int) -> TopicResults:
    """One code for every partition in the request, including duplicates."""
    return [
        AddTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# -- offsets


def _add_offsets_error(
    ctx: RequestContext, request: AddOffsetsToTxnRequest, error: KafkaError
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=_code_for(ctx, error))


@handles(
    AddOffsetsToTxnRequest,
    answered_by=AnsweredBy.TRANSACTION_COORDINATOR,
    permission=[OnTransactionalId(AclOperation.WRITE), OnGroup(AclOperation.READ)],
    on_error=_add_offsets_error,
)
def add_offsets_to_txn(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> Answer[AddOffsetsToTxnResponse]:
    """v0–v4. Adds the offsets of a group to the transaction: the partition that keeps them. v2 PRODUCER_FENCED."""
    partition = (GROUP_METADATA_TOPIC, ctx.services.groups.partition_for(request.group_id))
    added = ctx.services.transactions.coordinator.add_partitions(
        request.transactional_id, Identity(request.producer_id, request.producer_epoch), (partition,), 0
    )
    return then(added, lambda _: AddOffsetsToTxnResponse(error_code=NONE))


def _offsets_error(ctx: RequestContext, request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    if isinstance(error, CoordinatorLoadInProgress) and ctx.version < FIRST_LOADING_VERSION:
        error = CoordinatorNotAvailable()
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    TxnOffsetCommitRequest,
    answered_by=AnsweredBy.GROUP_COORDINATOR,
    permission=[
        OnTransactionalId(AclOperation.WRITE),
        OnGroup(AclOperation.READ),
        OnEach(AclOperation.READ, ResourceType.TOPIC, "topics"),
    ],
    on_error=_offsets_error,
)
def txn_offset_commit(ctx: RequestContext, request: TxnOffsetCommitRequest) -> Answer[TxnOffsetCommitResponse]:
    """v0–v5. v2 leader epoch (KIP-320); v3 group membership (KIP-447); v4 TRANSACTION_ABORTABLE; v5 the offsets join
    the transaction implicitly (KIP-890). They take effect when the transaction commits.
    """
    unknown = Unknown(
        TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic, TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
    )
    request.topics = unknown.set_apart(ctx.services.metadata, request.topics)
    if not request.topics:  # a request without existing topics does not reach Kafka's coordinators
        return TxnOffsetCommitResponse(topics=list(unknown.topics.values()))
    if not unknown.topics:
        return _commit_offsets(ctx, request)
    return unknown.beside(lambda: _commit_offsets(ctx, request), lambda error: _offsets_error(ctx, request, error))


def _commit_offsets(ctx: RequestContext, request: TxnOffsetCommitRequest) -> Answer[TxnOffsetCommitResponse]:
    if not request.group_id:
        raise InvalidGroupId()
    return then(_refused_offsets(ctx, request), lambda refused: _commit_unless(ctx, request, refused))


def _commit_unless(
    ctx: RequestContext, request: TxnOffsetCommitRequest, refused: Refusals
) -> Answer[TxnOffsetCommitResponse]:
    for error in refused.values():
        raise error
    return requests.commit_transactional_offsets(ctx.services.groups, request, client_of(ctx))


def _refused_offsets(ctx: RequestContext, request: TxnOffsetCommitRequest) -> Answer[Refusals]:
    broker = ctx.services
    broker.groups.shard_for(request.group_id)  # not ours: the client looks for the coordinator again
    adds = ctx.version >= ADDING_OFFSETS_VERSION
    if not adds and not broker.config["transaction.partition.verification.enable"]:
        return {}
    index = broker.groups.partition_for(request.group_id)
    producer = Identity(request.producer_id, request.producer_epoch)
    producers = broker.replicas.leader(GROUP_METADATA_TOPIC, index).log.producers
    if producers.has_ongoing_transaction(*producer):
        return {}
    known = producers.producers.get(producer.producer_id)
    if known is not None and known.epoch > producer.producer_epoch:
        raise InvalidProducerEpoch()  # the log has newer state; the coordinator is not asked, as with records
    return broker.transactions.admit(
        request.transactional_id,
        producer,
        ((GROUP_METADATA_TOPIC, index),),
        adds=adds,
        abortable=ctx.version >= ABORTABLE_OFFSETS_VERSION,
    )


# -- the end


def _end_error(ctx: RequestContext, request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(error_code=_code_for(ctx, error))


@handles(
    EndTxnRequest,
    answered_by=AnsweredBy.TRANSACTION_COORDINATOR,
    permission=OnTransactionalId(AclOperation.WRITE),
    on_error=_end_error,
)
def end_txn(ctx: RequestContext, request: EndTxnRequest) -> Answer[EndTxnResponse]:
    """v0–v5. v2 PRODUCER_FENCED; v4 TRANSACTION_ABORTABLE; v5 each end raises the epoch, and the answer contains the
    producer id and epoch to continue with (KIP-890).
    """
    bumps = ctx.version >= FIRST_BUMPING_END_VERSION
    ended = ctx.services.transactions.coordinator.end(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        EPOCH_BUMP_VERSION if bumps else 0,
        commit=request.committed,
    )
    return then(ended, _ended_with_identity if bumps else _ended)


def _ended_with_identity(identity: Identity) -> EndTxnResponse:
    return EndTxnResponse(error_code=NONE, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)


def _ended(identity: Identity) -> EndTxnResponse:
    return EndTxnResponse(error_code=NONE)


# -- markers


def _markers_error(ctx: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return _markers_response(
        {
            marker.producer_id: {
                (topic.name, index): error.code for topic in marker.topics for index in topic.partition_indexes
            }
            for marker in request.markers
        }
    )


@handles(
    WriteTxnMarkersRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=OnCluster(AclOperation.CLUSTER_ACTION, instead=AclOperation.ALTER),
    on_error=_markers_error,
)
def write_txn_markers(ctx: RequestContext, request: WriteTxnMarkersRequest) -> Answer[WriteTxnMarkersResponse]:
    """v0–v2. From coordinators, and from operators who abort a hanging transaction (KIP-664). v2 has the
    transaction version, under which a marker with the producer's own epoch is a late one (KIP-1228).

    A marker counts when it is committed: with more than one replica that takes a while.
    """
    codes: dict[int, Codes] = {}
    uncommitted: list[Answer[None]] = []
    for entry in request.markers:
        marker = Marker(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.transaction_result,
            entry.transaction_version,
        )
        # The id for "none" and a negative epoch belong to no producer; other negative ids are valid. Kafka fails
        # on such a marker, and the whole request fails, unless it has nothing to write.
        if (marker.producer_id == _NO_PRODUCER or marker.producer_epoch < 0) and any(
            _is_led(ctx, topic.name, index) for topic in entry.topics for index in topic.partition_indexes
        ):
            raise UnknownServerError()
        for topic in entry.topics:
            for index in topic.partition_indexes:
                place = (topic.name, index)
                by_partition = codes.setdefault(entry.producer_id, {})
                written = _write_marker(ctx, marker, topic.name, index)
                by_partition[place] = written if isinstance(written, int) else NONE
                if not isinstance(written, int) and written[1] >= written[0].high_watermark:
                    uncommitted.append(_committed(ctx, by_partition, place, *written))
    return then(gather(uncommitted), lambda _: _markers_response(codes))


def _committed(
    ctx: RequestContext, codes: Codes, place: TopicPartition, partition: Partition, offset: int
) -> Answer[None]:
    """Wait until a marker is committed; if it fails, its error is put into `codes`."""
    committed: Reply[None] = Reply()

    def done(error: KafkaError | None) -> None:
        if error is not None:
            codes[place] = error.code
        committed.resolve(None)

    when_committed(ctx.services, partition, offset, done)
    return committed


def _is_led(ctx: RequestContext, topic: str, index: int) -> bool:
    try:
        ctx.services.replicas.leader(topic, index)
    except KafkaError:
        return False
    return True


def _write_marker(ctx: RequestContext, marker: Marker, topic: str, index: int) -> int | tuple[Partition, int]:
    try:
        return ctx.services.transactions.markers.append(marker, topic, index)
    except KafkaError as error:
        return error.code


def _markers_response(codes: dict[int, Codes]) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    topic_result = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
    for producer_id in java_concurrent_map(codes, long_hash):
        by_partition = codes[producer_id]
        # Kafka lists unknown partitions first, and adds the others when they are written.
        absent = [place for place, code in by_partition.items() if code == UnknownTopicOrPartition.code]
        written = [place for place, code in by_partition.items() if code != UnknownTopicOrPartition.code]
        by_topic: dict[str, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = {}
        for place in java_concurrent_map((*absent, *written), partition_hash, len(written) if absent else 0):
            result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                partition_index=place[1], error_code=by_partition[place]
            )
            by_topic.setdefault(place[0], topic_result(name=place[0], partitions=[])).partitions.append(result)
        response.markers.append(
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id, topics=[by_topic[name] for name in java_names(by_topic)]
            )
        )
    return response


# -- descriptions of transactions


def _describe_error(
    ctx: RequestContext, request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(transactional_id=name, error_code=error.code)
            for name in request.transactional_ids
        ]
    )


@handles(
    DescribeTransactionsRequest,
    answered_by=AnsweredBy.TRANSACTION_COORDINATOR,
    permission=[
        OnEach(
            AclOperation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            "transactional_ids",
            answers="transaction_states",
            name="",
        ),
        GuardedBy("transactions.described_topics", "DESCRIBE to see their topics"),
    ],
    on_error=_describe_error,
)
def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> Answer[DescribeTransactionsResponse]:
    """v0 (KIP-664)."""
    return then(
        in_slices(
            request.transactional_ids, _DESCRIBED_AT_A_TIME, lambda names: [_described(ctx, name) for name in names]
        ),
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _described(ctx: RequestContext, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
    try:
        known = ctx.services.transactions.coordinator.describe(transactional_id)
    except KafkaError as error:
        return DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id, error_code=error.code)
    by_topic: dict[str, list[int]] = {}
    for name, index in java_map(known.partitions, partition_hash):
        by_topic.setdefault(name, []).append(index)
    return DescribeTransactionsResponse.TransactionState(
        error_code=NONE,
        transactional_id=transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic.items()
        ],
    )


@handles(
    ListTransactionsRequest,
    answered_by=AnsweredBy.EACH_BROKER,
    permission=GuardedBy("transactions.list_transactions", "DESCRIBE on each transactional id"),
)
def list_transactions(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """v0–v2 (KIP-664). v1 only those that have run longer than a duration (KIP-994); v2 a pattern of ids (KIP-1152)."""
    found, unknown = ctx.services.transactions.coordinator.list(
        request.state_filters,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        request.transactional_id_pattern,
    )
    return ListTransactionsResponse(
        error_code=NONE,
        unknown_state_filters=[
            name for name in scala_set(dict.fromkeys(request.state_filters), java_hash) if name in unknown
        ],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.value,
            )
            for transactional_id, known in found
        ],
    )
