"""Followers: they fetch from each leader, one request at a time, until this broker's logs are as long as the leader's.

Each request has the end of a log and the leader epoch of its last record. If the logs have diverged, the leader
returns the position (KIP-595), and the follower truncates there and fetches again. This takes as many rounds as there
were leaders in between, and loses nothing that was committed (KIP-101, KIP-279).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.answers import Reply
from ottla.enums import OffsetTimestamp
from ottla.errors import (
    CorruptMessage,
    KafkaError,
    OffsetOutOfRange,
    error_for,
)
from ottla.log.files import FileRegion
from ottla.metadata.image import NO_LEADER
from ottla.multibroker.throttle import FOLLOWER, ReplicationThrottle
from ottla.records.batch import batches
from ottla.replication.partition import Partition
from ottla.server.peers import Unreachable
from ottla.wire.messages.fetch import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from ottla.multibroker.node import BrokerNode

logger = logging.getLogger(__name__)

FETCH_VERSION = 18
LIST_OFFSETS_VERSION = 11

Key = tuple[bytes, int]


class ReplicaFetchers:
    """All partitions that this broker follows, by leader."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._fetchers: dict[int, Fetcher] = {}
        self._closed = False
        self.throttle = ReplicationThrottle(node.broker, FOLLOWER)

    def close(self) -> None:
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.partitions.clear()

    def placed(self, partition: Partition) -> None:
        """Update the fetchers: a partition became leader or follower, or is gone."""
        if self._closed:
            return
        key = (partition.topic_id, partition.index)
        state, node = partition.state, self._node
        for fetcher in self._fetchers.values():
            fetcher.partitions.pop(key, None)
        follows = (
            partition.topic_id in node.broker.metadata.topics_by_id
            and (partition.topic, partition.index) not in node.broker.logs.offline
            and node.node_id in state.replicas
            and state.leader not in (NO_LEADER, node.node_id)
        )
        if follows:
            if state.leader not in self._fetchers:
                self._fetchers[state.leader] = Fetcher(node, state.leader)
            self._fetchers[state.leader].follow(key, partition)

    def go_on(self) -> None:
        """The network may be repaired: do not wait for the end of a pause."""
        for fetcher in self._fetchers.values():
            fetcher.go_on()


