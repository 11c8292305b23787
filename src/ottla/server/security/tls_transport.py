"""A transport inside TLS: between two memory buffers, so that frames, back-pressure and long polls work as without
TLS. File bytes must go through user space here: they are read and encrypted in chunks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from ottla import system
from ottla.log.files import FileRegion
from ottla.server.net.transport import HandshakeFailed, TransportError, file_too_short
from ottla.server.net.turns import ENCRYPT_BYTES

_CHUNK_BYTES = 256 << 10
"""File bytes encrypted at a time: many TLS records (16 KB each) in one system call, and little memory per
connection.
"""

CIPHER_BYTES = 256 << 10
"""Bytes received at a time; one buffer serves all connections."""


HANDSHAKES_NS = 5_000_000
"""The time for handshakes in one turn of the event loop. Each handshake needs a signature: if a thousand arrived at
once, all other connections would wait for a thousand signatures."""


class HandshakeTurns:
    """Limits the time that handshakes take before other connections are served again. One per broker."""

    __slots__ = ("_loop", "_spent_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spent_ns = 0

    @property
    def is_over(self) -> bool:
        """Whether the next handshake has to wait for the next turn of the loop."""
        return self._spent_ns >= HANDSHAKES_NS

    def spent(self, ns: int) -> None:
        if not self._spent_ns:
            self._loop.call_soon(self._next)
        self._spent_ns += max(ns, 1)

    def _next(self) -> None:
        self._spent_ns = 0


class TlsTransport:
    """The server's end of one TLS session."""

    can_poll = False

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, cipher_buffer: memoryview, handshakes: HandshakeTurns
    ) -> None:
        self._sock = sock
        self._handshakes = handshakes
        self._cipher_buffer = cipher_buffer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: memoryview | None = None
        """Encrypted bytes that the socket has not accepted yet."""
        self._is_open = False
        self.on_open: Callable[[bytes | None], None] | None = None
        """Called once with the peer's certificate in DER, or None, when the handshake is done. Nothing is decrypted
        before it returns; an exception ends the connection."""

    # -- receiving -----------------------------------------------------------------------------------------------

    @property
    def buffered(self) -> bool:
        return bool(self._incoming.pending or self._tls.pending())

    def receive(self, room: memoryview) -> int:
        if self._is_open and self.buffered and (filled := self._decrypt(room)) is not None:
            return filled
        if not self._is_open and self._handshakes.is_over:
            raise BlockingIOError  # the socket stays readable, so the loop calls again
        received = self._sock.recv_into(self._cipher_buffer)
        if received == 0:
            return 0
        self._incoming.write(self._cipher_buffer[:received])
        if not self._is_open:
            self._shake_hands()
        filled = self._decrypt(room)
        if filled is None:
            raise BlockingIOError
        return filled

    def _decrypt(self, room: memoryview) -> int | None:
        """Put decrypted bytes into `room`: how many, 0 at the end of the session, None if more must be received."""
        filled, size = 0, len(room)
        try:
            while filled < size:
                count: Any = self._tls.read(size - filled, room[filled:])  # a count, because it got a buffer
                if not count:
                    if filled == 0:
                        self._say_goodbye()
                        return 0
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if filled == 0:
                raise TransportError(f"TLS: {error.reason}") from None
        return filled or None

    def _say_goodbye(self) -> None:
        """The peer ended the session: so do we."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()

    def _shake_hands(self) -> None:
        began_ns = perf_counter_ns()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise HandshakeFailed(str(error.reason or error)) from None
        finally:
            self._handshakes.spent(perf_counter_ns() - began_ns)
        # Not the parsed form: it fails on an alternative name that is not text.
        if self.on_open is not None:
            self.on_open(self._tls.getpeercert(binary_form=True))
        self._is_open = True

    # -- sending -------------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> bool:
        return self._unsent is not None or self._outgoing.pending > 0

    def send(self, out: deque[Any]) -> None:
        """The item at the head of the queue stays until its last encrypted byte is sent."""
        left = ENCRYPT_BYTES
        try:
            while self._push() and left > 0:
                if out and len(out[0]) == 0:
                    item = out.popleft()
                    if item.__class__ is FileRegion:
                        item.release()
                if not out:
                    return
                left -= self._encrypt_head(out)
        finally:
            if self._unsent is not None and not out:
                out.append(b"")  # keeps the connection busy until the handshake's bytes are sent

    def _push(self) -> bool:
        """Write encrypted bytes to the socket; False if it did not accept all."""
        cipher = self._unsent
        while True:
            if cipher is None:
                if not self._outgoing.pending:
                    return True
                cipher = memoryview(self._outgoing.read())
            self._unsent = cipher
            sent = self._sock.send(cipher)
            if sent < len(cipher):
                self._unsent = cipher[sent:]
                return False
            self._unsent = cipher = None

    def _encrypt_head(self, out: deque[Any]) -> int:
        """Encrypt the next piece of the queue; small consecutive answers are combined.

        Returns the number of bytes.
        """
        head = out[0]
        if head.__class__ is FileRegion:
            fd = head.fileno()
            if fd is None:
                out.popleft()
                out.extendleft(reversed(head.parts()))
                return 0
            chunk = system.pread(fd, min(len(head), _CHUNK_BYTES), head.position)
            if not chunk:
                raise file_too_short()
            self._tls.write(chunk)
            head.skip(len(chunk))
            return len(chunk)
        size = 0
        while out and out[0].__class__ is not FileRegion and size < _CHUNK_BYTES:
            piece = memoryview(out[0])[:_CHUNK_BYTES]
            if len(piece):
                self._tls.write(piece)
            size += len(piece)
            if len(piece) < len(out[0]):
                out[0] = memoryview(out[0])[len(piece) :]
                return size
            out.popleft()
        out.appendleft(b"")
        return size
