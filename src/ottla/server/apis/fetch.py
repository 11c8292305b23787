"""Fetch: record batches straight from the log, now or when there are enough of them."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from ottla.answers import Answer, Reply, Steps, paced, then
from ottla.clock import TimerHandle
from ottla.enums import AclOperation, AnsweredBy, IsolationLevel, QuotaType, ResourceType
from ottla.errors import (
    NONE,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    KafkaError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from ottla.lazy_imports import lazy
from ottla.log.files import FileRegion
from ottla.records.batch import LOG_OVERHEAD, entry_size
from ottla.records.compression import ZSTD
from ottla.records.conversion import down_converting
from ottla.records.legacy import any_batches
from ottla.replication.partition import Partition
from ottla.server.api import ChecksItself, Repeated, RequestContext, Route, handles
from ottla.server.apis.fetch_repeated import RepeatedFetch, wants_committed
from ottla.server.directory import names_leader
from ottla.server.fetch_sessions import FetchPlan, PartitionKey, SessionPartition
from ottla.server.replica_selector import nearest_replica
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from ottla.server.apis import replica_fetch
else:
    replica_fetch = lazy("ottla.server.apis.replica_fetch")

_ISOLATION_LEVELS = frozenset(IsolationLevel)

_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
"""Bound once: they are needed for each partition of each fetch."""

_FIRST_V2_RECORDS_VERSION = 4

_CONVERTED_BYTES_MAX = 4 << 20
"""Batches for older versions are converted up to this size, and to the end of the batch that reaches it."""

_HARD_LIMIT_UP_TO = 2
"""Before v3 a consumer got stuck on a batch larger than its limit; since then the first batch is always sent
completely.
"""

_FIRST_TOPIC_ID_VERSION = 13

_FIRST_RACK_VERSION = 11
"""Since this version a consumer can read from a follower."""

_FIRST_LEADER_VERSION = 16
"""Since this version answers name leaders (KIP-951); the field is older, but only controllers used it."""

PartitionData = FetchResponse.PartitionData
TopicResponse = FetchResponse.FetchableTopicResponse
Aborted = FetchResponse.AbortedTransaction
EpochEndOffset = FetchResponse.EpochEndOffset


_OF_SESSIONS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)
_NOT_READ = (UnknownTopicId, TopicAuthorizationFailed, UnknownTopicOrPartition)
"""Errors found before anything is read; their partitions come last in the answer."""


def _fetch_error(ctx: RequestContext, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """A session error is the only error in the answer; any other is set for the request and for each named
    partition.
    """
    if isinstance(error, _OF_SESSIONS):
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        error_code=error.code,
        session_id=request.session_id,
        responses=[
            TopicResponse(
                topic=topic.topic,
                partitions=[_not_read(wanted.partition, error.code) for wanted in topic.partitions],
            )
            for topic in request.topics
            if ctx.version < _FIRST_TOPIC_ID_VERSION
        ],
    )


def _model(
    ctx: RequestContext,
    route: Route,
    frame: memoryview,
    request: FetchRequest,
    response: FetchResponse,
    _: bytes,
    last: Repeated | None,
) -> Repeated | None:
    """The template for the connection's next request; only if no guard runs before this handler."""
    if (
        not RepeatedFetch.may_repeat(ctx.version, request)
        or route.handler is not fetch
        or ctx.services.authorizer is not None
    ):
        return None
    if not isinstance(last, RepeatedFetch) or not last.is_like(ctx.version, request):
        return RepeatedFetch(ctx.version, request)
    last.learn(ctx.services, route, frame, request, response)
    return last


def _is_cut(records: FileRegion | bytes | memoryview) -> bool:
    """Whether even the first batch is incomplete: only the oldest versions get a partial batch."""
    head = records.head(LOG_OVERHEAD) if isinstance(records, FileRegion) else records[:LOG_OVERHEAD]
    return len(head) < LOG_OVERHEAD or entry_size(head) > len(records)


