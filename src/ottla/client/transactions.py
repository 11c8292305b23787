"""Transactions for operators (KIP-664): lists open transactions and what they block, and ends them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.client.every_broker import every_broker
from ottla.client.offsets import grouped
from ottla.client.routing import Client, PartitionResults, TopicPartition
from ottla.enums import CoordinatorType
from ottla.errors import ConcurrentTransactions, KafkaError, error_for
from ottla.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)

ONGOING_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    """-1 if no transaction is open."""
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


class ActiveProducer(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int
    """-1 if it has no open transaction in this partition."""


async def list_transactions(
    client: Client, states: Sequence[str] = (), *, partial: bool = False
) -> list[TransactionListing]:
    """All transactions. Asks every broker, because each only knows the transactional ids that it coordinates."""
    await client.metadata([])

    async def of_node(node_id: int) -> list[TransactionListing]:
        async def attempt() -> Any:
            response = await client.ask(ListTransactionsRequest(state_filters=list(states)), node_id)
            if response.error_code:
                raise error_for(response.error_code)
            return response

        response = await client.retrying(attempt)
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in response.transaction_states
        ]

    answers = await every_broker(client, of_node, partial=partial)
    return sorted(each for answer in answers.values() for each in answer)


async def describe_transaction(client: Client, transactional_id: str) -> Transaction:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = await client.ask_coordinator(transactional_id, request, kind=CoordinatorType.TRANSACTION)
    found = response.transaction_states[0]
    if found.error_code:
        raise error_for(found.error_code)
    return Transaction(
        found.transactional_id,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        found.producer_id,
        found.producer_epoch,
        sorted((topic.topic, index) for topic in found.topics for index in topic.partitions),
    )


async def describe_producers(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The producers that the leader of each partition knows."""

    async def call(node_id: int, share: list[TopicPartition]) -> PartitionResults[list[ActiveProducer]]:
        entry = DescribeProducersRequest.TopicRequest
        topics = [entry(name=topic, partition_indexes=indexes) for topic, indexes in grouped(share).items()]
        response = await client.ask(DescribeProducersRequest(topics=topics), node_id)
        return {
            (topic.name, p.partition_index): error_for(p.error_code, p.error_message or None)
            if p.error_code
            else [
                ActiveProducer(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                )
                for each in p.active_producers
            ]
            for topic in response.topics
            for p in topic.partitions
        }

    return await client.by_leader(partitions, call)


async def force_terminate(client: Client, transactional_id: str, timeout_ms: int) -> None:
    """Abort the open transaction of an id and fence its producer, as a new producer with the same id does."""

    async def attempt() -> None:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        response = await client.ask_coordinator(transactional_id, request, kind=CoordinatorType.TRANSACTION)
        if response.error_code == ConcurrentTransactions.code:
            raise ConcurrentTransactions  # the abort is in progress
        if response.error_code:
            raise error_for(response.error_code)

    await client.retrying(attempt)


async def write_abort_marker(client: Client, tp: TopicPartition, producer: ActiveProducer) -> None:
    """End a hanging transaction in one partition: its coordinator no longer knows it."""

    async def call(node_id: int, share: list[TopicPartition]) -> PartitionResults[None]:
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=tp[0], partition_indexes=[tp[1]])],
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )
        response = await client.ask(WriteTxnMarkersRequest(markers=[marker]), node_id)
        results: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.markers[0].topics:
            for p in topic.partitions:
                results[topic.name, p.partition_index] = error_for(p.error_code) if p.error_code else None
        return results

    await client.by_leader([tp], call)
