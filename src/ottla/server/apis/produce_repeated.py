"""Produce requests that differ from the previous one only in their records.

A producer often writes to one partition for a while, with the same acks and timeout. The fields decoded from one
request are valid for all requests that begin with the same bytes, and answers without an error differ in only three
numbers. So after two such requests, the next ones of the connection use a template: no request is decoded and no
response is built, which saves a third of the cost of a small request. And requests that arrive together are written
together: one large write costs a file system much less than five small ones. Requests that differ in anything else take
the normal path. So do all requests if a guard or a fault intercepts the handler, or if the answer has to wait for
followers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.errors import KafkaError, UnknownServerError
from ottla.records.batch import CURRENT_MAGIC, HEADER_SIZE, NO_TIMESTAMP, TRANSACTIONAL_FLAG, Batch
from ottla.server.api import RUN_MAX
from ottla.server.apis.produce_failure import failure
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.primitives import ZERO_UUID, encode_uvarint, uvarint_tail
from ottla.wire.request_template import FRAME_HEAD_BYTES, ID_BYTES, KIND_BYTES, AnswerTemplate

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.api import Route
    from ottla.server.services import Services

logger = logging.getLogger(__name__)

FIRST_VERSION = 5
"""From this version on, an answer has three numbers in a row: base offset, append time, log start offset."""

_LENGTH = Struct(">i")
_FEW = Struct(">I")
"""The number of bytes of the records' length: at most four, followed by the records."""
_LENGTH_BITS = _FEW.size * 8
_PREFIX_START = KIND_BYTES + ID_BYTES
"""The position in a frame after the kind of request and the correlation id."""


@lru_cache(maxsize=256)
def _head(prefix_bytes: int) -> Struct:
    """The head of a request: its size, kind and correlation id, the bytes after that, and the length of its records."""
    return Struct(f">i{KIND_BYTES}si{prefix_bytes}sI")


