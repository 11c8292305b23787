"""A small blocking client: enough of the protocol to prepare a load, drive it, and check that it arrived."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from ottla.bench.model import NotServed
from ottla.enums import CoordinatorType, IsolationLevel, OffsetTimestamp
from ottla.errors import NONE, KafkaError, error_for
from ottla.wire.frames import RequestHeader, encode_request, response_header_version
from ottla.wire.messages import (
    RESPONSES,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
)

CLIENT_ID = "ottla-bench"
TIMEOUT_SECONDS = 60.0
SIZE = struct.Struct(">i")

# Versions that Kafka 3.9 and 4.3 both serve. They use topic names instead of ids, so frames can be pre-encoded.
PRODUCE_VERSION = 9
FETCH_VERSION = 12
METADATA_VERSION = 9
LIST_OFFSETS_VERSION = 6

T = TypeVar("T")


def connect(address: tuple[str, int], timeout_seconds: float | None = TIMEOUT_SECONDS) -> socket.socket:
    sock = socket.create_connection(address, timeout=timeout_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def frame(request: Any, version: int, correlation_id: int = 0) -> bytes:
    """The encoded request, including its length prefix."""
    return encode_request(request, version, correlation_id, CLIENT_ID)


def receive_exactly(sock: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view, position = memoryview(buffer), 0
    while position < size:
        received = sock.recv_into(view[position:])
        if not received:
            raise ConnectionError("the broker closed the connection")
        position += received
    return buffer


def receive_frame(sock: socket.socket) -> bytearray:
    (size,) = SIZE.unpack(receive_exactly(sock, 4))
    return receive_exactly(sock, size)


def decode_response(api_key: int, version: int, payload: bytes | bytearray) -> Any:
    """Decode a response frame without its length prefix."""
    header_size = 4 + response_header_version(api_key, version)
    return RESPONSES[api_key].decode(memoryview(payload)[header_size:], version)


class Client:
    """One connection. It asks for the broker's versions before it sends anything else."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self.sock = connect(address, timeout_seconds)
        response = self._exchange(ApiVersionsRequest(), 0)
        self.served = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def _exchange(self, request: Any, version: int) -> Any:
        self.sock.sendall(frame(request, version))
        return decode_response(request.API_KEY, version, receive_frame(self.sock))

    def require(self, request_type: Any, version: int) -> None:
        low, high = self.served.get(request_type.API_KEY, (0, -1))
        if not low <= version <= high:
            raise NotServed(f"{request_type.__name__.removesuffix('Request')} v{version}")

    def call(self, request: Any, version: int) -> Any:
        self.require(type(request), version)
        return self._exchange(request, version)

    def create_topics(self, names: list[str], partitions: int, configs: dict[str, str] | None = None) -> None:
        topic, config = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableTopicConfig
        overrides = [config(name=key, value=value) for key, value in (configs or {}).items()]
        request = CreateTopicsRequest(
            topics=[
                topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=overrides)
                for name in names
            ],
            timeout_ms=60_000,
        )
        for result in self.call(request, 5).topics:
            raise_for(result.error_code)
        self.await_leaders(names)

    def await_leaders(self, names: list[str]) -> None:
        """Wait until the topics have leaders: Kafka announces a topic shortly before it accepts writes to it."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])

        def ready() -> bool:
            topics = self.call(request, METADATA_VERSION).topics
            return all(
                topic.error_code == NONE and topic.partitions and all(each.leader_id >= 0 for each in topic.partitions)
                for topic in topics
            )

        wait_until(ready, "leaders of new topics")

    def leaders(self, topic: str) -> list[tuple[str, int]]:
        """The address of each partition's leader. For a single broker that is the address of this connection."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        answer = self.call(request, METADATA_VERSION)
        nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        (found,) = answer.topics
        raise_for(found.error_code)
        partitions = sorted(found.partitions, key=lambda each: each.partition_index)
        return [self.address if len(nodes) == 1 else nodes[each.leader_id] for each in partitions]

    def coordinator(self, key: str, kind: Literal["group", "transaction"]) -> tuple[str, int]:
        """The address of the coordinator of a group or a transactional id."""
        found: list[Any] = []

        def find() -> None:
            answer = self.call(FindCoordinatorRequest(key=key, key_type=CoordinatorType[kind.upper()]), 2)
            raise_for(answer.error_code)
            found.append(answer)

        retried(find)
        answer = self.call(MetadataRequest(topics=[]), METADATA_VERSION)
        return self.address if len(answer.brokers) == 1 else (found[0].host, found[0].port)

    def delete_topics(self, names: list[str]) -> None:
        for result in self.call(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 4).responses:
            raise_for(result.error_code)

    def await_coordinator(self, key: str, kind: Literal["group", "transaction"]) -> None:
        """Wait for a coordinator: on a new broker, look-ups fail until the first one has created the internal topic."""
        request = FindCoordinatorRequest(key=key, key_type=CoordinatorType[kind.upper()])

        def find() -> None:
            raise_for(self.call(request, 2).error_code)

        retried(find)

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        offsets: dict[int, int] = {}
        leaders = self.leaders(topic)[:partitions]
        for address in dict.fromkeys(leaders):
            led = [index for index, leader in enumerate(leaders) if leader == address]
            if address == self.address:
                offsets |= self._end_offsets(topic, led)
            else:
                with Client(address) as client:
                    offsets |= client._end_offsets(topic, led)
        return [offsets[index] for index in range(partitions)]

    def _end_offsets(self, topic: str, partitions: list[int]) -> dict[int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=OffsetTimestamp.LATEST)
                        for index in partitions
                    ],
                )
            ],
        )
        found = self.call(request, LIST_OFFSETS_VERSION).topics[0].partitions
        for partition in found:
            raise_for(partition.error_code)
        return {partition.partition_index: partition.offset for partition in found}


def raise_for(error_code: int) -> None:
    if error_code:
        raise error_for(error_code)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0, pause_seconds: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause_seconds)


def retried(call: Callable[[], T], seconds: float = 60.0, pause_seconds: float = 0.02) -> T:
    """Repeat a call while the broker answers with a retriable error, as every client does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
        time.sleep(pause_seconds)


__all__ = ["Client", "RequestHeader", "connect", "decode_response", "frame", "receive_frame", "retried", "wait_until"]
