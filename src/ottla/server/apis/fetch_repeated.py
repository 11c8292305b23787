"""Fetch requests that differ from the one before in nothing but their offset.

A consumer that catches up with a partition asks for it again and again, and is sent as much as it takes. The bytes of
such requests are the same but for one number, and so are those of the answers but for three and the length of the
records. A connection that has sent the like twice has the next ones served from memory, as with produced records (see
`produce_repeated`): no request is decoded and no response is built, which is half of what such a fetch costs beside the
sending. Anything that is not quite the same takes the ordinary way, and so does whatever has to wait for records, has
an error to tell or a session to keep.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.enums import IsolationLevel
from ottla.errors import KafkaError
from ottla.log.files import FileRegion
from ottla.server.fetch_sessions import FINAL_EPOCH, NO_SESSION
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.primitives import encode_uvarint

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.api import Route
    from ottla.server.services import Services

FIRST_VERSION = 4
"""From here on batches are sent as they are stored."""
_FIRST_WITH_LOG_START = 5
"""An answer holds three numbers in a row: high watermark, last stable offset and, from here on, log start offset."""

_READ_COMMITTED = IsolationLevel.READ_COMMITTED
_MOVING_REPLICA = -3
_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_KIND_BYTES = 4
_ID_BYTES = 4
_STAND_INS = (0x1122334455667788, 0x1122334455667799, 0x11223344556677AA)
"""Numbers that nothing else in a message looks like: they show where numbers stand in its bytes."""


@lru_cache(maxsize=256)
def _request(before: int, behind: int) -> Struct:
    """A frame: its size, kind and correlation id, and the offset with what stands before and behind it."""
    return Struct(f">i{_KIND_BYTES}si{before}sq{behind}s")


@lru_cache(maxsize=256)
def _response(before: int, numbers: int, behind: int) -> Struct:
    """A frame up to the length of the records: its size, the correlation id, the numbers and what is around them."""
    return Struct(f">ii{before}s{numbers}q{behind}s")


def wants_committed(request: FetchRequest) -> bool:
    """Whether transactions that were aborted are to be told. To Kafka one replica is no consumer: that of a move
    between a broker's own folders, whatever it asks for."""
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return request.isolation_level == _READ_COMMITTED and replica_id != _MOVING_REPLICA


class RepeatedFetch:
    """The latest fetch request of a connection, as a model for the next."""

    __slots__ = (
        "_after_numbers",
        "_before_numbers",
        "_before_offset",
        "_behind_offset",
        "_broker",
        "_committed_only",
        "_epoch",
        "_fixed_bytes",
        "_flexible",
        "_frame_bytes",
        "_index",
        "_kind",
        "_limit",
        "_min_bytes",
        "_name",
        "_numbers",
        "_pack",
        "_partition",
        "_tail",
        "_topic",
        "_unpack",
        "_version",
        "route",
    )

    def __init__(self, version: int, request: FetchRequest) -> None:
        """Remember what was asked for. That it is worth a closer look, only its repetition tells."""
        topic = request.topics[0]
        self._version = version
        self._topic = topic.topic, topic.topic_id
        self._index = topic.partitions[0].partition
        self.route: Route | None = None
        """Set when there is a model: requests that take this route may be like it."""

    @staticmethod
    def may_repeat(version: int, request: FetchRequest) -> bool:
        """Whether requests of this kind have a short way: one partition, no session, nothing about replicas."""
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
        """Make a model of the request and of its answer, if they have the usual shape."""
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
        offset, wanted.fetch_offset = wanted.fetch_offset, _STAND_INS[0]
        before, found, behind = request.encode(self._version).partition(_OFFSET.pack(_STAND_INS[0]))
        wanted.fetch_offset = offset
        position = len(frame) - len(behind) - _OFFSET.size
        start = _KIND_BYTES + _ID_BYTES
        if not found or frame[position - len(before) :] != before + _OFFSET.pack(offset) + behind:
            return False  # written in a way that is not ours, or with bytes behind it
        self._kind = bytes(frame[:_KIND_BYTES])
        self._before_offset = bytes(frame[start:position])
        self._behind_offset = behind
        self._frame_bytes = len(frame)
        self._unpack = _request(position - start, len(behind)).unpack_from
        return True

    def _learn_response(self, route: Route, response: FetchResponse) -> bool:
        data = response.responses[0].partitions[0]
        numbers = data.high_watermark, data.last_stable_offset, data.log_start_offset
        records = data.records
        assert records is not None
        data.high_watermark, data.last_stable_offset, data.log_start_offset = _STAND_INS
        parts: list[Any] = [b"\0"] if route.flexible_response else []
        route.encode(response, parts)
        data.high_watermark, data.last_stable_offset, data.log_start_offset = numbers
        where = next(index for index, part in enumerate(parts) if part is records)
        self._flexible = route.flexible_response
        head = b"".join(parts[:where]).removesuffix(self._length(len(records)))
        self._numbers = 3 if self._version >= _FIRST_WITH_LOG_START else 2
        shown = b"".join([_OFFSET.pack(number) for number in _STAND_INS[: self._numbers]])
        self._before_numbers, found, self._after_numbers = head.partition(shown)
        self._tail = b"".join(parts[where + 1 :])
        self._fixed_bytes = _ID_BYTES + len(head) + len(self._tail)
        self._pack = _response(len(self._before_numbers), self._numbers, len(self._after_numbers)).pack
        return bool(found)

    def _length(self, size: int) -> bytes:
        return encode_uvarint(size + 1) if self._flexible else _LENGTH.pack(size)

    def serve(self, buffer: memoryview, start: int, end: int, out: deque[Any]) -> int:
        """Put the answer to the frame at `start` into `out`, if it is like the model and can be answered at once.

        Returns where the next begins; where this one does, if nothing was done about it.
        """
        stop = start + _LENGTH.size + self._frame_bytes
        if stop > end:
            return start
        size, kind, correlation_id, before, offset, behind = self._unpack(buffer, start)
        if (
            before != self._before_offset
            or size != self._frame_bytes
            or behind != self._behind_offset
            or kind != self._kind
        ):
            return start
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
        head = self._pack(
            self._fixed_bytes + len(encoded) + length,
            correlation_id,
            self._before_numbers,
            *numbers[: self._numbers],
            self._after_numbers,
        )
        few = region.if_few()
        if few is not None:
            out.append(b"".join((head, encoded, few, self._tail)))
        else:
            out.append(head + encoded)
            out.append(region)
            if self._tail:
                out.append(self._tail)
        return stop
