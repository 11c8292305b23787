"""How bytes get to a peer and from it: straight through the socket, or inside TLS (`server/security/tls_transport.py`).

A connection owns the socket and the queue of what is to be sent; a transport moves bytes between them. It never waits:
what the socket does not take or have now is tried again when the event loop says so.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla.log.files import FileRegion

_SEND_BUFFERS_MAX = 512
"""Buffers handed to one sendmsg: well under IOV_MAX (1024) everywhere."""

_LARGE_REGION = 32 << 10
"""From here on a part of a file is cheaper to send when its first packet does not begin with other bytes."""

_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class TransportError(Exception):
    """The connection cannot go on; the message says why, for the log."""


class HandshakeFailed(Exception):
    """The peer is not let in: what it brought is not accepted."""


class Transport(Protocol):
    """Raises BlockingIOError where nothing can be moved now, and OSError at the end of the connection."""

    @property
    def receive(self) -> Callable[[memoryview], int]:
        """Puts bytes into the given room and returns how many came, 0 at the end of the stream."""

    @property
    def can_poll(self) -> bool:
        """Whether looking for the next bytes costs a system call and no more (see `busy_poll`)."""

    @property
    def buffered(self) -> bool:
        """Whether there are received bytes inside, of which the socket says nothing any more."""

    @property
    def unsent(self) -> bool:
        """Whether the transport has something of its own to send."""

    def send(self, out: deque[Any]) -> None:
        """Send byte strings and file regions from the head of the queue on, and take out what the peer took."""


class PlainTransport:
    """Bytes as they are, and files without a copy through this process."""

    __slots__ = ("_fd", "_send", "_sendmsg", "receive")

    can_poll = True
    buffered = False
    unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self.receive: Callable[[memoryview], int] = sock.recv_into
        self._send = sock.send
        self._sendmsg = sock.sendmsg
        self._fd = sock.fileno()

    def send(self, out: deque[Any]) -> None:
        while out:
            head = out[0]
            if head.__class__ is FileRegion:
                self._send_region(out, head)
            elif len(out) == 1:
                sent = self._send(head)
                if sent < len(head):
                    out[0] = memoryview(head)[sent:]
                    return
                out.clear()
            elif not self._send_several(out):
                return

    def _send_several(self, out: deque[Any]) -> bool:
        """Send the byte strings at the head of the queue; False when the peer took less than all of them."""
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

    def _send_region(self, out: deque[Any], region: FileRegion) -> None:
        """Send the file bytes at the head of the queue straight from the page cache."""
        fd = region.fileno()
        if fd is None:
            out.popleft()
            out.extendleft(reversed(region.parts()))
            return
        while len(region):
            sent = os.sendfile(self._fd, fd, region.position, len(region))
            if sent == 0:
                raise file_too_short()
            region.skip(sent)
        region.release()
        out.popleft()


def file_too_short() -> TransportError:
    """The file was truncated under the read: the answer that was begun cannot be completed."""
    return TransportError("log file shorter than the answer that was begun")


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