@handles(
    FetchRequest,
    answered_by=AnsweredBy.PARTITION_LEADER,
    permission=ChecksItself("READ on each topic, for followers CLUSTER_ACTION on the cluster"),
    on_error=_fetch_error,
    model=_model,
    carries_records=True,
    quota=QuotaType.FETCH,
)
def fetch(ctx: RequestContext, request: FetchRequest) -> Answer[FetchResponse]:
    """v0–v18. v0–v1 answer in message format 0, v2–v3 in format 1 (4.0 dropped them, 3.9 is the model); v3 limits the
    whole answer (KIP-74); v4 isolation; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v12 diverging epochs
    (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 node endpoints (KIP-951).
    """
    plan = ctx.services.fetch_sessions.plan(request, ctx.version)
    if request.isolation_level not in _ISOLATION_LEVELS:
        _refuse_isolation(ctx, request, plan)
    state = request.replica_state
    if request.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        return replica_fetch.replica_fetch(ctx, request, plan)
    reading = Reading(ctx, request, plan)
    reading.read()
    if reading.failed or reading.bytes_read >= request.min_bytes or request.max_wait_ms <= 0 or not plan.partitions:
        return reading.answer()
    return LongPoll(reading).reply


def _refuse_isolation(ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
    """Refuse an unknown isolation level. Kafka notices it only if a partition is read."""
    reading = Reading(ctx, request, plan)
    for key, wanted in plan.partitions.items():
        try:
            reading.partition(key, wanted)
        except _NOT_READ:
            continue
        except KafkaError:
            pass  # it exists, and would have been read
        if plan.full and plan.session is not None:
            ctx.services.fetch_sessions.close(plan.session)  # the client gets no answer
        raise UnknownServerError(f"there is no isolation level {request.isolation_level}")


class Reading:
    """One pass over the partitions of a fetch."""

    __slots__ = ("bytes_read", "ctx", "failed", "has_waited", "plan", "request", "results")

    def __init__(self, ctx: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self.ctx = ctx
        self.request = request
        self.plan = plan
        self.bytes_read = 0
        self.failed = False
        self.has_waited = False
        self.results: list[tuple[PartitionKey, SessionPartition, PartitionData]] = []

    def read(self) -> None:
        """Read every partition, in order, until the limit of the whole answer is used up."""
        self.results = []
        self.bytes_read = 0
        request = self.request
        version = self.ctx.version
        left = min(request.max_bytes, self.ctx.services.fetch_bytes_max)
        quotas = self.ctx.services.quotas
        if quotas is not None:
            left = min(left, quotas.fetch_bytes_max(self.ctx))
        at_least_one = version > _HARD_LIMIT_UP_TO
        unknown_ids: list[tuple[PartitionKey, SessionPartition, PartitionData]] = []
        not_read: list[tuple[PartitionKey, SessionPartition, PartitionData]] = []
        for key, wanted in self.plan.partitions.items():
            try:
                data = self._read_partition(key, wanted, left, at_least_one)
            except _NOT_READ as error:
                self.failed = True
                if self.has_waited:
                    # The partition was found before the wait, so Kafka notices the error while it reads.
                    self.results.append((key, wanted, _failed(wanted.index, error.code)))
                    continue
                refused = unknown_ids if isinstance(error, UnknownTopicId) else not_read
                refused.append((key, wanted, _not_read(wanted.index, error.code)))
                continue
            except KafkaError as error:
                self.failed = True
                data = _failed(wanted.index, error.code)
                self._name_leader(key, data, error)
            else:
                size = len(data.records) if data.records is not None else 0
                if size:
                    self.bytes_read += size
                    left = max(0, left - size)
                    at_least_one = False
            if left < 0:
                left = 0  # an invalid size; only the first partition gets the error
            self.results.append((key, wanted, data))
        if self.failed:
            self.results += unknown_ids
            self.results += not_read

    def partition(self, key: PartitionKey, wanted: SessionPartition) -> Partition:
        """The partition of a fetch, looked up by topic id from v13 on."""
        name, index = key
        broker = self.ctx.services
        is_id_known = True
        if not isinstance(name, str):
            topic = broker.metadata.topics_by_id.get(name)
            if topic is not None:
                wanted.topic = topic.name
            elif not wanted.topic:
                raise UnknownTopicId()
            # A session and a waiting fetch keep the name of a topic that is deleted, as in Kafka.
            is_id_known = topic is not None
            name = wanted.topic
        if broker.authorizer is not None:
            self._check_allowed(name)
        try:
            partition = broker.replicas.leader(name, index)
        except NotLeaderOrFollower:
            if self.ctx.version < _FIRST_RACK_VERSION:
                raise
            partition = self._follower(name, index)
        if not is_id_known:
            raise InconsistentTopicId()  # another topic has the name now
        return partition

    def _follower(self, name: str, index: int) -> Partition:
        """A consumer may read from any replica (KIP-392), but only if a leader is known."""
        partition = self.ctx.services.replicas.replica(name, index)
        if not partition.has_leader:
            raise NotLeaderOrFollower()
        return partition

    def _check_allowed(self, topic: str) -> None:
        """Consumers may read a topic; followers may act for the cluster."""
        ctx, state = self.ctx, self.request.replica_state
        is_consumer = self.request.replica_id < 0 and (state is None or state.replica_id < 0)
        if is_consumer:
            allowed = ctx.may(_READ, _TOPIC, topic)
        else:
            allowed = ctx.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if not allowed:
            raise TopicAuthorizationFailed()

    def _read_partition(
        self, key: PartitionKey, wanted: SessionPartition, left: int, at_least_one: bool
    ) -> PartitionData:
        partition = self.partition(key, wanted)
        partition.check_leader_epoch(max(wanted.current_leader_epoch, -1))
        diverging = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is not None:
            return self._hint(
                wanted, partition, diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
            )
        if partition.leadership is not None and self.request.rack_id:
            nearest = nearest_replica(self.ctx.services, partition, wanted.fetch_offset, self.request.rack_id)
            if nearest is not None:
                return self._hint(wanted, partition, preferred_read_replica=nearest)
        committed_only = wants_committed(self.request)
        limit = min(wanted.max_bytes, left)
        if limit < 0 and partition.log_start_offset <= wanted.fetch_offset < partition.high_watermark:
            raise UnknownServerError(f"{limit} bytes cannot be read")
        result = partition.read(
            wanted.fetch_offset,
            limit,
            committed_only=committed_only,
            at_least_one=at_least_one,
        )
        records: Sized = result.records
        is_cut = (
            len(records) >= limit > 0
            and not at_least_one
            and self.ctx.version > _HARD_LIMIT_UP_TO
            and _is_cut(result.records)
        )
        if is_cut:
            records = b""
        return PartitionData(
            partition_index=wanted.index,
            error_code=NONE,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=(
                [Aborted(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in result.aborted]
                if committed_only and not is_cut
                else None
            ),
            records=records,
        )

    def _hint(self, wanted: SessionPartition, partition: Partition, **where: Any) -> PartitionData:
        """An answer without records that names the replica to read from; sent immediately."""
        self.failed = True
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=None,
            records=b"",
            **where,
        )

    def _name_leader(self, key: PartitionKey, data: PartitionData, error: KafkaError) -> None:
        """Name the leader, so that the client does not need to ask for metadata (KIP-951)."""
        if self.ctx.version < _FIRST_LEADER_VERSION or not names_leader(error):
            return
        leader = self.ctx.services.directory.leader_of(key)
        if leader is not None:
            data.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])

    def answer(self) -> Answer[FetchResponse]:
        """The response; before v4 the records are converted, which may take a while."""
        if self.ctx.version >= _FIRST_V2_RECORDS_VERSION or not self.bytes_read:
            return self.response()
        return then(paced(self._convert()), lambda _: self.response())

    def _convert(self) -> Steps[None]:
        for key, wanted, data in self.results:
            records = data.records
            if isinstance(records, FileRegion | bytes) and len(records):
                try:
                    data.records = yield from _converted(records, wanted, self.ctx.version)
                except KafkaError as error:
                    self.failed = True
                    self.results = [
                        (key, wanted, _failed(wanted.index, error.code)) if each is data else (other, of, each)
                        for other, of, each in self.results
                    ]

    def response(self) -> FetchResponse:
        """The answer; an incremental one lists only the partitions that have something new."""
        session = self.plan.session
        response = FetchResponse(session_id=session.session_id if session is not None else 0)
        quotas = self.ctx.services.quotas
        if quotas is not None:
            response.throttle_time_ms = quotas.fetch_throttle_ms(self.ctx, self.bytes_read)
            if response.throttle_time_ms > 0:
                return response  # nothing is sent now, and the session continues as if nothing had been read
        if self.failed:
            self._refuse_nameless()
        topic: TopicResponse | None = None
        last_name: bytes | str | None = None
        served = []
        for key, wanted, data in self.results:
            if session is not None and not self._news(wanted, data):
                continue
            if topic is None or key[0] != last_name:
                last_name = key[0]
                topic = TopicResponse()
                if isinstance(last_name, bytes):
                    topic.topic_id = last_name
                else:
                    topic.topic = last_name
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.records:
                served.append(key)
        if session is not None and served and not self.plan.full:
            session.served(served)
        if self.failed and self.ctx.version >= _FIRST_LEADER_VERSION:
            self._name_nodes(response)
        return response

    def _refuse_nameless(self) -> None:
        """Refuse a topic with neither name nor id: Kafka fails when it compares its name with that of the next
        topic."""
        if any(key[0] == ZERO_UUID for key, _, _ in self.results[:-1]):
            if self.plan.full and self.plan.session is not None:
                self.ctx.services.fetch_sessions.close(self.plan.session)  # the client gets no answer
            raise UnknownServerError("a topic with neither name nor id")

    def _name_nodes(self, response: FetchResponse) -> None:
        """Add the addresses of the leaders that the answer names."""
        leaders = {data.current_leader.leader_id for _, _, data in self.results if data.current_leader is not None}
        if leaders:
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in self.ctx.services.directory.nodes(self.ctx.connection)
                if node.broker_id in leaders
            ]

    def _news(self, wanted: SessionPartition, data: PartitionData) -> bool:
        """Whether this partition has anything new for the session's client; remembers what was sent."""
        news = (
            self.plan.full
            or data.error_code != NONE
            or bool(data.records)
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
        )
        if data.error_code != NONE:
            # After an error the client starts again: the next answer must contain everything.
            wanted.sent_high_watermark = -1
            return True
        if wanted.sent_high_watermark != data.high_watermark:
            wanted.sent_high_watermark = data.high_watermark
            news = True
        if wanted.sent_log_start_offset != data.log_start_offset:
            wanted.sent_log_start_offset = data.log_start_offset
            news = True
        return news


