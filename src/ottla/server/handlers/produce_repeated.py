"""Produce requests that differ from the one before in nothing but their records.

A producer fills a partition for a while: the same topic, partition, acks and timeout, one request after the other. What
was decoded from one of them holds for all that begin with the same bytes, and answers without an error differ in three
numbers only. So a connection that has sent the like twice has the next ones served from memory: no request is decoded
and no response is built, which is a third of what a small request costs. Anything that is not quite the same takes the
ordinary way, and so does everything where somebody guards or watches the handler, or followers are to be waited for.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from ottla.errors import KafkaError, UnknownServerError
from ottla.records.batch import (
    ATTRIBUTES_OFFSET,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    TRANSACTIONAL_FLAG,
)
from ottla.server.handlers.produce_failure import failure
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.primitives import ZERO_UUID, encode_uvarint, uvarint_tail

if TYPE_CHECKING:
    from ottla.cluster.partition import Partition
    from ottla.server.api import Route
    from ottla.server.broker import Broker

log = logging.getLogger("ottla.server")

FIRST_VERSION = 5
"""From here on an answer holds the three numbers in a row: base offset, append time, log start offset."""

_NUMBERS = Struct(">qqq")
_LENGTH = Struct(">i")
_LENGTH_AND_ID = Struct(">ii")
_BATCH_LENGTH_OFFSET = 8
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_OFFSET + 1


@lru_cache(maxsize=256)
def _layout(head_bytes: int, tail_bytes: int) -> Struct:
    """Of an answer: its size, the correlation id, and the numbers with what stands before and behind them."""
    return Struct(f">ii{head_bytes}sqqq{tail_bytes}s")


class RepeatedProduce:
    """The latest produce request of a connection, as a model for the next."""

    __slots__ = (
        "_broker",
        "_flexible",
        "_index",
        "_name",
        "_pack_response",
        "_partition",
        "_prefix",
        "_prefix_bytes",
        "_request_tail",
        "_response_bytes",
        "_response_head",
        "_response_tail",
        "_topic",
        "_topic_id",
        "_version",
        "route",
    )

    def __init__(self, version: int, request: ProduceRequest) -> None:
        """Remember where it went. That it is worth a closer look, only its repetition tells."""
        topic = request.topic_data[0]
        self._version = version
        self._topic = topic.name
        self._topic_id = topic.topic_id
        self._index = topic.partition_data[0].index
        self.route: Route | None = None
        """Set when there is a model: requests that take this route may be like it."""

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
        broker: Broker,
        route: Route,
        frame: memoryview,
        position: int,
        request: ProduceRequest,
        response: ProduceResponse,
        answer: bytes,
    ) -> None:
        """Make a model of the request, which starts at `position`, and of its answer, if they have the usual shape."""
        topic, answered = request.topic_data[0], response.responses[0].partition_responses[0]
        records = topic.partition_data[0].records
        if answered.error_code or records is None or request.transactional_id is not None:
            return
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            name = broker.metadata.topics_by_id[topic.topic_id].name
        self._flexible = route.flexible_request
        # Tags of the partition, of the topic and of the request: there are none that anybody knows.
        self._request_tail = b"\0\0\0" if self._flexible else b""
        length = encode_uvarint(len(records) + 1) if self._flexible else _LENGTH.pack(len(records))
        prefix_end = len(frame) - len(length) - len(records) - len(self._request_tail)
        if bytes(frame[prefix_end : prefix_end + len(length)]) != length:
            return
        numbers = _NUMBERS.pack(answered.base_offset, answered.log_append_time_ms, answered.log_start_offset)
        head, found, tail = answer[_LENGTH_AND_ID.size :].partition(numbers)
        if not found or numbers in tail:
            return
        self._prefix = bytes(frame[position:prefix_end])
        self._prefix_bytes = len(self._prefix)
        self._response_bytes = len(answer) - _LENGTH.size
        self._response_head, self._response_tail = head, tail
        self._pack_response = _layout(len(head), len(tail)).pack
        self._name = name
        self._broker = broker
        self._partition: Partition = broker.replicas.leader(name, self._index)
        self.route = route

    def answer(self, frame: memoryview, position: int, correlation_id: int) -> bytes | None:
        """Append the records and encode the answer; None if the request is not like the model, and nothing is done."""
        start = position + self._prefix_bytes
        if frame[position:start] != self._prefix:
            return None
        frame_bytes = len(frame)
        if frame_bytes - start < HEADER_SIZE:
            return None
        if self._flexible:
            size = frame[start]
            start += 1
            if size >= 0x80:
                size, start = uvarint_tail(frame, start, size)
            end = start + size - 1
        else:
            end = start + _LENGTH.size + _LENGTH.unpack_from(frame, start)[0]
            start += _LENGTH.size
        if (
            end - start < HEADER_SIZE
            or end > frame_bytes
            or frame[end:] != self._request_tail
            or _LENGTH.unpack_from(frame, start + _BATCH_LENGTH_OFFSET)[0] != end - start - LOG_OVERHEAD
            or frame[start + MAGIC_OFFSET] != CURRENT_MAGIC
            or frame[start + _ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG
        ):
            return None
        partition = self._partition
        try:
            if self._broker.replicas.leader(self._name, self._index) is not partition or partition.leadership:
                return None
        except KafkaError:
            return None
        try:
            info = partition.append(frame[start:end], self._version)
        except Exception as error:
            return self._refusal(partition, error, correlation_id)
        return self._pack_response(
            self._response_bytes,
            correlation_id,
            self._response_head,
            info.first_offset,
            info.append_time_ms,
            info.log_start_offset,
            self._response_tail,
        )

    def _refusal(self, partition: Partition, error: Exception, correlation_id: int) -> bytes:
        if not isinstance(error, KafkaError):
            log.error("an append to %s-%d failed", self._name, self._index, exc_info=error)
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
        return _LENGTH_AND_ID.pack(len(body) + 4, correlation_id) + body
