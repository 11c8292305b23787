"""An event loop in virtual time without threads, and connections without a network: the same run every time."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from support.async_wire import AsyncWire
from support.virtual_loop import VirtualLoop


class SimLoop(VirtualLoop):
    """Background work runs immediately: a thread would end at an unpredictable time."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
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
    """The connection is lost, and it is unknown whether the last request was served."""


class _PairStream:
    """The client's end of a socket pair, with the methods of asyncio's streams but without their transports."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()
        self._unsent = b""

    def write(self, data: bytes) -> None:
        self._unsent += data

    async def readexactly(self, size: int) -> bytes:
        try:
            unsent, self._unsent = self._unsent, b""
            if unsent:
                await self._loop.sock_sendall(self.socket, unsent)
            data = b""
            while len(data) < size:
                more = await self._loop.sock_recv(self.socket, size - len(data))
                if not more:
                    raise Lost("closed")
                data += more
        except OSError as error:
            raise Lost(str(error)) from error
        return data

    def close(self) -> None:
        self.socket.close()


class SimClient(AsyncWire):
    """One connection to a broker in the same process."""

    def __init__(self, broker: Any, number: int) -> None:
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        theirs.setblocking(False)
        stream = _PairStream(mine)
        super().__init__(stream, stream, "sim")
        self.socket = mine
        broker._connected(
            broker._listeners[0],
            _PairSocket(theirs.family, theirs.type, theirs.proto, theirs.detach()),
            ("127.0.0.1", 40_000 + number),
        )
