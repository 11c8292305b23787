"""Fetch requests that differ from the previous one only in their offset.

A consumer that catches up fetches the same partition again and again. The bytes of such requests differ in one number,
and those of the answers in three numbers and the length of the records. After two such requests, the next ones of the
connection use a template, as with produced records (see `produce_repeated`): no request is decoded and no response is
built, which saves half the cost of such a fetch, not counting the sending. Any other request takes the normal path, and
so do those that wait for records, have an error or use a session.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.enums import IsolationLevel
from ottla.errors import KafkaError
from ottla.log.files import FileRegion
from ottla.server.fetch_sessions import FINAL_EPOCH, NO_SESSION
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.primitives import encode_uvarint
from ottla.wire.request_template import AnswerTemplate, RequestTemplate, stand_ins

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.api import Route
    from ottla.server.services import Services

FIRST_VERSION = 4
"""From this version on, batches are sent as they are stored."""
_FIRST_WITH_LOG_START = 5
"""An answer holds three numbers in a row: high watermark, last stable offset and, from here on, log start offset."""

_READ_COMMITTED = IsolationLevel.READ_COMMITTED
_MOVING_REPLICA = -3
_LENGTH = Struct(">i")


def wants_committed(request: FetchRequest) -> bool:
    """Whether the answer lists aborted transactions. Kafka does not treat the replica of a move between a broker's own
    folders as a consumer."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return request.isolation_level == _READ_COMMITTED and replica_id != _MOVING_REPLICA


class RepeatedFetch:
    """The latest fetch request of a connection, as a template for the next."""

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_broker",
        "_committed_only",
        "_epoch",
        "_flexible",
        "_index",
        "_limit",
        "_min_bytes",
        "_name",
        "_numbers",
        "_partition",
        "_request",
        "_tail",
        "_topic",
        "_version",
        "route",
    )

    def __init__(self, version: int, request: FetchRequest) -> None:
        """Remember the request. A template is made only if the request is repeated."""
        topic = request.topics[0]
        self._version = version
        self._topic = topic.topic, topic.topic_id
        self._index = topic.partitions[0].partition
        self.route: Route | None = None
        """Set when there is a template: requests on this route may match it."""

    @staticmethod
    def may_repeat(version: int, request: FetchRequest) -> bool:
        """Whether such requests can use a template: one partition, no session, nothing about replicas."""
        topics = request.topics
        return (
            version >= FIRST_VERSION
            and len(topics) == 1
            and len(topics[0].partitions) == 1
            and topics[0].partitions[0].last_fetched_epoch < 0
            and (version < 7 or (request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION))
        )

    def is_like(self, version: int, request: FetchRequest) -> bool:
        topic = request.topics[0]
        return (
            self._index == topic.partitions[0].partition
            and self._topic == (topic.topic, topic.topic_id)
            and self._version == version
        )

    def learn(
        self, broker: Services, route: Route, frame: memoryview, request: FetchRequest, response: FetchResponse
    ) -> None:
        """Make a template from the request and its answer, if they have the usual shape."""
        if not response.responses:
            return
        topic, answered = request.topics[0], response.responses[0].partitions[0]
        if answered.error_code or answered.records.__class__ is not FileRegion or answered.aborted_transactions:
            return
        name = topic.topic if self._version < 13 else broker.metadata.topics_by_id[topic.topic_id].name
        try:
            self._partition: Partition = broker.replicas.leader(name, self._index)
        except KafkaError:
            return  # a follower serves consumers, too
        if not self._learn_request(frame, request) or not self._learn_response(route, response):
            return
        wanted = topic.partitions[0]
        self._name = name
        self._epoch = wanted.current_leader_epoch
        self._limit = min(wanted.partition_max_bytes, request.max_bytes)
        self._min_bytes = max(request.min_bytes, 1)
        self._committed_only = wants_committed(request)
        self._broker = broker
        self.route = route

    def _learn_request(self, frame: memoryview, request: FetchRequest) -> bool:
        wanted = request.topics[0].partitions[0]
        numbers = stand_ins(1)
        offset, wanted.fetch_offset = wanted.fetch_offset, numbers[0]
        template = RequestTemplate.of(frame, request.encode(self._version), numbers)
        wanted.fetch_offset = offset
        if template is None:
            return False
        self._request = template
        return True

    def _learn_response(self, route: Route, response: FetchResponse) -> bool:
        data = response.responses[0].partitions[0]
        shown = data.high_watermark, data.last_stable_offset, data.log_start_offset
        records = data.records
        assert records is not None
        numbers = stand_ins(len(shown))
        data.high_watermark, data.last_stable_offset, data.log_start_offset = numbers
        parts: list[Any] = [b"\0"] if route.flexible_response else []
        route.encode(response, parts)
        data.high_watermark, data.last_stable_offset, data.log_start_offset = shown
        where = next(index for index, part in enumerate(parts) if part is records)
        self._flexible = route.flexible_response
        head = b"".join(parts[:where]).removesuffix(self._length(len(records)))
        self._numbers = 3 if self._version >= _FIRST_WITH_LOG_START else 2
        answer = AnswerTemplate.of(head, numbers[: self._numbers])
        if answer is None:
            return False
        self._answer = answer
        self._tail = b"".join(parts[where + 1 :])
        self._answer_bytes = answer.size + len(self._tail)
        return True

    def _length(self, size: int) -> bytes:
        return encode_uvarint(size + 1) if self._flexible else _LENGTH.pack(size)

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Put the answer to the frame at `start` into `out`, if it matches the template and can be answered
        immediately. Returns the start of the next frame, or of this one if it was not served.
        """
        request = self._request
        if end - start < request.size:
            return start
        values = request.unpack(buffer, start)
        if values[::2] != request.fixed:
            return start
        correlation_id, offset = values[1], values[3]
        broker, partition = self._broker, self._partition
        if broker.registry.route(FetchRequest.API_KEY, self._version) is not self.route:
            return start
        committed_only = self._committed_only
        try:
            if broker.replicas.leader(self._name, self._index) is not partition or partition.leadership:
                return start
            if self._epoch >= 0:
                partition.check_leader_epoch(self._epoch)
            region, aborted = partition.read(
                offset, min(self._limit, broker.fetch_bytes_max), committed_only=committed_only, at_least_one=True
            )
        except KafkaError:
            return start
        length = len(region)
        if region.__class__ is not FileRegion or aborted or length < self._min_bytes:
            return start
        encoded = self._length(length)
        numbers = partition.high_watermark, partition.last_stable_offset, partition.log_start_offset
        answer = self._answer
        head = answer.pack(
            self._answer_bytes + len(encoded) + length,
            correlation_id,
            answer.before,
            *numbers[: self._numbers],
            answer.behind,
        )
        few = region.if_few()
        if few is not None:
            out.append(b"".join((head, encoded, few, self._tail)))
        else:
            out.append(head + encoded)
            out.append(region)
            if self._tail:
                out.append(self._tail)
        return start + request.size
