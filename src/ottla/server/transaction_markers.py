"""Writes the markers that end transactions, here or at the broker that leads the partition.

Kafka's class for it is TransactionMarkerChannelManager; the request between brokers is WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.errors import KafkaError, NotLeaderOrFollower, error_for
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topics import GROUP_METADATA_TOPIC
from ottla.records.batch import Batch, end_transaction_marker
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.coordinator.transactions.shard import Marker
    from ottla.replication.partition import Partition
    from ottla.server.broker import Broker
    from ottla.server.peers import Channel

TopicPartition = tuple[str, int]
Done = Callable[[TopicPartition, KafkaError | None], None]
Waiting = list[tuple["Marker", TopicPartition, Done]]


class MarkerWriter:
    """The markers of one broker's transaction coordinator, and those that other coordinators want written here."""

    def __init__(self, broker: Broker, channel: Channel) -> None:
        self._broker = broker
        self._channel = channel
        self._waiting: dict[int, Waiting] = {}
        self._will_send = True  # by `start`

    def start(self) -> None:
        """Other brokers can be reached from now on. Markers that a stop held back may be waiting already."""
        self._send_all()

    def write(self, marker: Marker, partition: TopicPartition, done: Done) -> None:
        """Write a marker; those for other brokers wait for `send`."""
        leader = self._broker.directory.leader_of(partition)
        if leader is not None and leader[0] not in (self._broker.node_id, NO_LEADER):
            self._waiting.setdefault(leader[0], []).append((marker, partition, done))
            return
        try:
            written, offset = self.append(marker, *partition)
        except KafkaError as error:
            done(partition, error)
        else:
            written.when_committed(offset, lambda error: done(partition, error))

    def append(self, marker: Marker, topic: str, index: int) -> tuple[Partition, int]:
        """The partition and the marker's offset, which may not be committed yet; raises what keeps the marker out."""
        broker = self._broker
        partition = broker.replicas.leader(topic, index)
        if partition.leadership is not None:
            partition.leadership.check_enough_replicas()
        if topic == GROUP_METADATA_TOPIC:
            # The group coordinator writes into its partitions itself: the marker makes pending offsets count.
            shard = broker.groups.shard(index)
            if shard is None:
                raise NotLeaderOrFollower
            offset = shard.complete_transaction(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, commit=marker.commit
            )
            return partition, offset
        batch = end_transaction_marker(
            marker.commit,
            marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=broker.clock.now_ms(),
        )
        info = partition.append_own((Batch(batch),), transaction_version=marker.transaction_version)
        return partition, info.last_offset

    # -- to other brokers --------------------------------------------------------------------------------------

    def send(self) -> None:
        """All markers of a transaction were handed over."""
        if not self._waiting or self._will_send:
            return
        pace = self._broker.pace
        if pace is not None and pace.is_with_one:
            # Before the end is answered: its producer comes back soon, and its partitions should be free by then.
            self._send_all()
        else:
            # Transactions that end in this turn of the loop share a request.
            self._will_send = True
            self._broker.loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        self._will_send = False
        while self._waiting:
            self._send(*self._waiting.popitem())

    def _send(self, broker_id: int, waiting: Waiting) -> None:
        def answered(response: WriteTxnMarkersResponse | None, error: Exception | None) -> None:
            if response is None:
                # The broker is gone: tried again, with the leader by then.
                failed = error if isinstance(error, KafkaError) else NotLeaderOrFollower()
                for _, partition, done in waiting:
                    done(partition, failed)
                return
            codes = _codes(response)
            for marker, partition, done in waiting:
                code = codes.get((marker.producer_id, *partition), NotLeaderOrFollower.code)
                done(partition, error_for(code) if code else None)

        self._channel.send(broker_id, _request((marker, partition) for marker, partition, _ in waiting), answered)


def _request(wanted: Iterable[tuple[Marker, TopicPartition]]) -> WriteTxnMarkersRequest:
    by_marker: dict[Marker, dict[str, list[int]]] = {}
    for marker, (topic, index) in wanted:
        by_marker.setdefault(marker, {}).setdefault(topic, []).append(index)
    of_topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=[of_topic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, topics in by_marker.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
