"""ShareFetch: acknowledge, then wait for records and hand them out. ShareAcknowledge: only the first half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.answers import Answer, Reply, settled
from ottla.clock import TimerHandle
from ottla.coordinator.groups.interfaces import SHARE_MEMBER_ID_MAX
from ottla.enums import AclOperation, ResourceType
from ottla.errors import (
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.records.batch import Batch, batches
from ottla.replication.partition import Partition
from ottla.server.api import RequestContext
from ottla.server.share.acknowledging import Outcome, acknowledge, acknowledgements, leader_of
from ottla.server.share.manager import Reader, ShareGroups
from ottla.server.share.order import by_topic, in_answers_order
from ottla.server.share.sessions import FINAL_EPOCH, Place, ShareSession
from ottla.server.share.state import NOT_NOW
from ottla.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

FEATURE = "share.version"
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1

FIRST_READ_BYTES = 256 * 1024
"""Members allow many bytes but request few records: more is read only if the records are that large."""

FetchData = ShareFetchResponse.PartitionData
AcknowledgeData = ShareAcknowledgeResponse.PartitionData


class ReadRecords(NamedTuple):
    """Records that were read for a group, before they are handed out."""

    offset: int
    raw: memoryview
    batches: Sequence[Batch]
    aborted: Sequence[tuple[int, int]]
    """Ranges of offsets."""


def check_supported(ctx: RequestContext) -> None:
    if not ctx.services.metadata.features.get(FEATURE, 0):
        raise UnsupportedVersion


def _check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    # Kafka refuses a group that is null, but not an empty name.
    if group_id is None or not member_id or len(member_id) > SHARE_MEMBER_ID_MAX:
        raise InvalidRequest("")
    return group_id, member_id


# -- ShareAcknowledge --------------------------------------------------------------------------------------------------


def share_acknowledge(ctx: RequestContext, request: ShareAcknowledgeRequest) -> Answer[ShareAcknowledgeResponse]:
    check_supported(ctx)
    share = ctx.services.share
    key = _check_member(request.group_id, request.member_id)
    session = share.sessions.for_acknowledging(key, request.share_session_epoch)
    reply: Reply[ShareAcknowledgeResponse] = Reply()

    def acknowledged(outcome: Outcome) -> None:
        response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=share.settings(key[0]).limits.lock_ms)
        leaders = set()
        data: dict[Place, AcknowledgeData] = {}
        for place, error in outcome.items():
            one = data[place] = AcknowledgeData(partition_index=place[1])
            if error is not None:
                one.error_code, one.error_message = error.code, error.message or None
            leader = leader_of(ctx, place, error)
            if leader is not None:
                leaders.add(leader[0])
                one.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(
                    leader_id=leader[0], leader_epoch=leader[1]
                )
        response.responses = [
            ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(
                topic_id=topic_id, partitions=[data[place] for place in places]
            )
            for topic_id, places in by_topic(in_answers_order(ctx, data)).items()
        ]
        response.node_endpoints = [
            ShareAcknowledgeResponse.NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in ctx.services.directory.nodes(ctx.connection)
            if node.broker_id in leaders
        ]
        if request.share_session_epoch == FINAL_EPOCH:
            share.release(session, lambda: reply.resolve(response))
        else:
            reply.resolve(response)

    wanted = acknowledgements(request.topics)
    acknowledge(ctx, share, *key, wanted, request.is_renew_ack, acknowledged)()
    return settled(reply)


# -- ShareFetch --------------------------------------------------------------------------------------------------------


def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> Answer[ShareFetchResponse]:
    check_supported(ctx)
    share = ctx.services.share
    key = _check_member(request.group_id, request.member_id)
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise InvalidRequest("")  # only renew locks
    wanted = acknowledgements(request.topics)
    if not any(wanted.values()):
        wanted = {}  # the request only fetches
    session = share.sessions.for_fetching(
        key,
        request.share_session_epoch,
        [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions],
        [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
        ctx.connection,
        acknowledges=bool(wanted),
    )
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        raise UnknownServerError("")
    fetch = ShareFetch(ctx, share, request, session)
    store = acknowledge(ctx, share, *key, wanted, request.is_renew_ack, fetch.acknowledged)
    fetch.begin()
    store()
    return settled(fetch.reply)


class ShareFetch:
    """One request, from its acknowledgements to its answer."""

    __slots__ = (
        "_acknowledged",
        "_acquired_count",
        "_ctx",
        "_data",
        "_group_id",
        "_has_moved",
        "_is_ready",
        "_loading",
        "_member_id",
        "_read_places",
        "_readers",
        "_request",
        "_scheduled",
        "_session",
        "_share",
        "_timer",
        "reply",
    )

    def __init__(
        self, ctx: RequestContext, share: ShareGroups, request: ShareFetchRequest, session: ShareSession
    ) -> None:
        self._ctx = ctx
        self._share = share
        self._request = request
        self._session = session
        self._group_id, self._member_id = session.key
        self._acknowledged: Outcome | None = None
        self._is_ready = False
        self._has_moved = False
        self._read_places: dict[Place, None] = {}
        self._data: dict[Place, FetchData] = {}
        self._readers: dict[Place, Reader] = {}
        self._loading = 0
        self._acquired_count = 0
        self._scheduled = False
        self._timer: TimerHandle | None = None
        self.reply: Reply[ShareFetchResponse] = Reply(self._forget)

    def acknowledged(self, outcome: Outcome) -> None:
        """The acknowledgements are done."""
        self._acknowledged = outcome
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._share.release(self._session, self._answer)
        elif self._is_ready:
            self._answer()

    def begin(self) -> None:
        """The fetch, whose answer waits for the acknowledgements."""
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH:
            return
        if request.is_renew_ack or not self._session.places:
            self._answer()
        else:
            self._load()

    # -- finding the partitions

    def _load(self) -> None:
        places = self._session.rotated(self._request.share_session_epoch)
        if any(topic_id not in self._ctx.services.metadata.topics_by_id for topic_id, _ in places):
            # Kafka 4.3 has no answer for unknown topic ids, and the whole request fails.
            self.reply.fail(UnknownServerError(""))
            return
        # A request without partitions gets only errors, immediately.
        wants_records = bool(self._request.max_records and self._request.max_bytes)
        self._loading = len(places) + 1
        for place in places:
            try:
                partition = self._partition(place)
            except KafkaError as error:
                if wants_records or not isinstance(error, NotLeaderOrFollower):
                    self._failed(place, error)
                self._loaded()
                continue
            if not wants_records:
                continue

            def opened(reader: Reader | None, error: KafkaError | None, place: Place = place) -> None:
                if reader is not None:
                    self._readers[place] = reader
                elif error is not None and not isinstance(error, NOT_NOW):
                    self._failed(place, error)
                self._loaded()

            self._share.open(self._group_id, partition, opened)
        if wants_records:
            self._loaded()
        else:
            self._answer()

    def _partition(self, place: Place) -> Partition:
        broker = self._ctx.services
        name = broker.metadata.topics_by_id[place[0]].name
        if not self._ctx.may(AclOperation.READ, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed
        return broker.replicas.leader(name, place[1])

    def _failed(self, place: Place, error: KafkaError) -> None:
        data = self._data[place] = FetchData(partition_index=place[1], error_code=error.code, records=b"")
        leader = leader_of(self._ctx, place, error)
        if leader is not None:
            data.current_leader = ShareFetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])

    def _loaded(self) -> None:
        self._loading -= 1
        if self._loading or self._is_ready:
            return
        if self._data or self._request.max_wait_ms <= 0:
            self._time_is_up()
        elif not self._try():
            self._wait()

    # -- waiting

    def _wait(self) -> None:
        self._timer = self._ctx.services.timer.schedule(self._request.max_wait_ms, self._time_is_up)
        for reader in self._readers.values():
            reader.partition.watchers.add(self)
            reader.waiters.add(self)

    def appended(self, byte_count: int) -> None:
        self.freed()

    def freed(self) -> None:
        # Not immediately: the append or acknowledgement is answered first.
        if not self._scheduled:
            self._scheduled = True
            self._ctx.services.loop.call_soon(self._again)

    def moved(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._ctx.services.loop.call_soon(self._time_is_up)

    def _again(self) -> None:
        self._scheduled = False
        if not self._is_ready:
            self._try()

    def _time_is_up(self) -> None:
        if not self._is_ready and not self._try(at_last=True):
            self._answer()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for reader in self._readers.values():
            reader.partition.watchers.discard(self)
            reader.waiters.discard(self)

    # -- reading and handing out

    def _try(self, *, at_last: bool = False) -> bool:
        """Hand out the available records, if they are enough or the wait is over; returns whether the request is
        answered."""
        found = self._read()
        if self._data and not at_last:
            at_last = True  # an error is answered immediately, with the available records
        if self._has_moved:
            self._has_moved = False
            at_last = True  # as in Kafka, the next request continues at the new log start
        if found and self._request.max_records < 0:
            found.clear()  # Kafka reads, hands nothing out, and does not wait for more
            at_last = True
        if not at_last and sum(len(read.raw) for read in found.values()) < max(self._request.min_bytes, 1):
            return False
        for place, read in found.items():
            self._hand_out(place, read)
        if not self._acquired_count and not self._data:
            if at_last:
                self._answer()
                return True
            if any(self._next_offset(place) != read.offset for place, read in found.items()):
                self.freed()  # for example, all of it was aborted: there may be more after it
            return False
        self._answer()
        return True

    def _next_offset(self, place: Place) -> int:
        return self._readers[place].share.in_flight.next_offset()

    def _read(self) -> dict[Place, ReadRecords]:
        found: dict[Place, ReadRecords] = {}
        readers = {
            place: reader
            for place, reader in self._readers.items()
            if not reader.share.is_closed and reader.share.can_acquire
        }
        self._read_places = dict.fromkeys(readers)
        quotas = self._ctx.services.quotas
        most = self._request.max_bytes
        if quotas is not None:
            most = min(most, quotas.fetch_bytes_max(self._ctx))
        if most < 0:
            for place in readers:
                self._failed(place, UnknownServerError())
            return found
        limit = max(most // len(readers), 1) if readers else 0
        for place, reader in readers.items():
            try:
                read = self._read_one(reader, limit, at_least_one=not found)
            except KafkaError as error:
                self._failed(place, error)
                continue
            if read is not None:
                found[place] = read
        return found

    def _read_one(self, reader: Reader, limit: int, *, at_least_one: bool) -> ReadRecords | None:
        partition = reader.partition
        partition.check_leads()
        offset = reader.share.in_flight.next_offset()
        if offset < partition.log_start_offset:
            reader.share.log_starts_at(partition.log_start_offset)
            self._has_moved = True
            return None
        committed_only = self._share.settings(self._group_id).committed_only
        size = min(limit, max(self._request.min_bytes, FIRST_READ_BYTES))
        while True:
            try:
                readable = partition.read(offset, size, committed_only=committed_only, at_least_one=at_least_one)
            except OffsetOutOfRange:
                return None  # the group's offset is beyond the end
            records = readable.records
            raw = memoryview(records if isinstance(records, bytes) else records.read())
            whole = list(batches(raw))
            if not whole:
                return None
            if size >= limit or len(raw) < size or whole[-1].last_offset - offset >= self._request.max_records:
                break
            size = min(limit, 4 * size)
        producers = [(txn.first_offset, txn.producer_id) for txn in readable.aborted]
        return ReadRecords(offset, raw, whole, _aborted(whole, producers) if producers else ())

    def _hand_out(self, place: Place, read: ReadRecords) -> None:
        request, share = self._request, self._readers[place].share
        acquired = share.acquire(
            self._member_id,
            read.offset,
            [(batch.base_offset, batch.last_offset) for batch in read.batches],
            request.max_records - self._acquired_count,
            request.batch_size,
            exact=request.share_acquire_mode == RECORD_LIMIT,
        )
        if read.aborted:
            acquired = share.archive(read.aborted, acquired)
        if not acquired:
            return
        self._acquired_count += sum(each.last - each.first + 1 for each in acquired)
        self._data[place] = FetchData(
            partition_index=place[1],
            records=_slice(read, acquired[0].first, acquired[-1].last),
            acquired_records=[
                ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count)
                for first, last, delivery_count in acquired
            ],
        )

    # -- answering

    def _answer(self) -> None:
        self._is_ready = True
        if self.reply.done or self._acknowledged is None:
            return
        response = ShareFetchResponse(acquisition_lock_timeout_ms=self._share.settings(self._group_id).limits.lock_ms)
        data = dict(self._data)
        for place in self._read_places:
            if place in self._session.unheard:
                data.setdefault(place, FetchData(partition_index=place[1], records=b""))
        self._session.unheard.difference_update(data)
        told = in_answers_order(self._ctx, data)
        for place in in_answers_order(self._ctx, self._acknowledged):
            error = self._acknowledged[place]
            one = data.setdefault(place, FetchData(partition_index=place[1], records=b""))
            if error is not None:
                one.acknowledge_error_code, one.acknowledge_error_message = error.code, error.message or None
                leader = leader_of(self._ctx, place, error)
                if leader is not None:
                    one.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                        leader_id=leader[0], leader_epoch=leader[1]
                    )
        response.responses = [
            ShareFetchResponse.ShareFetchableTopicResponse(
                topic_id=topic_id, partitions=[data[place] for place in places]
            )
            for topic_id, places in by_topic(dict.fromkeys([*told, *data])).items()
        ]
        self._name_nodes(response)
        quotas = self._ctx.services.quotas
        if quotas is not None:
            sent_bytes = sum(len(one.records or b"") for one in data.values())
            response.throttle_time_ms = quotas.share_fetch_throttle_ms(self._ctx, sent_bytes)
        self._forget()
        self.reply.resolve(response)

    def _name_nodes(self, response: ShareFetchResponse) -> None:
        leaders = {
            one.current_leader.leader_id
            for topic in response.responses
            for one in topic.partitions
            if one.current_leader.leader_epoch or one.current_leader.leader_id
        }
        if leaders:
            response.node_endpoints = [
                ShareFetchResponse.NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
                for node, host, port in self._ctx.services.directory.nodes(self._ctx.connection)
                if node.broker_id in leaders
            ]


def _slice(read: ReadRecords, first: int, last: int) -> memoryview:
    """The bytes of the batches with the handed-out records."""
    inside = [batch for batch in read.batches if batch.last_offset >= first and batch.base_offset <= last]
    return read.raw[inside[0].position : inside[-1].position + inside[-1].size]


def _aborted(whole: Sequence[Batch], transactions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The offsets of records that belong to aborted transactions, by the markers in between."""
    waiting = sorted(transactions)
    open_ones: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for batch in whole:
        while waiting and waiting[0][0] <= batch.last_offset:
            open_ones.add(waiting.pop(0)[1])
        if batch.is_control:
            open_ones.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_ones:
            ranges.append((batch.base_offset, batch.last_offset))
    return ranges
