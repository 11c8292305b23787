"""An event loop in virtual time without threads, and connections without a network: the same run every time."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

from ottla.clock import VirtualLoop
from ottla.wire.frames import decode_response_header, encode_request, response_header_version
from ottla.wire.messages import RESPONSES


class SimLoop(VirtualLoop):
    """Background work is done at once: a thread would end when it likes."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _PairSocket(socket.socket):
    """One end of a socket pair that looks like TCP: what one end writes, the other can read at once."""

    def getsockname(self) -> Any:
        return ("127.0.0.1", 9092)


class Lost(Exception):
    """The connection is gone, and nobody knows whether the last request was served."""


class SimClient:
    """One connection to a broker in the same process; requests one at a time."""

    def __init__(self, broker: Any, number: int) -> None:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        theirs.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._sock = mine
        self._correlation = 0
        broker._connected(
            broker._listeners[0],
            _PairSocket(theirs.family, theirs.type, theirs.proto, theirs.detach()),
            ("127.0.0.1", 40_000 + number),
        )

    async def call(self, request: Any, version: int) -> Any:
        self._correlation += 1
        try:
            await self._loop.sock_sendall(self._sock, encode_request(request, version, self._correlation, "sim"))
            frame = await self._exactly(struct.unpack(">i", await self._exactly(4))[0])
        except OSError as error:
            raise Lost(str(error)) from error
        correlation, position = decode_response_header(frame, response_header_version(request.API_KEY, version))
        assert correlation == self._correlation
        return RESPONSES[request.API_KEY].decode(memoryview(frame)[position:], version)

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self._loop.sock_recv(self._sock, size - len(data))
            if not more:
                raise Lost("closed")
            data += more
        return data

    def close(self) -> None:
        self._sock.close()
