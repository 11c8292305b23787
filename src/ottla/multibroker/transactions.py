"""Transactions across brokers: WriteTxnMarkers to who leads a partition, AddPartitionsToTxn to who coordinates."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, started
from ottla.coordinator.transactions.shard import Marker
from ottla.coordinator.transactions.state import Identity, TopicPartition
from ottla.errors import CoordinatorNotAvailable, KafkaError, NotLeaderOrFollower, error_for
from ottla.metadata.image import NO_LEADER
from ottla.multibroker.network import Unreachable
from ottla.server.transactions import LocalMarkers, Refusals, TransactionsOfOneOfMany, for_writers
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.multibroker.broker import NodeBroker

MARKERS_VERSION = 2
ADD_VERSION = 5

Done = Callable[[TopicPartition, KafkaError | None], None]


class NodeMarkers(LocalMarkers):
    """Writes markers here, or has the broker write them that leads the partition."""

    __slots__ = ("_node",)

    def __init__(self, node: NodeBroker) -> None:
        super().__init__(node)
        self._node = node

    def write(self, marker: Marker, partition: TopicPartition, done: Done) -> None:
        node = self._node
        leader = node.directory.leader_of(partition)
        if leader is None or leader[0] == node.node_id:
            super().write(marker, partition, done)
            return
        if leader[0] == NO_LEADER:
            done(partition, NotLeaderOrFollower())
            return
        topic, index = partition
        entry = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        request = WriteTxnMarkersRequest(markers=[entry])

        def answered(response: WriteTxnMarkersResponse | None, error: Exception | None) -> None:
            if not node.is_alive:
                return
            # A broker that is gone: tried again, with who leads by then.
            code = (
                NotLeaderOrFollower.code if response is None else response.markers[0].topics[0].partitions[0].error_code
            )
            done(partition, error_for(code) if code else None)

        node.network.ask(
            node.node_id,
            leader[0],
            lambda: node.peer(leader[0]).serve_peer(node.node_id, request, MARKERS_VERSION),
            answered,
        )


class TransactionsOfNode(TransactionsOfOneOfMany):
    """The transaction coordinator of a broker; some partitions of its topic are led by other brokers."""

    def __init__(self, node: NodeBroker) -> None:
        super().__init__(node, NodeMarkers(node))
        self._node = node

    def _admit_there(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        adds: bool,
        abortable: bool,
    ) -> Answer[Refusals]:
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions:
            by_topic.setdefault(name, []).append(index)
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=not adds,
                    topics=[topic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
                )
            ]
        )
        node = self._node

        def serve() -> Any:
            return node.peer(coordinator_id).serve_peer(node.node_id, request, ADD_VERSION)

        async def ask() -> Refusals:
            try:
                response: AddPartitionsToTxnResponse = await node.network.call(node.node_id, coordinator_id, serve)
            except (Unreachable, KafkaError):
                return dict.fromkeys(partitions, CoordinatorNotAvailable())
            return {
                (result.name, outcome.partition_index): for_writers(
                    error_for(outcome.partition_error_code), abortable=abortable
                )
                for result in response.results_by_transaction[0].topic_results
                for outcome in result.results_by_partition
                if outcome.partition_error_code
            }

        return started(ask())
