"""How bytes travel to and from a peer: directly through the socket, or inside TLS (`server/security/tls_transport.py`).

A connection owns the socket and the queue of what is to be sent; a transport moves bytes between them. It never waits:
if the socket is not ready, the event loop triggers a retry.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla import system
from ottla.log.files import FileRegion
from ottla.server.net.turns import SEND_BYTES

_SEND_BUFFERS_MAX = 512
"""Buffers passed to one sendmsg: well under IOV_MAX (1024) everywhere."""

_LARGE_REGION = 32 << 10
"""From this size on, a file region is cheaper to send if its first packet does not begin with other bytes."""

_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class TransportError(Exception):
    """The connection cannot continue; the message is for the log."""


class HandshakeFailed(Exception):
    """The peer is refused in the handshake."""


class Transport(Protocol):
    """Raises BlockingIOError if nothing can be moved now, and OSError at the end of the connection."""

    @property
    def receive(self) -> Callable[[memoryview], int]:
        """Receive bytes into `room` and return how many; 0 at the end of the stream."""

    @property
    def can_poll(self) -> bool:
        """Whether polling for the next bytes costs only a system call (see `busy_poll`)."""

    @property
    def buffered(self) -> bool:
        """Whether the transport holds received bytes that the socket will not report again."""

    @property
    def unsent(self) -> bool:
        """Whether the transport itself has bytes to send, such as a TLS handshake."""

    def send(self, out: deque[Any]) -> None:
        """Send byte strings and file regions from the head of the queue, and remove what was sent.

        The rest is sent in the next turn.
        """


class PlainTransport:
    """Plain bytes, and files without a copy through this process."""

    __slots__ = ("_send", "_sendmsg", "_sock", "receive")

    can_poll = True
    buffered = False
    unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self.receive: Callable[[memoryview], int] = sock.recv_into
        self._send = sock.send
        self._sendmsg = system.sendmsg_of(sock)
        self._sock = sock

    def send(self, out: deque[Any]) -> None:
        left = SEND_BYTES
        while out:
            head = out[0]
            if head.__class__ is FileRegion:
                left -= self._send_region(out, head, left)
                if left <= 0:
                    return
            elif len(out) == 1:
                sent = self._send(head)
                if sent < len(head):
                    out[0] = memoryview(head)[sent:]
                    return
                out.clear()
            elif not self._send_several(out):
                return

    def _send_several(self, out: deque[Any]) -> bool:
        """Send the byte strings at the head of the queue; False if the peer accepted only a part."""
        buffers, flags = _next_buffers(out)
        sent = self._send(buffers[0], flags) if len(buffers) == 1 else self._sendmsg(buffers, (), flags)
        for buffer in buffers:
            length = len(buffer)
            if sent < length:
                out[0] = memoryview(buffer)[sent:]
                return False
            out.popleft()
            sent -= length
        return True

    def _send_region(self, out: deque[Any], region: FileRegion, at_most: int) -> int:
        """Send the file bytes at the head of the queue directly from the page cache; returns how many."""
        fd = region.fileno()
        if fd is None:
            out.popleft()
            out.extendleft(reversed(region.parts()))
            return 0
        left = at_most
        while len(region) and left > 0:
            sent = system.sendfile(self._sock, fd, region.position, min(len(region), left))
            if sent == 0:
                raise file_too_short()
            region.skip(sent)
            left -= sent
        if not len(region):
            region.release()
            out.popleft()
        return at_most - left


def file_too_short() -> TransportError:
    """The file was truncated during the read: the answer cannot be completed."""
    return TransportError("the log file is shorter than the answer in progress")


def _next_buffers(out: deque[Any]) -> tuple[list[bytes | memoryview], int]:
    """The byte strings at the head of the queue, and the flags to send them with."""
    buffers: list[bytes | memoryview] = []
    for item in out:
        if len(buffers) == _SEND_BUFFERS_MAX:
            break
        if item.__class__ is FileRegion:
            return buffers, _MSG_MORE if len(item) < _LARGE_REGION else 0
        buffers.append(item)
    return buffers, 0
