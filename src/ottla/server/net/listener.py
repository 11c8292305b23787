"""A listening socket: binds early, so that a port in use is found before anything changes, and accepts later."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from ottla.config import Listener
from ottla.system import check_loop

logger = logging.getLogger(__name__)

_ACCEPTS_PER_WAKEUP = 64
"""Connections accepted at once: a burst is handled quickly, and existing connections do not starve."""

_ACCEPT_PAUSE_S = 1.0
"""How long to leave connections in the kernel's queue when the process is out of file handles."""

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
_UNPACED = b"reno"
"""The congestion control that every Linux has and every user may choose. Between two processes of one machine there is
no network to protect, and BBR, the default of many servers, sends small timed pieces: twice the work per gigabyte."""


class ListenError(Exception):
    """A listener cannot be bound; the message says which and why."""


class BoundListener:
    """A bound address of the broker, and the accept loop on it."""

    def __init__(
        self,
        listener: Listener,
        backlog: int,
        send_buffer: int,
        receive_buffer: int,
        sock: socket.socket | None = None,
    ) -> None:
        self.config = listener
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._receive_buffer = receive_buffer
        self._sock = sock if sock is not None else bind(listener.host, listener.port)
        self.port: int = self._sock.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_connect: Callable[[BoundListener, socket.socket, tuple[str, int]], None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._held = False

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        on_connect: Callable[[BoundListener, socket.socket, tuple[str, int]], None],
    ) -> None:
        """Start to accept. Raises ListenError if another process took the address meanwhile."""
        self._loop = loop
        self._on_connect = on_connect
        listen(self._sock, self._backlog)
        check_loop(loop)
        loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._on_connect is not None
        for _ in range(_ACCEPTS_PER_WAKEUP):
            if self._held:
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause(error)
                    return
                raise
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if sock.getsockname()[0] == address[0]:
                    _send_unpaced(sock)
                if self._send_buffer > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
                if self._receive_buffer > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            except OSError:
                sock.close()
                continue
            self._on_connect(self, sock, address[:2])

    def _pause(self, error: OSError) -> None:
        """Out of file handles: log it and retry a little later; waiting connections stay queued."""
        assert self._loop is not None
        logger.error("cannot accept on %s: %s; trying again", self.config, error.strerror)
        self.hold(_ACCEPT_PAUSE_S)

    def hold(self, seconds: float | None = None) -> None:
        """Leave new connections in the kernel's queue, for a while or until `release`."""
        assert self._loop is not None
        if self._resume is not None:
            self._resume.cancel()
        if not self._held:
            self._held = True
            self._loop.remove_reader(self._sock.fileno())
        self._resume = None if seconds is None else self._loop.call_later(seconds, self.release)

    def release(self) -> None:
        """Accept again."""
        if not self._held or self._loop is None or self._sock.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._resume = None
        self._held = False
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
        if self._resume is not None:
            self._resume.cancel()
        self._sock.close()


def _send_unpaced(sock: socket.socket) -> None:
    """Disable congestion control for a client on this machine, if the system allows it."""
    if _TCP_CONGESTION is not None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _UNPACED)


def not_bound(host: str, port: int, error: OSError) -> ListenError:
    """The error for an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:  # shorter than asyncio's message
        advice = "is another broker running? Port 0 chooses a free one"
        return ListenError(f"cannot listen on {host}:{port}: Address already in use ({advice})")
    return ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def bind(host: str, port: int) -> socket.socket:
    """A socket on an address, not listening yet; raises ListenError."""
    host = host or "0.0.0.0"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            # As a `str`, the host would make Python load the tables for international names.
            host.encode() if host.isascii() else host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise not_bound(host, port, error) from error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise not_bound(host, port, error) from error
    return sock


def listen(sock: socket.socket, backlog: int) -> None:
    """Listen on a bound socket. Two processes can bind one port at the same time, because of SO_REUSEADDR; only the
    first of them can listen. Raises ListenError for the other.
    """
    try:
        sock.listen(backlog)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        sock.close()
        raise not_bound(host, port, error) from error
