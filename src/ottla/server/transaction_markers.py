"""Writes the markers that end transactions, here or at the broker that leads the partition.

Kafka's class for it is TransactionMarkerChannelManager; the request between brokers is WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.answers import Reply
from ottla.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut, error_for
from ottla.metadata.image import NO_LEADER
from ottla.metadata.topics import GROUP_METADATA_TOPIC
from ottla.records.batch import Batch, end_transaction_marker
from ottla.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard
    from ottla.coordinator.transactions.shard import Marker
    from ottla.replication.partition import Partition
    from ottla.server.services import CoordinatorServices, Services

TopicPartition = tuple[str, int]
Done = Callable[[TopicPartition, KafkaError | None], None]
GroupShards = Callable[[int], "GroupShard | None"]
"""The shard of a partition of `__consumer_offsets` that this broker coordinates."""
Waiting = list[tuple["Marker", TopicPartition, Done]]


class MarkerWriter:
    """The markers of one broker's transaction coordinator, and those that other coordinators send here."""

    def __init__(self, services: CoordinatorServices, group_shards: GroupShards) -> None:
        self._services = services
        self._group_shards = group_shards
        self._waiting: dict[int, Waiting] = {}
        self._will_send = True  # `start` sends

    def start(self) -> None:
        """Other brokers can be reached from now on. Markers from before a stop may already be waiting."""
        self._send_all()

    def write(self, marker: Marker, partition: TopicPartition, done: Done) -> None:
        """Write a marker; those for other brokers wait for `send`."""
        leader = self._services.directory.leader_of(partition)
        if leader is not None and leader[0] not in (self._services.node_id, NO_LEADER):
            self._waiting.setdefault(leader[0], []).append((marker, partition, done))
            return
        try:
            written, offset = self.append(marker, *partition)
        except KafkaError as error:
            done(partition, error)
        else:
            when_committed(self._services, written, offset, lambda error: done(partition, error))

    def append(self, marker: Marker, topic: str, index: int) -> tuple[Partition, int]:
        """The partition and the marker's offset, which may not be committed yet; raises an error if the marker is
        refused.
        """
        partition = self._services.replicas.leader(topic, index)
        if partition.leadership is not None:
            partition.leadership.check_enough_replicas()
        if topic == GROUP_METADATA_TOPIC:
            # The group coordinator writes into its partitions itself: the marker commits pending offsets.
            shard = self._group_shards(index)
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
            timestamp_ms=self._services.clock.now_ms(),
        )
        info = partition.append_own((Batch(batch),), transaction_version=marker.transaction_version)
        return partition, info.last_offset

    # -- to other brokers --------------------------------------------------------------------------------------

    def send(self) -> None:
        """All markers of a transaction were passed to `write`."""
        if not self._waiting or self._will_send:
            return
        pace = self._services.pace
        if pace is not None and pace.is_with_one:
            # Before EndTxn is answered: its producer continues soon, and its partitions should be free by then.
            self._send_all()
        else:
            # Transactions that end in the same loop iteration share a request.
            self._will_send = True
            self._services.loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        self._will_send = False
        while self._waiting:
            self._send(*self._waiting.popitem())

    def _send(self, broker_id: int, waiting: Waiting) -> None:
        def answered(reply: Reply[WriteTxnMarkersResponse]) -> None:
            if reply.error is not None:
                # The broker is gone: retry with the new leader.
                failed = reply.error if isinstance(reply.error, KafkaError) else NotLeaderOrFollower()
                for _, partition, done in waiting:
                    done(partition, failed)
                return
            codes = _codes(reply.value)
            for marker, partition, done in waiting:
                code = codes.get((marker.producer_id, *partition), NotLeaderOrFollower.code)
                done(partition, error_for(code) if code else None)

        request = _request((marker, partition) for marker, partition, _ in waiting)
        self._services.channel.send(broker_id, request).listen(answered)


def when_committed(
    services: CoordinatorServices | Services,
    partition: Partition,
    offset: int,
    done: Callable[[KafkaError | None], None],
) -> None:
    """Call `done` when a marker is committed, or with an error, such as after a wait of `request.timeout.ms`.

    After an error the coordinator tries again, as Kafka's does.
    """
    if offset < partition.high_watermark:
        done(None)
        return
    is_over = False

    def settled(error: KafkaError | None) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            timer.cancel()
            done(error)

    timer = services.timer.schedule(services.config["request.timeout.ms"], lambda: settled(RequestTimedOut()))
    partition.when_committed(offset, settled)


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
