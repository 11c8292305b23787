"""A raw client: frames over a blocking socket, nothing hidden. No retries, no metadata cache, no version choice."""

import itertools
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ottla.records.batch import Batch, Record, batches, build_batch
from ottla.wire.frames import decode_response_header, encode_request, response_header_version
from ottla.wire.messages import (
    RESPONSES,
    CreateTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.primitives import ZERO_UUID

TIMEOUT_S = 30
EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
# The newest that Apache Kafka 3.9 has too, and the last that name topics instead of using their ids.
PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION, METADATA_VERSION = 11, 12, 9, 12
NOT_READY = (3, 5, 6, 15, 16)  # errors that a fresh topic or coordinator may give for a moment on Apache Kafka


class Wire:
    """One connection. `send` and `receive` can be apart, so that a test can pipeline."""

    def __init__(self, address: tuple[str, int], client_id: str | None = "wire") -> None:
        self.address = address
        self.client_id = client_id
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = itertools.count(1)
        self._expected: deque[tuple[int, int, int]] = deque()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Frames

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(
        self, request: Any, version: int, answered: bool = True, changes: Iterable[tuple[bytes, bytes]] = ()
    ) -> int:
        """`changes` are made to the bytes, for what no encoder would write; none of them alters the size."""
        correlation = next(self._next)
        if answered:
            self._expected.append((request.API_KEY, version, correlation))
        data = encode_request(request, version, correlation, self.client_id)
        for old, new in changes:
            assert old in data
            assert len(old) == len(new)
            data = data.replace(old, new)
        self.send_bytes(data)
        return correlation

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self.socket.recv(min(size - len(parts), 1 << 20))
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            parts += data
        return bytes(parts)

    def receive(self) -> Any:
        api_key, version, expected = self._expected.popleft()
        frame = self.receive_frame()
        correlation, position = decode_response_header(frame, response_header_version(api_key, version))
        assert correlation == expected, f"answer {correlation} where {expected} was due"
        return RESPONSES[api_key].decode(memoryview(frame)[position:], version)

    def call(self, request: Any, version: int, *changes: tuple[bytes, bytes]) -> Any:
        self.send(request, version, changes=changes)
        return self.receive()

    def is_closed(self) -> bool:
        """Waits for the broker to close; an answer instead is False."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # The requests that most tests make

    def produce(
        self, topic: str, records: Any, partition: int = 0, version: int = PRODUCE_VERSION, acks: int = -1, **more: Any
    ) -> Any:
        """The partition's answer; None for acks=0."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    topic_id=self.topic_id(topic) if version >= 13 else ZERO_UUID,
                    partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=records)],
                )
            ],
            **more,
        )
        self.send(request, version, answered=acks != 0)
        if acks == 0:
            return None
        return self.receive().responses[0].partition_responses[0]

    def fetch_request(
        self,
        places: Iterable[tuple[str, int, int]],
        version: int = FETCH_VERSION,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        session: tuple[int, int] = (0, -1),
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        forgotten: Iterable[tuple[str, int]] = (),
        isolation_level: int = 0,
    ) -> Any:
        """(topic, partition, offset) each, one topic entry a topic."""
        by_topic: dict[str, list[Any]] = {}
        for topic, partition, offset in places:
            by_topic.setdefault(topic, []).append(
                FetchRequest.FetchPartition(
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                    current_leader_epoch=current_leader_epoch,
                    last_fetched_epoch=last_fetched_epoch,
                )
            )
        named = version < 13
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic if named else "",
                    topic_id=ZERO_UUID if named else self.topic_id(topic),
                    partitions=entries,
                )
                for topic, entries in by_topic.items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(
                    topic=topic if named else "",
                    topic_id=ZERO_UUID if named else self.topic_id(topic),
                    partitions=[partition],
                )
                for topic, partition in forgotten
            ],
        )

    def fetch(self, topic: str, offset: int, partition: int = 0, version: int = FETCH_VERSION, **more: Any) -> Any:
        """The partition's answer."""
        response = self.call(self.fetch_request([(topic, partition, offset)], version, **more), version)
        return response.responses[0].partitions[0]

    def list_offsets(
        self, topic: str, timestamp: int, partition: int = 0, version: int = LIST_VERSION, **more: Any
    ) -> Any:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
                    ],
                )
            ],
        )
        return self.call(request, version).topics[0].partitions[0]

    def metadata(self, *topics: str, version: int = METADATA_VERSION, create: bool = False) -> Any:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        return self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=create), version)

    def topic_id(self, topic: str) -> bytes:
        found: bytes = self.metadata(topic).topics[0].topic_id
        return found

    def create(self, topic: str, partitions: int = 1, version: int = 7, **configs: Any) -> Any:
        """The topic's answer. Config names with underscores for dots."""
        request = CreateTopicsRequest(
            topics=[new_topic(topic, partitions, **configs)], timeout_ms=30000, validate_only=False
        )
        return self.call(request, version).topics[0]

    def make(self, topic: str, partitions: int = 1, **configs: Any) -> str:
        """Creates a topic and returns when it takes writes, which on Apache Kafka is a moment later."""
        made = self.create(topic, partitions, **configs)
        assert made.error_code == 0, made
        self.wait_ready(topic, partitions)
        return topic

    def wait_ready(self, topic: str, partitions: int = 1) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        for partition in range(partitions):
            while (answer := self.list_offsets(topic, LATEST, partition)).error_code in NOT_READY:
                assert time.monotonic() < deadline, answer
                time.sleep(0.01)

    def producer_id(self, version: int = 4) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60000, producer_id=-1, producer_epoch=-1
        )
        # A broker that has just started may have no block of ids yet (COORDINATOR_LOAD_IN_PROGRESS).
        while (made := self.call(request, version)).error_code == 14:
            time.sleep(0.01)
        assert made.error_code == 0, made
        return made.producer_id, made.producer_epoch


def new_topic(topic: str, partitions: int = 1, replication: int = 1, **configs: Any) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
            for name, value in configs.items()
        ],
    )


def batch(*values: bytes | None, timestamp: int | None = None, key: bytes | None = None, **more: Any) -> bytearray:
    """One record batch, a record a value; all of the same time."""
    at = now_ms() if timestamp is None else timestamp
    return build_batch([Record(i, at, key, value, ()) for i, value in enumerate(values)], **more)


def now_ms() -> int:
    return int(time.time() * 1000)


def records_of(answer: Any) -> list[Record]:
    """All records of a fetched partition, whole batches only."""
    return [record for one in batches_of(answer) for record in one.records()]


def batches_of(answer: Any) -> list[Batch]:
    return list(batches(memoryview(bytes(answer.records or b""))))
