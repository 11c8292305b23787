"""Transactions across workers: markers for partitions that another one leads, and asking another one's coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from ottla.cluster.metadata import NO_LEADER
from ottla.cluster.topics import TRANSACTION_STATE_TOPIC, internal_partition
from ottla.coordinator.transaction_shard import Marker
from ottla.coordinator.transaction_state import Identity, TopicPartition
from ottla.errors import CoordinatorNotAvailable, KafkaError, NotLeaderOrFollower, error_for
from ottla.server.transactions import LocalMarkers, TransactionsOfBroker, for_writers
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.workers.forwarding import ask
from ottla.workers.link import LinkLost

if TYPE_CHECKING:
    from ottla.workers.broker import WorkerBroker

MARKERS_VERSION = 2
ADD_VERSION = 5

Done = Callable[[TopicPartition, KafkaError | None], None]


class SharedMarkers(LocalMarkers):
    """Writes markers here, or has the worker write them that leads the partition."""

    __slots__ = ("_waiting", "_worker")

    def __init__(self, worker: WorkerBroker) -> None:
        super().__init__(worker)
        self._worker = worker
        self._waiting: dict[int, list[tuple[Marker, TopicPartition, Done]]] = {}

    def write(self, marker: Marker, partition: TopicPartition, done: Done) -> None:
        leader = self._worker.leader_of(partition)
        if leader is None or leader[0] in (self._worker.node_id, NO_LEADER):
            super().write(marker, partition, done)
            return
        waiting = self._waiting.get(leader[0])
        if waiting is None:
            # What is written in this turn of the loop goes as one request.
            waiting = self._waiting[leader[0]] = []
            self._worker.loop.call_soon(self._send, leader[0])
        waiting.append((marker, partition, done))

    def _send(self, worker_id: int) -> None:
        self._worker.in_background(self._write_there(worker_id, self._waiting.pop(worker_id)))

    async def _write_there(self, worker_id: int, waiting: list[tuple[Marker, TopicPartition, Done]]) -> None:
        entries: dict[Marker, dict[str, list[int]]] = {}
        for marker, (topic, index), _ in waiting:
            entries.setdefault(marker, {}).setdefault(topic, []).append(index)
        written = WriteTxnMarkersRequest.WritableTxnMarker
        topic_type = WriteTxnMarkersRequest.WritableTxnMarkerTopic
        request = WriteTxnMarkersRequest(
            markers=[
                written(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_result=marker.commit,
                    transaction_version=marker.transaction_version,
                    topics=[topic_type(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                )
                for marker, topics in entries.items()
            ]
        )
        codes: dict[tuple[int, str, int], int] = {}
        try:
            link = self._worker.links[worker_id]
            answer = await ask(link, self._worker, request, MARKERS_VERSION, WriteTxnMarkersResponse)
            for result in answer.markers:
                for topic in result.topics:
                    for partition in topic.partitions:
                        codes[result.producer_id, topic.name, partition.partition_index] = partition.error_code
        except (KeyError, LinkLost):
            pass  # tried again later, or at the next start
        for marker, (topic, index), done in waiting:
            code = codes.get((marker.producer_id, topic, index), NotLeaderOrFollower.code)
            done((topic, index), error_for(code) if code else None)


class TransactionsOfWorker(TransactionsOfBroker):
    """The transaction coordinator of a worker; some partitions of its topic are led by other workers."""

    def __init__(self, worker: WorkerBroker) -> None:
        super().__init__(worker, SharedMarkers(worker))
        self._worker = worker

    def admit(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
        abortable: bool,
    ) -> dict[TopicPartition, KafkaError] | Awaitable[dict[TopicPartition, KafkaError]]:
        topic = self._worker.metadata.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is not None:
            leader = topic.partitions[internal_partition(transactional_id, len(topic.partitions))].leader
            if leader not in (self._worker.node_id, NO_LEADER):
                return self._admit_there(leader, transactional_id, producer, partitions, adds, abortable)
        return super().admit(transactional_id, producer, partitions, adds=adds, abortable=abortable)

    async def _admit_there(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        adds: bool,
        abortable: bool,
    ) -> dict[TopicPartition, KafkaError]:
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions:
            by_topic.setdefault(name, []).append(index)
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=not adds,
                    topics=[topic_type(name=name, partitions=indexes) for name, indexes in by_topic.items()],
                )
            ]
        )
        refused: dict[TopicPartition, KafkaError]
        try:
            link = self._worker.links[coordinator_id]
            answer = await ask(link, self._worker, request, ADD_VERSION, AddPartitionsToTxnResponse)
            if answer.error_code:
                refused = dict.fromkeys(partitions, error_for(answer.error_code))
            else:
                refused = {
                    (topic.name, result.partition_index): error_for(result.partition_error_code)
                    for transaction in answer.results_by_transaction
                    for topic in transaction.topic_results
                    for result in topic.results_by_partition
                    if result.partition_error_code
                }
        except (KeyError, LinkLost):
            refused = dict.fromkeys(partitions, CoordinatorNotAvailable())
        return {partition: for_writers(error, abortable=abortable) for partition, error in refused.items()}