class Fetcher:
    """Fetches from one leader, one request at a time."""

    def __init__(self, node: BrokerNode, leader_id: int) -> None:
        self._node = node
        self._leader_id = leader_id
        self.partitions: dict[Key, Partition] = {}
        self._resting: set[Key] = set()
        self._asking = False
        self._poll: Reply[FetchResponse] | None = None

    def follow(self, key: Key, partition: Partition) -> None:
        self._resting.discard(key)
        self.partitions[key] = partition
        if not self._asking:
            self._asking = True
            # Other partitions of the same change are added too.
            self._node.broker.loop.call_soon(self._fetch)
        elif self._poll is not None:
            # The current request may wait for long and does not include this partition.
            self._node.network.send(self._node.node_id, self._leader_id, self._poll.hurry, lambda: None)

    def go_on(self) -> None:
        self._resting.clear()
        if not self._asking:
            self._fetch()

    # -- sending requests --------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        asked: dict[Key, int] = {}
        max_bytes = self._node.broker.config["replica.fetch.max.bytes"]
        for key, partition in self.partitions.items():
            if key in self._resting:
                continue
            if self._is_throttled(partition):
                self._rest(key)
                continue
            topic_id, index = key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            part = partition.log
            if part.epochs.latest < 0 and part.log_end_offset > part.high_watermark:
                partition.truncate(part.high_watermark)  # the topic of these records is unknown
            asked[key] = partition.state.leader_epoch
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.state.leader_epoch,
                    fetch_offset=part.log_end_offset,
                    last_fetched_epoch=part.epochs.latest,
                    log_start_offset=part.log_start_offset,
                    partition_max_bytes=max_bytes,
                    high_watermark=part.high_watermark,
                )
            )
        node = self._node
        self._asking = bool(asked) and node.is_alive
        if not self._asking:
            return
        config = node.broker.config
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=node.node_id, replica_epoch=node.broker_epoch),
            max_wait_ms=config["replica.fetch.wait.max.ms"],
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            session_epoch=-1,
            topics=list(topics.values()),
        )

        def serve() -> Any:
            result = node.peer_server(self._leader_id).serve(node.node_id, request, FETCH_VERSION)
            self._poll = result if isinstance(result, Reply) else None
            return result

        node.network.ask(
            node.node_id, self._leader_id, serve, lambda response, error: self._answered(asked, response, error)
        )

    def _answered(self, asked: dict[Key, int], response: FetchResponse | None, error: Exception | None) -> None:
        self._poll = None
        if not self._node.is_alive:
            return
        if response is None or response.error_code:
            if error is not None and not isinstance(error, (Unreachable, KafkaError)):
                logger.error("a fetch from broker %d failed", self._leader_id, exc_info=error)
            for key in asked:
                self._rest(key)
        else:
            for topic in response.responses:
                for data in topic.partitions:
                    key = (topic.topic_id, data.partition_index)
                    partition = self.partitions.get(key)
                    # An answer from before a change of leader is out of date.
                    if partition is not None and partition.state.leader_epoch == asked.get(key):
                        self._take(key, partition, data)
        self._fetch()

    def _is_throttled(self, partition: Partition) -> bool:
        throttle = self._node.fetchers.throttle
        return (
            throttle.concerns(partition.topic, partition.index)
            and self._node.node_id not in partition.state.isr
            and throttle.is_exceeded
        )

    def _rest(self, key: Key) -> None:
        """Do not fetch a partition for `replica.fetch.backoff.ms`."""
        self._resting.add(key)

        def wake() -> None:
            if key in self._resting:
                self._resting.discard(key)
                if not self._asking:
                    self._fetch()

        self._node.broker.timer.schedule(self._node.broker.config["replica.fetch.backoff.ms"], wake)

    # -- applying answers --------------------------------------------------------------------------------------

    def _take(self, key: Key, partition: Partition, data: FetchResponse.PartitionData) -> None:
        try:
            if data.error_code == OffsetOutOfRange.code:
                self._resting.add(key)
                self._find_place(key, partition)
            elif data.error_code:
                raise error_for(data.error_code)
            elif data.diverging_epoch is not None:
                self._cut(key, partition, data.diverging_epoch)
            else:
                self._append(partition, data)
        except KafkaError as error:
            logger.debug("%s-%d from broker %d: %s", partition.topic, partition.index, self._leader_id, error)
            self._rest(key)
        except Exception as error:
            logger.error("%s-%d cannot be followed", partition.topic, partition.index, exc_info=error)
            self._rest(key)

    def _cut(self, key: Key, partition: Partition, parting: FetchResponse.EpochEndOffset) -> None:
        part = partition.log
        before = (part.log_end_offset, part.epochs.latest)
        partition.truncate(place_to_cut(partition, parting.epoch, parting.end_offset))
        if (part.log_end_offset, part.epochs.latest) == before:
            self._rest(key)  # the same request would get the same answer

    def _append(self, partition: Partition, data: FetchResponse.PartitionData) -> None:
        records: Any = data.records
        if isinstance(records, FileRegion):
            records = records.read()
        found = list(batches(records)) if records else []
        for batch in found:
            if not batch.crc_ok():
                raise CorruptMessage(f"offset {batch.base_offset} came damaged from broker {self._leader_id}")
        # A read starts at a batch, and the batch that contains the offset may begin before the offset.
        found = [batch for batch in found if batch.base_offset >= partition.log.log_end_offset]
        partition.append_as_follower(found, data.high_watermark, data.log_start_offset)
        throttle = self._node.fetchers.throttle
        if found and throttle.concerns(partition.topic, partition.index):
            throttle.record(len(records))

    # -- out of range ------------------------------------------------------------------------------------------

    def _find_place(self, key: Key, partition: Partition) -> None:
        """The leader's log is shorter or starts later: look up the position, and continue there."""
        node = self._node
        epoch = partition.state.leader_epoch

        def request(timestamp: int) -> ListOffsetsRequest:
            wanted = ListOffsetsRequest.ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=epoch, timestamp=timestamp
            )
            topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])
            return ListOffsetsRequest(replica_id=node.node_id, topics=[topic])

        def serve() -> tuple[int, int]:
            leader = node.peer_server(self._leader_id)
            offsets = []
            for timestamp in (OffsetTimestamp.LATEST, OffsetTimestamp.EARLIEST):
                response = leader.serve(node.node_id, request(timestamp), LIST_OFFSETS_VERSION)
                assert isinstance(response, ListOffsetsResponse)
                found = response.topics[0].partitions[0]
                if found.error_code:
                    raise error_for(found.error_code)
                offsets.append(found.offset)
            return offsets[0], offsets[1]

        def answered(offsets: tuple[int, int] | None, error: Exception | None) -> None:
            if not node.is_alive or self.partitions.get(key) is not partition or partition.state.leader_epoch != epoch:
                return
            if offsets is None:
                self._rest(key)
                return
            if self._begin_within(partition, *offsets):
                self._resting.discard(key)
                if not self._asking:
                    self._fetch()
            else:
                self._rest(key)

        node.network.ask(node.node_id, self._leader_id, serve, answered)

    @staticmethod
    def _begin_within(partition: Partition, leader_end: int, leader_start: int) -> bool:
        part = partition.log
        if leader_end < part.log_end_offset:
            # Only an unclean election leaves a leader with fewer records than were replicated.
            logger.warning("%s: cut to the leader's end, %d of %d", part.name, leader_end, part.log_end_offset)
            partition.truncate(leader_end)
        elif leader_start > part.log_end_offset:
            part.truncate_fully_and_start_at(leader_start)
        else:
            return False  # the leader's log changed again in between
        return True


def place_to_cut(partition: Partition, epoch: int, end_offset: int) -> int:
    """The offset at which to truncate a follower's log if the leader's log ends at `end_offset` for `epoch`."""
    part = partition.log
    if end_offset < 0:
        return part.high_watermark
    own_epoch, own_end = part.end_offset_for_epoch(epoch)
    if own_epoch < 0:
        return min(end_offset, part.log_end_offset)
    if own_epoch != epoch:
        # We have no records of that epoch: truncate to the end of our next older epoch, and ask again with that epoch.
        return min(own_end, part.log_end_offset)
    return min(own_end, end_offset)
