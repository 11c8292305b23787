"""Cuts a stream of bytes into frames, without input or output.

A frame is a size (four bytes) and that many bytes. The reader provides space for the next bytes (`room`), is notified
of how many arrived (`received`), and returns complete frames (`next`):

    count = transport.receive(reader.room)
    reader.received(count)
    while (frame := reader.next()) is not None:
        serve(frame)

Bytes are received into the buffer that all connections share, and a complete frame is served from there without a
copy. A partial frame gets its own buffer, and `room` is then the missing part of it. A
caller that stops in the middle of several frames calls `keep`, because the shared buffer is about to be used by others.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.net.buffers import ReceiveBuffers

_SIZE = Struct(">i").unpack_from
_SIZE_BYTES = 4

FRAME_BYTES_MIN = 10
"""A request header without a client id."""


class FrameError(Exception):
    """An invalid frame size; the rest of the stream cannot be read."""


class FrameReader:
    """One connection's position in its stream of frames."""

    __slots__ = (
        "_buffers",
        "_have",
        "_need",
        "buffer",
        "end",
        "frame_max",
        "frame_min",
        "partial",
        "room",
        "start",
    )

    def __init__(self, buffers: ReceiveBuffers, frame_min: int, frame_max: int) -> None:
        self._buffers = buffers
        self.partial: memoryview | None = None
        """The pooled buffer of a frame that arrives in pieces, and how much of it has arrived."""
        self._have = 0
        self._need = 0
        """The size of the last frame that arrived in pieces, with its size field."""
        self.frame_min = frame_min
        self.frame_max = frame_max
        self.room = buffers.shared
        """Where the next bytes belong."""
        self.buffer = buffers.shared
        self.start = 0
        self.end = 0
        """The bytes that were received but not returned yet: buffer[start:end]."""

    def expect_pieces(self, piece_bytes: int) -> None:
        """At most `piece_bytes` are received at once. If frames are larger, receive the size of the next one alone:
        then its own buffer receives all of it, and nothing has to be moved."""
        if self._need > piece_bytes and self.partial is None:
            self.partial, self._have = self._buffers.take(_SIZE_BYTES), 0
            self.room = self.partial[:_SIZE_BYTES]

    def wanted(self) -> int:
        """How much of `room` the current frame needs, after its size was received."""
        if self.partial is not None:
            return len(self.room)
        size: int = _SIZE(self.room, 0)[0]
        return min(_SIZE_BYTES + max(0, size), len(self.room))

    def received(self, count: int) -> None:
        """`count` bytes were put into `room`."""
        own = self.partial
        if own is None:
            self.buffer, self.start, self.end = self.room, 0, count
            return
        self._have += count
        if count < len(self.room):
            self.room = self.room[count:]
        else:
            self.buffer, self.start, self.end = own, 0, self._have

    def next(self) -> memoryview | None:
        """The next complete frame, without its size; None if more bytes are needed. Raises FrameError."""
        start, end = self.start, self.end
        size = -1
        if end - start >= _SIZE_BYTES:
            size = _SIZE(self.buffer, start)[0]
            if not self.frame_min <= size <= self.frame_max:
                raise FrameError(
                    f"frame of {size} bytes, allowed are {self.frame_min} to {self.frame_max} "
                    "(socket.request.max.bytes)"
                )
            stop = start + _SIZE_BYTES + size
            if stop <= end:
                self.start = stop
                return self.buffer[start + _SIZE_BYTES : stop]
        if start < end:
            self._begin_partial(size)
        elif self.buffer is self.partial:
            self._release()
        return None

    def _begin_partial(self, size: int) -> None:
        """Move the beginning of a frame into its own buffer, or into a buffer for the size while the size is
        unknown."""
        rest = self.buffer[self.start : self.end]
        have = len(rest)
        need = _SIZE_BYTES + size if size >= 0 else _SIZE_BYTES
        own = self._buffers.take(need)
        own[:have] = rest
        self._release()
        self.partial, self._have, self._need = own, have, need
        self.room = own[have:need]
        self.buffer, self.start, self.end = self._buffers.shared, 0, 0

    def keep(self) -> None:
        """Keep the bytes that were not returned yet, for the next call of `next`."""
        is_own = self.buffer is self.partial
        if self.start < self.end and (is_own or self.buffer is self._buffers.shared):
            rest = memoryview(bytearray(self.buffer[self.start : self.end]))
            self.buffer, self.start, self.end = rest, 0, len(rest)
        if is_own:
            self._release()

    def _release(self) -> None:
        """Give the frame's buffer back to the pool: its content was returned or copied."""
        if self.partial is not None:
            self._buffers.give_back(self.partial)
            self.partial = None
            self.room = self._buffers.shared

    def close(self) -> None:
        self.start = self.end = 0
        self._release()