class RepeatedProduce:
    """The latest produce request of a connection, as a template for the next."""

    __slots__ = (
        "_answers_like",
        "_broker",
        "_flexible",
        "_head",
        "_index",
        "_kind",
        "_name",
        "_partition",
        "_prefix",
        "_request_tail",
        "_topic",
        "_topic_id",
        "_version",
        "route",
    )

    def __init__(self, version: int, request: ProduceRequest) -> None:
        """Remember its partition. A template is made only if the request is repeated."""
        topic = request.topic_data[0]
        self._version = version
        self._topic = topic.name
        self._topic_id = topic.topic_id
        self._index = topic.partition_data[0].index
        self.route: Route | None = None
        """Set when there is a template: requests on this route may match it."""

    def is_like(self, version: int, request: ProduceRequest) -> bool:
        topic = request.topic_data[0]
        return (
            self._index == topic.partition_data[0].index
            and self._topic == topic.name
            and self._topic_id == topic.topic_id
            and self._version == version
        )

    def learn(
        self,
        broker: Services,
        route: Route,
        frame: memoryview,
        request: ProduceRequest,
        response: ProduceResponse,
        answer: bytes,
    ) -> None:
        """Make a template from the request and its answer, if they have the usual shape."""
        topic, answered = request.topic_data[0], response.responses[0].partition_responses[0]
        records = topic.partition_data[0].records
        if answered.error_code or records is None or request.transactional_id is not None:
            return
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            name = broker.metadata.topics_by_id[topic.topic_id].name
        self._flexible = route.flexible_request
        # Tags of the partition, of the topic and of the request: none are defined.
        self._request_tail = b"\0\0\0" if self._flexible else b""
        length = encode_uvarint(len(records) + 1) if self._flexible else _LENGTH.pack(len(records))
        prefix_end = len(frame) - len(length) - len(records) - len(self._request_tail)
        if bytes(frame[prefix_end : prefix_end + len(length)]) != length:
            return
        numbers = answered.base_offset, answered.log_append_time_ms, answered.log_start_offset
        template = AnswerTemplate.of(answer[FRAME_HEAD_BYTES:], numbers)
        if template is None:
            return
        self._answers_like = template
        self._kind = bytes(frame[:KIND_BYTES])
        self._prefix = bytes(frame[_PREFIX_START:prefix_end])
        self._head = _head(len(self._prefix))
        self._name = name
        self._broker = broker
        self._partition: Partition = broker.replicas.leader(name, self._index)
        self.route = route

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Append the records of all frames from `start` that match the template, and put their answers into `out`.

        Returns the start of the first frame that does not match or is incomplete; that frame is not served.
        """
        broker, partition = self._broker, self._partition
        if broker.registry.route(ProduceRequest.API_KEY, self._version) is not self.route:
            return start
        try:
            if broker.replicas.leader(self._name, self._index) is not partition or partition.leadership:
                return start
        except KafkaError:
            return start
        ids: list[int] = []
        run: list[Batch] = []
        stops: list[int] = []
        unpack, head_bytes, frame_max = self._head.unpack_from, self._head.size, broker.request_bytes_max
        known, (records_start, records_end) = -1, (0, 0)
        stop = start
        while end - stop >= head_bytes + HEADER_SIZE and len(run) < RUN_MAX:
            size, kind, correlation_id, prefix, length = unpack(buffer, stop)
            frame_end = stop + _LENGTH.size + size
            if prefix != self._prefix or kind != self._kind or frame_end > end or size > frame_max:
                break
            if size << _LENGTH_BITS | length != known:
                records_start, records_end = self._place(buffer, stop, frame_end)
                known = size << _LENGTH_BITS | length
            batch = Batch(buffer, stop + records_start)
            if (
                batch.size != records_end - records_start
                or batch.magic != CURRENT_MAGIC
                or batch.attributes & TRANSACTIONAL_FLAG
                or buffer[stop + records_end : frame_end] != self._request_tail
            ):
                break
            ids.append(correlation_id)
            run.append(batch)
            stop = frame_end
            stops.append(stop)
        if not run:
            return start
        if len(run) > 1:
            offsets = partition.append_run(run, self._version)
            if offsets:
                out.append(self._answers(ids, offsets, partition.log_start_offset))
                return stops[len(offsets) - 1]
        answer = self._answer(partition, run[0], ids[0])
        if answer is None:
            return start
        out.append(answer)
        return stops[0]

    def _place(self, buffer: memoryview, start: int, frame_end: int) -> tuple[int, int]:
        """Where the records of a frame begin and end, from its start; (0, 0) if the frame is invalid."""
        position = start + self._head.size - _FEW.size
        if self._flexible:
            size = buffer[position]
            position += 1
            if size >= 0x80:
                size, position = uvarint_tail(buffer, position, size)
            end = position + size - 1
        else:
            end = position + _LENGTH.size + _LENGTH.unpack_from(buffer, position)[0]
            position += _LENGTH.size
        if end - position < HEADER_SIZE or end + len(self._request_tail) != frame_end:
            return 0, 0
        return position - start, end - start

    def _answers(self, ids: Sequence[int], offsets: Sequence[int], log_start_offset: int) -> bytes:
        template = self._answers_like
        pack, size, head, tail = template.pack, template.size, template.before, template.behind
        return b"".join(
            [
                pack(size, correlation_id, head, offset, NO_TIMESTAMP, log_start_offset, tail)
                for correlation_id, offset in zip(ids, offsets, strict=False)
            ]
        )

    def _answer(self, partition: Partition, batch: Batch, correlation_id: int) -> bytes | None:
        """None if the batch would take long: the normal path serves other connections in between."""
        try:
            info = partition.append_batch(batch, self._version)
            if info is None:
                return None
        except Exception as error:
            return self._refusal(partition, error, correlation_id)
        template = self._answers_like
        return template.pack(
            template.size,
            correlation_id,
            template.before,
            info.first_offset,
            info.append_time_ms,
            info.log_start_offset,
            template.behind,
        )

    def _refusal(self, partition: Partition, error: Exception, correlation_id: int) -> bytes:
        if not isinstance(error, KafkaError):
            logger.error("an append to %s-%d failed", self._name, self._index, exc_info=error)
            error = UnknownServerError()
        refused = failure(self._broker, self._version, self._name, self._index, partition, error)
        response = ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=self._topic, topic_id=self._topic_id, partition_responses=[refused]
                )
            ]
        )
        assert self.route is not None
        parts: list[bytes] = [b"\0"] if self._flexible else []
        self.route.encode(response, parts)
        body = b"".join(parts)
        return _LENGTH.pack(len(body) + ID_BYTES) + _LENGTH.pack(correlation_id) + body
