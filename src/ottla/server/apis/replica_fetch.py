"""Fetch for followers: up to the end of the log. The requested offset shows a follower's progress."""

from __future__ import annotations

from ottla.answers import Answer, Reply
from ottla.clock import TimerHandle
from ottla.errors import NONE, NotLeaderOrFollower, UnknownLeaderEpoch
from ottla.log.files import FileRegion
from ottla.replication.leadership import Leadership
from ottla.server.api import RequestContext
from ottla.server.apis.fetch import EpochEndOffset, PartitionData, Reading
from ottla.server.fetch_sessions import FetchPlan, PartitionKey, SessionPartition
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.primitives import INT64_MAX


def replica_fetch(ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> Answer[FetchResponse]:
    """A follower's offsets count when its request arrives, not when a long poll reads again."""
    state = request.replica_state
    replica_id, broker_epoch = (state.replica_id, state.replica_epoch) if state else (request.replica_id, -1)
    reading = ReplicaReading(ctx, request, plan, replica_id, broker_epoch)
    reading.read()
    reading.arriving = False
    if (
        reading.failed
        or reading.has_news
        or reading.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or not plan.partitions
    ):
        return reading.response()
    return ReplicaPoll(reading).reply


class ReplicaReading(Reading):
    """One pass over the partitions that a follower wants."""

    __slots__ = ("_known", "arriving", "broker_epoch", "changes_only", "has_news", "leaderships", "replica_id")

    def __init__(
        self, ctx: RequestContext, request: FetchRequest, plan: FetchPlan, replica_id: int, broker_epoch: int
    ) -> None:
        super().__init__(ctx, request, plan)
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.arriving = True
        self.has_news = False
        by_id = ctx.version >= 13
        self._known = {
            (topic.topic_id if by_id else topic.topic, wanted.partition): wanted.high_watermark
            for topic in request.topics
            for wanted in topic.partitions
        }
        """The high watermarks that the follower knows (KIP-1166)."""
        self.leaderships: dict[PartitionKey, Leadership] = {}
        self.changes_only = ctx.connection.wants_changes_only

    def read(self) -> None:
        """Most partitions of a follower have not changed since its last fetch: skip them."""
        wanted = self.plan.partitions
        if self.changes_only and self.arriving:
            broker = self.ctx.services
            known = broker.metadata.brokers.get(self.replica_id)
            if known is not None and known.epoch == self.broker_epoch:
                now_ms = broker.clock.monotonic_ms()
                self.plan.partitions = {key: one for key, one in wanted.items() if not self._is_idle(key, one, now_ms)}
        super().read()
        self.plan.partitions = wanted

    def _is_idle(self, key: PartitionKey, wanted: SessionPartition, now_ms: float) -> bool:
        """Whether leader and follower agree on everything; this counts as a fetch."""
        broker = self.ctx.services
        topic = broker.metadata.topics_by_id.get(key[0]) if isinstance(key[0], bytes) else None
        partition = broker.replicas.get(topic.name, key[1]) if topic is not None else None
        leadership = partition.leadership if partition is not None else None
        if leadership is None or leadership.leader_epoch != wanted.current_leader_epoch:
            return False
        follower = leadership.followers.get(self.replica_id)
        log = leadership.log
        if (
            follower is None
            or follower.broker_epoch != self.broker_epoch
            or not follower.log_end_offset == wanted.fetch_offset == log.log_end_offset
            or not follower.log_start_offset == wanted.log_start_offset == log.log_start_offset
            or self._known.get(key) != log.high_watermark
            or wanted.last_fetched_epoch not in (-1, log.epochs.latest)
            or self.replica_id not in leadership.state.isr
        ):
            return False
        follower.fetched(wanted.fetch_offset, wanted.log_start_offset, wanted.fetch_offset, now_ms, self.broker_epoch)
        self.leaderships[key] = leadership
        return True

    def read_again(self, keys: set[PartitionKey]) -> None:
        """Read the partitions that may have something new by now, or all of them if the follower expects all in the
        answer."""
        if self.changes_only:
            self.plan.partitions = {key: self.plan.partitions[key] for key in keys}
        self.read()

    def response(self) -> FetchResponse:
        if self.changes_only:
            self.results = [result for result in self.results if self._is_news(*result)]
        return super().response()

    def _name_nodes(self, response: FetchResponse) -> None:
        """Nothing to add: a follower knows where the leaders are."""

    def _is_news(self, key: PartitionKey, wanted: SessionPartition, data: PartitionData) -> bool:
        return (
            data.error_code != NONE
            or bool(data.records)
            or data.high_watermark > self._known.get(key, INT64_MAX)
            or data.log_start_offset > wanted.log_start_offset
            or data.diverging_epoch is not None
        )

    def _read_partition(
        self, key: PartitionKey, wanted: SessionPartition, left: int, at_least_one: bool
    ) -> PartitionData:
        partition = self.partition(key, wanted)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        partition.check_leads()
        leadership = partition.leadership
        if leadership is None:
            # There are no followers. As with followers: if the epoch matches, the follower may just not be known yet.
            raise NotLeaderOrFollower() if wanted.current_leader_epoch == -1 else UnknownLeaderEpoch()
        follower = leadership.check_follower(self.replica_id, self.broker_epoch, wanted.current_leader_epoch != -1)
        self.leaderships[key] = leadership
        diverging = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is not None:
            return self._hint(
                wanted, partition, diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            )
        throttle = leadership.throttle
        if throttle is not None and throttle.is_exceeded and self.replica_id not in partition.state.isr:
            records: FileRegion | bytes = b""
        else:
            records = partition.read_as_replica(
                wanted.fetch_offset, min(wanted.max_bytes, left), at_least_one=at_least_one
            )
            if throttle is not None:
                throttle.record(len(records))
        if self.arriving:
            leadership.follower_fetched(follower, wanted.fetch_offset, wanted.log_start_offset, self.broker_epoch)
        known = self._known.get(key, INT64_MAX)
        if min(partition.high_watermark, wanted.fetch_offset) > known or (
            # A log never starts after its replica's high watermark.
            self.changes_only and min(partition.log_start_offset, known) > wanted.log_start_offset
        ):
            self.has_news = True
        return PartitionData(
            partition_index=wanted.index,
            error_code=NONE,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=None,
            records=records,
        )


class ReplicaPoll:
    """A follower's fetch that waits: for a log to grow, or for a high watermark to move."""

    def __init__(self, reading: ReplicaReading) -> None:
        broker = reading.ctx.services
        self.reply: Reply[FetchResponse] = Reply(self._forget)
        self.reply.on_hurry = self.end
        self._reading = reading
        self._scheduled = False
        self._leaderships = {leadership: key for key, leadership in reading.leaderships.items()}
        self._grown: set[PartitionKey] = set()
        self._timer: TimerHandle = broker.timer.schedule(reading.request.max_wait_ms, self._answer)
        for leadership in self._leaderships:
            leadership.replica_watchers.add(self)

    def grown(self, leadership: Leadership) -> None:
        self._grown.add(self._leaderships[leadership])
        self.end()

    def end(self) -> None:
        """Answer soon, with what is available."""
        if not self._scheduled and not self.reply.done:
            # Not immediately: the same request may append to more partitions.
            self._scheduled = True
            self._reading.ctx.services.loop.call_soon(self._answer)

    def _answer(self) -> None:
        if self.reply.done:
            return
        self._forget()
        self.reply.complete(self._read_again)

    def _read_again(self) -> FetchResponse:
        self._reading.read_again(self._grown)
        return self._reading.response()

    def _forget(self) -> None:
        self._timer.cancel()
        for leadership in self._leaderships:
            leadership.replica_watchers.discard(self)
