"""The asynchronous frame client: frames over asyncio streams, or over anything that reads and writes like them."""

import asyncio
import ssl
import struct
from contextlib import suppress
from typing import Any, Self

from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.schema import Message
from support.batches import fixed_batch
from support.frames import Frames, sized
from support.requests import create_topic_request, fetch_request, produce_request

CLIENT_ID = "test"


class AsyncWire:
    """One connection. A test can call `send` and `receive` separately to pipeline requests."""

    def __init__(self, reader: Any, writer: Any, client_id: str | None = CLIENT_ID) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = client_id
        self.frames = Frames()

    @classmethod
    async def connect(cls, host: str, port: int, context: ssl.SSLContext | None = None) -> Self:
        name = "localhost" if context is not None else None
        return cls(*await asyncio.open_connection(host, port, ssl=context, server_hostname=name))

    def disconnect(self) -> None:
        """Closes the connection without waiting."""
        self.writer.close()

    async def close(self) -> None:
        self.disconnect()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()

    # -- frames

    def frame(self, request: Message, version: int, client_id: str | None = None, *, answered: bool = True) -> bytes:
        """The bytes of a request, for the test to send."""
        return self.frames.encode(request, version, client_id or self.client_id, answered=answered)

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, request: Message, version: int, client_id: str | None = None, *, answered: bool = True) -> None:
        self.send_bytes(self.frame(request, version, client_id, answered=answered))

    async def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame: bytes = await self.reader.readexactly(size)
        return frame

    async def receive(self) -> Any:
        return self.frames.decode(await self.receive_frame())

    async def call(self, request: Message, version: int, client_id: str | None = None) -> Any:
        self.send(request, version, client_id)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Waits until the broker closes the connection; False if it answers instead."""
        try:
            return bool(await self.reader.read(1) == b"")
        except (ConnectionError, ssl.SSLError):
            return True

    # -- SASL

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.call(SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.call(SaslAuthenticateRequest(auth_bytes=token), version)

    async def bare_token(self, token: bytes) -> bytes:
        """A token in a frame without a header, as after a handshake of version 0."""
        self.send_bytes(sized(token))
        return await self.receive_frame()

    async def log_in(self, user: str, password: str | None = None) -> Any:
        """Log in with SASL PLAIN. The default password of "alice" is "alice-secret". Returns the answer."""
        assert (await self.handshake("PLAIN")).error_code == 0
        return await self.token(f"\0{user}\0{password or user + '-secret'}".encode())

    # -- the requests that most tests make

    async def create_topic_result(self, name: str, partitions: int = 1, **configs: Any) -> Any:
        """Asks for a topic and returns its result, which may be an error."""
        return (await self.call(create_topic_request(name, partitions, **configs), 7)).topics[0]

    async def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        made = await self.create_topic_result(name, partitions, **configs)
        assert made.error_code == 0, made

    async def produce(self, topic: str, *values: bytes, version: int = 9, acks: int = -1, partition: int = 0) -> Any:
        """Returns the partition's response."""
        request = produce_request(topic, fixed_batch(*values), acks=acks, partition=partition, timeout_ms=1000)
        return (await self.call(request, version)).responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> Any:
        """Returns the whole response."""
        request = fetch_request([(topic, 0, offset)], max_bytes=max_bytes, partition_max_bytes=max_bytes)
        return await self.call(request, 11)