class LongPoll:
    """A fetch that waits for `min_bytes` or for its time to run out; an append to a partition wakes it."""

    __slots__ = ("_arrived", "_partitions", "_reading", "_scheduled", "_timer", "reply")

    def __init__(self, reading: Reading) -> None:
        broker = reading.ctx.services
        self._reading = reading
        self._arrived = reading.bytes_read
        self._scheduled = False
        reading.has_waited = True
        self._partitions = [reading.partition(key, wanted) for key, wanted in reading.plan.partitions.items()]
        self.reply: Reply[FetchResponse] = Reply(self._forget, at_once=True)
        self._timer: TimerHandle = broker.timer.schedule(reading.request.max_wait_ms, self._time_is_up)
        for partition in self._partitions:
            partition.watchers.add(self)

    def appended(self, byte_count: int) -> None:
        """More bytes became readable in one of the partitions."""
        self._arrived += byte_count
        if self._arrived >= self._reading.request.min_bytes and not self._scheduled:
            self._scheduled = True
            self._reading.ctx.services.wakeups.add(self._try)

    def moved(self) -> None:
        """Leadership, log start or the partition itself changed: the client must be informed."""
        if not self._scheduled:
            self._scheduled = True
            self._reading.ctx.services.loop.call_soon(self._time_is_up)

    def _try(self) -> None:
        self._scheduled = False
        if self.reply.done:
            return
        reading = self._reading
        reading.read()
        if reading.failed or reading.bytes_read >= reading.request.min_bytes:
            self._answer()
        else:
            # Appended records may not be readable yet, for example because of an open transaction.
            self._arrived = reading.bytes_read

    def _time_is_up(self) -> None:
        if not self.reply.done:
            self._reading.read()
            self._answer()

    def _answer(self) -> None:
        self._forget()
        self.reply.complete(self._reading.answer)

    def _forget(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.discard(self)


def _failed(index: int, code: int) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _not_read(index: int, code: int) -> PartitionData:
    """Like `_failed`, but aborted transactions are empty instead of null, because nothing was read."""
    data = _failed(index, code)
    data.aborted_transactions = []
    return data


def _converted(records: FileRegion | bytes, wanted: SessionPartition, version: int) -> Steps[bytes]:
    """The batches in the message format of an old fetch version; such clients do not support zstd."""
    if isinstance(records, FileRegion):
        # Read only as much as one answer converts, which may be less than the client asked for.
        raw = records.head(LOG_OVERHEAD)
        if len(raw) == LOG_OVERHEAD:
            raw = records.head(max(_CONVERTED_BYTES_MAX, entry_size(raw)))
    else:
        raw = records
    raw = bytes(raw)
    if any(batch.codec == ZSTD for batch in any_batches(raw)):
        raise UnsupportedCompressionType()
    enough = min(wanted.max_bytes, _CONVERTED_BYTES_MAX)
    return (yield from down_converting(raw, 0 if version <= 1 else 1, wanted.fetch_offset, enough))
