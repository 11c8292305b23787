"""The synchronous frame client: frames over a blocking socket. It does not retry, cache metadata or choose versions."""

import socket
import struct
from collections.abc import Iterable
from typing import Any, Self

from ottla.enums import OffsetTimestamp
from ottla.errors import CoordinatorLoadInProgress
from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.schema import Message
from support.frames import Frames
from support.requests import (
    create_topic_request,
    fetch_request,
    list_offsets_request,
    metadata_request,
    new_producer_request,
    produce_request,
)
from support.waiting import NO_COORDINATOR_YET, NO_LEADER_YET, ask_until_ready

TIMEOUT_S = 30
# The newest versions that Apache Kafka 3.9 also has, and the last ones with topic names instead of ids.
PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION, METADATA_VERSION = 11, 12, 9, 12


class Wire:
    """One connection. A test can call `send` and `receive` separately to pipeline requests."""

    def __init__(self, address: tuple[str, int], client_id: str | None = "wire", timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.client_id = client_id
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = Frames()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- frames

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(
        self, request: Message, version: int, answered: bool = True, changes: Iterable[tuple[bytes, bytes]] = ()
    ) -> int:
        """Returns the correlation id. `changes`: see `Frames.encode`."""
        self.send_bytes(self._frames.encode(request, version, self.client_id, answered=answered, changes=changes))
        return self._frames.correlation_id

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
        return self._frames.decode(self.receive_frame())

    def call(self, request: Message, version: int, *changes: tuple[bytes, bytes]) -> Any:
        self.send(request, version, changes=changes)
        return self.receive()

    def is_closed(self) -> bool:
        """Waits until the broker closes the connection; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # -- the requests that most tests make

    def log_in(self, user: str, password: str | None = None) -> None:
        """Log in with SASL PLAIN. The default password of "alice" is "alice-secret"."""
        assert self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{user}\0{password or user + '-secret'}".encode()
        response = self.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert response.error_code == 0, response

    def produce(
        self, topic: str, records: Any, partition: int = 0, version: int = PRODUCE_VERSION, acks: int = -1, **more: Any
    ) -> Any:
        """Returns the partition's response, or None for acks=0."""
        topic_id = self.topic_id(topic) if version >= 13 else ZERO_UUID
        request = produce_request(topic, records, partition=partition, acks=acks, topic_id=topic_id, **more)
        self.send(request, version, answered=acks != 0)
        if acks == 0:
            return None
        return self.receive().responses[0].partition_responses[0]

    def fetch_request(self, places: Iterable[tuple[str, int, int]], version: int = FETCH_VERSION, **more: Any) -> Any:
        """A request for each (topic, partition, offset), with the topic ids that new versions need."""
        places, forgotten = list(places), list(more.get("forgotten", ()))
        names = {topic for topic, *_ in (*places, *forgotten)}
        ids = {topic: self.topic_id(topic) for topic in sorted(names)} if version >= 13 else None
        return fetch_request(places, topic_ids=ids, **{**more, "forgotten": forgotten})

    def fetch(self, topic: str, offset: int, partition: int = 0, version: int = FETCH_VERSION, **more: Any) -> Any:
        """The partition's answer."""
        response = self.call(self.fetch_request([(topic, partition, offset)], version, **more), version)
        return response.responses[0].partitions[0]

    def list_offsets(
        self, topic: str, timestamp: int, partition: int = 0, version: int = LIST_VERSION, **more: Any
    ) -> Any:
        """The partition's answer."""
        return self.call(list_offsets_request(topic, timestamp, partition, **more), version).topics[0].partitions[0]

    def metadata(self, *topics: str, version: int = METADATA_VERSION, create: bool = False) -> Any:
        return self.call(metadata_request(*topics, create=create), version)

    def topic_id(self, topic: str) -> bytes:
        found: bytes = self.metadata(topic).topics[0].topic_id
        return found

    def create_topic_result(self, topic: str, partitions: int = 1, version: int = 7, **configs: Any) -> Any:
        """Asks for a topic and returns its result, which may be an error."""
        return self.call(create_topic_request(topic, partitions, **configs), version).topics[0]

    def create_topic(self, topic: str, partitions: int = 1, **configs: Any) -> str:
        """Creates a topic and returns when it accepts writes. Apache Kafka needs a moment for this."""
        made = self.create_topic_result(topic, partitions, **configs)
        assert made.error_code == 0, made
        self.wait_until_ready(topic, partitions)
        return topic

    def wait_until_ready(self, topic: str, partitions: int = 1) -> None:
        for partition in range(partitions):

            def end(partition: int = partition) -> Any:
                return self.list_offsets(topic, OffsetTimestamp.LATEST, partition)

            ask_until_ready(end, (*NO_LEADER_YET, *NO_COORDINATOR_YET))

    def producer_id(self, version: int = 4) -> tuple[int, int]:
        """A fresh producer id and its epoch."""
        # A broker that has just started may have no block of ids yet.
        made = ask_until_ready(lambda: self.call(new_producer_request(), version), (CoordinatorLoadInProgress.code,))
        assert made.error_code == 0, made
        return made.producer_id, made.producer_epoch
